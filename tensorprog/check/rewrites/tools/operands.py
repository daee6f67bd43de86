"""A MatMul or a Dot taken inside the combination of vectors that it reads, or split where that has several definitions.

    c(p) linear in u, v:     W (c u + d v) = c W u + d W v,     (c u + d v).k = c u.k + d v.k
    z[0] = f, z[r] = h[r]:   y[i] = W z[i]   is   y[0] = W z[0] and y[r] = W z[r]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorprog.check.rewrites.tools.editor import Editor, Rewrite
from tensorprog.check.rewrites.tools.linear import Stuck, mapped
from tensorprog.language.expr import MAX_NODES, Affine, Expr, Variable, reindexed
from tensorprog.language.ir import Dot, MatMul, Nonlin, Statement

__all__ = ["combined", "leaves", "split_apart", "taken_inside"]


def taken_inside(editor: Editor, position: int, side: str, inside: Callable[[Expr], bool]) -> Expr | None:
    """A MatMul or Dot taken inside the Nonlin that makes its operand `side`; None if that is not linear."""
    statement = editor.netsor.body[position]
    assert isinstance(statement, MatMul | Dot)
    target, operand = statement.target, getattr(statement, side)
    nonlin = editor.definition(position, operand)
    if nonlin is None or not editor.vector(nonlin.expr):
        return None
    if side == "vector":
        (definer,) = editor.structure.definers(position, operand)
        nonlin = replace(nonlin, expr=_combined(editor, definer, nonlin, inside))
    width = editor.netsor.families[operand.name].width

    def image(vector: Expr) -> Variable:
        change: dict[str, Any] = {side: editor.reference(vector, position, width, operand.name)}
        return _made_once(editor, position, replace(statement, **change))

    try:  # before anything is added
        if combined(editor, nonlin.expr, inside) is None:
            return None
        expr = editor.instance(nonlin, operand, {name for slot in target.slots for name in slot.indices})
    except Stuck:
        return None
    return mapped(expr, image, editor.vector, inside, editor.apart)


def _combined(editor: Editor, position: int, nonlin: Nonlin, inside: Callable[[Expr], bool]) -> Expr:
    """A combination with the combinations that it reads written out: else k weights in a row pass k times through k."""
    def linear(reference: Expr) -> bool:
        read = editor.definition(position, reference) if isinstance(reference, Variable) and inside(reference) else None
        return read is not None and combined(editor, read.expr, inside) is not None

    try:
        wanted = [v for v in leaves(editor, nonlin.expr, inside) if isinstance(v, Variable) and linear(v)]
    except Stuck:
        return nonlin.expr
    return editor.written_out(position, nonlin, wanted)


def combined(editor: Editor, expr: Expr, inside: Callable[[Expr], bool]) -> list[Variable] | None:
    """The vectors inside which a linear map of an expression goes on; None if it is no combination of vectors read."""
    try:
        found = [leaf for leaf in leaves(editor, expr, inside) if inside(leaf)]
    except Stuck:
        return None
    read = [leaf for leaf in found if isinstance(leaf, Variable)]
    return read if len(read) == len(found) else None


def leaves(editor: Editor, expr: Expr, inside: Callable[[Expr], bool]) -> list[Expr]:
    """The vectors to which a linear map of an expression would be applied.

    Raises    Stuck if it is not linear, or if they are too many: products of k sums have 2^k terms
    """
    found: list[Expr] = []

    def leaf(vector: Expr) -> Expr:
        found.append(vector)
        if len(found) > MAX_NODES:
            raise Stuck
        return vector

    mapped(expr, leaf, editor.vector, inside)
    return found


def _made_once(editor: Editor, position: int, new: MatMul | Dot) -> Variable:
    """The left side of a family that is a part of a statement, made once; its name is made of names as written."""
    reads = (new.weight, new.vector) if isinstance(new, MatMul) else new.inputs
    name = "_".join((editor.origin[position].partition("[")[0], *(v.name for v in new.inputs)))

    def make() -> Statement:
        return replace(new, target=editor.family(name, *reads))

    return editor.once(("image", replace(new, target=Variable(""))), position, make)


def split_apart(editor: Editor, position: int, side: str, inside: Callable[[Expr], bool]) -> Rewrite | None:
    """A MatMul or Dot split by the definitions of its operand `side`; None if these are not linear, or only one."""
    body = editor.netsor.body
    old, split = body[position], _parts(editor, position, side)
    if not split:
        return None
    definers = editor.structure.definers(position, getattr(old, side))
    try:
        for nonlin in (s for s in map(body.__getitem__, definers) if isinstance(s, Nonlin)):
            leaves(editor, nonlin.expr, inside)
    except Stuck:
        return None
    made = [Nonlin(part.target, _made_once(editor, position, part), "", old.span) for part in split]
    *others, editor.changed[position] = made
    for statement in others:
        editor.add(position, statement)
    text = f"{old} becomes {' and '.join(map(str, made))}"
    return Rewrite("split", editor.origin[position], old.span.line, text)


def _parts(editor: Editor, position: int, side: str) -> list[MatMul | Dot]:
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
