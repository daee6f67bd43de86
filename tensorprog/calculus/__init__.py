"""Range, growth, modulus and parity of every expression of a program, certified, refuted or neither."""

from tensorprog.calculus.profile import Fault, Profile
from tensorprog.calculus.program import Calculus

__all__ = ["Calculus", "Fault", "Profile"]
