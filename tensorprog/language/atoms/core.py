"""`Atom`, one nonlinearity with everything that is known about it, and the registry of all atoms."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

INF = math.inf
Interval = tuple[float, float]
WIDE = 1e-12  # more than the relative error of any function of numpy


def near(value: float, exact: bool = False) -> Interval:
    """Enclosure of what is computed as this value; an infinite one was too large for a floating-point number."""
    if math.isnan(value):
        return -INF, INF
    if exact:
        return value, value
    if math.isinf(value):
        return (sys.float_info.max, INF) if value > 0 else (-INF, -sys.float_info.max)
    wide = WIDE * abs(value) + 5e-324
    return value - wide, value + wide


@dataclass(frozen=True)
class Regularity:
    """How fast a function grows and varies.

    `growth` g: |f(x)| <= K (1 + |x|**g).  `modulus` m: |f(x) - f(y)| <= K |x - y| (1 + |x|**m + |y|**m); the
    papers' pseudo-Lipschitz order is m + 1.  `lipschitz`: the best K when m = 0, else inf.  `exponent` r:
    |f(x)| <= exp(C |x|**r + c), 0 where growth is finite; Yang's "controlled" means r < 2.  inf means "no such bound".
    """

    growth: float
    modulus: float
    lipschitz: float = INF
    exponent: float = 0.0


@dataclass(frozen=True)
class Atom:
    """A function that acts coordinatewise, with its facts; every other module reads them from here.

    Shapes    numpy: `arity` arrays that broadcast, then one value per name in `params`
    Source    one entry of the registry per nonlinearity; a field left out means "not known"
    """

    name: str
    numpy: Callable[..., NDArray[Any]]
    sympy: Callable[..., Any]  # called with the sympy module first
    arity: int = 1
    params: Mapping[str, float | None] = field(default_factory=dict)  # name -> default (None: must be given)
    pullback: tuple[str, ...] = ()  # for each argument x, y, z its derivative times d, as a text of the language
    bounds: Callable[..., Interval] | None = None  # range over all real arguments, from the parameters
    image: Callable[..., Interval] | None = None  # range over argument intervals (one per argument), then parameters
    turns: tuple[float, ...] = ()  # where it turns from falling to rising or back, if it does at known places
    monotone: int = 0  # +1 increasing, -1 decreasing, 0 neither or not known
    parity: int = 0  # +1 even, -1 odd
    regularity: Regularity = Regularity(INF, INF, INF, INF)
    local: Callable[..., Regularity] | None = None  # regularity on an interval (lo, hi), then parameters
    kinks: Callable[..., tuple[Any, ...]] | None = None  # where f, f' or f'' jumps; quadrature splits here
    features: Callable[..., tuple[tuple[Any, Any], ...]] = lambda *_: ()  # (centre, length scale) of smooth structure
    terms: Callable[..., tuple[tuple[Any, int, str, Any, Any], ...] | None] | None = (
        None  # exact expansion: closed forms
    )
    domain: Interval = (-INF, INF)  # where f is a finite real number
    operator: str = ""  # infix spelling, for printing and parsing
    doc: str = ""
    declared: bool = False  # the facts are what a program's author says, attacked but not proved

    @property
    def continuous(self) -> bool:
        """Whether the function has a finite modulus somewhere, so is continuous there."""
        return self.local is not None or np.isfinite(self.regularity.modulus)

    def range_on(self, interval: Interval, *params: float) -> Interval:
        """Range over an argument interval (one-argument atoms).

        Shapes    interval (lo, hi) -> (lo, hi), a superset of the range, closed
        """
        if self.image is not None:
            return self.image(interval, *params)
        bounds = self.bounds(*params) if self.bounds is not None else (-INF, INF)
        if not self.monotone and not self.turns:
            return bounds
        low, high = (max(end, self.domain[0]) for end in interval)
        places = [low, high, *(place for place in self.turns if low < place < high)]
        ends = [end for place in places for end in self.near(place, *params)]
        least, most = (min(max(end, bounds[0]), bounds[1]) for end in (min(ends), max(ends)))
        return least, most

    def near(self, x: float, *params: float) -> Interval:
        """Enclosure of the value at a number, or of the limit at an infinite one (one-argument atoms)."""
        with np.errstate(all="ignore"):
            value, far = (float(self.numpy(np.float64(at), *params)) for at in (x, max(min(x, 1e300), -1e300)))
        value = far if math.isnan(value) else value  # x sigmoid(x) at -inf
        # 0, 1/2 and 1: libraries are exact there
        whole = (x in (0, 1) or math.isinf(x)) and (math.isinf(value) or (2 * value).is_integer())
        return near(value, exact=whole)

    def regularity_on(self, interval: Interval, *params: float) -> Regularity:
        """Growth and modulus over an argument interval (one-argument atoms)."""
        return self.regularity if self.local is None else self.local(interval, *params)


ATOMS: dict[str, Atom] = {}


def register(atom: Atom) -> Atom:
    """Enter an atom in the registry; a second atom of the same name is refused."""
    if atom.name in ATOMS:
        raise ValueError(f"the atom {atom.name} is registered already")
    ATOMS[atom.name] = atom
    return atom
