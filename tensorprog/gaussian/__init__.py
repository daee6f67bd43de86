"""Gaussian expectations of functions of one, two and several variables, each with value and stated error.

In go functions (`Function`, or any callable of several variables) and laws, batches of them; out come an `Estimate` for
each member. `ladder` asks one method after the other; `propagation` adds what errors of the laws do.
"""

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.function import Function, Term
from tensorprog.gaussian.ladder import cross, integrate, mean
from tensorprog.gaussian.qmc import expect, normal_points

__all__ = ["Estimate", "Function", "Term", "cross", "expect", "integrate", "mean", "normal_points"]
