"""`unused`: statements that no output depends on, dropped with what only they read.

Exact, because the law of the outputs does not involve them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.language.ir import Netsor

__all__ = ["unused"]


def unused(editor: Editor, but: Collection[str] = ()) -> Iterator[Rewrite]:
    """Drop the statements on which neither the outputs nor the families `but` depend."""
    kept = _used(editor.netsor, but)
    for position, statement in enumerate(editor.netsor.body):
        if position not in kept:
            editor.dropped.add(position)
            editor.prune = True
            yield Rewrite("unused", editor.origin[position], statement.span.line, f"{statement.target} is dropped")


def _used(netsor: Netsor, more: Collection[str]) -> set[int]:
    """Statements of the families that the outputs, and `more`, depend on, each family with all its definitions."""
    names: set[str] = set()
    waiting = [*netsor.outputs, *more]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += [read.name for p in netsor.families[name].statements for read in netsor.body[p].inputs]
    return {position for position, statement in enumerate(netsor.body) if statement.target.name in names}
