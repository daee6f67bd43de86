"""Piecewise linear nonlinearities and steps: closed forms come from their `step` expansions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorprog.language.atoms.core import INF, Atom, Interval, Regularity, register
from tensorprog.language.atoms.outward import hull, product

__all__: list[str] = []

LIPSCHITZ = Regularity(1, 0, 1.0)


def _leaky_image(a: Interval, slope: float) -> Interval:
    ends = [(x, x) if x > 0 else product(slope, x) for x in a]
    return hull(*ends, (0.0, 0.0)) if a[0] <= 0 <= a[1] else hull(*ends)


def _bound(edge: Any) -> tuple[Any, Any]:
    """A bound and 1, or 0 and 0 where it is infinite: of numbers, arrays and formulas."""
    if isinstance(edge, np.ndarray):
        finite = np.isfinite(edge)
        return np.where(finite, edge, 0.0), finite.astype(float)
    return (0.0, 0.0) if edge in (-INF, INF) else (edge, 1.0)


def _clip_terms(lo: Any, hi: Any) -> tuple[tuple[Any, int, str, Any, Any], ...] | None:
    """lo + (x - lo) step(x - lo) - (x - hi) step(x - hi): x in place of the first two where lo is infinite."""
    if isinstance(lo, float | np.ndarray):  # hi wins where lo > hi
        lo = np.minimum(lo, hi)
    if np.any(lo == INF) or np.any(hi == -INF):
        return None  # infinite everywhere
    (low, below), (high, above) = _bound(lo), _bound(hi)
    return (
        (low, 0, "one", 1.0, 0.0),
        (1.0 - below, 1, "one", 1.0, 0.0),
        (below, 1, "step", 1.0, -low),
        (-low, 0, "step", 1.0, -low),
        (-above, 1, "step", 1.0, -high),
        (high, 0, "step", 1.0, -high),
    )


register(
    Atom(
        name="abs",
        ulps=0,
        numpy=np.abs,
        sympy=lambda sp, x: sp.Abs(x),
        derivative=np.sign,
        bounds=lambda: (0.0, INF),
        image=lambda a: (0.0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))),
        parity=1,
        regularity=LIPSCHITZ,
        kinks=lambda: (0.0,),
        terms=lambda: ((2.0, 1, "step", 1.0, 0.0), (-1.0, 1, "one", 1.0, 0.0)),  # |x| = 2 x step(x) - x
        doc="absolute value",
    )
)
register(
    Atom(
        name="relu",
        ulps=0,
        numpy=lambda x: np.clip(x, 0, np.inf),
        sympy=lambda sp, x: sp.Max(x, 0),
        derivative=lambda x: (x > 0).astype(float),
        bounds=lambda: (0.0, INF),
        monotone=1,
        regularity=LIPSCHITZ,
        kinks=lambda: (0.0,),
        terms=lambda: ((1.0, 1, "step", 1.0, 0.0),),
        doc="max(x, 0)",
    )
)
register(
    Atom(
        name="leaky_relu",
        params={"slope": 0.01},
        numpy=lambda x, slope: np.where(x > 0, x, slope * x),
        sympy=lambda sp, x, slope: sp.Piecewise((x, x > 0), (slope * x, True)),
        derivative=lambda x, slope: np.where(x > 0, 1.0, slope),
        image=_leaky_image,
        local=lambda a, slope: Regularity(1, 0, max(1.0, abs(slope))),
        kinks=lambda slope: (0.0,),
        terms=lambda slope: ((1.0 - slope, 1, "step", 1.0, 0.0), (slope, 1, "one", 1.0, 0.0)),
        doc="x for x > 0, slope * x below (slope 0.01)",
    )
)
register(
    Atom(
        name="clip",
        ulps=0,
        params={"lo": None, "hi": None},
        numpy=np.clip,
        sympy=lambda sp, x, lo, hi: sp.Min(hi, sp.Max(lo, x)),  # hi wins where lo > hi, as in numpy
        derivative=lambda x, lo, hi: ((lo < x) & (x < hi)).astype(float),
        bounds=lambda lo, hi: (min(lo, hi), hi),
        monotone=1,
        local=lambda a, lo, hi: Regularity(1 if np.isinf(lo) or np.isinf(hi) else 0, 0, 1.0),
        kinks=lambda lo, hi: (lo, hi),
        terms=_clip_terms,
        doc="x held between lo and hi",
    )
)
register(
    Atom(
        name="sign",
        ulps=0,
        numpy=np.sign,
        sympy=lambda sp, x: sp.sign(x),
        derivative=np.zeros_like,
        bounds=lambda: (-1.0, 1.0),
        monotone=1,
        parity=-1,
        regularity=Regularity(0, INF),
        kinks=lambda: (0.0,),
        terms=lambda: ((2.0, 0, "step", 1.0, 0.0), (-1.0, 0, "one", 1.0, 0.0)),
        doc="-1, 0 or 1; discontinuous",
    )
)
register(
    Atom(
        name="step",
        ulps=0,
        numpy=lambda x: (np.asarray(x) > 0).astype(float),
        sympy=lambda sp, x: sp.Piecewise((1, x > 0), (0, True)),
        derivative=np.zeros_like,
        bounds=lambda: (0.0, 1.0),
        monotone=1,
        regularity=Regularity(0, INF),
        kinks=lambda: (0.0,),
        terms=lambda: ((1.0, 0, "step", 1.0, 0.0),),
        doc="1 for x > 0, else 0; discontinuous",
    )
)
