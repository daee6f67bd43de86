"""The limit in formulas; sympy is imported here and nowhere above."""

from tensorprog.limit.symbolic.expectation import Expectation
from tensorprog.limit.symbolic.functions import Phi, Phi2, phi
from tensorprog.limit.symbolic.law import FormulaArray, SymbolicLaw

__all__ = ["Expectation", "FormulaArray", "Phi", "Phi2", "SymbolicLaw", "phi"]
