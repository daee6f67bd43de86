"""The limit in formulas: the only package that imports sympy at the top of its modules."""

from tensorprog.limit.formulas.expectation import Expectation
from tensorprog.limit.formulas.functions import Phi, Phi2, phi
from tensorprog.limit.formulas.law import FormulaArray, SymbolicLaw
from tensorprog.limit.formulas.nodes import IndexSum, Softmax
from tensorprog.limit.formulas.numbers import estimate

__all__ = ["Expectation", "FormulaArray", "IndexSum", "Phi", "Phi2", "Softmax", "SymbolicLaw", "estimate", "phi"]
