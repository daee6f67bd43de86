"""Correlations of two variables, free of the cancellation of 1 - rho^2 near rho = +-1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

__all__ = ["CORRELATION_SLACK", "Correlation", "correlation"]

# covariances that are themselves estimates may exceed sqrt(var var) slightly; beyond this it is an error
CORRELATION_SLACK = 1e-6


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Product and its rounding error: p + e = a b exactly (Dekker 1971), barring over- and underflow."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        p = a * b
        split = 134217729.0  # 2^27 + 1
        ah = split * a - (split * a - a)
        bh = split * b - (split * b - b)
        al, bl = a - ah, b - bh
        e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    return np.asarray(p), np.asarray(np.where(np.isfinite(e), e, 0.0))


@dataclass(frozen=True, eq=False)
class Correlation:
    """rho and s = sqrt(1 - rho^2), each to a few units of relative rounding.

    Shapes    rho, s: batch; s is exactly 0 at correlation +-1
    """

    rho: Array
    s: Array


def correlation(var_f: ArrayLike, var_g: ArrayLike, cov: ArrayLike, slack: float = CORRELATION_SLACK) -> Correlation:
    """Correlation of two variables; 0 where a variance is 0.

    Shapes    batches that broadcast
    Accuracy  s has relative accuracy of a few eps even where it is 1e-8, taking the arguments as exact; a
              covariance above sqrt(var_f var_g) by rounding counts as correlation +-1
    Raises    ValueError if |cov| exceeds sqrt(var_f var_g) by more than `slack`, relatively
    """
    a, b, c = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (var_f, var_g, cov)))
    degenerate = (a == 0) | (b == 0)
    # scaled by powers of two into [1/4, 1), so that no product over- or underflows; exact
    ea, eb = (-(-np.frexp(v)[1] // 2) for v in (a, b))
    a, b, c = (np.ldexp(v, -k) for v, k in ((a, 2 * ea), (b, 2 * eb), (c, ea + eb)))
    a, b, c = (np.where(degenerate, r, v) for v, r in ((a, 1.0), (b, 1.0), (c, 0.0)))
    # var var - cov^2 from error-free products; where it is small the first difference is exact (Sterbenz)
    p, pe = two_product(a, b)
    q, qe = two_product(c, c)
    det = (p - q) + (pe - qe)
    worst = np.max(np.where(np.abs(c) > (1 + slack) * np.sqrt(p), np.abs(c) / np.sqrt(p), 0.0), initial=0.0)
    refuse_correlation(worst, slack)
    singular = np.asarray(det <= 0)
    rho = np.where(singular, np.sign(c), c / np.sqrt(p))
    s = np.where(singular, 0.0, np.sqrt(np.maximum(det, 0.0) / p))
    return Correlation(np.asarray(rho), np.asarray(s))


def refuse_correlation(largest: float, slack: float) -> None:
    """An error where the largest correlation is above 1 + slack."""
    if largest > 1 + slack:
        raise ValueError(
            f"covariance is not positive semidefinite: correlation {largest:.17g} in absolute value\n"
            f"  needed  |cov| <= sqrt(var_f var_g), up to {slack:g} relatively"
        )
