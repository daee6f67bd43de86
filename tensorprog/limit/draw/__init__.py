"""Draws of what stays random in the limit: scores, and variables that depend on them.

In goes the recursion of `moment` and standard normals: streams of a seed or quasi-random points (`normals`).  Out come
values of the variables asked for: behind one layer of scores from `sampler`, behind several layers, or of widths that
stay finite, from `layers`, and with averages over coordinates moved as widths move them from `perturbed`.  `draws` is what `law.sample` fills.
"""
