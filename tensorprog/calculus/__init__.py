"""Range, growth, modulus, parity, monotonicity and kinks of every expression of a program, certified, refuted or neither."""

from tensorprog.calculus.profile import Fault, Profile
from tensorprog.calculus.program import Calculus
from tensorprog.calculus.table import FactRow, facts_table
from tensorprog.calculus.witness import Witness

__all__ = ["Calculus", "FactRow", "Fault", "Profile", "Witness", "facts_table"]
