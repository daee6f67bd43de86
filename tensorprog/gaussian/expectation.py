"""E f(X) and E f(X) g(Y) for batches of Gaussian laws: closed forms at mean zero, else Mehler's series, else panels.

Laws are numbers or estimates.  Errors of laws that are rounding are passed on by derivatives; what larger ones do is
seen by moving each argument by its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.fast import COMPILED, threaded
from tensorprog.gaussian.function import RealFunction, evaluate
from tensorprog.gaussian.kernels import (
    CORRELATION_SLACK,
    Elementary,
    change,
    correlation,
    elementary,
    kernel,
    ordinary,
    refuse_correlation,
    values,
)
from tensorprog.gaussian.quadrature import Side, crude_norm, integrate_line, integrate_plane
from tensorprog.gaussian.series import ENOUGH as NEGLIGIBLE
from tensorprog.gaussian.series import HermiteSeries, ProductSeries, hermite_series, tabulated

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

__all__ = ["cross", "mean", "without_batch"]

# an answer whose error exceeds this, relative to the size of the functions, lets the next method try as well
ENOUGH = 1e-12
PAIRS, LAWS = 1 << 15, 1 << 12  # pairs, and laws of one variable or pairs on panels, at once
MANY = 1 << 12  # laws of mean 0 that are not looked through for equal ones
SOME = 1 << 9  # laws of mean 0 from which tables pay
PARTS = 4  # into which both sides of many pairs are cut
TOGETHER, APART = 1 << 13, 1 << 9  # laws at once, and those of a function that differs among them
# relative errors of laws up to this pass on as they are; what larger ones do is seen by differences
PASSED = 1e-10
UNIT = Elementary(1.0, 1.0, 0.0, (), ())  # the function that is 1


def mean(f: RealFunction, mu: ArrayLike | Estimate, var: ArrayLike | Estimate) -> Estimate:
    """E f(X) for X ~ N(mu, var).

    Shapes    mu, var and the parameters of f broadcast to the batch -> Estimate of shape batch
    Scale     any units; var = 0 means X = mu
    Accuracy  rounding, a difference between two rules, and what errors of the law do; exactly 0 for odd f and mu = 0;
              an integral that overflows has infinite error
    Raises    ValueError for a negative or non-finite argument, FloatingPointError if f returns nan
    """
    m, v = _number("mu", mu), _variance("var", var)
    found = _in_parts(lambda functions, law: mean(functions[0], *law), (f,), (m, v), (m, v), 0)
    if found is not None:
        return found
    ((laws, places),) = _variables((f,), (m.value, v.value))
    result = laws.means[places]
    moved = np.maximum(_relative(m.error, np.sqrt(v.value)), _relative(v.error, v.value))
    if f.parity < 0 and not m.error.any():
        moved = np.where(m.value == 0, 0.0, moved)
    if np.any(moved > PASSED):
        return _by_differences(lambda law: mean(f, law[0], np.maximum(law[1], 0.0)), result, (m, v))
    return Estimate(result.value, result.error + moved * laws.sizes[places]) if moved.any() else result


def cross(
    f: RealFunction,
    g: RealFunction,
    mu_f: ArrayLike | Estimate,
    mu_g: ArrayLike | Estimate,
    var_f: ArrayLike | Estimate,
    var_g: ArrayLike | Estimate,
    cov: ArrayLike | Estimate,
    *,
    slack: float = CORRELATION_SLACK,
    pairs: int = 0,
    enough: float = ENOUGH,
) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian with the given means, variances and covariance.

    `slack` is how far |cov| may exceed sqrt(var_f var_g), relatively; such a covariance counts as correlation +-1.
    `pairs` says that the first axes of the batch are (*i, *j) with so many indices i of X and as many j of Y, so that
    for one function and symmetric arguments the result is symmetric.  Where means, variances and the covariance are
    equal numbers, with pairs on their diagonal only, X and Y count as one variable, whose moments move together.
    A method serves whose error is at most `enough` beside the sizes of f(X) and g(Y), if there is one.

    Shapes    all arguments and the parameters of f and g broadcast to the batch -> Estimate of shape batch
    Scale     any units; zero variances and correlations of exactly +-1 are ordinary arguments
    Accuracy  as `mean`; exactly 0 where both means are 0 and the parities opposite, and where cov = 0 and one of
              the two means of f(X), g(Y) is exactly 0
    Raises    ValueError for a negative or non-finite argument or |cov| beyond sqrt(var_f var_g),
              FloatingPointError if a function returns nan
    """
    law = [_number("mu_f", mu_f), _number("mu_g", mu_g), _variance("var_f", var_f), _variance("var_g", var_g)]
    c = _number("cov", cov)
    if np.isfinite(slack):
        size = np.sqrt(law[2].value) * np.sqrt(law[3].value)
        if np.any((c.value != 0) & (size == 0)):
            raise ValueError("cov must be 0 where var_f or var_g is 0")
        refuse_correlation(float(_relative(np.abs(c.value), size).max(initial=0.0)), slack)
    if f.degree and g.degree and not (elementary(f) and elementary(g)):
        scaled = _by_degree(f, g, law, c, pairs, enough)
        if scaled is not None:
            return scaled
    closed = _closed(f, g, law, c, pairs)
    if closed is not None:
        return closed
    parts = _in_parts(
        lambda functions, law: cross(functions[0], functions[1], *law, slack=np.inf, pairs=pairs, enough=enough),
        (f, g),
        (*law, c),
        law,
        pairs,
    )
    if parts is not None:
        return parts
    (one, first), (two, second) = _variables(
        (f, g), [law[k].value for k in (0, 2, 1, 3)], NEGLIGIBLE * (enough / ENOUGH) ** 0.5
    )
    batch = np.broadcast_shapes(first.shape, second.shape, c.value.shape)
    errors = [each.error if each.error.any() else np.zeros(()) for each in (*law, c)]
    diagonal = _diagonal(batch, pairs) if any(array.any() for array in errors) else np.ones((), bool)
    cov = np.broadcast_to(c.value, batch or (1,))

    def answer(i: Places, mu_f: Array, var_f: Array, j: Places, mu_g: Array, var_g: Array, *both: Any) -> Estimate:
        cov, error, diagonal = both
        return _Pairs(one, two, i, j, cov, (mu_f, mu_g, var_f, var_g, error), diagonal, enough).answer()

    left, right = [first, *errors[:4:2]], [second, *errors[1:4:2]]
    return _by_tiles(answer, left, right, [cov, errors[4], diagonal], batch, pairs if one is two else 0)


