"""Gaussian expectations of functions of one, two and several variables, each with value and stated error.

In go functions (`RealFunction`, or any callable of several variables) and batches of laws; out comes an `Estimate` for
each law. `ladder` asks one method after the other; `propagation` adds what errors of the laws do.
"""

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.function import FunctionTerm, RealFunction
from tensorprog.gaussian.ladder import cross, integrate, mean
from tensorprog.gaussian.several import normal_points

__all__ = ["Estimate", "FunctionTerm", "RealFunction", "cross", "integrate", "mean", "normal_points"]
