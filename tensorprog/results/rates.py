"""`rate`: the power of the width n with which a distance falls, with its standard error and how well a power fits.

The means d_k over R repeats at widths n_k are fitted by m_k = exp(a + b log n_k), least squares of (d_k - m_k) / s_k
with s_k^2 = var(d_k).  Not logarithms: those of means that are too low by chance would have too little weight, and
means near zero or below have none, so that what is left of them is too high.  s_k is the error stated with the single
distances over sqrt(R), times the scatter of the repeats in units of these errors where that is above 1.

Estimates with a noise floor, their mean for equal laws, are biased by it and have no rate: KS, and KL by kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.blocks import Block, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.language.errors import ProgramError, did_you_mean, fail
from tensorprog.language.formats import chance, plain_fields, quantity

__all__ = ["Rate", "fit", "rate"]

Array = NDArray[Any]
ABOVE_ERROR = 3.0  # two means at least are so many times their standard error


@dataclass(frozen=True, repr=False)
class Rate(Shown):
    """distance = coefficient * n**exponent, fitted to the widths `used`.

    `p` is the chance of a misfit as large as `chi2` with `degrees` of freedom if a power law holds (nan for two
    widths).
    """

    exponent: float
    exponent_se: float
    coefficient: float
    chi2: float
    degrees: int
    p: float
    used: tuple[int, ...]
    left_out: tuple[int, ...]  # widths at which there is no distance

    def __str__(self) -> str:
        text = f"n^{quantity(self.exponent, self.exponent_se)}, n = {self.used[0]}..{self.used[-1]}"
        return text + (f", p of the fit {chance(self.p)}" if self.degrees else "")

    __repr__ = __str__

    def blocks(self) -> list[Block]:
        """The rate in a line."""
        return [paragraph(self)]

    to_json = plain_fields


def fit(width: Sequence[int], values: ArrayLike, errors: ArrayLike) -> Rate:
    """Fit a power law to the repeats of a distance.

    Shapes    width (K,); values and their standard errors (K, R)
    Accuracy  `exponent_se` is the standard error if a power law holds, see `p`
    Raises    ProgramError if fewer than two widths stand out from the noise
    """
    from scipy.optimize import curve_fit
    from scipy.special import chdtrc

    n, d = np.asarray(width, dtype=np.float64), np.asarray(values, dtype=np.float64)
    mean, repeats = d.mean(axis=1), d.shape[1]
    stated = np.sqrt((np.asarray(errors, dtype=np.float64) ** 2).mean(axis=1))
    use, scatter = np.isfinite(mean) & (stated > 0), 1.0
    if repeats > 1 and use.any():
        scatter = max(1.0, math.sqrt(float((d[use].var(axis=1, ddof=1) / stated[use] ** 2).mean())))
    error = stated * scatter / math.sqrt(repeats)
    for which, what in ((use, "to the limit"), (use & (mean > ABOVE_ERROR * error), "that stands out from its error")):
        if np.count_nonzero(which) < 2:
            raise ProgramError(f"no rate can be fitted: fewer than two widths have a distance {what}")

    def power(x: Array, a: float, b: float) -> Array:
        return np.asarray(np.exp(np.minimum(a + b * x, 700.0)))

    def slopes(x: Array, a: float, b: float) -> Array:
        return np.asarray(power(x, a, b)[:, None] * np.stack([np.ones(x.shape), x], axis=1))

    x, y, seen = np.log(n[use]), mean[use], mean[use] > 0
    slope, start = np.polyfit(x[seen], np.log(y[seen]), 1, w=(y / error[use])[seen])
    (a, b), covariance = curve_fit(
        power, x, y, (start, slope), error[use], absolute_sigma=True, jac=slopes, ftol=1e-14, xtol=1e-14
    )  # fmt: skip
    misfit, degrees = float((((y - power(x, a, b)) / error[use]) ** 2).sum()), len(x) - 2
    p = float(chdtrc(degrees, misfit)) if degrees else math.nan
    used, left_out = (tuple(int(k) for k in n[which]) for which in (use, ~use))
    return Rate(float(b), math.sqrt(covariance[1, 1]), math.exp(a), misfit, degrees, p, used, left_out)


def rate(dataset: Any, distance: str = "kl_precise", variable: str | None = None, **constants: float) -> Rate:
    """The rate at which a distance of a sweep falls with the width: that of a number with a standard error beside it.

    `variable` and the constants swept say which, where there are several: rate(sweep, "ks", "y[0]", H=2).

    Shapes    `dataset` as `sweep` gives it
    Accuracy  see `fit`
    Raises    ProgramError if it is not clear what is meant, for distances with a noise floor, or if fewer than two
              widths stand out from the noise
    """
    if not {"width", "repeat", "variable"} <= set(getattr(dataset, "dims", ())):
        raise fail(f"rate takes the result of a sweep, not {type(dataset).__name__}")
    numbers = [name for name in dataset.data_vars if f"{name}_se" in dataset.data_vars]
    if distance not in numbers:
        raise fail(f"{distance} is not a number of the sweep that has an error", fix=did_you_mean(distance, numbers))
    if f"{distance}_floor" in dataset.data_vars:
        raise fail(f"{distance} cannot fall below its noise floor, and has no rate", fix="kl_precise")
    chosen = _one(dataset, constants | ({} if variable is None else {"variable": variable.replace(" ", "")}))
    values, errors = (chosen[name].transpose("width", "repeat").values for name in (distance, f"{distance}_se"))
    return fit(chosen["width"].values.tolist(), values, errors)


def _one(dataset: Any, wanted: dict[str, Any]) -> Any:
    """The part of a sweep with one variable and one value of each constant."""
    axes = [str(name) for name in dataset.dims if name not in ("width", "repeat")]
    if unknown := [name for name in wanted if name not in axes]:
        raise fail(f"{unknown[0]} was not swept", fix=did_you_mean(unknown[0], axes))
    for name in axes:
        known = dataset[name].values.tolist()
        if (name not in wanted and len(known) > 1) or wanted.get(name, known[0]) not in known:
            values = ", ".join(map(str, known))
            raise fail(f"{name} of the sweep is one of {values}", fix=f"rate(..., {name}={known[0]!r})")
        dataset = dataset.isel({name: known.index(wanted.get(name, known[0]))})
    return dataset
