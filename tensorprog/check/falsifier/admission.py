"""What every function of an author must be before its facts are attacked: finite numbers that depend on x alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.falsifier.search import Line
from tensorprog.language.atoms.declared import Declaration
from tensorprog.language.errors import Problem

__all__ = ["ORDINARY", "array_function", "not_finite", "steady", "written"]

Array = NDArray[np.float64]
ORDINARY = 100.0  # up to here functions must be finite numbers, however they are computed
EXTREMES = np.concatenate([sign * 10.0 ** np.arange(-308, 309) for sign in (1.0, -1.0)])
LONG, ALONE = 50_000, 48  # numbers that the function is given together, and how many of them one by one


def written(x: float) -> str:
    """A number that reads back as the same number, short where it can be."""
    return f"{x:.6g}" if float(f"{x:.6g}") == x else repr(float(x))


def array_function(name: str, fn: Callable[[Any], Any]) -> Problem | None:
    """An array gives an array of doubles of its shape, element by element, without change and the same every time."""
    x = np.concatenate([[0.0, 1.0, -1.0, 2.0, -2.0, 20.0, -20.0, 0.5], np.random.default_rng(1).normal(size=LONG) * 3])
    fix = "a function of one numpy array that works on each element by itself"
    before = x.copy()
    try:
        with np.errstate(all="ignore"):
            value, again, _ = fn(x), fn(x), fn(EXTREMES.copy())
            alone = np.array([np.ravel(fn(before[k : k + 1]))[0] for k in range(ALONE)])
    except Exception as error:  # of any kind: the function is its author's
        return Problem(f"{name} cannot be computed on an array: {type(error).__name__}: {error}", fix=fix)
    if not isinstance(value, np.ndarray) or value.shape != x.shape or value.dtype != x.dtype:
        is_array = isinstance(value, np.ndarray)
        what = f"{value.dtype} of shape {value.shape}" if is_array else type(value).__name__
        return Problem(f"{name} of an array of float64 of shape {x.shape} gives {what}", fix="an array of float64 of "
                       "the same shape, e.g. np.where(x > 0, 1.0, 0.0)")
    if not np.array_equal(x, before):
        return Problem(f"{name} changes the array that it is given", fix="write the result to a new array")
    if not np.array_equal(value, again, equal_nan=True):
        k = int(np.argmax(value != again))
        return Problem(f"{name} is not the same every time: {value[k]!s}, then {again[k]!s} at x = {written(x[k])}",
                       fix="a function without randomness; random numbers belong to the weights and initial vectors")
    close = _same(alone, value[:ALONE])
    if not close.all():
        k = int(np.argmin(close))
        there = f"{alone[k]:.6g} alone, but {value[k]:.6g} inside an array"
        return Problem(f"{name} at x = {written(x[k])} is {there}", fix=fix)
    return None


def _same(value: Array, other: Array) -> NDArray[np.bool_]:
    """Where values agree, as computed by loops over one number or over several."""
    size = np.abs(value[np.isfinite(value)]).max(initial=0.0)
    return np.isclose(value, other, rtol=1e-10, atol=1e-10 * size, equal_nan=True)


def steady(d: Declaration, line: Line) -> Iterator[Problem]:
    """At the end a part of the points, in another order, still has the values that all had at the beginning."""
    inner = np.flatnonzero(line.finite & (np.abs(line.x) <= ORDINARY))
    part = np.random.default_rng(2).permutation(inner)[: len(inner) // 7]
    close = _same(line.v[part], line.f(line.x[part]))
    if not close.all():
        k = part[int(np.argmin(close))]
        now = float(line.f(line.x[part])[int(np.argmin(close))])
        yield Problem(f"{d.name} depends on more than its argument: {d.name}({written(line.x[k])}) was {line.v[k]:.9g} "
                      f"among {len(line.x):,} points, and is {now:.9g} among {len(part):,}",
                      fix="a function whose values depend on each element alone, without a memory")


def _overflows(fn: Callable[[Any], Any], x: float) -> bool:
    """Whether a value is no finite number only because an intermediate one is too large for a float."""
    try:
        with np.errstate(over="raise"):
            fn(np.array([x]))
    except FloatingPointError:
        return True
    with np.errstate(all="ignore"):
        return abs(x) > 1 and bool(np.abs(fn(np.array([0.99 * x]))).max() > 1e100)


def not_finite(d: Declaration, fn: Callable[[Any], Any], line: Line) -> Problem | None:
    """A real number everywhere; far out, overflow is excused."""
    for kink in d.kinks or ():
        beside = np.array([np.nextafter(kink, -np.inf), kink, np.nextafter(kink, np.inf)])
        wrong = beside[~np.isfinite(fn(beside))]
        if wrong.size:
            return Problem(f"{d.name} is no real number everywhere: {d.name}({written(wrong[0])}) = {fn(wrong)[0]}",
                           fix="a function that is finite on the whole real line")
    bad = np.flatnonzero(~np.isfinite(line.v))
    bad = bad[np.argsort(np.abs(line.x[bad]), kind="stable")]
    for k in bad[np.unique(np.linspace(0, len(bad) - 1, 50).astype(int))] if bad.size else ():
        x, v = float(line.x[k]), line.v[k]
        excused = _overflows(fn, x) and (abs(x) > ORDINARY or (np.isinf(v) and d.growth is None))
        if not excused:
            return Problem(f"{d.name} is no real number everywhere: {d.name}({written(x)}) = {v}",
                           fix="a function that is finite on the whole real line, e.g. one of np.maximum(x, eps)")
    usual = 1 + float(np.median(np.abs(line.v[line.finite & (np.abs(line.x) <= 8)])))
    low, high = np.array(line.brackets).reshape(-1, 2).T
    near, beside = (np.abs([line.at(a), line.at(b)]).max(axis=0) for a, b in ((low, high), (low - 0.5, low + 0.5)))
    poles = low[(np.abs(low) < ORDINARY) & (near > 1e8 * usual) & (beside < 1e4)]
    if poles.size:
        return Problem(f"{d.name} has a pole at {written(poles[0])}", fix="a function that is finite on the whole line")
    return None