def _by_tiles(
    answer: Callable[..., Estimate], left: Sequence[Array], right: Sequence[Array], both: Sequence[Array],
    batch: tuple[int, ...], pairs: int,
) -> Estimate:  # fmt: skip
    """The answers for parts of a batch, of arrays of X, of Y and of both; those of pairs once, if these are symmetric.

    Shapes    arrays that broadcast to the batch -> batch
    """
    shape = batch or (1,)
    own = [[np.reshape(a, (1,) * (len(shape) - a.ndim) + a.shape) for a in arrays] for arrays in (left, right, both)]
    exchanged = zip([*own[0], *own[2]], [*own[1], *own[2]], strict=True)
    pairs = pairs if all(np.array_equal(_exchanged(one, pairs), two) for one, two in exchanged) else 0
    value, error = np.empty(shape), np.empty(shape)

    def fill(tile: tuple[slice, ...]) -> None:
        found = answer(*(_cut(array, tile) for arrays in own for array in arrays))
        for array, part in ((value, found.value), (error, found.error)):
            _exchanged(array, pairs)[tile] = part
            array[tile] = part

    tiles = list(_tiles(shape, pairs))
    for tile in tiles[:1]:  # what all need is computed once
        fill(tile)
    threaded(fill, tiles[1:])
    if pairs:  # both orders of one pair may round apart
        value, error = (np.maximum(array, _exchanged(array, pairs)) for array in (value, error))
    return Estimate(value.reshape(batch), error.reshape(batch))


