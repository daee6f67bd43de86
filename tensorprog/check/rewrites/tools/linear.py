"""Linear maps taken inside expressions: L(c1 v1 + c2 v2) = c1 L(v1) + c2 L(v2) for scalars c and vectors v."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    bound_indices,
    free_indices,
    linear_arguments,
    product_of,
    substitute,
    sum_of,
    walk,
)

__all__ = ["Stuck", "instantiate", "mapped"]


class Stuck(Exception):
    """An expression is not linear, or an index cannot be renamed: the statement stays as it is."""


def mapped(
    expr: Expr, leaf: Callable[[Expr], Expr], vector: Callable[[Expr], bool], inner: Callable[[Expr], bool],
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
        if node.atom == "multiply":
            first, second = node.args[0], apart(node.args[1], bound_indices(node.args[0]))
            return go(first, lambda v: go(second, lambda w: leaf(product_of((v, w)))))
        arguments = linear_arguments(node, [not (vector(arg) and inner(arg)) for arg in node.args])
        if not arguments:
            raise Stuck
        taken = {name for k in arguments for name in bound_indices(node.args[k])}
        beside = tuple(Number(0) if k in arguments else apart(arg, taken) for k, arg in enumerate(node.args))
        return sum_of([go(node.args[k], lambda v, k=k: leaf(Call(node.atom, _put(beside, k, v))))  # type: ignore[misc]
                     for k in arguments])

    return go(expr, leaf)


def _put(args: tuple[Expr, ...], place: int, value: Expr) -> tuple[Expr, ...]:
    """Arguments with a value at one place."""
    return (*args[:place], value, *args[place + 1 :])


def instantiate(
    expr: Expr, values: Mapping[str, Affine], taken: Collection[str], fresh: Callable[[str], str],
    alike: Callable[[str, str], bool],
) -> Expr:
    """A definition with its indices replaced by affine forms; indices bound in it that are `taken` get fresh names.

    `alike` says whether two indices have the same range: a softmax runs over the range of the index it names.

    Raises    Stuck if a softmax would have to be read at something else than an index of its own
    """
    kept = [node for node in walk(expr) if isinstance(node, Reduction) and not node.removes]
    if not all(_renamable(node, name, values, alike) for node in kept for name in node.indices if name in values):
        raise Stuck
    bound = bound_indices(expr) - values.keys()
    names = {name: Affine(((fresh(name), 1),)) for name in sorted(bound.intersection(taken))}
    return substitute(expr, {**values, **names}, along=True)


def _renamable(node: Reduction, name: str, values: Mapping[str, Affine], alike: Callable[[str, str], bool]) -> bool:
    """Whether a softmax over an index may run over what is put for it: an index that stands for nothing else there."""
    new = values[name].bare
    others = [values[other] for other in free_indices(node) if other != name and other in values]
    return new is not None and alike(name, new) and all(new not in other.indices for other in others)
