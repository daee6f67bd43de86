"""Free indices of expressions, and substitution: indices by affine forms, references by definitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tensorprog.language.atoms import REDUCTIONS
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    fold,
    rebuild,
    slots_of,
    sum_of,
    walk,
    with_children,
)

__all__ = [
    "MAX_NODES", "affine_expr", "bound_indices", "compose", "free_indices", "fresh_substitute", "index_names",
    "indices_of", "reindexed", "replace_variables", "substitute", "with_stars",
]

Range = tuple[int, int]
MAX_NODES = 400  # of an expression with definitions written out
STARS = [stars * "*" for stars in range(9)]  # softmaxes in softmaxes over one index, each read elsewhere


def compose(slot: Affine, values: Mapping[str, Affine]) -> Affine:
    """The affine form with indices replaced by affine forms; indices without a value stay."""
    return slot.at(values)


def reindexed(reference: Variable, values: Mapping[str, Affine]) -> Variable:
    """The reference with indices replaced by affine forms."""
    return Variable(reference.name, tuple(slot.at(values) for slot in reference.slots))


def affine_expr(slot: Affine) -> Expr:
    """The affine form as an expression."""
    parts = [IndexValue(name) if coefficient == 1 else Call("multiply", (Number(coefficient), IndexValue(name)))
             for name, coefficient in slot.terms]
    return sum_of([*parts, Number(slot.offset)])


def substitute(expr: Expr, values: Mapping[str, Affine], along: bool = False) -> Expr:
    """Replace free indices by affine forms and bound ones by plain indices.

    A reduction that removes an index named in `values` is renamed, so its value must be a bare index; one that keeps
    its indices is read at the values (see `Reduction.at`) or, with `along`, runs over them, which must be bare too.
    """
    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, IndexValue):
            return affine_expr(values[node.name]) if node.name in values else node
        if isinstance(node, Constant | Variable):
            return type(node)(node.name, tuple(slot.at(values) for slot in node.slots), node.column)
        if isinstance(node, Reduction) and not node.removes and not along:
            return _read_at(node, values)
        return None if node.children else node

    def renamed(node: Reduction, arg: Expr) -> Expr:
        names = tuple(values[name].bare or "" if name in values else name for name in node.indices)
        assert all(names), (node, values)
        return Reduction(node.reducer, names, arg, node.column)

    return fold(expr, dict.fromkeys(REDUCTIONS, renamed), leaf, with_children)


def _read_at(expr: Reduction, values: Mapping[str, Affine]) -> Reduction:
    """A reduction that keeps its indices, read at the values; what it binds is no name that occurs in these."""
    own = expr.at or slots_of(expr.indices)
    at = tuple(form.at(values) for form in own)
    free = set(free_indices(expr.arg)).difference(expr.indices)
    taken = {index for name in free for index in Affine.index(name).at(values).indices}
    if at == own and taken.isdisjoint(expr.indices):
        return Reduction(expr.reducer, expr.indices, substitute(expr.arg, values), expr.column, expr.at)
    names = tuple(name if expr.at and name not in taken else _starred(name, taken) for name in expr.indices)
    stars = {name: Affine.index(new) for name, new in zip(expr.indices, names, strict=True)}
    return Reduction(expr.reducer, names, substitute(expr.arg, {**values, **stars}), expr.column, at)


def _starred(name: str, taken: Collection[str]) -> str:
    """A bound name for an index of a softmax that is read elsewhere, with as many stars as make it new."""
    name = f"{name}*"
    return _starred(name, taken) if name in taken else name


def with_stars(ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges, with those of the bound names that substitution makes."""
    return {f"{name}{stars}": span for stars in STARS for name, span in ranges.items()}


def free_indices(expr: Expr) -> list[str]:
    """Indices that no reduction removes, in order of appearance, without repetition."""
    def leaf(node: Expr) -> dict[str, None] | None:
        return None if node.children else dict.fromkeys(index_names(node))

    def reduced(node: Reduction, inside: dict[str, None]) -> dict[str, None]:
        if not node.removes and not node.at:
            return dict.fromkeys(node.indices) | inside
        outside = dict.fromkeys(name for form in node.at for name in form.indices)
        return outside | {name: None for name in inside if name not in node.indices}

    def joined(_: Expr, *parts: dict[str, None]) -> dict[str, None]:
        return {name: None for part in parts for name in part}

    return list(fold(expr, dict.fromkeys(REDUCTIONS, reduced), leaf, joined))


def bound_indices(expr: Expr) -> set[str]:
    """Indices over which an expression reduces or takes softmaxes."""
    return {name for node in walk(expr) if isinstance(node, Reduction) for name in node.indices}


def fresh_substitute(expr: Expr, values: Mapping[str, Affine], rename: Callable[[str], str]) -> Expr:
    """Substitute, giving every index that a reduction removes the new name that `rename` makes."""
    mapping = dict(values)
    for node in walk(expr):
        if isinstance(node, Reduction) and node.removes:
            for name in node.indices:
                mapping[name] = Affine.index(rename(name))
    return substitute(expr, mapping)


def replace_variables(expr: Expr, change: Callable[[Variable], Expr | None]) -> Expr:
    """Replace references for which `change` gives an expression."""
    return rebuild(expr, lambda node: change(node) if isinstance(node, Variable) else None)


def index_names(node: Expr) -> tuple[str, ...]:
    """Indices that a node itself mentions, its children left aside."""
    if isinstance(node, IndexValue):
        return (node.name,)
    if isinstance(node, Reduction):
        return (*node.indices, *(name for form in node.at for name in form.indices))
    return tuple(n for s in node.slots for n in s.indices) if isinstance(node, Constant | Variable) else ()


def indices_of(expr: Expr, ranges: Collection[str]) -> tuple[str, ...]:
    """Names of indices that occur free or bound in an expression and have a range here."""
    return tuple(dict.fromkeys(name for node in walk(expr) for name in index_names(node) if name in ranges))
