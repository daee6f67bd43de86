"""Draws of what stays random in the limit: scores, variables that depend on them, and widths that stay finite.

One engine serves one layer of scores and many.  `Draws(recursion, wanted)` says which standard normals make one draw of
all that is random upstream of the variables wanted: `dim` of them.  `Draws.at(points)` takes normals, a row for each
draw, and gives `Conditioned`: the recursion of `moment` once more, in which every value has an axis of draws.  It walks
through the program layer by layer, and in each draw

(1) the moments E[x x'] of the vectors that a layer reads are known, since all scores before it are;
(2) the covariances that the layer's weights make of them are factored; one factor serves all draws where nothing random
    stands behind it;
(3) scores are factors times normals, a bilinear form q.k = e^T G f, or come jointly where their operands are functions
    of products; those that are too many to hold are drawn as they are read;
(4) vectors of a width that stays finite are drawn coordinate by coordinate, and averages over them are taken;

and so the next layer's moments are known.  At the end `Conditioned` has means, variances and covariances given the
draws, which `law` averages over quasi-random points; for `law.sample`, the same walk with normals from the streams of a
seed ends in one coordinate of each vector.

    draws         which normals make a draw; the moments given them, and what `law.sample` returns
    conditioned   the recursion given draws: the walk
    factors       triangular factors of covariances, one where all draws share it; scores that come jointly;
                  normals, points given beforehand or streams of a seed
    statements    what each step makes, of which weights, so that a layer costs the same at every depth
    perturbed     the same engine, averages moved as a finite width moves them
"""
