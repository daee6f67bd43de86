"""Members that have one law, pair by pair: tokens that differ in their queries alone.

Given the keys, y[i] = sum over j of softmax[j](p[i,j]) o[j] depends on its token by p[i,.] only.  These scores are
Gaussian with the covariances c(i, m) d(j, k), so that the law of y[i] and y[m] depends on c(i, i), c(m, m) and c(i, m):
where queries are stationary there is one covariance for each lag.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.expr import Variable, index_names, walk
from tensorprog.limit.law.conditional_moments import is_linear
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["alike"]

DIGITS = 9  # to which covariances are equal
LARGE = 4  # keys, beside how many there are
MEMBER = "0"  # the position of a family of one index


def alike(recursion: NumericRecursion, name: str) -> NDArray[np.intp] | None:
    """The number of the group of every pair of members, of which those in one group have one law; None if not known.

    Shapes    (members, members)
    """
    family = recursion.netsor.families[name]
    if len(family.ranges) != 1 or recursion.layered or not is_linear(recursion, name):
        return None
    rows = _rows(recursion, name)
    if not rows:
        return None
    count = family.shape[0]
    groups = np.zeros((count, count), np.intp)
    for (f, k), (g, m) in product(sorted(rows.items()), repeat=2):
        axes = str(k), f"{m}_"
        for term in recursion.score_covariance(f, g).terms:
            if any(axis in equation.indices for equation in term.equations for axis in axes):
                return None
            for factor in term.value.factors:
                if set(axes) & set(factor.axes):
                    if not set(factor.axes) <= set(axes):
                        return None
                    groups = _finer(groups, np.broadcast_to(factor.aligned(axes).value, groups.shape))
    return groups


def _rows(recursion: NumericRecursion, name: str) -> dict[str, int]:
    """The scores that members of a vector read, and the positions of the member there; none if more depends on it."""
    rows: dict[str, int] = {}
    for part in recursion.parts.of(name):
        if any(MEMBER in slot.indices for _, v, _ in part.inner for slot in v.slots) or part.box:
            return {}
        for node in (node for expr in (part.coefficient, *(w for w, *_ in part.inner)) for node in walk(expr)):
            if not isinstance(node, Variable):
                if MEMBER in index_names(node):
                    return {}
                continue
            at = [k for k, slot in enumerate(node.slots) if MEMBER in slot.indices]
            if node.name not in recursion.scores:
                if at:
                    return {}
            elif len(at) != 1 or node.slots[at[0]].bare != MEMBER or rows.setdefault(node.name, at[0]) != at[0]:
                return {}
    return rows


def _finer(groups: NDArray[np.intp], values: NDArray[Any]) -> NDArray[np.intp]:
    """Groups in which these numbers are equal too, and those at both members with themselves."""
    size = np.max(np.abs(values), initial=0.0) or 1.0
    rounded = np.round(values / size, DIGITS)
    labels = np.searchsorted(np.unique(rounded), rounded)  # half the time of unique alone
    own = np.unique(np.diagonal(labels), return_inverse=True)[1]
    swapped = [] if np.array_equal(labels, labels.T) else [labels.T]
    for more in (labels, *swapped, own, own[:, None]):
        if more.any():  # else it tells nothing apart
            groups = _numbered(groups * (1 + more.max()) + more)
    return groups


def _numbered(keys: NDArray[np.intp]) -> NDArray[np.intp]:
    """Numbers of the different keys, in ascending order; without sorting where keys are not large."""
    if keys.max() > LARGE * keys.size:
        return np.unique(keys, return_inverse=True)[1].reshape(keys.shape)
    return (np.cumsum(np.bincount(keys.ravel()) > 0) - 1)[keys]
