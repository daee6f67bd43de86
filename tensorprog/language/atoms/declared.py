"""Nonlinearities that the author of a program declares: a function, what is claimed of it, its place among the others.

Claims are attacked before they are entered here (`check.declare`); what is not declared counts as not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    "install",
]

Array = NDArray[Any]
PLACES = np.array([-30.0, -3.0, -1.0, -0.3, 0.1, 0.7, 2.0, 5.0, 40.0])  # whose values tell functions apart


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


def enter(claimed: Declaration, function: DeclaredFunction) -> Atom:
    """Enter a function in the registry with what is claimed of it, in place of one of the same name.

    Quadrature splits at the kinks declared; where none are, at 0.
    """
    bounds, kinks = claimed.range, (0.0,) if claimed.kinks is None else claimed.kinks
    ATOMS[claimed.name] = atom = Atom(
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
