"""The infinite-width limit: Definition 1 compiled, sampled and asked for numbers.

In goes a program, a `Netsor`; out comes a law, which answers questions with numbers and errors, or formulas.  Each room
imports from those above it only:

    memory     what a law may take of memory
    form       what the recursion reads: families and their definitions, vectors as sums of functions of Gaussians
    moment     Definition 1: second moments, covariances of scores, averages
    draw       draws of scores, and of what stands behind them
    law        what users ask: moments, densities, quantiles, draws
    formulas   the same recursion in sympy

Nothing here draws networks or knows of `finite`.  Of `check` it knows the exact rewrites alone.
"""
