"""A MatMul or a Dot taken inside the combination of vectors that it reads.

c(p) linear in u, v:     W (c u + d v) = c W u + d W v,     (c u + d v).k = c u.k + d v.k
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tensorprog.check.rewrites.editor import Editor, Stuck
from tensorprog.language.expr import (
    MAX_NODES,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    bound_indices,
    linear_arguments,
    product_of,
)
from tensorprog.language.ir import Dot, MatMul, Nonlin, Statement

__all__ = ["combined", "leaves", "mapped", "taken_inside"]


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
