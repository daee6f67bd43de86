"""The limit in formulas; sympy is imported here and nowhere above."""

from tensorprog.limit.symbolic.expectation import Expectation
from tensorprog.limit.symbolic.functions import Phi, Phi2, phi
from tensorprog.limit.symbolic.indexed import IndexSum, Softmax
from tensorprog.limit.symbolic.law import FormulaArray, SymbolicLaw
from tensorprog.limit.symbolic.numbers import estimate

__all__ = ["Expectation", "FormulaArray", "IndexSum", "Phi", "Phi2", "Softmax", "SymbolicLaw", "estimate", "phi"]
