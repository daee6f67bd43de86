"""Definition 1: second moments of vectors, covariances of scores and averages, with errors, as structured terms.

In goes a program; out comes a `NumericRecursion`, which is asked for the second moment of two families, the covariance
of two scores, or an average.  The answers are sums of 1[equations between indices] * value, so that families stay
families.

    recursion          Definition 1, clause by clause, for values of any kind
    indexed            those sums, for values of any kind
    values             values that are arrays of numbers with errors, over named axes
    numbers            the recursion with such values
    products           E of a product of functions: independent blocks, each asked of `gaussian`
    numeric_recursion  the recursion in numbers as laws hold it, with special routes for the next three
    recurrences        step by step: each step fills a row of every covariance
    points             vectors at quasi-random points: cells of LSTMs, batch normalisation, functions of many sums
    onsager            coefficients of the terms of a matrix beside its transpose, where they are exact
    compilable         what is refused, from the statements alone

`formulas.recursion` is the same recursion with formulas for values.
"""
