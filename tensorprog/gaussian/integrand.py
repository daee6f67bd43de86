"""Integrands: functions of jointly Gaussian variables with the laws of these, batches of them, and parts of a batch.

A batch is taken apart in tiles: memory stays bounded, arrays stay in cache, symmetric halves are computed once. A tile
is computed from its own arguments alone, so numbers do not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.gaussian.estimate import TINY, Estimate
from tensorprog.gaussian.function import RealFunction, crude_norm
from tensorprog.gaussian.normal import CORRELATION_SLACK, Correlation, correlation

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]
Index = tuple[Any, ...]  # of members: slices, or index arrays that broadcast against each other

__all__ = [
    "FactoredIntegrand",
    "Index",
    "Integrand",
    "exchanged",
    "filled",
    "part",
    "refuse_covariance_of_constants",
    "tiled",
    "toeplitz_values",
    "toeplitz_view",
    "unanswered",
]

# an answer whose error exceeds this, relative to the size of the functions, lets the next method try as well
ENOUGH = 1e-12
PART = 8192  # members computed at once where functions have no parameter arrays


def unanswered(shape: tuple[int, ...]) -> Estimate:
    """No answer: not a number, of infinite error."""
    return Estimate(np.full(shape, np.nan), np.full(shape, np.inf))


class Integrand(ABC):
    """Functions of jointly Gaussian variables, whose expectation is asked, with a batch of laws of these."""

    tolerance: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of the batch."""

    @property
    @abstractmethod
    def norm(self) -> Array:
        """A size of the product of functions, to a digit or so."""

    def pending(self, found: Estimate) -> Mask:
        """Members whose error is above the tolerance, relative to the value or, where that is not enough, the norm."""
        with np.errstate(over="ignore", invalid="ignore"):
            pending = ~(found.error <= self.tolerance * np.abs(found.value) + 2 * TINY)
            if np.any(pending & np.isfinite(found.error)):
                pending &= ~(found.error <= self.tolerance * self.norm + 2 * TINY)
        return np.asarray(pending)

    def in_parts(self, compute: Callable[[Any], Estimate]) -> Estimate:
        """compute(part) for parts of the integrand, put together."""
        return compute(self)

    def for_members(self, chosen: Mask, compute: Callable[[Any], Estimate]) -> Estimate:
        """compute(integrand) for the chosen members; there is no answer for the others."""
        return compute(self).where(chosen, unanswered(chosen.shape))


