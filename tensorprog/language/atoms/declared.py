"""`tp.atom`: what an author declares of a nonlinearity is tried at many points, and registered if it holds there.

What is not declared counts as not known.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS, Atom, Interval, Regularity
from tensorprog.language.atoms.core import INF
from tensorprog.language.errors import Problem, fail, refuse
from tensorprog.language.expr import RESERVED, Function

Array = NDArray[Any]
PLACES = np.array([-30.0, -3.0, -1.0, -0.3, 0.1, 0.7, 2.0, 5.0, 40.0])  # whose values tell functions apart
GRID = np.linspace(-30, 30, 12_001)
FAR = 10.0 ** np.linspace(1.5, 6, 200)
POINTS = np.concatenate([-FAR[::-1], GRID, FAR])


class DeclaredFunction:
    """An author's function as an atom calls it: the function itself sees one-dimensional arrays of doubles only.

    Shapes    any -> the same
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def __call__(self, x: Any) -> Array:
        """Values at x."""
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            values = np.asarray(self.fn(x.astype(np.float64, copy=False).reshape(-1)))
            return values.reshape(x.shape).astype(x.dtype if x.dtype.kind == "f" else np.float64, copy=False)

    @property
    def sketch(self) -> list[float]:
        """Values at a few places, which tell functions apart, here and in files."""
        return [float(value) for value in self(PLACES)]


@dataclass(frozen=True)
class Declaration:
    """What an author says of a function of one real variable; None means not known."""

    name: str
    fn: Callable[[Any], Any]
    range: Interval | None = None
    growth: tuple[float, float] | None = None
    modulus: tuple[float, float] | None = None
    lipschitz: float | None = None
    kinks: tuple[float, ...] | None = None
    monotone: int = 0
    parity: int = 0
    sympy: Callable[[Any], Any] | None = None
    doc: str = ""

    @property
    def regularity(self) -> Regularity:
        """What follows: Lipschitz functions have modulus 0, growth <= modulus + 1, and bounded ones have growth 0."""
        modulus = 0.0 if self.lipschitz is not None else INF if self.modulus is None else self.modulus[1]
        bounded = self.range is not None and max(map(abs, self.range)) < INF
        growth = min(0.0 if bounded else INF, modulus + 1, INF if self.growth is None else self.growth[1])
        lipschitz = self.modulus[0] * 3 if self.modulus is not None and modulus == 0 else INF
        lipschitz = lipschitz if self.lipschitz is None else self.lipschitz
        return Regularity(growth, modulus, lipschitz, 0.0 if growth < INF else INF)


def declared_function(name: str) -> DeclaredFunction:
    """The declared function of a name."""
    function = ATOMS[name].numpy
    assert isinstance(function, DeclaredFunction), name
    return function


def check_sketch(name: str, sketch: Any) -> None:
    """Compare a declared function with the values that a file has of it.

    Raises    ProgramError with a place where they differ
    """
    here = declared_function(name).sketch
    there = np.asarray(sketch if isinstance(sketch, list) else [], dtype=np.float64)
    if there.shape != PLACES.shape:
        raise fail(f"{name} was not declared when the file was written", fix=f"declare {name} by another name")
    differ = ~np.isclose(here, there, rtol=1e-9, atol=1e-12)
    if differ.any():
        k = int(np.argmax(differ))
        raise fail(
            f"{name} was another function when the file was written: {name}({PLACES[k]:g}) was {there[k]:.9g}, "
            f"here it is {here[k]:.9g}",
            fix=f"declare {name} as it was then",
        )


def install(name: str, fn: Callable[[Any], Any]) -> None:
    """Enter a function that was declared in another process, whose facts are not needed here.

    Raises    ValueError if the name stands for another function here
    """
    before = ATOMS.get(name)
    if before is None:
        enter(Declaration(name, fn), DeclaredFunction(fn))
    elif not isinstance(before.numpy, DeclaredFunction) or before.numpy.sketch != DeclaredFunction(fn).sketch:
        raise ValueError(f"{name} is another function there")


def enter(claimed: Declaration, function: DeclaredFunction) -> None:
    """Enter a function in the registry with what is claimed of it, in place of one of the same name.

    Quadrature splits at the kinks declared; where none are, at 0.
    """
    bounds, kinks = claimed.range, (0.0,) if claimed.kinks is None else claimed.kinks
    ATOMS[claimed.name] = Atom(
        name=claimed.name,
        numpy=function,
        sympy=_formula(claimed, function),
        bounds=None if bounds is None else lambda: bounds,
        monotone=claimed.monotone,
        parity=claimed.parity,
        regularity=claimed.regularity,
        kinks=lambda: kinks,
        features=lambda: ((0.0, 1.0),),
        doc=claimed.doc or "declared in Python",
        declared=True,
    )


