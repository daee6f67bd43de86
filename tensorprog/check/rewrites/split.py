"""Statements that read a family of several definitions, written as one statement for each of these.

    z[0] = f, z[r] = h[r]:    y[i] = W z[i]    is    y[0] = W z[0] and y[r] = W z[r]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorprog.check.rewrites.editor import Editor
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.ir import Dot, MatMul, Nonlin
from tensorprog.language.substitute import reindexed

__all__ = ["parts"]


def parts(editor: Editor, position: int, side: str) -> list[MatMul | Dot]:
    """The statement for each definition of its operand `side`, together equal to it; none if it cannot be split."""
    statement = editor.netsor.body[position]
    assert isinstance(statement, MatMul | Dot)
    operand: Variable = getattr(statement, side)
    definers = editor.structure.definers(position, operand)
    targets = [editor.netsor.body[d].target for d in definers]
    recurrent = any(editor.structure.loops(d, d) for d in definers)
    if recurrent or len(definers) < 2 or not any(isinstance(editor.netsor.body[d], Nonlin) for d in definers):
        return []
    differing = [k for k, own in enumerate(zip(*(t.slots for t in targets), strict=True)) if not _bare(editor, own)]
    index = operand.slots[differing[0]].bare if len(differing) == 1 else None
    if index is None:
        return []
    if index not in [slot.bare for slot in statement.target.slots] or editor.boundary(index):
        return []
    places = [target.slots[differing[0]] for target in targets]
    members = sum(1 if place.bare is None else editor.size_of(place.bare) for place in places)
    if members != editor.size_of(index):  # a definition has members that are not read
        return []
    return [_at(editor, statement, index, place) for place in places]


def _bare(editor: Editor, slots: Sequence[Affine]) -> bool:
    """Whether slots of several definitions are indices that all run over the same values."""
    names = [slot.bare for slot in slots]
    return all(name is not None and editor.alike(name, names[0] or name) for name in names)


def _at(editor: Editor, statement: MatMul | Dot, index: str, place: Affine) -> MatMul | Dot:
    """A statement with an index put at a place."""
    names = ("target", "weight", "vector") if isinstance(statement, MatMul) else ("target", "left", "right")
    read: dict[str, Variable] = {name: getattr(statement, name) for name in names}
    taken = {other for v in read.values() for slot in v.slots for other in slot.indices} - {index}
    if place.bare is not None and place.bare in taken:
        place = Affine(((editor.copy_index(place.bare), 1),))
    changes: dict[str, Any] = {name: reindexed(v, {index: place}) for name, v in read.items()}
    return replace(statement, **changes)