@dataclass(frozen=True, eq=False)
class FactoredIntegrand(Integrand):
    """Functions of one variable each, of one variable or two: their product is asked for.

    A covariance may exceed sqrt(var var) by `slack`, relatively; it then counts as correlation +-1. `pairs` says that
    the last axes of the batch are (*i, *j) with so many indices i of X and as many j of Y.

    Shapes    arrays have one number of axes and broadcast to the batch; `places` are numbers of the different laws of
              each variable, which keep a method's knowledge of them for all parts
    """

    functions: tuple[RealFunction, ...]
    mu: tuple[Array, ...]
    var: tuple[Array, ...]
    cov: Array
    slack: float = CORRELATION_SLACK
    pairs: int = 0
    plain: bool = True  # no parameter of a function varies over the batch: any selection of members can be evaluated
    places: tuple[NDArray[Any], ...] = ()
    tolerance: float = ENOUGH

    @staticmethod
    def of(
        functions: Sequence[RealFunction],
        mu: Sequence[ArrayLike],
        var: Sequence[ArrayLike],
        cov: ArrayLike = 0.0,
        slack: float = CORRELATION_SLACK,
        pairs: int = 0,
    ) -> FactoredIntegrand:
        """From arrays of any shapes that broadcast together with the parameters of the functions.

        Means and variances that are all equal are held once: the batch has axes of length 1 in their place.
        """
        count = len(functions)
        arrays: list[Array] = [np.asarray(array, dtype=np.float64) for array in (*mu, *var, cov)]
        known = {id(f): _plain(f) for f in functions}
        kept = tuple(plain for f in functions if (plain := known[id(f)]) is not None)
        if len(kept) == count:
            ndim = max(*(array.ndim for array in arrays), *(len(f.shape) for f in functions))
            arrays = [array.reshape((1,) * (ndim - array.ndim) + array.shape) for array in arrays]
            arrays[:-1] = [_constant(array) for array in arrays[:-1]]
        else:
            kept = tuple(functions)
            arrays = _full_batch(arrays, [*zip(functions, arrays[:count], strict=True)])
        means, variances = tuple(arrays[:count]), tuple(arrays[count:-1])
        places = tuple(map(_places, means, variances))
        return FactoredIntegrand(kept, means, variances, arrays[-1], slack, pairs, None not in known.values(), places)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that varies over the batch."""
        return *self.mu, *self.var, self.cov, *self.places

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the batch."""
        return np.broadcast_shapes(*(array.shape for array in self.arrays))

    @cached_property
    def sd(self) -> tuple[Array, ...]:
        """Standard deviations, 1 in place of 0."""
        return tuple(np.sqrt(np.where(v == 0, 1.0, v)) for v in self.var)

    @cached_property
    def correlation(self) -> Correlation:
        """Of the two variables; 0 where a variance is 0.

        Shapes    of the batch
        """
        var_f, var_g = self.var
        found = correlation(var_f, var_g, self.cov, self.slack)
        return Correlation(np.broadcast_to(found.rho, self.shape), np.broadcast_to(found.s, self.shape))

    @cached_property
    def norm(self) -> Array:
        """The product of sqrt(E f(X)^2)."""
        norm: Array = np.ones(())
        for f, mu, sd in zip(self.functions, self.mu, self.sd, strict=True):
            norm = norm * crude_norm(f, *np.broadcast_arrays(mu, sd))
        return norm

    def single(self, k: int) -> FactoredIntegrand:
        """One of the two functions alone."""
        return replace(
            self,
            functions=(self.functions[k],),
            mu=(self.mu[k],),
            var=(self.var[k],),
            places=(self.places[k],),
            cov=np.zeros((1,) * self.cov.ndim),
            pairs=0,
        )

    def of_arrays(self, *arrays: Array) -> FactoredIntegrand:
        """The same functions for other members."""
        count = len(self.functions)
        mu, var, cov, places = arrays[:count], arrays[count : 2 * count], arrays[2 * count], arrays[2 * count + 1 :]
        return replace(self, mu=mu, var=var, cov=cov, places=places)

    def halves(self, most: int) -> tuple[int, FactoredIntegrand, FactoredIntegrand] | None:
        """Two halves along an axis, where one of two variables has more than so many laws; else nothing."""
        if not self.plain or len(self.functions) == 1:
            return None
        shape = max((place.shape for place in self.places), key=math.prod)
        if math.prod(shape) <= most:
            return None
        axis = int(np.argmax(shape))
        one, two = (self._along(axis, half) for half in _cuts(shape[axis], -(-shape[axis] // 2)))
        return axis, one, two

    def _along(self, axis: int, chosen: slice) -> FactoredIntegrand:
        """Some members along an axis of the batch."""
        key = (*(slice(None),) * axis, chosen)
        *arrays, _, _ = (array if array.shape[axis] == 1 else array[key] for array in self.arrays)
        mu, var = arrays[:2], arrays[2:4]
        return replace(self, mu=tuple(mu), var=tuple(var), cov=arrays[4], pairs=0, places=tuple(map(_places, mu, var)))

    def in_parts(self, compute: Callable[[FactoredIntegrand], Estimate]) -> Estimate:
        """compute(part) for tiles of the batch; half of them where functions and arguments are symmetric."""
        if not self.plain:
            return compute(self.checked())

        def of_tile(*arrays: Array) -> tuple[Array, Array]:
            found = compute(self.of_arrays(*arrays).checked())
            return found.value, found.error

        symmetric = self.pairs > 0 and self.functions[0] is self.functions[-1]
        swap = (1, 0, 3, 2, 4, 6, 5) if symmetric else None
        threads = len(self.functions) > 1
        return Estimate(*tiled(of_tile, self.arrays, PART, outputs=2, pairs=self.pairs, swap=swap, threads=threads))

    def for_members(self, chosen: Mask, compute: Callable[[FactoredIntegrand], Estimate]) -> Estimate:
        """compute(integrand) for the chosen members; there is no answer for the others.

        Functions with parameter arrays see the whole batch, the other members running along with correlation 0.
        """
        result = unanswered(self.shape)
        if not np.any(chosen):
            return result
        if not self.plain:
            return compute(replace(self, cov=np.where(chosen, self.cov, 0.0))).where(chosen, result)
        integrand = self
        if not np.all(chosen):
            integrand = self.of_arrays(*(np.broadcast_to(array, self.shape)[chosen] for array in self.arrays))
        found = compute(integrand).reshape(integrand.shape)
        if integrand is self:
            return found
        result.value[chosen], result.error[chosen] = found.value, found.error
        return result

    def checked(self) -> FactoredIntegrand:
        """With denormal numbers as zeros, and covariances of constants.

        Raises    ValueError for a negative or non-finite argument, or for the covariance of a constant
        """
        count = len(self.functions)
        names = ("mu", "var", "cov") if count == 1 else ("mu_f", "mu_g", "var_f", "var_g", "cov")
        arrays = [_finite(name, array) for name, array in zip(names, self.arrays, strict=False)]
        for name, array in zip(names[count:-1], arrays[count:-1], strict=True):
            if np.any(array < 0):
                raise ValueError(f"{name} must not be negative, got {array.min()}")
        if count == 2:
            refuse_covariance_of_constants(arrays[2], arrays[3], arrays[4], self.slack)
            arrays[4] = np.where((arrays[2] == 0) | (arrays[3] == 0), 0.0, arrays[4])
        return self.of_arrays(*arrays, *self.places)


def refuse_covariance_of_constants(var_f: Array, var_g: Array, cov: Array, slack: float) -> None:
    """A constant has no covariance, unless covariances are estimates."""
    if np.isfinite(slack) and not (np.all(var_f) and np.all(var_g)):
        still = np.broadcast_to((var_f == 0) | (var_g == 0), np.broadcast_shapes(var_f.shape, var_g.shape, cov.shape))
        if np.any(np.broadcast_to(cov, still.shape)[still] != 0):
            raise ValueError("cov must be 0 where var_f or var_g is 0")


def _finite(name: str, array: Array) -> Array:
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)].flat[0]}")
    return np.where(np.abs(array) < np.finfo(np.float64).tiny, 0.0, array)


