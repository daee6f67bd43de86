"""What is certified of every expression of a program, from ranges to kinks, and the witnesses against what is not."""

from tensorprog.calculus.profile import Fault, Profile
from tensorprog.calculus.program import Calculus
from tensorprog.calculus.table import FactRow, facts_table
from tensorprog.calculus.witness import Witness

__all__ = ["Calculus", "FactRow", "Fault", "Profile", "Witness", "facts_table"]
