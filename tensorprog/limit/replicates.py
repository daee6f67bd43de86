"""Replicates of draws: an axis of values and moments, until a number leaves the compiler."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.qmc import standard_errors
from tensorprog.limit.moments import Moment, Term, Value

__all__ = ["REPLICATE", "settled"]

Settled = TypeVar("Settled", Moment, Value)
REPLICATE = "&"  # the axis of replicates


def settled(found: Settled) -> Settled:
    """The mean over replicates of a value or a moment; three standard errors are part of the error."""
    if isinstance(found, Moment):
        terms = tuple(Term(term.equations, settled(term.value)) for term in found.terms)
        return Moment(terms, {k: v for k, v in found.ranges.items() if k != REPLICATE})
    if REPLICATE not in found.axes:
        return found
    axes: tuple[str, ...] = tuple(name for name in found.axes if name != REPLICATE)
    each = found.aligned((REPLICATE, *axes))
    error = standard_errors(each.value) + each.error.mean(axis=0)
    return Value(axes, Estimate(np.asarray(each.value.mean(axis=0)), error))
