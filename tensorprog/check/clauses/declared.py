"""What rests on the word of a program's author: facts of functions that were declared in Python."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.certificates.profile import shown
from tensorprog.check.clauses.context import Context
from tensorprog.check.clauses.report import Finding
from tensorprog.language.atoms import ATOMS, Atom
from tensorprog.language.expr import Call, walk
from tensorprog.language.ir import Nonlin

__all__ = ["declared"]


def declared(check: Context) -> Iterator[Finding]:
    """One finding for each declared function that an output depends on."""
    users: dict[str, list[int]] = {}
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if isinstance(statement, Nonlin):
            for name in {node.atom for node in walk(statement.expr) if isinstance(node, Call)}:
                if ATOMS[name].declared:
                    users.setdefault(name, []).append(position)
    for name, positions in sorted(users.items()):
        places = ", ".join(dict.fromkeys(map(check.text, positions)))
        yield check.finding(
            "holds",
            tuple(positions),
            f"{places}: rests on what is declared of {name}: {_facts(ATOMS[name])}; declared by its author and "
            "attacked numerically, not proved",
        )


def _facts(atom: Atom) -> str:
    low, high = atom.bounds() if atom.bounds is not None else (-float("inf"), float("inf"))
    regularity = atom.regularity
    said = {
        f"range {shown((low, high))}": atom.bounds is not None,
        f"growth {regularity.growth:g}": regularity.growth < float("inf"),
        f"modulus {regularity.modulus:g}": regularity.modulus < float("inf"),
        f"Lipschitz constant {regularity.lipschitz:g}": regularity.lipschitz < float("inf"),
        "increasing" if atom.monotone > 0 else "decreasing": atom.monotone != 0,
        "even" if atom.parity > 0 else "odd": atom.parity != 0,
    }
    return ", ".join(text for text, known in said.items() if known) or "nothing"
