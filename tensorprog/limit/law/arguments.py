"""What laws accept as orders of moments, levels of quantiles and numbers of draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError

__all__ = ["check_count", "check_levels", "check_order", "check_points"]


def check_order(order: Any) -> int:
    """The order of a moment; raise ProgramError unless it is a whole number from 1 to 64."""
    if isinstance(order, bool) or not hasattr(order, "__index__") or not 1 <= order <= 64:
        raise ProgramError(f"the order of a moment is a whole number from 1 to 64, not {order!r}")
    return int(order)


def check_levels(q: Any) -> NDArray[np.float64]:
    """Levels of quantiles; raise ProgramError unless they lie between 0 and 1."""
    levels = check_points("quantile levels", q)
    if not np.all((levels > 0) & (levels < 1)):
        raise ProgramError("quantile levels must lie strictly between 0 and 1")
    return levels


def check_points(what: str, values: Any) -> NDArray[np.float64]:
    """An array of real numbers, possibly infinite; raise ProgramError for anything else."""
    try:
        points = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ProgramError(f"{what} must be real numbers, not {values!r}") from None
    if np.isnan(points).any():
        raise ProgramError(f"{what} must be real numbers, and some are nan")
    return points


def check_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number; raise ProgramError for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ProgramError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)