def _closed(f: RealFunction, g: RealFunction, law: Sequence[Estimate], c: Estimate, pairs: int) -> Estimate | None:
    """The same by closed forms, at means 0; None where there are none.

    Errors that are rounding have bounds that are products of numbers for both laws.  Convolutions on 20 images take
    half the time so.
    """
    one, two, (v, w) = elementary(f), elementary(g), (each.value for each in law[2:])
    if one is None or two is None or not one.meets(two) or any(m.value.any() or m.error.any() for m in law[:2]):
        return None
    if not (ordinary(v) and ordinary(w)):
        return None
    batch, small = np.broadcast_shapes(v.shape, w.shape, c.value.shape), 0.0 if one.jumps or two.jumps else PASSED
    if f.parity * g.parity < 0:
        return Estimate.exact(np.zeros(batch))

    errors = [each.error if each.error.any() else np.zeros(()) for each in (*law[2:], c)]
    moved = max(float(_relative(*side).max(initial=0.0)) for side in zip(errors[:2], (v, w), strict=True))
    least = math.prod(float(each.min(initial=1.0, where=each > 0)) for each in (v, w)) ** 0.5
    largest, some = max(moved, float(errors[2].max(initial=0.0)) / least), not (v.all() and w.all())

    def answer(*given: Array) -> Estimate:
        (v, off, own, moves, slope), (w, other, its, shifts, slant), (cov, error, diagonal) = (
            given[:5], given[5:10], given[10:]
        )  # fmt: skip
        cov = np.where((v == 0) | (w == 0), 0.0, cov) if some else cov
        value, bound = values(one, two, v, w, cov), moves * shifts
        if f.parity < 0 or g.parity < 0:
            bound = bound * (cov != 0)
        if not largest:
            return Estimate(value, bound)
        same = diagonal & (v == w) & (v == cov) if diagonal.any() else diagonal
        if largest <= small:
            bound = bound + error * (slope * slant)
            if same.any():
                alike = (np.broadcast_to(array, same.shape)[same] for array in (v, w, cov, value))
                bound = np.where(same, own * its, bound)
                bound[same] += moved * change(one, two, *alike)
            return Estimate(value, bound)

        def call(law: list[Array]) -> Estimate:
            v, w = (np.maximum(each, 0.0) for each in law[:2])
            return kernel(one, two, v, np.where(same, v, w), np.where(same, v, law[2]))

        return _by_differences(
            call, Estimate(value, bound), [Estimate(v, off), Estimate(w, other), Estimate(cov, error)]
        )

    COMPILED.prepare(math.prod(batch))
    diagonal = _diagonal(batch, pairs) if largest else np.ones((), bool)
    left, right = (
        _sides(h, u, error, moved if largest <= small else 0.0)
        for h, u, error in ((one, v, errors[0]), (two, w, errors[1]))
    )
    both = [np.broadcast_to(c.value, batch or (1,)), errors[2], diagonal]
    return _by_tiles(answer, left, right, both, batch, pairs if one == two else 0)


def _sides(form: Elementary, var: Array, error: Array, moved: float) -> list[Array]:
    """Of one variable: its variance with error, and numbers whose products for both bound errors (Cauchy, Schwarz).

    They are those of rounding, without and with relative errors of variances, and of errors of covariances.
    """
    rounding, (slope, bend) = EPS * form.rounding(var) ** 2, form.slopes(var, 1.0)
    return [var, error, *map(np.sqrt, (rounding, rounding + moved * bend, slope))]


def _by_degree(
    f: RealFunction, g: RealFunction, law: Sequence[Estimate], c: Estimate, pairs: int, enough: float
) -> Estimate | None:
    """The same of homogeneous functions at means 0: that of variances 1, times powers of both deviations.

    None where a mean is not 0 or a variance not positive, or all variances are 1.
    """
    v, w = law[2].value, law[3].value
    if any(m.value.any() or m.error.any() for m in law[:2]) or not (np.all(v * w > 0) and np.any(v * w != 1)):
        return None
    size, (moved, other) = np.sqrt(v) * np.sqrt(w), (_relative(each.error, each.value) for each in law[2:])
    batch = np.broadcast_shapes(size.shape, c.value.shape)
    one = _diagonal(batch, pairs) & (v == w) & (v == c.value)  # one variable, whose moments move together
    rho, error = np.where(one, 1.0, c.value / size), np.where(one, 0.0, c.error / size)
    error = error + np.where(one, 0.0, np.abs(rho) * (moved + other) / 2)
    found = cross(f, g, 0.0, 0.0, 1.0, 1.0, Estimate(rho, error), slack=np.inf, pairs=pairs, enough=enough)
    scale, passed = v ** (f.degree / 2) * w ** (g.degree / 2), (f.degree * moved + g.degree * other) / 2
    value = found.value * scale
    return Estimate(value, found.error * scale + np.abs(value) * (passed + 4 * EPS))


