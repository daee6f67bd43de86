"""Networkx views of the family-level program: ancestry, reuse of weights, and what plays which part in Assumption 1."""

from tensorprog.check.graph.structure import Operand, Structure
from tensorprog.check.graph.view import between, build, ways

__all__ = ["Operand", "Structure", "between", "build", "ways"]
