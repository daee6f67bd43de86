"""What the recursion reads of a program: families and their definitions, vectors as sums of functions of Gaussians.

In goes a program in its normal form; out come the pieces that have moments.  Numbers of the limit are not known yet.

    definitions        which of several definitions a reference reads, with boundaries; which families are random
    sums_of_functions  a vector as a sum of coefficient * function(affine form of Gaussian variables)
    univariate         a function of one variable as `gaussian` takes it: values, kinks, features, parity, terms
    weight_columns     which vectors one weight multiplies, numbered as columns of a Gram matrix
"""