def _by_differences(call: Callable[[list[Array]], Estimate], result: Estimate, law: Sequence[Estimate]) -> Estimate:
    """The result, and what moving each argument up or down by its error does; a function may change to one side."""
    values, error = [each.value for each in law], result.error
    for k, each in enumerate(law):
        if each.error.any():
            moved = ([*values[:k], values[k] + by * each.error, *values[k + 1 :]] for by in (1, -1))
            error = error + np.maximum(*(np.abs(call(other).value - result.value) for other in moved))
    return Estimate(result.value, error)


def _in_parts(
    call: Callable[[Sequence[RealFunction], list[Estimate]], Estimate], functions: Sequence[RealFunction],
    arguments: Sequence[Estimate], law: Sequence[Estimate], pairs: int,
) -> Estimate | None:  # fmt: skip
    """An expectation for very many laws, as of draws: for some values of the longest index that is not of pairs.

    What is held at once so does not grow with the draws.  None for fewer laws, and where there is no such index.
    """
    shape, apart = np.broadcast_shapes(*(each.value.shape for each in arguments)), False
    for f in functions:
        if without_batch(f) is None:
            shape, apart = _batch(f, shape), True
    if len(shape) <= 2 * pairs or (apart and any(f.part is None for f in functions)):
        return None
    laws, most = max(each.value.size for each in law), APART if apart else TOGETHER
    laws = math.prod(shape) if apart else laws
    axis = 2 * pairs + int(np.argmax(shape[2 * pairs :]))
    step = max(1, most * shape[axis] // max(laws, 1))
    if step >= shape[axis]:
        return None

    def part(cut: slice) -> Estimate:
        whole = (*[slice(None)] * axis, cut, *[slice(None)] * (len(shape) - axis - 1))
        own = {f: f.part(whole) if apart and f.part else f for f in functions}
        return call(
            [own[f] for f in functions], [Estimate(_cut(e.value, whole), _cut(e.error, whole)) for e in arguments]
        )

    cuts = _cuts(shape[axis], step)
    found = [part(cuts[0]), *threaded(part, cuts[1:])]  # what all need is computed once
    return Estimate(*(np.concatenate([getattr(each, name) for each in found], axis) for name in ("value", "error")))


def _number(name: str, given: ArrayLike | Estimate) -> Estimate:
    """An argument, denormal numbers as zeros."""
    found = given if isinstance(given, Estimate) else Estimate.exact(given)
    size = np.abs(found.value)
    if not size.max(initial=0.0) < np.inf:
        raise ValueError(f"{name} must be finite, got {found.value[~np.isfinite(found.value)].flat[0]}")
    least = np.finfo(np.float64).tiny
    return found if size.min(initial=1.0) >= least else Estimate(np.where(size < least, 0.0, found.value), found.error)


def _variance(name: str, given: ArrayLike | Estimate) -> Estimate:
    """A variance; one that is an estimate may be negative by its error."""
    found = _number(name, given)
    if isinstance(given, Estimate):
        return Estimate(np.maximum(found.value, 0.0), found.error)
    if np.any(found.value < 0):
        raise ValueError(f"{name} must not be negative, got {found.value.min()}")
    return found


def _relative(error: Array, size: Array) -> Array:
    """The quotient; 0 / 0 is 0."""
    if not error.any():
        return np.zeros(())
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(error == 0, 0.0, error / size))


