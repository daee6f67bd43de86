"""Numbers of formulas, with errors: what has a closed form by sympy, unevaluated expectations by `gaussian`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy import special

from tensorprog.gaussian import cross, integrate, mean
from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.normal import step_step
from tensorprog.language.errors import ProgramError
from tensorprog.language.evaluate import COORDINATE, Open, Scope, align, evaluate
from tensorprog.language.expr import Call, Expr, Variable, replace_variables
from tensorprog.language.ir import Range
from tensorprog.limit.form.sums_of_functions import FORMAL
from tensorprog.limit.form.univariate import function, smooth
from tensorprog.limit.formulas.expectation import Expectation
from tensorprog.limit.formulas.nodes import Choice, IndexSum, Lookup, Node, Score, ScoreAverage, Softmax

__all__ = ["estimate"]

Array = NDArray[Any]
Grid = Mapping[Any, Array]
TOLERANCE = 1e-5  # asked of functions of several variables, relative to their size
LEVEL = 64 * EPS  # errors of arguments below this, relatively, are rounding


def estimate(expr: Any) -> Estimate:
    """A formula without free symbols as a number.

    Shapes    a scalar Estimate
    Accuracy  the errors of unevaluated expectations are carried through to first order
    Raises    ProgramError naming what has no value
    """
    expr = sp.sympify(expr)
    if expr.free_symbols or expr.has(Score):
        names = sorted({str(x) for x in expr.free_symbols} | {str(x) for x in expr.atoms(Score)})
        raise ProgramError(f"no number yet: {', '.join(names)} must be given values first")
    return _scalar(expr)


@lru_cache(maxsize=4096)
def _scalar(expr: Any) -> Estimate:
    return _estimate(expr, {}, 0)


def _estimate(expr: Any, grid: Grid, axes: int) -> Estimate:
    """Over a grid of index values: `axes` axes, each array of `grid` with that many."""
    if isinstance(expr, Node | Lookup):
        return _node(expr, grid, axes)
    inner = list(dict.fromkeys(_nodes(expr)))
    known = [_scalar(node) if axes and not node.free_symbols else _node(node, grid, axes) for node in inner]
    names = [sp.Dummy() for _ in inner]
    skeleton = expr.xreplace(dict(zip(inner, names, strict=True)))
    call = _array_function(skeleton, [*names, *grid]) if axes else _scalar_function(skeleton, names)
    return _carried(call, [*known, *(Estimate.exact(value) for value in grid.values())])


def _nodes(expr: Any) -> Iterator[Any]:
    if isinstance(expr, Node | Lookup):
        yield expr
    else:
        for arg in expr.args:
            yield from _nodes(arg)


def _node(node: Any, grid: Grid, axes: int) -> Estimate:
    if isinstance(node, Lookup):
        places = [np.rint(_estimate(index, grid, axes).value) for index in node.args[1:]]
        return Estimate.exact(node.args[0].read(*places))
    if isinstance(node, IndexSum):
        return _sum(node, grid, axes)
    if isinstance(node, Softmax):
        return _softmax(node, grid, axes)
    if isinstance(node, ScoreAverage):
        return node.estimate()
    return _expectation(node, grid, axes)


def _wider(grid: Grid, limits: Any, axes: int) -> tuple[dict[Any, Array], tuple[int, ...]]:
    """The grid with one more axis for each bound index, and its shape."""
    more = len(limits)
    wide = {symbol: value.reshape(value.shape + (1,) * more) for symbol, value in grid.items()}
    shape: tuple[int, ...] = np.broadcast_shapes(*(value.shape for value in wide.values()), (1,) * (axes + more))
    for k, (symbol, start, stop) in enumerate(limits):
        values = np.arange(int(start), int(stop) + 1)
        wide[symbol] = values.reshape((1,) * (axes + k) + (-1,) + (1,) * (more - 1 - k))
        shape = (*shape[: axes + k], len(values), *shape[axes + k + 1 :])
    return wide, shape


def _sum(node: IndexSum, grid: Grid, axes: int) -> Estimate:
    wide, shape = _wider(grid, node.limits, axes)
    inner = _estimate(node.function, wide, len(shape))
    return inner.reshape(shape).sum(axis=tuple(range(axes, len(shape))))


def _softmax(node: Softmax, grid: Grid, axes: int) -> Estimate:
    """Masked entries are exactly zero; the entries of one row move by at most twice the error of its arguments."""
    wide, shape = _wider(grid, node.args[1], axes)
    bound = tuple(range(axes, len(shape)))
    row = _estimate(node.args[0], wide, len(shape)).reshape(shape)
    aside = {symbol: value.reshape(value.shape + (1,) * len(bound)) for symbol, value in grid.items()}
    here = _estimate(node.here, aside, len(shape))
    top = row.value.max(axis=bound, keepdims=True)
    share = np.exp(here.value - top) / np.exp(row.value - top).sum(axis=bound, keepdims=True)
    moved = np.maximum(row.error.max(axis=bound, keepdims=True), here.error)
    error = share * (np.expm1(2 * moved) + (8 + math.prod(shape[axes:])) * EPS)
    return Estimate(share.squeeze(bound), error.squeeze(bound))


def _scalar_function(skeleton: Any, names: list[Any]) -> Any:
    def call(*values: Array) -> Estimate:
        placed = skeleton.xreplace({n: sp.Float(float(v), 20) for n, v in zip(names, values, strict=True)})
        number = placed.evalf(20)
        if not number.is_number or not number.is_comparable:
            raise ValueError(f"{skeleton} is not a real number")
        return Estimate.rounded(np.float64(number), 2)

    return call


def _array_function(skeleton: Any, names: list[Any]) -> Any:
    """By numpy; the rounding is that of the largest term of the sum."""
    modules = [{"Phi": special.ndtr, "phi": _density, "Phi2": _both}, "scipy", "numpy"]
    written = skeleton.replace(Choice, lambda *args: Choice(*args).doit())
    calls = [sp.lambdify(names, term, modules) for term in sp.Add.make_args(written)]

    def call(*values: Array) -> Estimate:
        with np.errstate(all="ignore"):
            terms = [np.asarray(part(*values), dtype=np.float64) for part in calls]
        sizes = [np.where(np.isfinite(term), np.abs(term), 0.0) for term in terms]  # masked entries are exact
        return Estimate(np.asarray(sum(terms)), np.asarray(16 * EPS * sum(sizes)))

    return call


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))


def _both(h: Array, k: Array, r: Array) -> Array:
    h, k, r = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (h, k, r)))
    return step_step(Estimate.exact(h), Estimate.exact(k), r, np.sqrt((1 - r) * (1 + r))).value


def _carried(call: Any, args: list[Estimate]) -> Estimate:
    """A function of estimates, the effect of their errors added to first order."""
    values = [arg.value for arg in args]
    result: Estimate = call(*values)
    error = result.error
    for k, arg in enumerate(args):
        if np.any(arg.error > LEVEL * np.abs(arg.value)):
            moved: Estimate = call(*values[:k], values[k] + arg.error, *values[k + 1 :])
            finite = np.isfinite(result.value)  # masked entries do not move
            error = error + np.abs(np.subtract(moved.value, result.value, where=finite, out=np.zeros(finite.shape)))
    return Estimate(result.value, np.asarray(error))


# ---- expectations ---------------------------------------------------------------------------------------------------


def _expectation(node: Expectation, grid: Grid, axes: int) -> Estimate:
    factors, means, cov = node.args
    numbers = {(f, k): value for f, factor in enumerate(factors) for k, value in enumerate(factor[1])}
    size = len(means)
    upper = [(a, b) for a in range(size) for b in range(a, size)]
    args = [*numbers.values(), *means, *(cov[a][b] for a, b in upper)]
    names = tuple(map(str, range(axes)))

    def call(*values: Array) -> Estimate:
        wide = np.broadcast_arrays(*values) if axes else values
        given = dict(zip(numbers, wide, strict=False))
        rest = wide[len(numbers) :]
        moments = dict(zip(upper, rest[size:], strict=True))
        bodies = [_renamed(factor, f) for f, factor in enumerate(factors)]
        scope = _scope({Variable(f".p{f}.{k}"): Open(names, v) for (f, k), v in given.items()})
        plain = all(len(factor[2]) == 1 for factor in factors)
        if plain and size == 1:
            product = bodies[0] if len(bodies) == 1 else Call("multiply", tuple(bodies))
            return mean(function(product, scope, names), rest[0], np.maximum(moments[0, 0], 0))
        if plain and size == 2:
            (i, f), (j, g) = sorted((int(factor[2][0]), body) for factor, body in zip(factors, bodies, strict=True))
            vp, vq = np.maximum(moments[i, i], 0), np.maximum(moments[j, j], 0)
            edge = np.sqrt(vp) * np.sqrt(vq)
            first, second = function(f, scope, names), function(g, scope, names)
            return cross(first, second, rest[0], rest[1], vp, vq, np.clip(moments[0, 1], -edge, edge))
        matrix = np.stack([np.stack([moments[min(a, b), max(a, b)] for b in range(size)], -1) for a in range(size)], -2)
        call = _several(factors, bodies, scope, names)
        return integrate(call, np.stack(rest[:size], -1), matrix, all(map(smooth, bodies)), TOLERANCE)

    return _carried(call, [_estimate(arg, grid, axes) for arg in args])


def _renamed(factor: Any, number: int) -> Expr:
    """A factor's body, its numbers named apart from those of other factors."""
    return replace_variables(
        factor[0].expr, lambda v: Variable(f".p{number}.{v.name[2:]}") if v.name.startswith(".p") else None
    )


def _scope(values: Mapping[Variable, Open]) -> Scope:
    def read(reference: Variable, _: Mapping[str, Range]) -> Open:
        return values[reference]

    return Scope(cast(Any, None), {}, read)


def _several(factors: Any, bodies: list[Expr], scope: Scope, names: tuple[str, ...]) -> Any:
    def call(z: Array) -> Array:
        result: Array = np.ones(1)
        for factor, body in zip(factors, bodies, strict=True):
            places = [int(place) for place in factor[2]]
            variables = [FORMAL] if len(places) == 1 else [Variable(f".{k}") for k in range(len(places))]
            axes = (*names, COORDINATE)
            own = {v: Open(axes, z[..., place, :]) for v, place in zip(variables, places, strict=True)}

            def read(reference: Variable, box: Mapping[str, Range], own: Any = own) -> Open:
                return own[reference] if reference in own else scope.variable(reference, box)

            value = evaluate(body, Scope(scope.netsor, {}, read))
            result = result * align(value, axes)
        return result

    return call


Node.evaluation = estimate
