"""What users ask of a limit: moments, densities, quantiles and draws of its variables, with errors.

In goes a program, through the recursion of `moment` and the draws of `draw`; out come numbers, each with its error.

    law                   the questions; answers in closed form where there is one
    marginals             questions about one variable
    heads                 sums over alike heads, of which one is averaged, or infinitely many
    outputs               averages over draws of scores: laws of one variable, joint laws, covariances
    conditional_moments   what is averaged: means and covariances given the draws, or scores; errors from replicates
    mixture               densities and distribution functions from what was averaged

`structured_covariance` is what `law.cov` returns, `by_layer` the tokens of every layer given draws, `summary` a law and
its quantities in words.
"""