def _places(mu: Array, var: Array) -> NDArray[Any]:
    """Numbers of the different variables of a batch."""
    shape = np.broadcast_shapes(mu.shape, var.shape)
    return np.arange(math.prod(shape)).reshape(shape)


def _constant(array: Array) -> Array:
    """One entry per axis, if all entries are one number."""
    return array.ravel()[:1].reshape((1,) * array.ndim) if array.size and array.min() == array.max() else array


def _plain(f: RealFunction) -> RealFunction | None:
    """f without batch axes, if no parameter varies over the batch."""
    if any(length != 1 for length in f.shape):
        return None
    with np.errstate(all="ignore"):
        value = np.asarray(f.call(np.ones(1)))
    if value.size != 1:
        return None
    if f.shape == ():
        return f
    kinks, features = f.kinks.reshape(f.kinks.shape[-1:]), f.features.reshape(f.features.shape[-2:])
    terms = None if f.terms is None else tuple(term.flat() for term in f.terms)
    return replace(f, kinks=kinks, features=features, terms=terms)


def _full_batch(arrays: Sequence[Array], uses: Sequence[tuple[RealFunction, Array]]) -> list[Array]:
    """Broadcast to the batch that arguments and function parameters, visible or inside `call`, span together."""
    shapes = [array.shape for array in arrays]
    ndim = max(map(len, shapes))
    for f, _ in uses:
        with np.errstate(all="ignore"):
            shapes += [f.shape, np.shape(f.call(np.ones((1,) * (ndim + 1))))[:-1]]
    batch = np.broadcast_shapes(*shapes)
    return [np.broadcast_to(array, batch) for array in arrays]


