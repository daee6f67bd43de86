"""Free indices of expressions, and substitution: indices by affine forms, references by definitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    rebuild,
    walk,
)

__all__ = [
    "MAX_NODES", "affine_expr", "compose", "free_indices", "fresh_substitute", "indices_of", "reindexed",
    "replace_variables", "substitute", "with_stars",
]

Range = tuple[int, int]
MAX_NODES = 400  # of an expression with definitions written out
STARS = [stars * "*" for stars in range(9)]  # softmaxes in softmaxes over one index, each read elsewhere


def compose(slot: Affine, values: Mapping[str, Affine]) -> Affine:
    """The affine form with indices replaced by affine forms; indices without a value stay."""
    total: dict[str, int] = {}
    offset = slot.offset
    for name, coefficient in slot.terms:
        value = values.get(name, Affine(((name, 1),)))
        offset += coefficient * value.offset
        for inner, factor in value.terms:
            total[inner] = total.get(inner, 0) + coefficient * factor
    return Affine(tuple((name, value) for name, value in total.items() if value), offset)


def reindexed(reference: Variable, values: Mapping[str, Affine]) -> Variable:
    """The reference with indices replaced by affine forms."""
    return Variable(reference.name, tuple(compose(slot, values) for slot in reference.slots))


def affine_expr(slot: Affine) -> Expr:
    """The affine form as an expression."""
    result: Expr | None = None
    for name, coefficient in slot.terms:
        part: Expr = IndexValue(name) if coefficient == 1 else Call("multiply", (Number(coefficient), IndexValue(name)))
        result = part if result is None else Call("add", (result, part))
    if result is None:
        return Number(slot.offset)
    return Call("add", (result, Number(slot.offset))) if slot.offset else result


def substitute(expr: Expr, values: Mapping[str, Affine], along: bool = False) -> Expr:
    """Replace free indices by affine forms and bound ones by plain indices.

    A reduction that removes an index named in `values` is renamed, so its value must be a bare index; one that keeps
    its indices is read at the values (see `Reduction.at`) or, with `along`, runs over them, which must be bare too.
    """
    if isinstance(expr, IndexValue):
        return affine_expr(values[expr.name]) if expr.name in values else expr
    if isinstance(expr, Constant | Variable):
        slots = tuple(compose(slot, values) for slot in expr.slots)
        return type(expr)(expr.name, slots, expr.column)
    if isinstance(expr, Call):
        return Call(expr.atom, tuple(substitute(arg, values, along) for arg in expr.args), expr.column)
    if isinstance(expr, Reduction) and not expr.removes and not along:
        return _read_at(expr, values)
    if isinstance(expr, Reduction):
        names = []
        for name in expr.indices:
            bare = values[name].bare if name in values else name
            assert bare is not None
            names.append(bare)
        return Reduction(expr.reducer, tuple(names), substitute(expr.arg, values, along), expr.column)
    return expr


def _read_at(expr: Reduction, values: Mapping[str, Affine]) -> Reduction:
    """A reduction that keeps its indices, read at the values; what it binds is no name that occurs in these."""
    own = expr.at or tuple(Affine(((name, 1),)) for name in expr.indices)
    at = tuple(compose(form, values) for form in own)
    free = set(free_indices(expr.arg)).difference(expr.indices)
    taken = {index for name in free for index in compose(Affine(((name, 1),)), values).indices}
    if at == own and taken.isdisjoint(expr.indices):
        return Reduction(expr.reducer, expr.indices, substitute(expr.arg, values), expr.column, expr.at)
    names = tuple(name if expr.at and name not in taken else _starred(name, taken) for name in expr.indices)
    stars = {name: Affine(((new, 1),)) for name, new in zip(expr.indices, names, strict=True)}
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
    return list(dict.fromkeys(_free(expr, frozenset())))


def _free(expr: Expr, bound: frozenset[str]) -> Iterator[str]:
    """Indices that no reduction removes, in order of appearance."""
    if isinstance(expr, IndexValue) and expr.name not in bound:
        yield expr.name
    elif isinstance(expr, Constant | Variable):
        yield from (name for slot in expr.slots for name in slot.indices if name not in bound)
    elif isinstance(expr, Reduction) and expr.removes:
        bound = bound | set(expr.indices)
    elif isinstance(expr, Reduction) and expr.at:
        yield from (name for form in expr.at for name in form.indices if name not in bound)
        bound = bound | set(expr.indices)
    elif isinstance(expr, Reduction):
        yield from (name for name in expr.indices if name not in bound)
    for child in expr.children:
        yield from _free(child, bound)


def fresh_substitute(expr: Expr, values: Mapping[str, Affine], rename: Callable[[str], str]) -> Expr:
    """Substitute, giving every index that a reduction removes the new name that `rename` makes."""
    mapping = dict(values)
    for node in walk(expr):
        if isinstance(node, Reduction) and node.removes:
            for name in node.indices:
                mapping[name] = Affine(((rename(name), 1),))
    return substitute(expr, mapping)


def replace_variables(expr: Expr, change: Callable[[Variable], Expr | None]) -> Expr:
    """Replace references for which `change` gives an expression."""
    return rebuild(expr, lambda node: change(node) if isinstance(node, Variable) else None)


def indices_of(expr: Expr, ranges: Collection[str]) -> tuple[str, ...]:
    """Names of indices that occur free or bound in an expression and have a range here."""
    found: dict[str, None] = {}
    for node in walk(expr):
        if isinstance(node, IndexValue):
            found[node.name] = None
        elif isinstance(node, Constant | Variable):
            found |= dict.fromkeys(name for slot in node.slots for name in slot.indices)
        elif isinstance(node, Reduction):
            found |= dict.fromkeys(name for form in node.at for name in form.indices)
    return tuple(name for name in found if name in ranges)