@dataclass(frozen=True, eq=False)
class _Laws:
    """A function with the different laws of its variable; with all laws where its parameters vary over these.

    Shapes    mu, var (m,); `shape` is that of the laws where parameters vary
    """

    f: RealFunction
    mu: Array
    var: Array
    shape: tuple[int, ...] | None = None
    left: float = NEGLIGIBLE  # what tables may leave out

    @cached_property
    def sd(self) -> Array:
        """Deviations."""
        return np.sqrt(self.var)

    def function(self, at: Any) -> RealFunction:
        """The function at some places, one after the other, which may come again."""
        f, shape = self.f, self.shape
        if shape is None:
            return f
        own = np.arange(len(self.mu))[at]
        order, turn = np.argsort(own, kind="stable"), np.empty(own.shape, int)
        turn[order] = np.arange(len(own)) - np.searchsorted(own[order], own[order])  # how often a place came before

        def call(x: Array) -> Array:
            whole = np.zeros((len(self.mu), 1 + turn.max(initial=0), x.shape[-1]))
            whole[own, turn] = x
            values = np.broadcast_to(f.call(whole.reshape((*shape, -1))), (*shape, math.prod(whole.shape[1:])))
            return np.asarray(values.reshape(whole.shape)[own, turn])

        visible = [np.broadcast_to(a, (*shape, *a.shape[-k:])) for a, k in ((f.kinks, 1), (f.features, 2))]
        kinks, features = (a.reshape((len(self.mu), *a.shape[len(shape) :]))[at] for a in visible)
        return RealFunction(call, kinks, features, f.parity)

    def side(self, at: Any) -> Side:
        """The function with means and deviations of its variable, 1 in place of 0."""
        return self.function(at), self.mu[at], np.where(self.sd[at] > 0, self.sd[at], 1.0)

    @cached_property
    def means(self) -> Estimate:
        """E f(X): the value where there is no variance, exactly 0 for odd functions at mean 0."""
        if self.closed is not None:
            return kernel(self.closed, UNIT, self.var, np.zeros(()), np.zeros(()))
        if self.table is not None:
            found = self.table.coefficients[0]
            return Estimate(found, np.where(found == 0, 0.0, self.table.rough + 4 * EPS * self.table.norm))
        value, error = np.zeros((2, *self.mu.shape))
        for cut in _cuts(len(self.mu), LAWS if self.shape is None else len(self.mu)):
            f, mu, _ = side = self.side(cut)
            if self.f.parity < 0 and not mu.any():
                continue
            found, fixed = integrate_line([side]), self.sd[cut] == 0
            if fixed.any():
                known = evaluate(f, mu[:, None])[:, 0]
                rounding = np.where(np.isfinite(known), 4 * EPS * np.abs(known), np.inf)
                found = Estimate(known, rounding).where(fixed, found)
            if self.f.parity < 0:
                found = Estimate.exact(np.zeros(mu.shape)).where(mu == 0, found)
            value[cut], error[cut] = found.value, found.error
        return Estimate(value, error)

    @cached_property
    def sizes(self) -> Array:
        """sqrt(E f^2), to a digit or so."""
        if self.closed is not None:
            return np.sqrt(np.maximum(kernel(self.closed, self.closed, self.var, self.var, self.var).value, 0.0))
        return crude_norm(*self.side(slice(None))) if self.table is None else self.table.norm

    @cached_property
    def closed(self) -> Elementary | None:
        """f as closed forms want it, where all means are 0."""
        usual = self.shape is None and ordinary(self.var) and not self.mu.any()
        return elementary(self.f) if usual else None

    @cached_property
    def table(self) -> HermiteSeries | None:
        """The Hermite coefficients for many laws, from tables."""
        many = self.shape is None and len(self.mu) > SOME and not self.mu.any()
        return tabulated(self.f, self.sd, self.left) if many else None

    @cached_property
    def series(self) -> HermiteSeries | None:
        """The Hermite coefficients for all laws."""
        return hermite_series(self.function, self.mu, self.sd, enough=self.left) if self.table is None else self.table


