"""The registry of nonlinearities: `ATOMS` act coordinatewise, `REDUCTIONS` over indices."""

from tensorprog.language.atoms import arithmetic, nonlinearities
from tensorprog.language.atoms.core import ATOMS, Atom, Interval, Regularity, register
from tensorprog.language.atoms.reductions import REDUCTIONS, Reducer

__all__ = ["ATOMS", "REDUCTIONS", "Atom", "Interval", "Reducer", "Regularity", "register"]

_ = (arithmetic, nonlinearities)  # imported for the atoms they register
