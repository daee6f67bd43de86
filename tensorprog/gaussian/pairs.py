"""`Pairs`: symmetric positive semidefinite matrices known by their diagonals, whose entries are computed when read.

The covariance of the outputs of a network on data is a chain of maps that are applied to every pair of inputs.  All
maps of a chain are applied to one tile of pairs after the other, for both sides of the diagonal at once, in threads:
numbers on the way are never written out.  A number E for each member bounds the errors off the diagonal, by the
inequality of Cauchy and Schwarz, as the diagonal K bounds the entries:

    |K[i, j]| <= sqrt(K[i, i] K[j, j])        |error of K[i, j]| <= sqrt(E[i] E[j])

Sums and products of such matrices, and E f(X) f(Y) as a function of the covariances, are such matrices again, and sums
and products of estimates K +- E give their bounds.  Of the latter, as the derivative by the covariance is
E f'(X) f'(Y), and that by a variance is E f''(X) f(Y) / 2, with r the largest relative error of a variance,

    E' = E E f'(X)^2 + r M + rounding        |v E f''(X) f(Y) + w E f(X) f''(Y)| / 2 <= sqrt(M[i] M[j])

With a_k the Hermite coefficients of f(X), M is at most half the sum of (k + 2) a_{k + 2}^2 + (k + 1) a_k^2.

Of variables of equal law E f(X) f(Y) is a power series in their correlation whose coefficients are not negative.  So
a bound on all correlations gives one on those of f(X) and f(Y), by the same inequality, before any of them is known,
and with it what a series leaves out, and how steep an arc sine is.  Single pairs whose correlations are too close to 1
for a series are taken apart.

Entries do not depend on errors, nor on other entries but those that they are made of.  So tiles can be read while a
matrix grows, row by row: of what is `growing`, nothing but tiles is known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.expectation import cross, without_batch
from tensorprog.gaussian.fast import COMPILED, passes, threaded
from tensorprog.gaussian.function import RealFunction
from tensorprog.gaussian.kernels import Elementary, add_kernel, elementary, ordinary, values
from tensorprog.gaussian.series import ENOUGH, LEFT, ORDERS, HermiteSeries, ProductSeries, hermite_series
from tensorprog.gaussian.series import series as hermite_rule
from tensorprog.gaussian.steps import ONE, ZERO, KernelSteps, Kind

Array = NDArray[Any]
Places = NDArray[np.intp]

__all__ = ["NotKnownError", "Pairs"]

SIDE = 128  # of a tile: a few of them fit into the cache of a processor
WIDE = 1024  # the longer side of one that compiled code takes row by row
ROUNDING = 1e-10  # relative errors of variances up to this are passed on by derivatives
DEEP = 50  # operations that wait for each other
STEEPEST = 1e3  # slope of the arc sine at the largest correlation at which a jump has a derivative still
STEP = 1e-5  # of variances, relatively, for derivatives
SAFE = 1.25  # of derivatives of variances by coefficients, of which there are finitely many
ORDER = ORDERS[3]  # of series of rows that are filled in one after the other
ALIKE = 16  # errors that differ by less are given as the largest


class NotKnownError(Exception):
    """More than tiles is asked for of a matrix that grows."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """A symmetric positive semidefinite matrix; `bounds` are the diagonal and what bounds the errors elsewhere.

    Shapes    diagonal, bounds (n,); entries(rows, columns, known) a tile, with what is known of it on the way
    """

    diagonal: Estimate
    bounds: Estimate
    tile: Callable[[slice, slice, dict[int, Array]], Array] | None
    nearest: Callable[[], float]
    # steps as in `added`, where no `tile` is given
    add: Callable[[KernelSteps, list[Pairs], int, float], int] | None = None
    depth: int = 0  # operations until the entries
    growing: bool = False  # whether nothing but tiles is to be asked for
    full: bool = True  # whether all rows are filled in

    @staticmethod
    def of(value: Array, error: Array) -> Pairs:
        """A matrix that is known, with the errors of its diagonal."""
        return Pairs.of_tiles(Estimate(np.diagonal(value), error), lambda rows, columns, known: value[rows, columns])

    @staticmethod
    def of_tiles(diagonal: Estimate, tile: Callable[[slice, slice, dict[int, Array]], Array]) -> Pairs:
        """The same of one whose entries are computed in tiles."""
        size = diagonal.value

        def nearest() -> float:
            scale = 1 / np.sqrt(np.where(size > 0, size, 1.0))

            def largest(start: int) -> float:
                rows, before = slice(start, start + SIDE), slice(0, start + SIDE)
                part = tile(rows, before, {}) * scale[before]
                np.einsum("ii->i", part[:, start:])[:] = 0.0
                return float((np.maximum(part.max(axis=1), -part.min(axis=1)) * scale[rows]).max())

            return min(max(threaded(largest, range(0, len(size), SIDE)), default=0.0), 1.0)

        return Pairs(diagonal, diagonal, tile, nearest)

    @staticmethod
    def filled(value: Array, errors: Array, near: float | None) -> Pairs:
        """A matrix that is filled in by rows, in place, with errors of its diagonal and what bounds all others.

        A bound on correlations is not known before it is full.

        Shapes    value (n, n), errors (2, n)
        """

        def nearest() -> float:
            if near is None:
                raise NotKnownError
            return near

        bounds = Estimate(np.diagonal(value), np.maximum(*errors))
        return replace(Pairs.of(value, errors[0]), bounds=bounds, nearest=nearest, growing=True, full=near is not None)

    @cached_property
    def near(self) -> float:
        """A bound on the correlations off the diagonal."""
        return self.nearest()

    def entries(self, rows: slice, columns: slice, known: dict[int, Array], out: Array | None = None) -> Array:
        """A tile, which may stand where there is place for it."""
        if "estimate" in self.__dict__:
            return self.estimate.value[rows, columns]
        if id(self) not in known:
            if self.tile is not None:
                known[id(self)] = self.tile(rows, columns, known)
            else:
                steps, others = self._steps
                given = [other.entries(rows, columns, known) for other in others]
                known[id(self)] = steps.run(given, given[0].shape, (rows,), (slice(None), columns), out)
        return known[id(self)]

    @cached_property
    def _steps(self) -> tuple[KernelSteps, list[Pairs]]:
        """The steps that make a tile, and the matrices whose tiles they read."""
        steps, others = KernelSteps(), list[Pairs]()
        steps.result = self.added(steps, others)
        return steps, others

    def added(self, steps: KernelSteps, others: list[Pairs], total: int = ZERO, number: float = 1.0) -> int:
        """Add what makes total + number * entries to some steps; the place of what they make."""
        key = id(self), total, number
        if key not in steps.made:
            if self.add is not None and "estimate" not in self.__dict__:
                steps.made[key] = self.add(steps, others, total, number)
            elif key == (id(self), ZERO, 1.0):
                others.append(self)
                steps.made[key] = steps.add(Kind.KNOWN, at=len(others) - 1)
            else:
                steps.made[key] = steps.add(Kind.LINEAR, self.added(steps, others), ZERO, total, number)
        return steps.made[key]

    @cached_property
    def estimate(self) -> Estimate:
        """The matrix, with errors that are the same for all entries where they are alike."""
        if self.growing:
            raise NotKnownError
        count = len(self.diagonal.value)
        value = np.empty((count, count))
        COMPILED.prepare((self.depth + 1) * count**2 / 2)

        def fill(place: tuple[slice, slice]) -> None:
            rows, columns = place
            part = value[rows, columns]
            with np.errstate(all="ignore"):
                found = self.entries(rows, columns, {}, part)
            if found is not part:
                part[...] = found
            before = slice(columns.start, min(columns.stop, rows.start))
            value[before, rows] = value[rows, before].T
            if columns.stop > rows.start:
                square = value[rows, rows]
                square[...] = np.tril(square) + np.tril(square, -1).T

        wide = SIDE if passes() is None else WIDE
        parts = [slice(start, min(start + SIDE, count)) for start in range(0, count, SIDE)]
        threaded(fill, [(rows, slice(start, min(start + wide, rows.stop))) for rows in reversed(parts)
                        for start in range(0, rows.stop, wide)])  # fmt: skip
        np.fill_diagonal(value, self.diagonal.value)
        size = np.sqrt(np.maximum(self.bounds.error, self.diagonal.error))
        error = np.broadcast_to(size.max(initial=0.0) ** 2, value.shape) if self.alike else np.outer(size, size)
        return Estimate(value, error)

    @property
    def alike(self) -> bool:
        """Whether one error is given for all entries."""
        size = np.maximum(self.bounds.error, self.diagonal.error)
        return bool(size.max(initial=0.0) <= ALIKE * size.min(initial=np.inf))

    def combined(self, other: Pairs | Estimate, operation: Callable[[Any, Any], Any]) -> Pairs:
        """The sum or the product with another matrix, or with a number that is not negative."""
        plus = operation is operator.add
        depth = self._deeper()
        if isinstance(other, Pairs):
            depth = max(depth, other._deeper())

            def add(steps: KernelSteps, others: list[Pairs], total: int, number: float) -> int:
                if plus:
                    return other.added(steps, others, self.added(steps, others, total, number), number)
                return steps.add(Kind.PRODUCT, self.added(steps, others), other.added(steps, others), total, number)

            return Pairs(
                operation(self.diagonal, other.diagonal),
                operation(self.bounds, other.bounds),
                None,
                lambda: max(self.near, other.near) if plus else self.near * other.near,
                add,
                depth,
                self.growing or other.growing,
                self.full and other.full,
            )
        diagonal, by = operation(self.diagonal, other), float(other.value)

        def nearest() -> float:
            shares = np.nan_to_num(by / diagonal.value, nan=1.0) if plus else np.zeros(1)
            return self.near + (1 - self.near) * float(shares.max(initial=0.0))

        def add_number(steps: KernelSteps, others: list[Pairs], total: int, number: float) -> int:
            if plus:
                more = steps.add(Kind.LINEAR, ONE, ZERO, total, by * number) if by else total
                return self.added(steps, others, more, number)
            return self.added(steps, others, total, by * number)

        return replace(self, diagonal=diagonal, bounds=operation(self.bounds, other), tile=None, nearest=nearest,
                       add=add_number, depth=depth)  # fmt: skip

    def moved(self, by: int, count: int) -> Pairs:
        """So many members, each of them the one that stands `by` places later, and zero where there is none."""
        low, high = max(0, -by), min(count, len(self.diagonal.value) - by)

        def along(array: Array) -> Array:
            found = np.zeros(count)
            found[low:high] = array[low + by : high + by]
            return found

        def tile(rows: slice, columns: slice, known: dict[int, Array]) -> Array:
            first, second = (slice(max(cut.start, low), min(cut.stop, high)) for cut in (rows, columns))
            found = np.zeros([min(cut.stop, count) - cut.start for cut in (rows, columns)])
            if first.start < first.stop and second.start < second.stop:
                there = [slice(cut.start + by, cut.stop + by) for cut in (first, second)]
                part = self.entries(there[0], there[1], {})
                if part.shape == found.shape:
                    return part
                place = slice(first.start - rows.start, None), slice(second.start - columns.start, None)
                found[place][: len(part), : part.shape[1]] = part
            return found

        diagonal, bounds = (Estimate(along(own.value), along(own.error)) for own in (self.diagonal, self.bounds))
        return replace(self, diagonal=diagonal, bounds=bounds, tile=tile, nearest=lambda: self.near,
                       add=None, depth=self._deeper())  # fmt: skip

    def _deeper(self) -> int:
        """The depth of what is made of this one; what is too deep is computed now."""
        known = (self.estimate, self.near) if self.depth >= DEEP else ()
        return 0 if known else self.depth + 1

    def under(self, f: RealFunction) -> Pairs | None:
        """E f(X) f(Y) for Gaussian X, Y of mean 0 and these covariances.

        None where errors are not rounding, and for functions that have neither closed forms nor a short series.
        """
        var = np.array(self.diagonal.value)
        with np.errstate(invalid="ignore", divide="ignore"):
            relative, others = (np.where(e > 0, e / var, 0.0) for e in (self.diagonal.error, self.bounds.error))
        plain = without_batch(f)
        if plain is None or max(relative.max(initial=0.0), others.max(initial=0.0)) > ROUNDING or not ordinary(var):
            return None
        forms = elementary(plain)
        if forms is None:
            found = self._by_series(plain) if self.full else self._by_rows(plain, var)
        else:
            found = self._closed(forms, var)
        if found is None:
            return None
        value, growth = found.value, found.growth
        passed = self.bounds.error * found.slope + relative.max(initial=0.0) * found.moved
        diagonal, bounds = (Estimate(value, found.rounding + each) for each in (relative * growth, passed))

        def tile(rows: slice, columns: slice, known: dict[int, Array]) -> Array:
            cov = self.entries(rows, columns, known)
            if not self.full and columns.start <= rows.start < columns.stop:
                var[rows] = np.diagonal(cov, rows.start - columns.start)
            return found.entries(rows, columns, cov)

        def nearest() -> float:
            return float(np.minimum(found.at(self.near) / np.where(value > 0, value, 1.0), 1.0).max(initial=0.0))

        def add(steps: KernelSteps, others: list[Pairs], total: int, number: float) -> int:
            assert found.add is not None
            return found.add(steps, self.added(steps, others), total, number)

        made = (tile, None) if found.add is None else (None, add)
        return replace(self, diagonal=diagonal, bounds=bounds, tile=made[0], nearest=nearest, add=made[1],
                       depth=self._deeper())  # fmt: skip

    def _closed(self, f: Elementary, var: Array) -> _Map | None:
        """By closed forms."""
        near = self.near if f.jumps else 1.0
        steep = 1 / max(1 - near**2, EPS) ** 0.5
        if f.jumps and steep > STEEPEST:
            return None

        def entries(rows: slice, columns: slice, cov: Array) -> Array:
            return values(f, f, var[rows, None], var[None, columns], cov)

        def add(steps: KernelSteps, cov: int, total: int, number: float) -> int:
            return add_kernel(steps, f, f, var[:, None], var[None], cov, total, number, near)

        both = np.stack((var, var * (1 + STEP)))
        value, more = values(f, f, both, both, both)
        growth, rounding = np.abs(more - value) / STEP, EPS * f.rounding(var) ** 2
        return _Map(
            value, rounding, lambda near: values(f, f, var, var, near * var), growth,
            *f.slopes(var, steep), entries, None if self.growing else add,
        )  # fmt: skip

    def _by_rows(self, f: RealFunction, var: Array) -> _Map | None:
        """By Hermite coefficients of one member after the other, as the variances become known; without errors."""
        first, step = int(f.parity < 0), 2 if f.parity else 1

        def known(at: slice) -> HermiteSeries | None:
            return None if f.jumps else hermite_rule(lambda _: f, np.zeros(len(var[at])), np.sqrt(var[at]), ORDER)

        begun = known(slice(None))
        if begun is None:
            return None
        terms, left, value = begun.coefficients, begun.tail / begun.norm, begun.norm**2

        def entries(rows: slice, columns: slice, cov: Array) -> Array:
            here = range(*rows.indices(len(var)))
            own = [(k - rows.start, k - columns.start) for k in here if columns.start <= k < columns.stop]
            if own:
                found = known(rows) if var[rows].all() else None
                if found is None:
                    raise NotKnownError
                terms[:, rows], left[rows], value[rows] = found.coefficients, found.tail / found.norm, found.norm**2
            rho = cov / np.sqrt(var[rows, None] * var[columns])
            for place in own:
                rho[place] = 0.0
            near = min(float(np.abs(rho).max(initial=0.0)), 1.0)
            if near**ORDER * max(left[rows].max(), left[columns].max()) ** 2 > LEFT:
                raise NotKnownError
            order = ORDER if near == 1.0 else min(ORDER, 1 + int(np.log(LEFT) / np.log(max(near, LEFT))))
            total, x = np.zeros(rho.shape), rho**step
            for k in reversed(range(first, order, step)):
                total *= x
                total += terms[k, rows, None] * terms[k, columns]
            total *= rho**first
            for place, size in zip(own, value[rows], strict=True):
                total[place] = size
            return total

        zero = np.zeros(len(var))
        return _Map(value.copy(), zero, lambda near: zero, zero, zero, zero, entries)

    def _by_series(self, f: RealFunction) -> _Map | None:
        """By Hermite coefficients."""
        var = self.diagonal.value
        if not var.all() or f.jumps:
            return None
        sd, places = np.sqrt(var), np.arange(len(var))
        law = lambda at: f, np.zeros(sd.shape), sd
        series = hermite_series(*law, self.near)
        if series is None:
            return None
        if self.growing and self.near > series.reach.min() ** 2:  # no pair is taken apart
            series = hermite_rule(*law) or series
        order, reach = np.arange(len(series.coefficients)), series.reach
        first, second, near = self._above(reach)
        terms, inverse = ProductSeries(series, series), 1 / sd
        one, two = (Estimate(var[at], self.diagonal.error[at]) for at in (first, second))
        known = self.estimate.value[first, second] if len(first) else np.zeros(0)
        errors = np.sqrt(self.bounds.error[first] * self.bounds.error[second])
        exact = cross(f, f, 0.0, 0.0, one, two, Estimate(known, errors), slack=np.inf)

        def entries(rows: slice, columns: slice, cov: Array) -> Array:
            rho = np.clip(cov * (inverse[rows, None] * inverse[columns]), -1.0, 1.0)
            found = terms.values(places[rows, None], places[None, columns], rho, compiled=passes())[0]
            here = slice(*np.searchsorted(first, (rows.start, rows.stop)))
            at = second[here] - columns.start
            inside = (at >= 0) & (at < found.shape[1])
            found[first[here][inside] - rows.start, at[inside]] = exact.value[here][inside]
            return found

        value, coefficients, weights = series.norm**2, series.coefficients, (near**order)[:, None]
        slope = (order[1:, None] * weights[:-1] * coefficients[1:] ** 2).sum(axis=0) / var
        moved = ((order + 1)[:, None] * weights * coefficients**2).sum(axis=0) / 2
        moved += (order[2:, None] * weights[:-2] * coefficients[2:] ** 2).sum(axis=0) / 2
        uneven = (4 if self.growing else 2) * np.max(
            series.rough / np.where(series.norm > 0, series.norm, 1.0), initial=0.0
        )
        rounding = value * (LEFT + uneven) + 8 * EPS * series.steep**2
        rounding += np.minimum(series.tail**2 * near ** len(order), ENOUGH**2 * value)
        for at in (first, second):
            np.maximum.at(rounding, at, exact.error)
        growth = SAFE * terms.spread(places, places)
        parts = np.concatenate([coefficients, series.tail[None]]) ** 2
        return _Map(
            value, rounding, lambda near: near ** np.arange(len(parts)) @ parts, growth, slope,
            moved, entries,
        )  # fmt: skip

    def _above(self, reach: Array) -> tuple[Places, Places, float]:
        """Pairs i > j whose correlations are larger than the product of both numbers, and a bound on all others."""
        if self.near <= reach.min(initial=1.0) ** 2:
            return np.zeros(0, int), np.zeros(0, int), self.near
        inverse = 1 / np.sqrt(self.diagonal.value)
        size = np.tril(np.abs(self.estimate.value) * inverse * inverse[:, None], -1)
        far = size > reach * reach[:, None]
        first, second = np.nonzero(far)
        size[far] = 0.0
        return first, second, float(size.max(initial=0.0))


class _Map(NamedTuple):
    """E f(X)^2 and its rounding; E f(X) f(Y) for Y like X at a correlation; dE f(X)^2 / d log var, E f'(X) f'(Y) and
    what variances do to E f(X) f(Y) at a fixed covariance; tiles from covariances.
    """

    value: Array
    rounding: Array
    at: Callable[[float], Array]
    growth: Array
    slope: Array
    moved: Array
    entries: Callable[[slice, slice, Array], Array]
    add: Callable[[KernelSteps, int, int, float], int] | None = None  # the same as steps
