"""Nonlinearities that the author of a program declares: a function, what is claimed of it, its place among the others.

Claims are attacked before they are entered here (`check.declare`); what is not declared counts as not known.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms.core import ATOMS, INF, Atom, Interval, Regularity
from tensorprog.language.errors import fail

__all__ = [
    "Declaration",
    "DeclaredFunction",
    "check_sketch",
    "declared_function",
    "enter",
    "grids",
    "install",
    "points",
]

Array = NDArray[Any]
UNSEEN = 1e-3  # a search may miss a second kink so near to one that it found
PLACES = np.array([-3.0, -1.0, -0.3, 0.1, 0.7, 2.0, 5.0])  # whose values tell functions apart in files


@cache
def grids() -> tuple[Array, ...]:
    """Increasing points: two even grids around 0, and one on either side of 0 that is even in log |x|, up to 1e300."""
    near = 2.0 ** np.arange(-30, 30 + 1 / 64, 1 / 64)
    logs = np.unique(np.concatenate([2.0 ** np.arange(-990.0, -30, 0.5), near, 2.0 ** np.arange(30, 996.5, 0.25)]))
    return np.linspace(-12, 12, 2**18 + 1), np.linspace(-250, 250, 25001), -logs[::-1], logs


@cache
def points() -> Array:
    """Points of all scales at which declared functions are searched and compared."""
    rng = np.random.default_rng(0)
    random = rng.normal(size=4000) * 10.0 ** rng.uniform(-3, 3, 4000)
    decades = 10.0 ** np.arange(-300, 301)
    return np.unique(np.concatenate([*grids(), random, decades, -decades, _plain_numbers()]))


def _plain_numbers() -> Array:
    """Numbers that authors treat as special: whole ones, simple fractions, multiples of pi, square roots, the least."""
    fractions = np.array([p / q for q in range(1, 13) for p in range(12 * q + 1)])
    whole, parts = np.arange(1001.0), np.pi * np.arange(49) / 12
    found = np.concatenate([fractions, whole, parts, np.sqrt(whole), [math.e, 5e-324, math.ulp(1.0)]])
    return np.concatenate([found, -found])


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
    def digest(self) -> str:
        """Tells functions apart: of the values at all `points`, bit by bit."""
        return hashlib.sha256(self(points()).tobytes()).hexdigest()

    @property
    def sketch(self) -> list[float]:
        """Values at a few places, for files that other machines read."""
        return [float(value) for value in self(PLACES)]


@dataclass(frozen=True)
class Declaration:
    """What an author says of a function of one real variable; None means not known."""

    name: str
    fn: Callable[[Any], Any]
    range: Interval | None = None
    growth: float | None = None
    modulus: float | None = None
    lipschitz: float | None = None
    derivative: Callable[[Any], Any] | None = None
    kinks: tuple[float, ...] | None = None
    monotone: int = 0
    parity: int = 0
    sympy: Callable[[Any], Any] | None = None
    doc: str = ""

    def concluded(self) -> Declaration:
        """With what follows from what is declared: Lipschitz functions have modulus 0, and growth <= modulus + 1."""
        modulus = 0.0 if self.lipschitz is not None else self.modulus
        bounds = [INF if self.growth is None else self.growth, INF if modulus is None else modulus + 1]
        if self.range is not None and max(map(abs, self.range)) < INF:
            bounds.append(0.0)
        growth = min(bounds) if min(bounds) < INF else None
        return replace(self, growth=growth, modulus=modulus)


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
    elif not isinstance(before.numpy, DeclaredFunction) or before.numpy.digest != DeclaredFunction(fn).digest:
        raise ValueError(f"{name} is another function there")


def enter(
    claimed: Declaration,
    function: DeclaredFunction,
    bends: tuple[float, ...] = (),
    features: tuple[tuple[float, float], ...] = (),
) -> Atom:
    """Enter a function in the registry with what is claimed of it, in place of one of the same name.

    Quadrature splits at the kinks declared; where none are, at 0 and at the bends found; panels shrink at features.
    """
    growth = INF if claimed.growth is None else claimed.growth
    modulus = INF if claimed.modulus is None else claimed.modulus
    lipschitz = INF if claimed.lipschitz is None else claimed.lipschitz
    bounds, kinks = claimed.range, claimed.kinks
    split = tuple(sorted({0.0, *bends})) if kinks is None else kinks
    structure = ((0.0, 1.0), *features, *(((k, UNSEEN) for k in bends) if kinks is None else ()))
    ATOMS[claimed.name] = atom = Atom(
        name=claimed.name,
        numpy=function,
        sympy=_formula(claimed, function),
        derivative=claimed.derivative,
        bounds=None if bounds is None else lambda: bounds,
        monotone=claimed.monotone,
        parity=claimed.parity,
        regularity=Regularity(growth, modulus, lipschitz, 0.0 if growth < INF else INF),
        kinks=lambda: split,
        features=lambda: structure,
        passing=1,
        doc=claimed.doc or "declared in Python",
        declared=True,
    )
    return atom


def _formula(claimed: Declaration, function: DeclaredFunction) -> Callable[..., Any]:
    """The formula given, else a function without one whose numbers are known."""
    given = claimed.sympy
    if given is not None:
        return lambda sp, x: given(x)

    def opaque(sp: Any, x: Any) -> Any:
        from sympy.utilities.lambdify import implemented_function

        return implemented_function(sp.Function(claimed.name, real=True), function)(x)

    return opaque
