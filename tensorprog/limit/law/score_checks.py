"""What the check asks of the limit's numbers: where a score that is too large goes, and which scores are degenerate.

A score u.v / sqrt(n) divided by sqrt(n) converges to E[Z^u Z^v | p-ring], which `coefficients` gives at a few draws of
p-ring.  Definition 1 may make the joint law of scores degenerate: `degenerate` looks at the kernel of their covariance.

Source    Sakai et al. 2025 (arXiv 2506.00846), Definition 1 and Theorem 1
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.errors import MemoryLimitError
from tensorprog.language.evaluate import broadcast
from tensorprog.language.ir import MatMul, Netsor
from tensorprog.language.linalg import triangular
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.conditional_moments import DrawSource
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import Value

__all__ = ["coefficients", "degenerate"]

Array = NDArray[Any]
Member = tuple[str, tuple[int, ...]]  # of a score family
Found = tuple[tuple[Member, ...], str]  # members, and what is degenerate in their law

MEMBERS = 128  # of all scores together, that are looked at; of more, the first ones along each index
FAMILIES = 8  # of scores, that are looked at together
ROUNDING = 1e-14
EXACT = 1e-7  # relative errors of correlations up to which an eigenvalue that they reach is called 0
DRAWS, FEWEST = 64, 8
NUMBERS = 1 << 22  # held by all draws together
LOOKED_AT = 1 << 4  # members of the average
LISTED = 1 << 20  # of an average that is a number
SMALL, NEARBY = 1e-3, 1 + 1e-9  # values that may be rounding, and how far off draws are that tell
COVARIANCES = 1 << 22  # of the outputs of one weight family, which are factored


# ---- scores that are too large ---------------------------------------------------------------------------------------


def coefficients(netsor: Netsor, name: str) -> tuple[Array, Array, Box, bool]:
    """Values and errors of an average at draws of p-ring, its members that were looked at, and whether these are all.

    Of large families the first few members along each index are looked at.  An average that no score reaches has one
    draw.

    Shapes    (draws, *members), twice
    Scale     at most NUMBERS numbers are held for the draws
    Accuracy  bounds where integrals are in closed form or by quadrature, else it holds with a probability of 99.9 %
    Raises    NotCompiledError, AccuracyError, MemoryLimitError
    """
    recursion = NumericRecursion(netsor)
    spans, random = recursion.netsor.families[name].ranges, name in recursion.random
    along = len(spans) and max(2, int((LOOKED_AT if random else LISTED) ** (1 / len(spans))))
    box = tuple((start, min(stop, start + along)) for start, stop in spans)
    if not random:
        return *_in_box(recursion, recursion.average(name), name, box), box, box == spans
    largest = max((_covariances(netsor, s) for s in netsor.body if isinstance(s, MatMul)), default=0)
    if largest > COVARIANCES:
        raise MemoryLimitError(f"{largest} covariances of the outputs of one family of weights are too many to factor")
    source = DrawSource(recursion, [(name, box)])
    points = _normals(source.dim, max(source.dim, source.draws.width))

    def drawn(points: Array) -> Array:
        with source.at(points) as found:
            return source.mean(found, 0)

    value = drawn(points)
    error = source.inner + source.off("mean") + source.relative * np.abs(value)
    if np.max(np.abs(value), initial=0.0) < SMALL:  # what cancels leaves rounding, which nearby draws do not share
        error = error + np.abs(drawn(NEARBY * points) - value).max(axis=0)
    return value, error, box, box == spans


def _covariances(netsor: Netsor, statement: MatMul) -> int:
    """Between the outputs of the same member of a weight."""
    members, weights = (math.prod(netsor.families[v.name].shape) for v in (statement.target, statement.weight))
    return members * max(1, members // weights)


def _in_box(recursion: NumericRecursion, found: Value, name: str, box: Box) -> tuple[Array, Array]:
    """The members in a box of a value without draws, as of one draw.

    Shapes    (1, *members), twice
    """
    ranges = position_names(recursion.netsor, name)
    sizes = {axis: stop - start for axis, (start, stop) in ranges.items()}
    at = (None, *(slice(0, stop - start) for start, stop in box))
    return broadcast(found.value, tuple(ranges), sizes)[at], broadcast(found.error, tuple(ranges), sizes)[at]


def _normals(dim: int, numbers: int) -> Array:
    """Standard normals of as many draws as fit.

    Shapes    (draws, dim)
    """
    draws = min(DRAWS, NUMBERS // max(1, numbers))
    if draws < FEWEST:
        raise MemoryLimitError(f"{numbers} numbers for a draw are too many")
    return np.random.default_rng(0).standard_normal((draws, dim))


# ---- degenerate scores -----------------------------------------------------------------------------------------------


def degenerate(recursion: NumericRecursion, names: Sequence[str]) -> list[Found]:
    """Members of scores that vanish in the limit, or that others decide: of each set of families the first ones.

    Scale     one matrix over at most MEMBERS members; of larger families not all are looked at
    Accuracy  what is called 0 is 0 within the errors of the covariances; nothing is said where these are large
    Source    Sakai et al. 2025, Definition 1 (iv)
    """
    if recursion.replicates is not None:
        return []  # draws are not exact
    names = [name for name in names if name in recursion.scores and _covered(recursion, name)][:FAMILIES]
    shown = {name: recursion.netsor.families[name].members(max(1, MEMBERS // len(names))) for name in names}
    members = [(name, at) for name in names for at in shown[name]]
    found: dict[frozenset[str], Found] = {}
    for which, how in _dependent(*_covariance(recursion, shown)) if members else ():
        chosen = tuple(members[k] for k in which)
        found.setdefault(frozenset(name for name, _ in chosen), (chosen, how))
    return list(found.values())


def _covered(recursion: NumericRecursion, name: str) -> bool:
    """Whether Definition 1 speaks of a score: both operands are Gaussian, of mean zero, and independent."""
    box = {str(k): span for k, span in enumerate(recursion.netsor.families[name].ranges)}
    left, right = recursion.operands(name)
    return (
        all(recursion.parts.gaussian(part) for side in (left, right) for part in recursion.parts.of(side.name))
        and all(recursion.mean(side.name).zero() for side in (left, right))
        and all(term.value.zero() for term in recursion.reference_covariance(left, right, box).terms)
    )


def _covariance(recursion: NumericRecursion, members: Mapping[str, Sequence[tuple[int, ...]]]) -> tuple[Array, Array]:
    """The covariance of the members that are looked at, family after family, and its errors."""

    def block(f: str, g: str) -> Estimate:
        rows, columns = np.array(members[f], np.int64), np.array(members[g], np.int64)
        at = {str(k): row[:, None] for k, row in enumerate(rows.T)}
        at |= {f"{k}_": row[None, :] for k, row in enumerate(columns.T)}
        moment, shape = recursion.score(f, g).at(at), (len(rows), len(columns))
        return Estimate(np.broadcast_to(moment.value, shape), np.broadcast_to(moment.error, shape))

    blocks = [[block(f, g) for g in members] for f in members]
    return (np.block([[part.value for part in row] for row in blocks]),
            np.block([[part.error for part in row] for row in blocks]))  # fmt: skip


def _dependent(cov: Array, error: Array) -> Iterator[tuple[list[int], str]]:
    """Rows whose variance is 0; pairs of the others that are multiples; or, without any, one that those before decide.

    The last row of a triangular factor that is 0 on the diagonal is decided by those before it.
    """
    variance = np.diag(cov)
    vanishing = variance <= ROUNDING * np.max(variance, initial=0.0)
    yield from (([int(k)], "the variance is 0 in the limit, so the score vanishes") for k in np.flatnonzero(vanishing))
    kept = np.flatnonzero(~vanishing)
    root = np.sqrt(variance[kept])
    correlation = cov[np.ix_(kept, kept)] / np.outer(root, root)
    slack = max(ROUNDING, 4 * np.max(error[np.ix_(kept, kept)] / np.outer(root, root), initial=0.0))
    if slack > EXACT or not len(kept):
        return
    pairs = np.argwhere(np.triu(np.abs(correlation) >= 1 - slack, 1))
    for i, j in pairs:
        how = f"the correlation is {np.sign(correlation[i, j]):.0f} in the limit, so the joint law is degenerate"
        yield [int(kept[i]), int(kept[j])], how
    if not len(pairs):
        left = np.diagonal(triangular(correlation)) ** 2  # variances given the members before
        for k in np.flatnonzero(left <= len(kept) ** 2 * slack)[:1]:
            yield [int(kept[k])], "a linear function of other scores in the limit, so the joint law is degenerate"
