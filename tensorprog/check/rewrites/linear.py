"""A MatMul or a Dot taken inside the combination of vectors that it reads, or split where that has several definitions.

c(p) linear in u, v:     W (c u + d v) = c W u + d W v,     (c u + d v).k = c u.k + d v.k
z[0] = f, z[r] = h[r]:   y[i] = W z[i]   is   y[0] = W z[0] and y[r] = W z[r]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from tensorprog.check.rewrites.editor import Editor, Rewrite, Stuck
from tensorprog.language.expr import (
    MAX_NODES,
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    bound_indices,
    linear_arguments,
    product_of,
    reindexed,
)
from tensorprog.language.ir import Dot, MatMul, Nonlin, Statement

__all__ = ["combined", "leaves", "mapped", "split_apart", "taken_inside"]


def mapped(
    expr: Expr,
    leaf: Callable[[Expr], Expr],
    vector: Callable[[Expr], bool],
    inner: Callable[[Expr], bool],
    apart: Callable[[Expr, Collection[str]], Expr] = lambda factor, taken: factor,
) -> Expr:
    """Apply a linear map to an expression that is linear in its vectors, with scalars as coefficients.

    `leaf` gives the image of a vector, `vector` says whether a vector occurs in an expression, and `inner` whether the
    map is to be taken inside it; where it is not, a vector may be any function of vectors and is one leaf.  Products of
    vectors are multiplied out, L((sum_j c_j v_j) (sum_k d_k w_k)) = sum_j c_j sum_k d_k L(v_j w_k), where `apart`
    writes what comes to stand inside other sums with bound indices that differ from theirs.

    Raises    Stuck if the expression is not linear in the vectors that the map is taken to
    """

    def go(node: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
        if not vector(node):  # c times the constant vector 1
            return node if node == Number(0) else Call("multiply", (node, leaf(Number(1))))
        if isinstance(node, Variable) or not inner(node):
            return leaf(node)
        if isinstance(node, Reduction) and node.reducer in ("sum", "mean"):
            return Reduction(node.reducer, node.indices, go(node.arg, leaf), node.column)
        if not isinstance(node, Call):
            raise Stuck
        arguments = linear_arguments(node, [not vector(arg) for arg in node.args])
        if arguments:
            args = tuple(go(arg, leaf) if k in arguments else arg for k, arg in enumerate(node.args))
            return Call(node.atom, args, node.column)
        if node.atom != "multiply":
            raise Stuck
        first, second = node.args[0], apart(node.args[1], bound_indices(node.args[0]))
        return go(first, lambda v: go(second, lambda w: leaf(product_of((v, w)))))

    return go(expr, leaf)


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


def combined(editor: Editor, expr: Expr, inside: Callable[[Expr], bool]) -> list[Variable] | None:
    """The vectors inside which a linear map of an expression goes on; None if it is no combination of vectors read."""
    try:
        found = [leaf for leaf in leaves(editor, expr, inside) if inside(leaf)]
    except Stuck:
        return None
    read = [leaf for leaf in found if isinstance(leaf, Variable)]
    return read if len(read) == len(found) else None


def taken_inside(editor: Editor, position: int, side: str, inside: Callable[[Expr], bool]) -> Expr | None:
    """A MatMul or Dot taken inside the Nonlin that makes its operand `side`; None if that is not linear."""
    statement = editor.netsor.body[position]
    assert isinstance(statement, MatMul | Dot)
    operand: Variable = getattr(statement, side)
    nonlin = editor.structure.definition(position, operand)
    if nonlin is None or not editor.vector(nonlin.expr):
        return None
    if side == "vector":
        (definer,) = editor.structure.definers(position, operand)
        nonlin = replace(nonlin, expr=_deeper(editor, definer, nonlin, inside))
    width = editor.netsor.families[operand.name].width

    def image(vector: Expr) -> Variable:
        change: dict[str, Any] = {side: editor.reference(vector, position, width, operand.name)}
        return _made_once(editor, position, replace(statement, **change))

    try:  # before anything is added
        if combined(editor, nonlin.expr, inside) is None:
            return None
        expr = editor.instance(nonlin, operand, {name for slot in statement.target.slots for name in slot.indices})
    except Stuck:
        return None
    return mapped(expr, image, editor.vector, inside, editor.apart)


def _deeper(editor: Editor, position: int, nonlin: Nonlin, inside: Callable[[Expr], bool]) -> Expr:
    """A combination with the combinations that it reads written out: else k weights in a row pass k times through k."""

    def linear(vector: Variable) -> bool:
        read = editor.structure.definition(position, vector) if inside(vector) else None
        return read is not None and combined(editor, read.expr, inside) is not None

    try:
        wanted = [v for v in leaves(editor, nonlin.expr, inside) if isinstance(v, Variable) and linear(v)]
    except Stuck:
        return nonlin.expr
    return editor.written_out(position, nonlin, wanted)


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
    old, places = body[position], _places(editor, position, side)
    if places is None:
        return None
    assert isinstance(old, MatMul | Dot)
    try:
        for statement in map(body.__getitem__, editor.structure.definers(position, getattr(old, side))):
            if isinstance(statement, Nonlin):
                leaves(editor, statement.expr, inside)
    except Stuck:
        return None
    split = [_at(editor, old, places[0], place) for place in places[1]]
    made = [Nonlin(part.target, _made_once(editor, position, part), "", old.span) for part in split]
    *others, editor.changed[position] = made
    for other in others:
        editor.add(position, other)
    text = f"{old} becomes {' and '.join(map(str, made))}"
    return Rewrite("split", editor.origin[position], old.span.line, text)


def _places(editor: Editor, position: int, side: str) -> tuple[str, list[Affine]] | None:
    """The index of a statement, and its values, by which the definitions of its operand `side` differ.

    None if there is no such index, or if definitions have members that are not read.
    """
    body, structure, ranges = editor.netsor.body, editor.structure, editor.netsor.ranges
    operand: Variable = getattr(body[position], side)
    definers = structure.definers(position, operand)
    recurrent = any(structure.loops(d, d) for d in definers)
    if recurrent or len(definers) < 2 or not any(isinstance(body[d], Nonlin) for d in definers):
        return None
    columns = list(zip(*(body[d].target.slots for d in definers), strict=True))
    differing = [k for k, own in enumerate(columns) if not _all_along(editor, own)]
    index = operand.slots[differing[0]].bare if len(differing) == 1 else None
    if index is None or editor.netsor.index[index].boundary:
        return None
    places = list(columns[differing[0]])
    members = sum(1 if place.bare is None else editor.size_of(place.bare) for place in places)
    own = index in [slot.bare for slot in body[position].target.slots]
    return (index, places) if own and members == ranges[index][1] - ranges[index][0] else None


def _all_along(editor: Editor, slots: Sequence[Affine]) -> bool:
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
