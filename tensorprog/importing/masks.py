"""Fixed masks as conditions on indices: `j <= i` where that is what they say, else a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorprog.importing.parameters import Parameters
from tensorprog.importing.values import Axes, AxisPart, Traced
from tensorprog.language.expr import Expr, IndexValue, Number, call

__all__ = ["condition", "masked", "unchanging"]

NEVER = -1e30  # what is added to a score that no one may read: finite minima of a type count as minus infinity
PATTERNS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("less_equal", np.less_equal),
    ("less", np.less),
    ("greater_equal", np.greater_equal),
    ("greater", np.greater),
    ("equal", np.equal),
    ("not_equal", np.not_equal),
)


def unchanging(sketch: Parameters, one: Any, other: Any) -> Any:
    """A mask that is the same at both widths, as far as it differs from entry to entry."""
    small = [np.asarray(one, bool), np.asarray(other, bool)]
    for k in range(small[0].ndim):
        if all((mask == mask.take([0], k)).all() for mask in small):
            small = [mask.take([0], k) for mask in small]
    if not np.array_equal(small[0], small[1]):
        raise sketch.refuse("a mask changes with the width", "use the same mask at every width")
    return one


def condition(sketch: Parameters, mask: Any, axes: Axes) -> Expr | bool:
    """Where a boolean array is true, in indices; True or False if that is everywhere or nowhere."""
    mask = np.asarray(mask, bool)
    if mask.all() or not mask.any():
        return bool(mask.all())
    lead = len(axes) - mask.ndim
    kept: list[AxisPart] = []
    index: list[Any] = []
    for k, size in enumerate(mask.shape):
        if size == 1 or (mask == mask.take([0], k)).all():
            index.append(0)
        else:
            kept += axes[lead + k]
            index.append(slice(None))
    if any(atom.is_width for atom in kept):
        raise sketch.refuse("a mask differs from coordinate to coordinate of a vector", "mask indices, not coordinates")
    small = mask[tuple(index)].reshape([atom.size for atom in kept])
    if len(kept) == 2:
        rows, columns = np.indices(small.shape)
        for name, compare in PATTERNS:
            if (compare(columns, rows) == small).all():
                return call(name, IndexValue(kept[1].name), IndexValue(kept[0].name))
    return call("equal", sketch.table(small.astype(float), kept), Number(1))


def masked(sketch: Parameters, value: Traced, array: Any) -> tuple[Traced, Any]:
    """The value with -inf where a fixed tensor that is added has it, and what is left to be added."""
    array = np.asarray(array, float)
    never = array <= NEVER
    if not never.any():
        return value, array
    where = condition(sketch, ~never, value.axes)
    value = sketch.level(value, "a score")
    if where is False:
        raise sketch.refuse("a mask hides everything", "let each token see at least one")
    expr = value.expr if where is True else call("where", where, value.expr, Number(-np.inf))
    return Traced(value.axes, expr, copies=value.copies), np.where(never, 0.0, array)
