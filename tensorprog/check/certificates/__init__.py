"""What is certified of every expression of a program, from ranges to kinks, and the witnesses against what is not."""

from tensorprog.check.certificates.profile import Fault, Profile
from tensorprog.check.certificates.program import Calculus
from tensorprog.check.certificates.table import FactRow, facts_blocks, facts_table
from tensorprog.check.falsifier.witness import Witness

__all__ = ["Calculus", "FactRow", "Fault", "Profile", "Witness", "facts_blocks", "facts_table"]