@lru_cache(maxsize=4)
def _product(one: _Laws, two: _Laws) -> ProductSeries | None:
    """The product of both series, where there are two."""
    return None if one.series is None or two.series is None else ProductSeries(one.series, two.series)


def _variables(
    functions: Sequence[RealFunction], laws: Sequence[Array], left: float = NEGLIGIBLE
) -> list[tuple[_Laws, Places]]:
    """Each function with the laws of its variable, and the places of these in the batch; axes may have length 1."""
    keys = [m + 1j * v for m, v in zip(laws[::2], laws[1::2], strict=True)]
    known: dict[RealFunction, tuple[Array, _Laws]] = {}
    found: list[tuple[_Laws, Places]] = []
    for k, (f, key) in enumerate(zip(functions, keys, strict=True)):
        plain, own = without_batch(f), [k.ravel() for h, k in zip(functions, keys, strict=True) if h is f]
        own = own[:1] if np.array_equal(own[0], own[-1]) else own
        if plain is None:
            shape = _batch(f, key.shape)
            every = np.broadcast_to(key, shape).ravel()
            found.append((_Laws(f, every.real, every.imag, shape), np.arange(every.size).reshape(shape)))
            continue
        # looking for equal laws takes longer than closed forms and tables do
        each = sum(map(len, own)) > MANY and not any(k.real.any() for k in own)
        if f not in known:
            different = np.concatenate(own) if each else np.unique(np.concatenate(own))
            known[f] = different, _Laws(plain, different.real.copy(), different.imag.copy(), left=left)
        start = len(own[0]) if k and len(own) > 1 else 0
        places = start + np.arange(key.size).reshape(key.shape) if each else np.searchsorted(known[f][0], key)
        found.append((known[f][1], np.asarray(places)))
    return found


def _zero(f: RealFunction, g: RealFunction, mu_f: Array, mu_g: Array, cov: Array) -> Mask:
    """Where E f(X) g(Y) is exactly 0: odd times even at means 0, or an odd function of an independent variable."""
    centred, other = mu_f == 0, mu_g == 0
    odd = (centred & (f.parity < 0)) | (other & (g.parity < 0))
    return np.asarray(((cov == 0) & odd) | (centred & other & (f.parity * g.parity < 0)))


@lru_cache(maxsize=64)
def without_batch(f: RealFunction) -> RealFunction | None:
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