def _formula(claimed: Declaration, function: DeclaredFunction) -> Callable[..., Any]:
    """The formula given, else a function without one whose numbers are known."""
    given = claimed.sympy
    if given is not None:
        return lambda sp, x: given(x)

    def opaque(sp: Any, x: Any) -> Any:
        from sympy.utilities.lambdify import implemented_function

        return implemented_function(sp.Function(claimed.name, real=True), function)(x)

    return opaque


# ---- what is claimed, tried ---------------------------------------------------------------------------------------


def atom(
    name: str,
    fn: Callable[[Any], Any],
    *,
    range: Interval | None = None,
    growth: tuple[float, float] | None = None,
    modulus: tuple[float, float] | None = None,
    lipschitz: float | None = None,
    kinks: tuple[float, ...] | None = None,
    monotone: int = 0,
    parity: int = 0,
    sympy: Callable[[Any], Any] | None = None,
    doc: str = "",
) -> Function:
    """Declare a nonlinearity of one's own and return it as a function of expressions.

    `fn` maps a one-dimensional array of doubles to another, element by element.  What is said of it is tried at many
    points before it is believed; what is left out counts as not known.  `range`: (lo, hi).  `growth` (K, g):
    |f(x)| <= K (1 + |x|^g).  `lipschitz` L: |f(x) - f(y)| <= L |x - y|.  `modulus` (K, m), where there is no such L:
    |f(x) - f(y)| <= K |x - y| (1 + |x|^m + |y|^m). `kinks`: the points
    where f, f' or f'' jumps.  `monotone`: 1 increasing, -1 decreasing.  `parity`: 1 even, -1 odd.  `sympy`: the
    formula, a function of one sympy expression.

    Shapes    fn: (k,) -> (k,)
    Accuracy  what holds at all points tried is not proved; reports say what rests on it
    Raises    ProgramError with a place for each false claim, or if the name is taken; nothing is declared then.  The
              same function may be declared again: its facts are replaced
    Source    Sakai et al. 2025 (arXiv 2506.00846), Def. 2, for growth and modulus
    """
    given = Declaration(name, fn, range, growth, modulus, lipschitz, kinks, monotone, parity, sympy, doc)
    refuse([*_name_problems(name), *_senseless(given)])
    function = DeclaredFunction(fn)
    refuse(_array_problems(given) or _refuted(given, function))
    before = ATOMS.get(name)
    if before is not None and isinstance(before.numpy, DeclaredFunction) and before.numpy.sketch != function.sketch:
        said = f"{name} is declared already, as another function; programs made before refer to it by name"
        raise fail(said, fix=f'tp.atom("{name}2", ...)')
    enter(given, function)
    return Function(name)


def _array_problems(d: Declaration) -> list[Problem]:
    """An array is to give an array of doubles of its shape, element by element, the same every time."""
    fix = "a function of one numpy array that works on each element by itself"
    x = np.random.default_rng(1).normal(size=1000) * 3
    name, fn = d.name, d.fn
    try:
        with np.errstate(all="ignore"):
            value, again, alone = fn(x.copy()), fn(x.copy()), fn(x[:1].copy())
    except Exception as error:  # of any kind: the function is its author's
        return [Problem(f"{name} cannot be computed on an array: {type(error).__name__}: {error}", fix=fix)]
    if not isinstance(value, np.ndarray) or value.shape != x.shape or value.dtype != x.dtype:
        what = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        return [Problem(f"{name} of an array of float64 of shape {x.shape} gives {what}", fix=fix)]
    if not np.array_equal(value, again, equal_nan=True):
        return [Problem(f"{name} is not the same every time", fix="a function without randomness")]
    if not np.allclose(alone, value[:1], rtol=1e-10, equal_nan=True):
        return [Problem(f"{name} at x = {x[0]:g} is {alone[0]:g} alone, but {value[0]:g} in an array", fix=fix)]
    return []


