"""`inline`: a Nonlin of Nonlins written as one Nonlin.

Exact, because a Nonlin acts on each coordinate: phi(psi(g)) is a function of g.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.language.expr import variables
from tensorprog.language.ir import Nonlin

__all__ = ["inline"]


def inline(editor: Editor) -> Iterator[Rewrite]:
    """Write out the Nonlins that Nonlins read, but for those of recurrences; once each, what is read first."""
    loops = editor.structure.loops
    for position in (position for group in editor.structure.groups for position in group):
        statement = editor.netsor.body[position]
        if isinstance(statement, Nonlin):
            definers = {v: editor.structure.definers(position, v) for v in variables(statement.expr)}
            read = [v for v, found in definers.items() if not any(loops(d, d) for d in found)]
            expr = editor.written_out(position, statement, read)
            if expr != statement.expr:
                yield editor.becomes("inline", position, expr)