# -- tiles ------------------------------------------------------------------------------------------------------------


def tiled(
    compute: Callable[..., Array | tuple[Array, ...]],
    arrays: Sequence[Array],
    size: int,
    outputs: int = 1,
    pairs: int = 0,
    swap: tuple[int, ...] | None = None,
    threads: bool = False,
) -> tuple[Array, ...]:
    """compute(*arrays) over the batch that the arrays broadcast to, tiles of about `size` members at a time.

    `swap` says that exchanging i and j, the last `pairs` axes and those before them, together with exchanging the
    arrays by this permutation, changes nothing: members (.., i, j) and (.., j, i) whose arguments agree in that way
    are computed once.

    Shapes    arrays with equal numbers of axes, which broadcast; the results have the shape of the batch
    """
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    if not shape:  # numpy answers with numbers where arrays are without axes
        found = tiled(compute, [array[None] for array in arrays], size, outputs)
        return tuple(np.asarray(result[0]) for result in found)
    shared = len(shape) - 2 * pairs
    if shape[shared : shared + pairs] != shape[shared + pairs :]:
        swap = None
    results = tuple(np.empty(shape) for _ in range(outputs))

    def fill(index: Index) -> None:
        found = compute(*(part(array, index) for array in arrays))
        for result, values in zip(results, (found,) if outputs == 1 else found, strict=True):
            result[index] = values

    if swap is None:
        _each(fill, list(_blocks(shape, size)), threads)
        return results
    order = (*range(shared), *range(shared + pairs, len(shape)), *range(shared, shared + pairs))
    partners = [(array, arrays[other]) for array, other in zip(arrays, swap, strict=True)]

    def fill_both(index: Index) -> None:
        mirror = tuple(index[axis] for axis in order)
        fill(index)
        alike = all(np.array_equal(part(a, index), part(b, mirror).transpose(order)) for a, b in partners)
        if alike and mirror != index:
            for result in results:
                result[mirror] = result[index].transpose(order)
        elif alike:  # a tile on the diagonal, in which results may still differ by rounding
            lower = _lower(shape[shared : shared + pairs], index[shared : shared + pairs])
            for result in results:
                np.copyto(result[index], result[index].transpose(order), where=lower)
        elif mirror != index:
            fill(mirror)

    _each(fill_both, list(_triangle(shape, shared, pairs, size)), threads)
    return results


def filled(
    compute: Callable[[Index], Array], shape: tuple[int, ...], size: int, pairs: int, symmetric: bool,
    uncut: bool = False,
) -> Array:  # fmt: skip
    """The array of that shape whose tiles of about `size` members compute(index) gives, on all processors.

    `symmetric` says that exchanging i and j, the last `pairs` axes and those before them, changes nothing: tiles of one
    triangle are computed, and written twice.  With `uncut` tiles have all of the axes before them.
    """
    result, shared = np.empty(shape), len(shape) - 2 * pairs
    order = (*range(shared), *range(shared + pairs, len(shape)), *range(shared, shared + pairs))

    def fill(index: Index) -> None:
        result[index] = compute(index)

    def fill_both(index: Index) -> None:
        found, mirror = compute(index), tuple(index[axis] for axis in order)
        if mirror == index:  # results may still differ by rounding
            lower = _lower(shape[shared : shared + pairs], index[shared : shared + pairs])
            found = np.where(lower, found.transpose(order), found)
        result[index] = found
        if mirror != index:
            result[mirror] = found.transpose(order)

    tiles = _triangle(shape, shared, pairs, size) if symmetric else _blocks(shape, size, shared if uncut else 0)
    _each(fill_both if symmetric else fill, list(tiles), threads=True)
    return result


def exchanged(array: Array, pairs: int) -> Array:
    """The array with its last `pairs` axes and those before them exchanged."""
    number = array.ndim
    first, second = range(number - 2 * pairs, number - pairs), range(number - pairs, number)
    return array.transpose(*range(number - 2 * pairs), *second, *first)


