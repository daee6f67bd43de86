"""Draws of what stays random in the limit: scores, and variables that depend on them.

In goes the recursion of `moment` and standard normals: streams of a seed or quasi-random points (`normals`).  Out come
values of the variables asked for, from `layers`: given all that is drawn, the recursion has moments for each draw; from
`perturbed` with averages over coordinates moved as a finite width moves them.
`draws` is what `law.sample` fills.
"""
