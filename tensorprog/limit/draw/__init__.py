"""Draws of what stays random in the limit: scores, variables that depend on them, and widths that stay finite.

One engine serves one layer of scores and many.  `Draws(recursion, wanted)` says which standard normals make one draw of
all that is random upstream of the variables wanted: `dim` of them.  `Draws.at(points)` takes normals, a row for each
draw, and gives `Conditioned`: the recursion of `moment` once more, in which every value has an axis of draws.  It walks
through the program layer by layer, and in each draw

    moments    E[x x'] of the vectors that a layer reads are known, since all scores before it are
    factors    of the covariances that the layer's weights make of them are triangular (`factors`); one serves all draws
               where nothing random stands behind it
    scores     are factors times normals, a bilinear form q.k = e^T G f, or come jointly where their operands are
               functions of products (`joint_scores`); those that are too many to hold are drawn as they are read
    finite     vectors of a width that stays are drawn coordinate by coordinate, and averages over them taken

and so the next layer's moments are known.  At the end `Conditioned` has means, variances and covariances given the
draws, which `law` averages over quasi-random points; for `law.sample`, the same walk with normals from the streams of a
seed (`normals`) ends in one coordinate of each vector, which `sampled` holds.

`statements` knows in which order members are made and which weights they depend on, so that a layer costs the same at
every depth; `perturbed` is the same engine with averages moved as a finite width moves them.
"""