def part(array: NDArray[Any], index: Index) -> NDArray[Any]:
    """Members of an array that may have axes of length 1, at slices, at index arrays, or at slices and then arrays."""
    slices = isinstance(index[-1], slice)
    if all(length == 1 for length in array.shape):
        return array if slices else array.reshape(())
    cuts = tuple([
        (slice(None) if isinstance(cut, slice) else 0) if length == 1 else cut
        for length, cut in zip(array.shape, index, strict=True)
    ])  # fmt: skip
    if slices or not isinstance(index[0], slice):
        return np.asarray(array[cuts])
    places = [k for k, cut in enumerate(cuts) if not isinstance(cut, slice | int)]
    if len(places) > 1:
        return np.asarray(array[cuts])
    rows = array[tuple([cut if isinstance(cut, slice | int) else slice(None) for cut in cuts])]
    if not places:  # one for all of the index arrays
        return np.asarray(rows[..., None])
    return np.asarray(np.take(rows, index[places[0]], axis=sum(isinstance(cut, slice) for cut in index[: places[0]])))


def _cuts(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _blocks(shape: tuple[int, ...], size: int, uncut: int = 0) -> Iterator[Index]:
    """Tiles of at most `size` members where the first `uncut` axes allow it, with the last axes as long as possible."""
    steps, size = [], size // max(1, math.prod(shape[:uncut]))
    for length in reversed(shape[uncut:]):
        step = max(1, min(length, size))
        steps.append(step)
        size //= step
    steps += [max(1, length) for length in reversed(shape[:uncut])]
    return product(*(_cuts(length, step) for length, step in zip(shape, reversed(steps), strict=True)))


def _triangle(shape: tuple[int, ...], shared: int, pairs: int, size: int) -> Iterator[Index]:
    """Tiles with i <= j, square in the first of the pairs: with their mirror images they cover the batch."""
    first, second = shared, shared + pairs
    rest = math.prod(shape) // max(1, shape[first] * shape[second])
    cuts = _cuts(shape[first], max(1, math.isqrt(size // max(1, rest))))
    for row, one in enumerate(cuts):
        for two in cuts[row:]:
            index = [slice(0, length) for length in shape]
            index[first], index[second] = one, two
            yield tuple(index)


def _lower(shape: tuple[int, ...], index: Index) -> NDArray[np.bool_]:
    """Where i > j in a tile on the diagonal.

    Shapes    (*i, *j)
    """
    lengths = tuple(len(range(*cut.indices(length))) for cut, length in zip(index, shape, strict=True))
    members = math.prod(lengths)
    return np.tri(members, k=-1, dtype=bool).reshape(*lengths, *lengths)


def _each(call: Callable[[Index], None], tiles: list[Index], threads: bool) -> None:
    """call(tile) for all of them, on all processors if threads are wanted."""
    workers = min(len(tiles), _processors()) if threads else 1
    if workers < 2:
        for tile in tiles:
            call(tile)
        return
    waiting, failed = iter(tiles), Event()

    def work() -> None:
        for tile in waiting:
            if failed.is_set():
                return
            try:
                call(tile)
            except BaseException:
                failed.set()
                raise

    with ThreadPoolExecutor(workers - 1) as pool:  # this thread works as well
        helpers = [pool.submit(copy_context().run, work) for _ in range(workers - 1)]
        work()
        for helper in helpers:
            helper.result()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def toeplitz_values(array: Array) -> Array | None:
    """The distinct values of a matrix that depends on j - i only, from j - i = 1 - N on; None for any other.

    Shapes    (N, M) -> (N + M - 1,)
    """
    if min(array.shape) < 2 or not np.array_equal(array[1, 1:], array[0, :-1]):
        return None
    if not np.array_equal(array[1:, 1:], array[:-1, :-1]):
        return None
    return np.concatenate([array[:0:-1, 0], array[0]])


def toeplitz_view(values: Array, shape: tuple[int, ...]) -> Array:
    """The matrix with those diagonals, without a copy.

    Shapes    (N + M - 1,) -> (N, M), read-only
    """
    return np.lib.stride_tricks.sliding_window_view(values, shape[1])[::-1]
