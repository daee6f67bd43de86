"""The nonlinearities, one entry each: piecewise linear ones and steps, then smooth ones and their kinked relatives.

Closed forms of the first come from their `step` expansions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms.core import INF, Atom, Regularity, near, register

LIPSCHITZ = Regularity(1, 0, 1.0)
BOUNDED = Regularity(0, 0, 1.0)
UNIT = ((0.0, 1.0),)  # structure at 0 with length scale 1
SELU_ALPHA = 1.6732632423543772  # Klambauer et al. 2017 (arXiv 1706.02515)
GELU_BOTTOM, SILU_BOTTOM = -0.7517915246935645, -1.2784645427610738  # where they are smallest
GELU_TANH_BOTTOM, MISH_BOTTOM = -0.7524614220710162, -1.1924312145154954
LINEAR, CUBIC = 1.5957691216057308, 0.07135481627260025  # of the sigmoid in gelu_tanh: 2 sqrt(2/pi), times 0.044715
SELU_SCALE = 1.0507009873554805


def _special() -> Any:
    import scipy.special

    return scipy.special


def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), in single precision four times as fast as scipy's `expit`."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _elu(x: NDArray[Any], alpha: float) -> NDArray[Any]:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


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


# ---- piecewise linear functions and steps ---------------------------------------------------------------------------


register(
    Atom(
        name="abs",
        numpy=np.abs,
        pullback=("d * sign(x)",),
        sympy=lambda sp, x: sp.Abs(x),
        bounds=lambda: (0.0, INF),
        turns=(0.0,),
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
        numpy=lambda x: np.clip(x, 0, np.inf),
        pullback=("d * step(x)",),
        sympy=lambda sp, x: sp.Max(x, 0),
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
        pullback=("d * (slope + (1 - slope) * step(x))",),
        sympy=lambda sp, x, slope: sp.Piecewise((x, x > 0), (slope * x, True)),
        turns=(0.0,),
        local=lambda a, slope: Regularity(1, 0, max(1.0, abs(slope))),
        kinks=lambda slope: (0.0,),
        terms=lambda slope: ((1.0 - slope, 1, "step", 1.0, 0.0), (slope, 1, "one", 1.0, 0.0)),
        doc="x for x > 0, slope * x below (slope 0.01)",
    )
)
register(
    Atom(
        name="clip",
        params={"lo": None, "hi": None},
        numpy=np.clip,
        pullback=("d * (step(x - lo) - step(x - hi))",),
        sympy=lambda sp, x, lo, hi: sp.Min(hi, sp.Max(lo, x)),  # hi wins where lo > hi, as in numpy
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
        numpy=np.sign,
        pullback=("0",),
        sympy=lambda sp, x: sp.sign(x),
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
        numpy=lambda x: (np.asarray(x) > 0).astype(float),
        pullback=("0",),
        sympy=lambda sp, x: sp.Piecewise((1, x > 0), (0, True)),
        bounds=lambda: (0.0, 1.0),
        monotone=1,
        regularity=Regularity(0, INF),
        kinks=lambda: (0.0,),
        terms=lambda: ((1.0, 0, "step", 1.0, 0.0),),
        doc="1 for x > 0, else 0; discontinuous",
    )
)


# ---- smooth functions -----------------------------------------------------------------------------------------------


register(
    Atom(
        name="tanh",
        numpy=np.tanh,
        pullback=("d * (1 - tanh(x)**2)",),
        sympy=lambda sp, x: sp.tanh(x),
        bounds=lambda: (-1.0, 1.0),
        monotone=1,
        parity=-1,
        regularity=BOUNDED,
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="hyperbolic tangent",
    )
)
register(
    Atom(
        name="arctan",
        numpy=np.arctan,
        pullback=("d / (1 + x**2)",),
        sympy=lambda sp, x: sp.atan(x),
        bounds=lambda: (-math.pi / 2, math.pi / 2),
        monotone=1,
        parity=-1,
        regularity=BOUNDED,
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="inverse of the tangent, between -pi/2 and pi/2",
    )
)
register(
    Atom(
        name="softsign",
        numpy=lambda x: x / (1 + np.abs(x)),
        pullback=("d / (1 + abs(x))**2",),
        sympy=lambda sp, x: x / (1 + sp.Abs(x)),
        bounds=lambda: (-1.0, 1.0),
        monotone=1,
        parity=-1,
        regularity=BOUNDED,
        kinks=lambda: (0.0,),
        features=lambda: UNIT,
        doc="x / (1 + abs(x))",
    )
)
register(
    Atom(
        name="sigmoid",
        numpy=_sigmoid,
        pullback=("d * sigmoid(x) * (1 - sigmoid(x))",),
        sympy=lambda sp, x: 1 / (1 + sp.exp(-x)),
        bounds=lambda: (0.0, 1.0),
        monotone=1,
        regularity=Regularity(0, 0, 0.25),
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="1 / (1 + exp(-x))",
    )
)
register(
    Atom(
        name="erf",
        numpy=lambda x: _special().erf(x),
        pullback=("d * 2 / sqrt(pi) * gaussian(x)",),
        sympy=lambda sp, x: sp.erf(x),
        bounds=lambda: (-1.0, 1.0),
        monotone=1,
        parity=-1,
        regularity=Regularity(0, 0, 2 / math.sqrt(math.pi)),
        kinks=lambda: (),
        features=lambda: UNIT,
        terms=lambda: ((1.0, 0, "erf", 1.0, 0.0),),
        doc="error function",
    )
)
register(
    Atom(
        name="gelu",
        numpy=lambda x: x * _special().ndtr(x),
        pullback=("d * ((1 + erf(x / sqrt(2))) / 2 + x * gaussian(x / sqrt(2)) / sqrt(2 * pi))",),
        sympy=lambda sp, x: x * (1 + sp.erf(x / sp.sqrt(2))) / 2,
        bounds=lambda: (-0.17, INF),
        turns=(GELU_BOTTOM,),
        regularity=Regularity(1, 0, 1.13),
        kinks=lambda: (),
        features=lambda: UNIT,
        terms=lambda: ((0.5, 1, "one", 1.0, 0.0), (0.5, 1, "erf", math.sqrt(0.5), 0.0)),
        doc="x times the normal cdf at x (the exact form)",
    )
)
register(
    Atom(
        name="gelu_tanh",
        numpy=lambda x: x * _special().expit(x * (LINEAR + CUBIC * np.square(x))),
        pullback=(
            f"d * sigmoid({LINEAR!r} * x + {CUBIC!r} * x**3) * (1 + x * ({LINEAR!r} + {3 * CUBIC!r} * x**2) * "
            f"sigmoid(-{LINEAR!r} * x - {CUBIC!r} * x**3))",
        ),
        sympy=lambda sp, x: x * (1 + sp.tanh(sp.sqrt(2 / sp.pi) * (x + sp.Rational(44715, 1000000) * x**3))) / 2,
        bounds=lambda: (-0.1701, INF),
        turns=(GELU_TANH_BOTTOM,),
        regularity=Regularity(1, 0, 1.13),
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))) / 2, the approximation of gelu in GPT-2",
    )
)
register(
    Atom(
        name="silu",
        numpy=lambda x: x * _special().expit(x),
        pullback=("d * sigmoid(x) * (1 + x * (1 - sigmoid(x)))",),
        sympy=lambda sp, x: x / (1 + sp.exp(-x)),
        bounds=lambda: (-0.2785, INF),
        turns=(SILU_BOTTOM,),
        regularity=Regularity(1, 0, 1.1),
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="x * sigmoid(x), also called swish",
    )
)
register(
    Atom(
        name="softplus",
        numpy=lambda x: np.logaddexp(x, 0.0),
        pullback=("d * sigmoid(x)",),
        sympy=lambda sp, x: sp.log(1 + sp.exp(x)),
        bounds=lambda: (0.0, INF),
        monotone=1,
        regularity=Regularity(1, 0, 1.0),
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="log(1 + exp(x))",
    )
)
register(
    Atom(
        name="mish",
        numpy=lambda x: x * np.tanh(np.logaddexp(x, 0.0)),
        pullback=("d * (tanh(softplus(x)) + x * sigmoid(x) * (1 - tanh(softplus(x))**2))",),
        sympy=lambda sp, x: x * sp.tanh(sp.log(1 + sp.exp(x))),
        bounds=lambda: (-0.3089, INF),
        turns=(MISH_BOTTOM,),
        regularity=Regularity(1, 0, 1.09),
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="x * tanh(softplus(x))",
    )
)
register(
    Atom(
        name="log_cosh",
        numpy=lambda x: np.logaddexp(x, -x) - math.log(2),
        pullback=("d * tanh(x)",),
        sympy=lambda sp, x: sp.log(sp.cosh(x)),
        bounds=lambda: (0.0, INF),
        turns=(0.0,),
        parity=1,
        regularity=LIPSCHITZ,
        kinks=lambda: (),
        features=lambda: UNIT,
        doc="log(cosh(x)), which behaves like abs(x) far out and like x**2 / 2 near 0",
    )
)
register(
    Atom(
        name="elu",
        params={"alpha": 1.0},
        numpy=_elu,
        pullback=("d * (alpha * exp(min(x, 0)) + (1 - alpha) * step(x))",),
        sympy=lambda sp, x, alpha: sp.Piecewise((x, x > 0), (alpha * (sp.exp(x) - 1), True)),
        bounds=lambda alpha: (min(-alpha, 0.0), INF),
        turns=(0.0,),
        local=lambda a, alpha: Regularity(1, 0, max(1.0, abs(alpha))),
        kinks=lambda alpha: (0.0,),
        features=lambda alpha: UNIT,
        doc="x for x > 0, alpha (exp(x) - 1) below (alpha 1)",
    )
)
register(
    Atom(
        name="selu",
        numpy=lambda x: SELU_SCALE * _elu(x, SELU_ALPHA),
        pullback=(f"{SELU_SCALE!r} * d * ({SELU_ALPHA!r} * exp(min(x, 0)) + {1 - SELU_ALPHA!r} * step(x))",),
        sympy=lambda sp, x: (
            sp.Float(SELU_SCALE, 17) * sp.Piecewise((x, x > 0), (sp.Float(SELU_ALPHA, 17) * (sp.exp(x) - 1), True))
        ),
        bounds=lambda: (-SELU_SCALE * SELU_ALPHA - 1e-15, INF),
        monotone=1,
        regularity=Regularity(1, 0, SELU_SCALE * SELU_ALPHA),
        kinks=lambda: (0.0,),
        features=lambda: UNIT,
        doc="scaled elu with the self-normalising constants",
    )
)
register(
    Atom(
        name="sin",
        numpy=np.sin,
        pullback=("d * cos(x)",),
        sympy=lambda sp, x: sp.sin(x),
        bounds=lambda: (-1.0, 1.0),
        parity=-1,
        regularity=BOUNDED,
        kinks=lambda: (),
        features=lambda: UNIT,
        terms=lambda: ((1.0, 0, "sin", 1.0, 0.0),),
        doc="sine",
    )
)
register(
    Atom(
        name="cos",
        numpy=np.cos,
        pullback=("-d * sin(x)",),
        sympy=lambda sp, x: sp.cos(x),
        bounds=lambda: (-1.0, 1.0),
        parity=1,
        regularity=BOUNDED,
        kinks=lambda: (),
        features=lambda: UNIT,
        terms=lambda: ((1.0, 0, "cos", 1.0, 0.0),),
        doc="cosine",
    )
)
register(
    Atom(
        name="exp",
        numpy=np.exp,
        pullback=("d * exp(x)",),
        sympy=lambda sp, x: sp.exp(x),
        bounds=lambda: (0.0, INF),
        monotone=1,
        local=lambda a: (
            Regularity(0, 0, near(float(np.exp(a[1])))[1]) if a[1] < INF else Regularity(INF, INF, INF, 1.0)
        ),
        kinks=lambda: (),
        features=lambda: UNIT,
        terms=lambda: ((1.0, 0, "exp", 1.0, 0.0),),
        doc="exponential; pseudo-Lipschitz only where its argument is bounded above",
    )
)
register(
    Atom(
        name="gaussian",
        numpy=lambda x: np.exp(-np.square(x)),
        pullback=("-2 * d * x * gaussian(x)",),
        sympy=lambda sp, x: sp.exp(-(x**2)),
        bounds=lambda: (0.0, 1.0),
        turns=(0.0,),
        parity=1,
        regularity=Regularity(0, 0, math.sqrt(2 / math.e)),
        kinks=lambda: (),
        features=lambda: UNIT,
        terms=lambda: ((1.0, 0, "gaussian", math.sqrt(2), 0.0),),
        doc="exp(-x**2)",
    )
)
