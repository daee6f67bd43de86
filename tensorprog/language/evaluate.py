"""Arrays with named axes, and expressions evaluated on them: one walk serves networks and draws of the limit.

Families broadcast without being unrolled.  Two names are special: BATCH (networks or draws) always comes first,
COORDINATE (the width) always last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import (
    Affine,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    factors,
    fold,
    indices_of,
    is_call,
    walk,
)
from tensorprog.language.records import Draft, Nonlin, Range, Table

BATCH, COORDINATE = "#", "@"


@dataclass(frozen=True)
class Open:
    """An array with one name per axis; a missing axis means "the same for all its values"."""

    axes: tuple[str, ...]
    data: NDArray[Any]

    def __post_init__(self) -> None:
        assert len(self.axes) == np.ndim(self.data), (self.axes, np.shape(self.data))


def union(*axes: Sequence[str]) -> tuple[str, ...]:
    """All names, BATCH first, COORDINATE last, the others in order of first appearance."""
    names = dict.fromkeys(name for group in axes for name in group)
    middle = tuple(name for name in names if name not in (BATCH, COORDINATE))
    return (BATCH,) * (BATCH in names) + middle + (COORDINATE,) * (COORDINATE in names)


def align(value: Open, axes: Sequence[str]) -> NDArray[Any]:
    """View of the data with exactly the axes named (a superset of its own), missing ones of length 1."""
    if value.axes == tuple(axes):
        return value.data
    own = [name for name in axes if name in value.axes]
    data = value.data.transpose([value.axes.index(name) for name in own])
    return data.reshape([data.shape[own.index(name)] if name in own else 1 for name in axes])


def broadcast(value: Open, axes: Sequence[str], sizes: Mapping[str, int]) -> NDArray[Any]:
    """As `align`, with every axis at its full size (a view where possible)."""
    data, shape = align(value, axes), tuple([sizes[name] for name in axes])
    return data if data.shape == shape else np.broadcast_to(data, shape)


def affine_values(slot: Affine, ranges: Mapping[str, Range]) -> Open:
    """Values of an affine form over the open grid of its indices."""
    axes = slot.indices
    total: NDArray[Any] = np.full((1,) * len(axes), slot.offset)
    for position, (name, coefficient) in enumerate(slot.terms):
        values = coefficient * np.arange(*ranges[name])
        total = total + values.reshape([-1 if k == position else 1 for k in range(len(axes))])
    return Open(axes, total)


def take(
    array: NDArray[Any],
    lead: Sequence[str],
    starts: Sequence[int],
    slots: Sequence[Affine],
    trail: Sequence[str],
    ranges: Mapping[str, Range],
    boundaries: Sequence[str] = (),
) -> Open:
    """Read a family at affine slots.

    Shapes    array: lead axes, one axis per slot (first value `starts`), trail axes; result over lead, the slots'
              indices, trail.  Slots that are distinct indices plus constants give a view.
    """
    rules = tuple(boundaries) or ("",) * len(slots)
    axes, key, mask = _places(array.shape[len(lead) : len(lead) + len(slots)], starts, slots, ranges, rules)
    picked = array[(slice(None),) * len(lead) + key]
    if mask is not None and not mask.all():
        picked = picked * mask.reshape((1,) * len(lead) + mask.shape + (1,) * len(trail))
    return Open((*lead, *axes, *trail), picked)


def _places(
    sizes: Sequence[int], starts: Sequence[int], slots: Sequence[Affine], ranges: Mapping[str, Range],
    rules: Sequence[str],
) -> tuple[tuple[str, ...], tuple[Any, ...], NDArray[Any] | None]:  # fmt: skip
    """Indices of what is read at affine slots, the key that reads it, and where that is not beyond a boundary."""
    indices = [name for slot in slots for name in slot.indices]
    bounds = [slot.bounds(ranges) for slot in slots]
    inside = all(
        start <= low and high < start + size for (low, high), start, size in zip(bounds, starts, sizes, strict=True)
    )
    simple = len(set(indices)) == len(indices) and all(
        len(slot.terms) == 0 or (len(slot.terms) == 1 and slot.terms[0][1] == 1) for slot in slots
    )
    if simple and inside:
        key = (
            slice(low - start, high + 1 - start) if slot.terms else low - start
            for slot, start, (low, high) in zip(slots, starts, bounds, strict=True)
        )
        return tuple(indices), tuple(key), None
    axes = union(*(slot.indices for slot in slots))
    grids = []
    mask: NDArray[Any] | None = None
    for slot, start, size, rule in zip(slots, starts, sizes, rules, strict=True):
        values = align(affine_values(slot, ranges), axes) - start
        if rule == "wrap":
            values = values % size
        elif rule:
            there = (values >= 0) & (values < size)
            mask = there if mask is None else mask & there
            values = np.clip(values, 0, size - 1)
        grids.append(values)
    full = np.broadcast_shapes(*(grid.shape for grid in grids))
    return axes, tuple(grids), None if mask is None else np.broadcast_to(mask, full)


def gather(value: Open, forms: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Open:
    """Read the axes named in `forms` at affine forms of other indices; places outside an axis read its edge.

    Shapes    the result has the forms' indices in place of the axes named, all other axes as they are
    """
    axes, (data,) = gathered(value.axes, (value.data,), forms, ranges, starts)
    return value if data is value.data else Open(axes, data)


def gathered(
    axes: tuple[str, ...], arrays: Sequence[NDArray[Any]], forms: Mapping[str, Affine], ranges: Mapping[str, Range],
    starts: Mapping[str, int],
) -> tuple[tuple[str, ...], Sequence[NDArray[Any]]]:  # fmt: skip
    """The same for arrays with the same axes: views where forms are numbers, or indices plus numbers."""
    sizes, key, found, same = arrays[0].shape, list[Any](), list[str](), True
    for name, size in zip(axes, sizes, strict=True):
        form, index, low, high = forms.get(name), name, 0, size
        if form is not None and not form.terms:
            key.append((form.offset - starts[name]) % size)
            same = False
            continue
        if form is not None:
            (index, coefficient), *others = form.terms
            low, high = (bound + form.offset - starts[name] for bound in ranges[index])
            if others or coefficient != 1:
                break
        if low < 0 or high > size:
            break
        key.append(slice(low, high))
        same = same and index == name and high - low == size and index not in found
        found.append(index)
    else:
        return (axes, arrays) if same else _diagonals(found, [array[tuple(key)] for array in arrays])
    read = {name: forms[name] for name in axes if name in forms}
    # an index that comes in may be an axis already (the diagonal of i and i_): then it is read along as well
    incoming = {name for form in read.values() for name in form.indices}
    mapped = [*read, *(name for name in axes if name not in read and name in incoming)]
    order = [*mapped, *(name for name in axes if name not in mapped)]
    slots, begin = [read.get(name, Affine.index(name)) for name in mapped], [starts[name] for name in mapped]
    turned = [array.transpose([axes.index(name) for name in order]) for array in arrays]
    turned = [np.ascontiguousarray(array) if any(array.strides) else array for array in turned]
    places, where, _ = _places(turned[0].shape[: len(mapped)], begin, slots, ranges, ("wrap",) * len(slots))
    made, wanted = (*places, *order[len(mapped) :]), union(places, order[len(mapped) :])
    return wanted, [align(Open(made, array[where]), wanted) for array in turned]


def _diagonals(names: Sequence[str], arrays: Sequence[NDArray[Any]]) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    """Arrays whose axes have these names, read where axes of one name have equal places: views."""
    own, found = list(names), list(arrays)
    for name in names:
        if own.count(name) > 1:
            one = own.index(name)
            two = own.index(name, one + 1)
            del own[two]
            found = [array.diagonal(0, one, two) for array in found]
            if one < len(own) - 1:
                found = [np.moveaxis(array, -1, one) for array in found]
    return tuple(own), found


def elementwise(function: Callable[..., NDArray[Any]], *args: Open) -> Open:
    """A function of arrays, entry by entry over the union of their axes."""
    axes = union(*(arg.axes for arg in args))
    return Open(axes, np.asarray(function(*(align(arg, axes) if arg.axes else arg.data for arg in args))))


def contract(first: Open, second: Open, over: Sequence[str]) -> Open:
    """Sum of first * second over the named axes, as batched matrix products: never forms the product array.

    Axes named in `over` must occur in at least one operand.
    """
    # an axis summed over that only one operand has is summed there first
    for name in over:
        if name not in second.axes:
            first = _summed(first, name)
        elif name not in first.axes:
            second = _summed(second, name)
    over = [name for name in over if name in first.axes and name in second.axes]
    shared = [name for name in first.axes if name in second.axes and name not in over]
    left = [name for name in first.axes if name not in second.axes]
    right = [name for name in second.axes if name not in first.axes]

    def matrix(value: Open, rows: Sequence[str], columns: Sequence[str]) -> NDArray[Any]:
        order = [*shared, *rows, *columns]
        data = value.data.transpose([value.axes.index(name) for name in order])
        head, middle = len(shared), len(shared) + len(rows)
        shape = data.shape
        return data.reshape(*shape[:head], math.prod(shape[head:middle]), math.prod(shape[middle:]))

    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is refused with its statement
        product = np.matmul(matrix(first, left, over), matrix(second, over, right))
    size = dict(zip(first.axes, first.data.shape, strict=True)) | dict(zip(second.axes, second.data.shape, strict=True))
    axes = (*shared, *left, *right)
    result = Open(axes, product.reshape([size[name] for name in axes]))
    ordered = union(axes)
    return Open(ordered, align(result, ordered))


def _summed(value: Open, name: str) -> Open:
    position = value.axes.index(name)
    return Open(tuple(axis for axis in value.axes if axis != name), value.data.sum(axis=position))


Pieces = Callable[[Expr, Sequence[str], Mapping[str, Range]], Sequence[Mapping[str, Range]]]


def pieces_of_sums(count: int, most: int) -> Pieces:
    """Cuts sums into pieces of about so many numbers, along an index that only products have.

    Every value counts `count` times: it is that of so many networks, or draws.
    """

    def pieces(expr: Expr, indices: Sequence[str], ranges: Mapping[str, Range]) -> list[Mapping[str, Range]]:
        sizes = {name: ranges[name][1] - ranges[name][0] for name in indices_of(expr, ranges)}
        numbers = count * math.prod(sizes.values())
        inside = {name for node in walk(expr) if isinstance(node, Reduction) for name in node.indices}
        free = [name for name in indices if name in sizes and name not in inside]
        if numbers <= most or not free:
            return [ranges]
        start, stop = ranges[free[0]]
        step = max(1, most * (stop - start) // numbers)
        return [{**ranges, free[0]: (low, min(low + step, stop))} for low in range(start, stop, step)]

    return pieces


@dataclass(frozen=True)
class Scope:
    """What the names of an expression stand for while it is evaluated."""

    netsor: Draft
    ranges: Mapping[str, Range]
    variable: Callable[[Variable, Mapping[str, Range]], Open]
    dtype: Any = np.float64
    pieces: Pieces | None = None  # in which a sum of a product over indices is taken: ranges for each


def evaluate(expr: Expr, scope: Scope) -> Open:
    """Value of an expression over the open grid of its free indices.

    Shapes    the result has an axis for each free index that matters, and those of the variables read
    """

    def leaf(node: Expr) -> Open | None:
        match node:
            case Number(value):
                return Open((), np.asarray(value, dtype=scope.dtype))
            case IndexValue(name):
                return Open((name,), np.arange(*scope.ranges[name]).astype(scope.dtype))
            case Constant():
                found = constant_array(scope.netsor, node, scope.ranges)
                return Open(found.axes, found.data.astype(scope.dtype, copy=False))
            case Variable():
                return scope.variable(node, scope.ranges)
            case Reduction():
                return _reduced(node, scope)
        return None

    with np.errstate(all="ignore"):  # what is no number is refused with its statement: see `overflow`
        return fold(expr, {}, leaf, lambda call, *args: elementwise(ATOMS[call.atom].numpy, *args))


def _reduced(expr: Reduction, scope: Scope) -> Open:
    """Value of a reduction."""
    if REDUCTIONS[expr.reducer].linear:
        count = int(np.prod([scope.ranges[name][1] - scope.ranges[name][0] for name in expr.indices]))
        total = _sum(expr.arg, expr.indices, scope)
        return total if expr.reducer == "sum" else Open(total.axes, total.data / count)
    local = scope
    if expr.at:  # over the full range, then read at the forms
        full = {name: scope.netsor.ranges[name.rstrip("*")] for name in expr.indices}
        local = replace(scope, ranges={**scope.ranges, **full})
    inner = evaluate(expr.arg, local)
    axes = union(inner.axes, expr.indices)
    sizes = {name: stop - start for name, (start, stop) in local.ranges.items()}
    data = broadcast(inner, axes, sizes | dict(zip(inner.axes, inner.data.shape, strict=True)))
    positions = tuple(axes.index(name) for name in expr.indices)
    result = REDUCTIONS[expr.reducer].numpy(data, positions)
    if expr.removes:
        return Open(tuple(name for name in axes if name not in expr.indices), result)
    if not expr.at:
        return Open(axes, result)
    starts = {name: start for name, (start, _) in local.ranges.items()}
    return gather(Open(axes, result), dict(zip(expr.indices, expr.at, strict=True)), scope.ranges, starts)


def overflow(statement: Nonlin, value: Open) -> str:
    """What is wrong with the values that a statement took: inf or no number; '' if nothing, and -inf may be a mask.

    It is told as it was written; of what was added to a program, its span says what it was made for.
    """
    with np.errstate(all="ignore"):
        if bool((value.data < np.inf).all()):
            return ""
    what = statement.span.text or str(statement)
    reason = "it overflows, or leaves the domain of a function (log, sqrt, division)"
    return f"{what} took values that are not finite numbers: {reason}"


def _sum(expr: Expr, indices: Sequence[str], scope: Scope) -> Open:
    """Sum over indices: linear in its terms, and a product of factors is contracted, never broadcast."""
    if is_call(expr, "add", "subtract", "negative"):
        return elementwise(ATOMS[expr.atom].numpy, *(_sum(arg, indices, scope) for arg in expr.args))
    if isinstance(expr, Reduction) and expr.reducer == "sum":
        return _sum(expr.arg, (*indices, *expr.indices), scope)
    if scope.pieces is None:
        return _sum_of_product(expr, indices, scope)
    pieces = scope.pieces(expr, indices, scope.ranges)
    return reduce(
        partial(elementwise, np.add), (_sum_of_product(expr, indices, replace(scope, ranges=r)) for r in pieces)
    )


def _sum_of_product(expr: Expr, indices: Sequence[str], scope: Scope) -> Open:
    values = [evaluate(factor, scope) for factor in factors(expr, signs=True)]
    # the factors with coordinates are large, the others small: one product each, then one contraction
    groups = ([v for v in values if (COORDINATE in v.axes) == large] for large in (False, True))
    one = Open((), np.ones((), dtype=values[0].data.dtype))
    small, large = (reduce(partial(elementwise, np.multiply), group) if group else one for group in groups)
    own = [name for name in indices if name in small.axes or name in large.axes]
    repeated = math.prod(scope.ranges[name][1] - scope.ranges[name][0] for name in indices if name not in own)
    result = contract(small, large, own)
    return result if repeated == 1 else Open(result.axes, result.data * repeated)


def constant_array(netsor: Draft, node: Constant, ranges: Mapping[str, Range]) -> Open:
    """Value of a constant at its slots."""
    definition = netsor.constant[node.name]
    value = definition.value
    if isinstance(value, int | float):
        return Open((), np.asarray(value))
    full = value.array if isinstance(value, Table) else index_array(netsor, value, definition.indices)
    indices = [netsor.index[name] for name in definition.indices]
    return take(
        full, (), [index.start for index in indices], node.slots, (), ranges, [index.boundary for index in indices]
    )


def index_array(
    netsor: Draft, expr: Expr, axes: Sequence[str], ranges: Mapping[str, Range] | None = None
) -> NDArray[Any]:
    """Evaluate an expression of constants and indices over the full grid of the axes named, or over other `ranges`.

    Raises    ProgramError if a vector or scalar of the program occurs in it
    """
    ranges = netsor.ranges if ranges is None else ranges
    sizes = {name: ranges[name][1] - ranges[name][0] for name in axes}
    return broadcast(index_values(netsor, expr, ranges), axes, sizes)


def index_values(netsor: Draft, expr: Expr, ranges: Mapping[str, Range] | None = None) -> Open:
    """An expression of constants and indices over the indices that matter; truth values as 0 and 1.

    Raises    ProgramError if a vector or scalar of the program occurs in it
    """

    def refuse(node: Variable, _: Mapping[str, Range]) -> Open:
        raise ProgramError(f"{node} is not a constant or an index here")

    found = evaluate(expr, Scope(netsor, netsor.ranges if ranges is None else ranges, refuse))
    return replace(found, data=found.data.astype(float)) if found.data.dtype == bool else found