def _batch(f: RealFunction, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The batch that laws and parameters of a function, visible or inside `call`, span together."""
    with np.errstate(all="ignore"):
        called = np.shape(f.call(np.ones((1,) * (len(shape) + 1))))[:-1]
    return np.broadcast_shapes(shape, f.shape, called)


def _exchanged(array: Array, pairs: int) -> Array:
    """An array over a batch with X and Y exchanged."""
    axes = range(array.ndim)
    return array.transpose((*axes[pairs : 2 * pairs], *axes[:pairs], *axes[2 * pairs :]))


def _tiles(shape: tuple[int, ...], pairs: int) -> Iterator[tuple[slice, ...]]:
    """Parts of a batch, of PAIRS members at most; with pairs without those that others are with X and Y exchanged.

    X and Y are cut into PARTS at least where there are more, so that most lie on one side of the diagonal.
    """
    steps, parts = list[int](), PARTS if math.prod(shape) > PAIRS else 1
    for k, size in reversed(list(enumerate(shape))):
        most = -(-size // parts) if pairs and k in (0, pairs) else size
        steps.insert(0, max(1, min(most, PAIRS // math.prod(steps))))
    for tile in product(*(_cuts(size, step) for size, step in zip(shape, steps, strict=True))):
        later = slice(max(tile[0].start, tile[pairs].start), tile[pairs].stop) if pairs else slice(0, 1)
        if later.start < later.stop:
            yield (*tile[:pairs], later, *tile[pairs + 1 :]) if pairs else tile


def _cut(array: Array, tile: tuple[slice, ...]) -> Array:
    """What belongs to a part of the batch, of an array that broadcasts to it."""
    own = tile[len(tile) - array.ndim :]
    return array[tuple(part if size > 1 else slice(None) for part, size in zip(own, array.shape, strict=True))]


def _diagonal(shape: tuple[int, ...], pairs: int) -> Mask:
    """Where the first `pairs` indices are those after them, if these have the same ranges; everywhere without pairs."""
    first, second = shape[:pairs], shape[pairs : 2 * pairs]
    if not pairs or first != second:
        return np.ones((), bool)
    return np.eye(math.prod(first), dtype=bool).reshape(first + second + (1,) * (len(shape) - 2 * pairs))


def _cuts(length: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, length, max(step, 1))]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of variables: places of their laws, covariances, and errors of means, variances and covariances.

    Shapes    cov (batch), which all others broadcast to
    """

    one: _Laws
    two: _Laws
    first: Places
    second: Places
    cov: Array
    errors: Sequence[Array]
    diagonal: Mask  # where both may be one variable
    enough: float

    def answer(self) -> Estimate:
        """E f(X) g(Y), with what errors of the law do to it."""
        one, two, cov = self.one, self.two, self.cov
        size = one.sd[self.first] * two.sd[self.second]
        if not size.all():
            cov = np.where(size > 0, cov, 0.0)
        fixed = replace(self, cov=cov)
        found, slopes = fixed._exact()
        if not any(error.any() for error in self.errors):
            return found
        mu_f, mu_g, var_f, var_g, error = self.errors
        means, var = (one.mu[self.first], two.mu[self.second]), one.var[self.first]
        turned, sides = _relative(error, size), ((mu_f, var_f, one, self.first), (mu_g, var_g, two, self.second))
        moved = reduce(np.maximum, (_relative(m, s.sd[at]) for m, _, s, at in sides))
        moved = reduce(np.maximum, (_relative(v, s.var[at]) for _, v, s, at in sides), moved)
        centred = (mu_f == 0) & (mu_g == 0)
        still = centred & _zero(one.f, two.f, *means, np.where(error > 0, 1.0, cov))
        turned, moved = np.where(still, 0.0, turned), np.where(still, 0.0, moved)
        known = (turned == 0) & (moved == 0)
        small = max(PASSED, 100 * self.enough)
        uncertain = (moved > small) | (turned > small) | (~known & (one.f.jumps and two.f.jumps))
        same = self.diagonal & (means[0] == means[1]) & (var == two.var[self.second]) & (var == cov)
        passed = fixed._passed_on(turned, moved, same & centred, slopes)
        result = Estimate(found.value, found.error + passed)
        if not uncertain.any():
            return result
        uncertain = np.broadcast_to(uncertain, cov.shape)
        at, also, one_variable = self._chosen(uncertain, self.first, self.second, same)
        f, g = one.function(at), two.function(also)
        arrays = np.broadcast_arrays(*means, var, two.var[self.second], cov, mu_f, mu_g, var_f, var_g, error)
        law = [Estimate(arrays[k][uncertain], arrays[k + 5][uncertain]) for k in range(5)]

        def call(law: list[Array]) -> Estimate:
            a, b, v, w, c = law
            v, w = np.maximum(v, 0.0), np.maximum(w, 0.0)
            arguments = [a, np.where(one_variable, a, b), v, np.where(one_variable, v, w), np.where(one_variable, v, c)]
            return cross(f, g, *arguments, slack=np.inf, enough=self.enough)

        result.error[uncertain] = _by_differences(call, found[uncertain], law).error
        return result

    def _exact(self) -> tuple[Estimate, Array | None]:
        """For laws without errors; with derivatives by the correlation where the series gives them."""
        one, two = self.one, self.two
        zero = _zero(one.f, two.f, one.mu[self.first], two.mu[self.second], self.cov)
        if zero.all():
            return Estimate.exact(np.zeros(self.cov.shape)), None
        found, slopes = self._by_series()
        found = Estimate.exact(np.zeros(self.cov.shape)).where(zero, found)
        pending = self._pending(found)
        if pending.any():
            better, before = self._on_panels(pending), found[pending]
            better = better.where((better.error < before.error) | np.isnan(before.value), before)
            found.value[pending], found.error[pending] = better.value, better.error
        return found, slopes

    def _passed_on(self, turned: Array, moved: Array, same: Mask, slopes: Array | None) -> Array:
        """What errors of the law do to first order; those of one variable move its variance alone."""
        one, two = self.one, self.two
        if slopes is None:
            return np.asarray(np.maximum(turned, moved) * (one.sizes[self.first] * two.sizes[self.second]))
        series = _product(one, two)
        assert series is not None and one.series is not None and two.series is not None
        f, g = one.series, two.series
        alone = f.scale[self.first] * g.norm[self.second] + f.norm[self.first] * g.scale[self.second]
        error = np.asarray((turned + moved) * np.abs(slopes) + moved * alone)
        single = np.broadcast_to(same & (moved > 0), error.shape)
        first, second, moved = self._chosen(single, self.first, self.second, moved)
        rounding = EPS * len(f.coefficients) * f.norm[first] * g.norm[second]
        error[single] = moved * (series.spread(first, second) + rounding)
        return error

    def _chosen(self, chosen: Mask, *arrays: Array) -> list[Any]:
        """Arrays that broadcast to the pairs, at some pairs."""
        return [np.broadcast_to(array, self.cov.shape)[chosen] for array in arrays]

    def _by_series(self) -> tuple[Estimate, Array | None]:
        """By Mehler's series, with the derivatives by the correlation; not a number where there is none."""
        series = _product(self.one, self.two)
        if series is None:
            return Estimate(np.full(self.cov.shape, np.nan), np.full(self.cov.shape, np.inf)), None
        size = self.one.sd[self.first] * self.two.sd[self.second]
        rho = np.clip(self.cov / np.where(size > 0, size, 1.0), -1.0, 1.0)
        if self.one is self.two:
            rho[(self.first == self.second) & (self.cov == self.one.var[self.first])] = 1.0
        return series.at(self.first, self.second, rho)

    def _pending(self, found: Estimate) -> Mask:
        """Members whose error is above `enough`, relative to the value or, where it is not, to the sizes."""
        with np.errstate(over="ignore", invalid="ignore"):
            pending = ~(found.error <= self.enough * np.abs(found.value) + 2 * TINY)
            if np.any(pending & np.isfinite(found.error)):
                norm = self.one.sizes[self.first] * self.two.sizes[self.second]
                pending &= ~(found.error <= self.enough * norm + 2 * TINY)
        return np.asarray(pending)

    def _on_panels(self, pending: Mask) -> Estimate:
        """By quadrature for the pending members, each different one once."""
        one, two, cov = self.one, self.two, self.cov[pending]
        first, second = self._chosen(pending, self.first, self.second)
        if one is two:
            first, second = np.minimum(first, second), np.maximum(first, second)
        key = first * len(two.mu) + second + 1j * cov
        _, chosen, places = np.unique(key, return_index=True, return_inverse=True)
        value, error = np.empty((2, len(chosen)))
        for cut in _cuts(len(chosen), LAWS if one.shape is two.shape is None else len(chosen)):
            at = chosen[cut]
            found = _by_quadrature(one, two, first[at], second[at], cov[at])
            value[cut], error[cut] = found.value, found.error
        return Estimate(value, error)[places.ravel()]


def _by_quadrature(one: _Laws, two: _Laws, first: Places, second: Places, cov: Array) -> Estimate:
    """Products of means, integrals over a line at correlation +-1, over the plane elsewhere.

    Shapes    first, second, cov (n,) -> (n,)
    """
    rho, s = correlation(one.var[first], two.var[second], cov, np.inf)
    result = Estimate(*np.zeros((2, *cov.shape)))
    for number, chosen in enumerate((rho == 0, s == 0, (rho != 0) & (s > 0))):
        if not chosen.any():
            continue
        at, also = first[chosen], second[chosen]
        left, right = one.side(at), two.side(also)
        if number == 0:
            found = one.means[at] * two.means[also]
        elif number == 1:
            found = integrate_line([left, (*right[:2], right[2] * np.sign(rho[chosen]))])
        else:
            found = integrate_plane(left, right, rho[chosen], s[chosen])
        result.value[chosen], result.error[chosen] = found.value, found.error
    return result
