"""The attack on what an author declares of a function: one search for each claim, each answer with numbers to check.

A claim that survives is not proved.  Growth and modulus come without constants, so they are refused where ratios keep
growing along a scale of lengths, as powers and logarithms do, to the end of what floats resolve (`line.rising`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.falsifier.line import COARSE, EPS, Line, Trend, rising
from tensorprog.check.falsifier.refutations import REFUTATIONS, Refutation, outgrows
from tensorprog.language.atoms.declared import Declaration, DeclaredFunction
from tensorprog.language.errors import Problem

__all__ = ["Attacked", "attack"]

Array = NDArray[np.float64]
POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0)  # tried for what to declare instead
SLOPED = 1e6  # derivatives are compared with differences up to here
RELATIVE = 1e-9  # what parity and monotonicity may be off by, beside what is near
DENSE = 4000  # points at which slopes are taken on either side, up to the end of what is resolved
ORDINARY = 100.0  # up to here functions must be finite numbers, however they are computed
EXTREMES = np.concatenate([sign * 10.0 ** np.arange(-308, 309) for sign in (1.0, -1.0)])
LONG, ALONE = 50_000, 48  # numbers that the function is given together, and how many of them one by one
STEPS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-2, 1e-7, 1e-8, 1e-9)  # of finite differences, those first that settle most points


@dataclass(frozen=True)
class Attacked:
    """What the search found: claims that are false, kinks, and places and lengths of sharp but smooth bends."""

    problems: tuple[Problem, ...] = ()
    kinks: tuple[float, ...] = ()
    features: tuple[tuple[float, float], ...] = ()


def attack(claims: Declaration, function: DeclaredFunction) -> Attacked:
    """Search for numbers that refute what is declared of a function of one real variable.

    Scale     a few 10**6 evaluations, all on arrays
    Accuracy  a witness is a proof up to rounding; that none is found proves nothing
    """
    for name, fn in ((claims.name, function.fn), (f"the derivative of {claims.name}", claims.derivative)):
        problem = None if fn is None else _array_function(name, fn)
        if problem is not None:
            return Attacked((problem,))
    with np.errstate(all="ignore"):
        line = Line(function)
        infinite = _not_finite(claims, function.fn, line)
        if infinite is not None:
            return Attacked((infinite,))
        line.places = {0.0, *(claims.kinks or ()), *line.bends, *(low for low, _ in line.brackets)}
        claimed = (_range, _monotone, _parity, _growth, _modulus, _lipschitz, _kinks, _derivative, _sympy, _steady)
        problems = tuple(problem for claim in claimed for problem in claim(claims, line))
        return Attacked(problems, tuple(line.bends), tuple(line.features))


# ---- numbers that depend on x alone ---------------------------------------------------------------------------------


def _text(x: float) -> str:
    """A number that reads back as the same number, short where it can be."""
    return f"{x:.6g}" if float(f"{x:.6g}") == x else repr(float(x))


def _array_function(name: str, fn: Callable[[Any], Any]) -> Problem | None:
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
        return Problem(
            f"{name} of an array of float64 of shape {x.shape} gives {what}",
            fix="an array of float64 of the same shape, e.g. np.where(x > 0, 1.0, 0.0)",
        )
    if not np.array_equal(x, before):
        return Problem(f"{name} changes the array that it is given", fix="write the result to a new array")
    if not np.array_equal(value, again, equal_nan=True):
        k = int(np.argmax(value != again))
        return Problem(
            f"{name} is not the same every time: {value[k]!s}, then {again[k]!s} at x = {_text(x[k])}",
            fix="a function without randomness; random numbers belong to the weights and initial vectors",
        )
    close = _same(alone, value[:ALONE])
    if not close.all():
        k = int(np.argmin(close))
        there = f"{alone[k]:.6g} alone, but {value[k]:.6g} inside an array"
        return Problem(f"{name} at x = {_text(x[k])} is {there}", fix=fix)
    return None


def _same(value: Array, other: Array) -> NDArray[np.bool_]:
    """Where values agree, as computed by loops over one number or over several."""
    size = np.abs(value[np.isfinite(value)]).max(initial=0.0)
    return np.isclose(value, other, rtol=1e-10, atol=1e-10 * size, equal_nan=True)


def _steady(d: Declaration, line: Line) -> Iterator[Problem]:
    """At the end a part of the points, in another order, still has the values that all had at the beginning."""
    inner = np.flatnonzero(line.finite & (np.abs(line.x) <= ORDINARY))
    part = np.random.default_rng(2).permutation(inner)[: len(inner) // 7]
    close = _same(line.v[part], line.f(line.x[part]))
    if not close.all():
        k = part[int(np.argmin(close))]
        now = float(line.f(line.x[part])[int(np.argmin(close))])
        yield Problem(
            f"{d.name} depends on more than its argument: {d.name}({_text(line.x[k])}) was {line.v[k]:.9g} "
            f"among {len(line.x):,} points, and is {now:.9g} among {len(part):,}",
            fix="a function whose values depend on each element alone, without a memory",
        )


def _overflows(fn: Callable[[Any], Any], x: float) -> bool:
    """Whether a value is no finite number only because an intermediate one is too large for a float."""
    try:
        with np.errstate(over="raise"):
            fn(np.array([x]))
    except FloatingPointError:
        return True
    with np.errstate(all="ignore"):
        return abs(x) > 1 and bool(np.abs(fn(np.array([0.99 * x]))).max() > 1e100)


def _not_finite(d: Declaration, fn: Callable[[Any], Any], line: Line) -> Problem | None:
    """A real number everywhere; far out, overflow is excused."""
    for kink in d.kinks or ():
        beside = np.array([np.nextafter(kink, -np.inf), kink, np.nextafter(kink, np.inf)])
        wrong = beside[~np.isfinite(fn(beside))]
        if wrong.size:
            return Problem(
                f"{d.name} is no real number everywhere: {d.name}({_text(wrong[0])}) = {fn(wrong)[0]}",
                fix="a function that is finite on the whole real line",
            )
    bad = np.flatnonzero(~np.isfinite(line.v))
    bad = bad[np.argsort(np.abs(line.x[bad]), kind="stable")]
    for k in bad[np.unique(np.linspace(0, len(bad) - 1, 50).astype(int))] if bad.size else ():
        x, v = float(line.x[k]), line.v[k]
        excused = _overflows(fn, x) and (abs(x) > ORDINARY or (np.isinf(v) and d.growth is None))
        if not excused:
            return Problem(
                f"{d.name} is no real number everywhere: {d.name}({_text(x)}) = {v}",
                fix="a function that is finite on the whole real line, e.g. one of np.maximum(x, eps)",
            )
    usual = 1 + float(np.median(np.abs(line.v[line.finite & (np.abs(line.x) <= 8)])))
    low, high = np.array(line.brackets).reshape(-1, 2).T
    near, beside = (np.abs([line.at(a), line.at(b)]).max(axis=0) for a, b in ((low, high), (low - 0.5, low + 0.5)))
    poles = low[(np.abs(low) < ORDINARY) & (near > 1e8 * usual) & (beside < 1e4)]
    if poles.size:
        return Problem(f"{d.name} has a pole at {_text(poles[0])}", fix="a function that is finite on the whole line")
    return None


# ---- values ---------------------------------------------------------------------------------------------------------


def _outwards(value: float, sign: float) -> float:
    """A number of three digits on the outer side."""
    if value == 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return float(f"{(math.floor if sign < 0 else math.ceil)(value / unit * (1 - sign * 1e-12)) * unit:.12g}")


def _plain(x: float, line: Line, wrong: Callable[[float], bool]) -> tuple[float, float]:
    """The shortest number near x at which a value is wrong, and the value; such numbers nearer to 0 are preferred."""
    for near in (math.copysign(min(abs(x), most), x) for most in (10.0, 1e3, 1e6, math.inf)):
        for digits in range(2, 18):
            short = float(f"{near:.{digits}g}")
            value = float(line.at(np.array([short]))[0])
            if wrong(value):
                return short, value
    return x, float(line.at(np.array([x]))[0])


def _told(*values: float) -> Iterator[str]:
    """Numbers with as many digits as it takes to tell them apart."""
    digits = next((n for n in range(9, 17) if len({f"{v:.{n}g}" for v in values}) == len({*values})), 17)
    return (f"{v:.{digits}g}" for v in values)


def _range(d: Declaration, line: Line) -> Iterator[Problem]:
    if d.range is None:
        return
    (low_at, low), (high_at, high) = line.largest(-1.0), line.largest(1.0)
    bottom, top = d.range
    below = low < bottom - line.noise(low)
    above = high > top + line.noise(high)
    bounded = rising(line.x[line.finite], np.abs(line.v[line.finite])) is None
    ends = [_outwards(v, s) if bounded or abs(v) < 1e3 else s * math.inf for v, s in ((low, -1.0), (high, 1.0))]
    fix = f"range=({ends[0]:.12g}, {ends[1]:.12g})"
    if below:
        x, value = _plain(low_at, line, lambda v: v < bottom - line.noise(v))
        limit, found = _told(bottom, value)
        yield Problem(f"{d.name} does not stay above {limit}: {d.name}({_text(x)}) = {found}", fix=fix)
    if above:
        x, value = _plain(high_at, line, lambda v: v > top + line.noise(v))
        limit, found = _told(top, value)
        yield Problem(f"{d.name} does not stay below {limit}: {d.name}({_text(x)}) = {found}", fix=fix)


def _closest(x: Array, size: Array) -> int:
    """Where a size is largest, not farther out than needed for it to be positive."""
    for reach in (10.0, 1e3, 1e6, math.inf):
        inside = np.where(np.abs(x) <= reach, size, 0.0)
        if inside.any():
            return int(np.argmax(inside))
    return int(np.argmax(size))


def _monotone(d: Declaration, line: Line) -> Iterator[Problem]:
    if not d.monotone:
        return
    x, v, most = line.x[line.finite], line.v[line.finite], line.sizes
    ahead = np.maximum.accumulate(d.monotone * v)
    drop = ahead - d.monotone * v
    drop = np.where(drop > RELATIVE * most + line.noise(v), drop, 0.0)
    if not drop.any():
        return
    k = _closest(x, drop)
    j = _closest(x[: k + 1], np.maximum(d.monotone * (v[: k + 1] - v[k]) - 0.5 * drop[k], 0.0))
    kind = "increasing" if d.monotone > 0 else "decreasing"
    other = drop.size and np.all(np.maximum.accumulate(-d.monotone * v) + d.monotone * v <= RELATIVE * most)
    first, second = _told(v[j], v[k])
    yield Problem(
        f"{d.name} is not {kind}: {d.name}({_text(x[j])}) = {first}, {d.name}({_text(x[k])}) = {second}",
        fix=f"monotone={-d.monotone}" if other else "leave monotone out",
    )


def _parity(d: Declaration, line: Line) -> Iterator[Problem]:
    if not d.parity:
        return
    x, v, most = line.x[line.finite], line.v[line.finite], line.sizes
    mirrored = line.at(-x)
    gaps = {sign: np.nan_to_num(np.abs(mirrored - sign * v)) / (most + 1e-300) for sign in (1, -1)}
    gap = gaps[d.parity] * most
    allowed = RELATIVE * most + line.noise(v)
    doubtful = np.flatnonzero(gap > allowed)
    allowed[doubtful] += line.shaken(x[doubtful])
    gap = np.where(gap > allowed, gap, 0.0)
    if not gap.any():
        return
    k = _closest(x, gap)
    kind = {1: "even", -1: "odd"}[d.parity]
    other = np.all(gaps[-d.parity] <= RELATIVE)
    here, there = _told(v[k], mirrored[k])
    yield Problem(
        f"{d.name} is not {kind}: {d.name}({_text(x[k])}) = {here}, {d.name}({_text(-x[k])}) = {there}",
        fix=f"parity={-d.parity}" if other else "leave parity out",
    )


# ---- growth and slopes ----------------------------------------------------------------------------------------------


def _trend(x: Array, size: Array, power: float) -> Trend | None:
    """Whether size outgrows |x|**power on a side; given near 10, 100, 1000 if it is seen there."""
    for side in (x > 0, x < 0):
        trend = outgrows(x[side], size[side], power)
        if trend is not None:
            places = [int(np.argmin(np.where(side, np.abs(np.abs(x) - at), np.inf))) for at in (10.0, 100.0, 1000.0)]
            a, b, c = (float(size[k] / (1 + np.abs(x[k]) ** power)) for k in places)
            plain = Trend((float(x[places[0]]), float(x[places[1]]), float(x[places[2]])), (a, b, c))
            return plain if 0 < 1.1 * a < b and 1.1 * b < c else trend
    return None


def _instead(x: Array, size: Array, name: str, refused: float) -> str:
    found = next((power for power in POWERS if power > refused and _trend(x, size, power) is None), None)
    return f"leave {name} out: not known" if found is None else f"{name}={found:g}"


def _growth(d: Declaration, line: Line) -> Iterator[Problem]:
    if d.growth is None:
        return
    x, size = line.x[line.finite], np.abs(line.v[line.finite])
    trend = _trend(x, size, d.growth)
    if trend is not None:
        yield Problem(
            f"{d.name} outgrows |x|**{d.growth:g}: |{d.name}(x)| / (1 + |x|**{d.growth:g}) is {trend}",
            fix=_instead(x, size, "growth", d.growth),
        )


def _slopes(d: Declaration, line: Line) -> Iterator[tuple[Array, Array]]:
    """Slopes at points of all scales: by short steps, where these resolve the function, and as they are declared."""
    x = np.concatenate([-line.logs[::-1], line.logs])
    x = x[np.isfinite(line.at(x))]
    fine = x[line.resolved(x)]
    right, left = (np.geomspace(1.0, max(1.0, end), DENSE) for end in (fine.max(), -fine.min()))
    fine = np.concatenate([fine, right, -left])
    yield fine, line.slopes(fine)
    if d.derivative is not None:
        yield x, np.abs(d.derivative(x))


def _no_modulus(d: Declaration, line: Line, found: Refutation) -> str:
    """What refutes every modulus."""
    if found.kind == "jump":
        low, high = map(float, found.at)
        a, b = line.at(found.at)
        return f"jumps, so it has no modulus: {d.name}({low!r}) = {a:.9g}, {d.name}({high!r}) = {b:.9g}"
    if found.slopes is None:
        return f"outgrows every power of |x|, so it has no modulus: it grows {found.trend}"
    shown, distances = [0, len(found.slopes) // 2, -1], np.abs(found.at[1:] - found.at[0])
    slopes, steps = (", ".join(f"{v:.3g}" for v in values[shown]) for values in (found.slopes, distances))
    return f"has no modulus: slopes grow without bound next to {_text(found.at[0])}: {slopes} over distances {steps}"


def _modulus(d: Declaration, line: Line) -> Iterator[Problem]:
    if d.modulus is None:
        return
    found = next((found for rule in REFUTATIONS["pseudo-Lipschitz"] for found in rule(line)), None)
    if found is not None:
        yield Problem(
            f"{d.name} {_no_modulus(d, line, found)}", fix="leave modulus out: such a function is not pseudo-Lipschitz"
        )
        return
    for x, size in _slopes(d, line):
        growing = _trend(x, size, d.modulus)
        if growing is not None:
            yield Problem(
                f"the slope of {d.name} outgrows |x|**{d.modulus:g}: slope / (1 + |x|**{d.modulus:g}) is {growing}",
                fix=_instead(x, size, "modulus", d.modulus),
            )
            return


def _lipschitz(d: Declaration, line: Line) -> Iterator[Problem]:
    if d.lipschitz is None:
        return
    low, high, slope = line.steepest()
    if slope > d.lipschitz * (1 + COARSE * max(1.0, abs(low)) / (high - low)) + 1e-9 * line.scale:
        a, b = line.at(np.array([low, high]))
        yield Problem(
            f"{d.name} is not Lipschitz with constant {d.lipschitz:g}: {d.name}({low!r}) = {a:.12g}, "
            f"{d.name}({high!r}) = {b:.12g}, a slope of {slope:.6g}",
            fix=f"lipschitz={_outwards(slope, 1.0):g}",
        )


# ---- shape ----------------------------------------------------------------------------------------------------------


def _kinks(d: Declaration, line: Line) -> Iterator[Problem]:
    if d.kinks is None:
        return
    missing = [k for k in line.bends if all(abs(k - known) > 1e-5 * max(1.0, abs(known)) for known in d.kinks)]
    if missing:
        k = missing[0]
        steps = max(1.0, abs(k)) * np.array([1e-4, 1e-5, 1e-6])
        here = line.at(np.array([k]))
        before, after = (here - line.at(k - steps)) / steps, (line.at(k + steps) - here) / steps
        j = int(np.argmax(np.abs(after - before)))  # other kinks may be near
        places = ", ".join(f"{p:.9g}" for p in (sorted({*d.kinks, *missing}) if len(missing) < 20 else missing[:3]))
        yield Problem(
            f"{d.name} has a kink at {k:.9g} that is not declared: its slope over {steps[j]:.3g} is {before[j]:.6g} "
            f"before and {after[j]:.6g} after",
            fix=f"kinks=({places}{',' if ',' not in places else ''})" if len(missing) < 20 else "leave kinks out",
        )


def _derivative(d: Declaration, line: Line) -> Iterator[Problem]:
    """Away from kinks the declared derivative agrees with one of several finite differences, within their errors."""
    if d.derivative is None:
        return
    x = line.x[line.finite & (np.abs(line.x) <= SLOPED)]
    for kink in (*line.bends, *(d.kinks or ())):
        x = x[np.abs(x - kink) > 1e-5 * max(1.0, abs(kink))]
    value = np.asarray(d.derivative(x), dtype=np.float64)
    order = np.argsort(np.maximum(1.0, np.abs(x)), kind="stable")
    typical = np.empty_like(value)
    typical[order] = np.maximum.accumulate(np.nan_to_num(np.abs(value[order]), nan=0.0, posinf=0.0))
    typical[np.abs(x) <= 1] = typical[np.abs(x) <= 1].max(initial=0.0)
    best, shown = np.full(x.shape, np.inf), np.zeros_like(x)
    for step, relative in itertools.product(STEPS, (False, True)):
        left = np.flatnonzero(~(best <= 1))  # points that no step has settled
        at, given = x[left], value[left]
        h = step * (np.maximum(1.0, np.abs(at)) if relative else np.ones_like(at))
        slope = (line.at(at + h) - line.at(at - h)) / ((at + h) - (at - h))
        rounding = 8 * EPS * (line.scale + np.abs(line.at(at))) / h
        near = 1e-3 * np.maximum(np.abs(given), np.abs(slope)) + 1e-5 * typical[left] + rounding
        gap = np.abs(slope - given) / near
        closer = gap < best[left]
        best[left[closer]], shown[left[closer]] = gap[closer], slope[closer]
    wrong = ~(best <= 1) & (np.isfinite(best) | ~np.isfinite(value))  # some slope was known there
    if wrong.any():
        k = int(np.argmax(np.where(wrong, np.nan_to_num(best, nan=1e300, posinf=1e300), 0.0)))
        yield Problem(
            f"the derivative of {d.name} is wrong: it gives {value[k]:.6g} at x = {_text(x[k])}, "
            f"where the slope of {d.name} is {shown[k]:.6g}",
            fix="correct it, or leave derivative out",
        )


def _sympy(d: Declaration, line: Line) -> Iterator[Problem]:
    """The formula has the function's values."""
    if d.sympy is None:
        return
    import sympy as sp

    symbol = sp.Symbol("x", real=True)
    try:
        formula = sp.sympify(d.sympy(symbol))
        for place in ("-2.5", "-0.7", "0.3", "1.9"):
            value = float(formula.subs(symbol, sp.Rational(place)).evalf(20))
            (here,) = line.at(np.array([float(place)]))
            if abs(value - here) > 1e-8 * abs(here) + line.noise(here):
                yield Problem(
                    f"the formula of {d.name} is another function: {value:.9g} at x = {place}, "
                    f"where {d.name} is {here:.9g}",
                    fix="correct it, or leave sympy out",
                )
                return
    except Exception as error:  # of any kind: the formula is its author's
        yield Problem(
            f"the formula of {d.name} gives no numbers: {type(error).__name__}: {error}",
            fix="sympy=lambda x: x * sympy.tanh(x), say: a function of one sympy expression",
        )