def _refuted(d: Declaration, function: DeclaredFunction) -> Iterator[Problem]:
    """Claims that do not hold at some points, or between neighbours; far out, values may be too large to compute."""
    x, v = POINTS, function(POINTS)
    finite = np.isfinite(v)
    lost = x[~finite & (np.abs(x) <= 100)]
    if len(lost):
        yield Problem(f"{d.name} is no real number at x = {lost[0]:.6g}", fix="a function of all reals")
        return
    x, v, mirrored = x[finite], v[finite], np.where(finite, v, 0)[::-1][finite]
    slack, step, change = 1e-9 * (1 + np.abs(v)), np.diff(x), np.diff(v)
    both, moved = slack[1:] + slack[:-1], np.abs(change)
    (low, high), (most, power), (steep, rise) = d.range or (-INF, INF), d.growth or (INF, 0), d.modulus or (INF, 0)
    lipschitz = INF if d.lipschitz is None else d.lipschitz
    growing = 1 + np.abs(x[1:]) ** rise + np.abs(x[:-1]) ** rise
    wrong = [
        ((v < low - slack) | (v > high + slack), f"leaves the range {d.range}"),
        (np.abs(v) > most * (1 + np.abs(x) ** power) + slack, f"outgrows {most:g} (1 + |x|**{power:g})"),
        (d.monotone * change < -both, "is not increasing" if d.monotone > 0 else "is not decreasing"),
        (moved > lipschitz * step + both, f"is steeper than {lipschitz:g}"),
        (moved > steep * step * growing + both, f"is steeper than {steep:g} (1 + |x|**{rise:g} + |y|**{rise:g})"),
        (abs(d.parity) * np.abs(v - d.parity * mirrored) > slack, "is not even" if d.parity > 0 else "is not odd"),
    ]
    for places, claim in wrong:
        if np.any(places):
            k = int(np.argmax(places))
            beside = f" and {d.name}({x[k + 1]:.6g}) = {v[k + 1]:.9g}" if len(places) < len(x) else ""
            said = f"{d.name} {claim}: {d.name}({x[k]:.6g}) = {v[k]:.9g}{beside}"
            yield Problem(said, fix="claim what holds, or less")
    if d.kinks is not None:
        yield from (
            Problem(f"{d.name} has a kink that is not declared near {x:.6g}", fix="claim what holds, or less")
            for x in _kinks(d, function)[:1]
        )


def _kinks(d: Declaration, function: DeclaredFunction) -> list[float]:
    """Places, apart from those declared, at which the slope changes by far more than around them, from near too."""
    slopes = np.diff(function(GRID)) / np.diff(GRID)
    middle = (GRID[1:] + GRID[:-1]) / 2
    clear = np.min(np.abs(middle[:, None] - np.asarray(d.kinks or (np.inf,))), axis=1, initial=np.inf) > 0.05
    bend = np.abs(np.diff(slopes))
    around = np.maximum(np.roll(bend, 3), np.roll(bend, -3))
    found = []
    for k in np.flatnonzero((bend > 0.02 * (1 + np.abs(slopes[1:]))) & (bend > 20 * around) & clear[1:]):
        fine = np.linspace(GRID[k], GRID[k + 2], 10_001)  # what is only steep is smooth from near
        if np.ptp(np.diff(np.diff(function(fine)) / np.diff(fine))) > bend[k] / 4:
            found.append(float(GRID[k + 1]))
    return found


def _name_problems(name: Any) -> Iterator[Problem]:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name[0] == "_":
        yield Problem(f"{name!r} is not a name", fix="use letters, digits and _, beginning with a letter")
    elif name.endswith("_"):
        yield Problem(f"{name}: a trailing underscore is reserved for second copies of indices", fix=name.rstrip("_"))
    elif name in RESERVED or (name in ATOMS and not ATOMS[name].declared):
        yield Problem(f"{name} is a name of the language already", fix=f'tp.atom("my_{name}", ...)')


def _senseless(d: Declaration) -> Iterator[Problem]:
    """Values that no function could have, or that contradict each other."""
    kinks = () if d.kinks is None else d.kinks
    for key, expected, right in (
        ("fn", "a function of one array", callable(d.fn)),
        ("sympy", "a function of one sympy expression", d.sympy is None or callable(d.sympy)),
        ("growth", "(K, g), both of at least 0", d.growth is None or _numbers(d.growth, 2, least=0)),
        ("modulus", "(K, m), both of at least 0", d.modulus is None or _numbers(d.modulus, 2, least=0)),
        ("lipschitz", "a constant of at least 0", d.lipschitz is None or _numbers((d.lipschitz,), 1, least=0)),
        ("monotone", "1, -1 or 0 (neither, or not known)", d.monotone in (-1, 0, 1)),
        ("parity", "1, -1 or 0 (neither, or not known)", d.parity in (-1, 0, 1)),
        ("range", "(lo, hi) with lo <= hi", d.range is None or (_numbers(d.range, 2) and d.range[0] <= d.range[1])),
        ("kinks", "a tuple of finite numbers", _numbers(kinks) and all(map(math.isfinite, kinks))),
    ):
        if not right:
            yield Problem(
                f"{d.name}: {key} must be {expected}, not {getattr(d, key)!r}", fix="leave out what is not known"
            )


def _numbers(values: Any, count: int | None = None, least: float = -INF) -> bool:
    """Whether values are so many numbers, of at least something, and below infinity where they are claims."""
    kinds = int | float | np.number
    return (
        isinstance(values, tuple | list)
        and (count is None or len(values) == count)
        and all(isinstance(v, kinds) and not isinstance(v, bool) and v >= least for v in values)
        and (least == -INF or all(math.isfinite(v) for v in values))
    )
