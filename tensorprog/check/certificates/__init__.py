"""Facts of every expression of a program, by composition and by relations between parts, and witnesses against others.

`knowledge` is what a rule may ask; `composition` is the walk, `relations` the tuple of rules about parts; `program`
applies both to a program's statements.  `profile` is what is certified, and says whether an expression is bounded;
`factors`, `expansions` and `exponentials` serve the relations.
"""

from tensorprog.check.certificates.profile import Fault, Profile
from tensorprog.check.certificates.program import Calculus
from tensorprog.check.certificates.signs import Signs
from tensorprog.check.certificates.table import FactRow, facts_blocks, facts_table
from tensorprog.check.falsifier.witness import Witness

__all__ = ["Calculus", "FactRow", "Fault", "Profile", "Signs", "Witness", "facts_blocks", "facts_table"]
