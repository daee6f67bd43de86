"""Draws of what stays random in the limit: scores, and variables that depend on them.

In goes the recursion of `moment` and standard normals: streams of a seed or quasi-random points (`normals`).  Out come
values of the variables asked for: behind one layer of scores from `sampler`, behind several layers, or of widths that
stay finite, from `layers`, and from `perturbed` with averages over coordinates moved as a finite width moves them.
`draws` is what `law.sample` fills.
"""
