"""Nonlinearities that the author of a program declares: a function, what is claimed of it, its place among the others.

What is declared is attacked by search before it is believed (`attack`); what is not declared counts as not known.
"""

from __future__ import annotations

import hashlib
import keyword
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.falsifier.claims import Attacked, attack
from tensorprog.check.falsifier.search import Line
from tensorprog.language.atoms.core import ATOMS, INF, Atom, Interval, Regularity
from tensorprog.language.atoms.reductions import REDUCTIONS
from tensorprog.language.errors import Problem, ProgramError, fail

__all__ = ["Declaration", "Own", "check_sketch", "declare", "install", "own"]

Array = NDArray[Any]
LANGUAGE = {"n", "inf", "pi", "min", "max", "MatMul", "Nonlin", "Dot"}
UNSEEN = 1e-3  # a search may miss a second kink so near to one that it found
PLACES = np.array([-3.0, -1.0, -0.3, 0.1, 0.7, 2.0, 5.0])  # whose values tell functions apart in files


class Own:
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

    @cached_property
    def line(self) -> Line:
        """Its values at all points of the search, computed once."""
        return Line(self)

    @property
    def digest(self) -> str:
        """Tells functions apart: of the values at all points of the search, bit by bit."""
        return hashlib.sha256(self.line.v.tobytes()).hexdigest()

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


def declare(given: Declaration) -> Atom:
    """Attack what is declared of a function and enter it in the registry.

    A function declared before under the same name may be declared again: its facts are replaced.

    Raises    ProgramError with every claim that is false, each with a witness; nothing is registered then
    """
    problems = [*_name_problems(given.name), *_senseless(given)]
    if problems:
        raise ProgramError(problems)
    claimed = given.concluded()
    function = Own(claimed.fn)
    found = attack(replace(given, modulus=claimed.modulus), function)
    if found.problems:
        raise ProgramError(found.problems)
    before = ATOMS.get(claimed.name)
    if before is not None and isinstance(before.numpy, Own) and before.numpy.digest != function.digest:
        raise fail(
            f"{claimed.name} is declared already, as another function; programs made before refer to it by name",
            fix=f'tp.atom("{claimed.name}2", ...)',
        )
    ATOMS[claimed.name] = atom = _atom(claimed, function, found)
    return atom


def own(name: str) -> Own:
    """The declared function of a name."""
    function = ATOMS[name].numpy
    assert isinstance(function, Own), name
    return function


def check_sketch(name: str, sketch: Any) -> None:
    """Compare a declared function with the values that a file has of it.

    Raises    ProgramError with a place where they differ
    """
    here, there = own(name).sketch, np.asarray(sketch if isinstance(sketch, list) else [], dtype=np.float64)
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
        ATOMS[name] = _atom(Declaration(name, fn), Own(fn), Attacked())
    elif not isinstance(before.numpy, Own) or before.numpy.digest != Own(fn).digest:
        raise ValueError(f"{name} is another function there")


def _atom(claimed: Declaration, function: Own, found: Attacked) -> Atom:
    """Quadrature splits at the kinks declared; where none are, at 0 and at those found; panels shrink at features."""
    growth = INF if claimed.growth is None else claimed.growth
    modulus = INF if claimed.modulus is None else claimed.modulus
    lipschitz = INF if claimed.lipschitz is None else claimed.lipschitz
    bounds, kinks = claimed.range, claimed.kinks
    split = tuple(sorted({0.0, *found.kinks})) if kinks is None else kinks
    features = ((0.0, 1.0), *found.features, *(((k, UNSEEN) for k in found.kinks) if kinks is None else ()))
    return Atom(
        name=claimed.name,
        numpy=function,
        sympy=_formula(claimed, function),
        derivative=claimed.derivative,
        bounds=None if bounds is None else lambda: bounds,
        monotone=claimed.monotone,
        parity=claimed.parity,
        regularity=Regularity(growth, modulus, lipschitz, 0.0 if growth < INF else INF),
        kinks=lambda: split,
        features=lambda: features,
        doc=claimed.doc or "declared in Python",
        declared=True,
    )


def _formula(claimed: Declaration, function: Own) -> Callable[..., Any]:
    """The formula given, else a function without one whose numbers are known."""
    given = claimed.sympy
    if given is not None:
        return lambda sp, x: given(x)

    def opaque(sp: Any, x: Any) -> Any:
        from sympy.utilities.lambdify import implemented_function

        return implemented_function(sp.Function(claimed.name, real=True), function)(x)

    return opaque


def _name_problems(name: Any) -> Iterator[Problem]:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name[0] == "_":
        yield Problem(f"{name!r} is not a name", fix="use letters, digits and _, beginning with a letter")
    elif name.endswith("_"):
        yield Problem(f"{name}: a trailing underscore is reserved for second copies of indices", fix=name.rstrip("_"))
    elif name in LANGUAGE or name in REDUCTIONS or (name in ATOMS and not ATOMS[name].declared):
        yield Problem(f"{name} is a name of the language already", fix=f'tp.atom("my_{name}", ...)')


def _number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and not math.isnan(value)


def _senseless(d: Declaration) -> Iterator[Problem]:
    """Values that no function could have, or that contradict each other."""
    for key in ("fn", "derivative", "sympy"):
        value = getattr(d, key)
        if not callable(value) and (key == "fn" or value is not None):
            yield Problem(f"{d.name}: {key} must be a function, not {value!r}", fix="a function of one array")
    for key in ("growth", "modulus", "lipschitz"):
        value = getattr(d, key)
        if value is not None and not (_number(value) and 0 <= value < INF):
            yield Problem(
                f"{d.name}: {key} must be a number of at least 0, not {value!r}", fix=f"leave {key} out: not known"
            )
    for key in ("monotone", "parity"):
        if getattr(d, key) not in (-1, 0, 1):
            yield Problem(f"{d.name}: {key} must be 1, -1 or 0 (neither, or not known), not {getattr(d, key)!r}")
    ends = d.range
    if ends is not None and not (
        isinstance(ends, tuple | list) and len(ends) == 2 and all(map(_number, ends)) and ends[0] <= ends[1]
    ):
        yield Problem(f"{d.name}: range must be (lo, hi) with lo <= hi, not {ends!r}", fix="range=(-1, inf), say")
    kinks = d.kinks
    if kinks is not None and not (isinstance(kinks, tuple | list) and all(_number(k) and abs(k) < INF for k in kinks)):
        yield Problem(
            f"{d.name}: kinks must be a tuple of finite numbers, not {kinks!r}",
            fix="kinks=() for none; leave it out if they are not known",
        )
    if d.lipschitz is not None and d.modulus not in (None, 0) and _number(d.modulus):
        yield Problem(f"{d.name}: a Lipschitz constant means modulus 0, not {d.modulus}", fix="modulus=0")
    elif _number(d.growth) and _number(d.modulus) and d.growth > d.modulus + 1:  # type: ignore[operator]
        yield Problem(
            f"{d.name}: growth {d.growth} does not go with modulus {d.modulus}: |f(x)| <= K (1 + |x|**(modulus + 1))",
            fix=f"growth={d.modulus + 1:g}, or leave it out",  # type: ignore[operator]
        )
