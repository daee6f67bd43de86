"""`rate`: the power of the width n with which a distance falls, with its standard error and how well a power fits.

The means d_k over R repeats at widths n_k are fitted by m_k = exp(a + b log n_k), least squares of (d_k - m_k) / s_k
with s_k^2 = var(d_k).  Not logarithms: those of means that are too low by chance would have too little weight, and
means near zero or below have none, so that what is left of them is too high.  Where the law at width n has an expansion
in 1/n, so has the distance over its leading power: fitted with a further term c/n, b is the exponent for large n
although small widths are not there yet.

The errors stated with the single distances say how var(d_k) goes along the widths; the scatter of the repeats says
whether they are right.  With e_k^2 the mean of the squared errors stated at n_k and K widths,

    scatter^2 = sum_k sum_r (d_kr - d_k)^2 / e_k^2 / (K (R - 1))

is 1 up to sqrt(2 / (K (R - 1))) if they are, and s_k = max(1, scatter) e_k / sqrt(R), so that errors stated too
small are made good, while one that all repeats share, such as the limit's own, is kept.

An estimate with a noise floor f, its mean for equal laws, is not free of bias.  For KS, Wasserstein-1 and energy
distances, which are norms of the difference of distribution functions, the triangle inequality bounds the bias by f.
KL is to leading order the square of a norm, and the floor of its kernel estimate that of the noise and of the
smoothing: the norms add up to at most sqrt(d) + sqrt(f), so that the bias is at most 2 sqrt(f d) + f.  (Taking f off
would leave the first term, which is the larger one.)  So widths count where d, or for KL its root, is `ABOVE_FLOOR`
times the floor's, three of them at least, and what the biases can do to b is carried along as `exponent_bias`: the sum
over widths of |db / dd_k| times these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.blocks import Block, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.language.errors import ProgramError, did_you_mean, fail
from tensorprog.language.formats import chance, plain_fields, quantity, short

__all__ = ["NO_RATE", "Rate", "fit", "rate", "rate_of"]

Array = NDArray[Any]
ABOVE_FLOOR = 20.0  # norms that count are so many times their noise floor
ABOVE_ERROR = 3.0  # and as many means as numbers are fitted are so many times their standard error
SQUARES = ("kl",)  # distances with a floor that are squares of a norm
NO_RATE = "no rate can be fitted: "


@dataclass(frozen=True, repr=False)
class Rate(Shown):
    """distance = coefficient * n**exponent * exp(correction / n), fitted to the widths `used`.

    The correction is 0 unless it was asked for.
    `p` is the chance of a misfit as large as `chi2` with `degrees` of freedom if a power law holds (nan for as
    many widths as numbers fitted); `scatter` is that of the repeats in units of the errors stated (nan for one repeat).
    """

    exponent: float
    exponent_se: float
    coefficient: float
    chi2: float
    degrees: int
    p: float
    scatter: float
    used: tuple[int, ...]
    left_out: tuple[int, ...]  # widths at which there is no distance, or it is too near to its noise floor
    correction: float = 0.0
    correction_se: float = 0.0
    exponent_bias: float = 0.0  # at most, by noise floors

    def __str__(self) -> str:
        text = f"n^{quantity(self.exponent, self.exponent_se)}"
        if self.correction_se:
            text += f" exp({quantity(self.correction, self.correction_se)}/n)"
        text += f", n = {self.used[0]}..{self.used[-1]}"
        if self.degrees:
            text += f", p of the fit {chance(self.p)}"
        if self.exponent_bias:
            text += f", bias by noise floors up to {short(self.exponent_bias)}"
        return text + (f" (too near to the floor: n = {', '.join(map(str, self.left_out))})" if self.left_out else "")

    __repr__ = __str__

    def blocks(self) -> list[Block]:
        """The rate in a line."""
        return [paragraph(self)]

    to_json = plain_fields


def fit(
    width: Sequence[int],
    values: ArrayLike,
    errors: ArrayLike,
    floors: ArrayLike = 0.0,
    corrected: bool = False,
    squared: bool = False,
) -> Rate:
    """Fit a power law to the repeats of a distance, with a factor exp(c / n) if `corrected`.

    `squared` distances are squares of norms, which matters for their noise floors only.

    Shapes    width (K,); values and their standard errors (K, R); floors of noise, which broadcast against them
    Accuracy  `exponent_se` is the standard error if a power law holds, see `p`; `exponent_bias` bounds what floors do
    Raises    ProgramError if fewer widths stand out from the noise than numbers are fitted (two, corrected three), or
              fewer than three from a noise floor
    """
    from scipy.special import gammaincc

    n, d = np.asarray(width, dtype=np.float64), np.asarray(values, dtype=np.float64)
    mean = d.mean(axis=1)
    stated = np.sqrt((np.asarray(errors, dtype=np.float64) ** 2).mean(axis=1))
    floor = np.broadcast_to(np.asarray(floors, dtype=np.float64), d.shape).mean(axis=1)
    known = np.isfinite(mean) & (stated > 0)
    scatter = _scatter(d[known], stated[known])
    error = stated * np.nanmax([1.0, scatter]) / math.sqrt(d.shape[1])
    above = ABOVE_FLOOR**2 if squared else ABOVE_FLOOR
    use = known & ((floor == 0) | (mean >= above * floor))
    fitted = 3 if corrected else 2
    _enough(known, fitted, "to the limit")
    if floor.any():
        _enough(use, 3, f"of at least {above:g} noise floors")
    _enough(use & (mean > ABOVE_ERROR * error), fitted, "that stands out from its error")
    terms = np.stack([np.ones(n.shape), np.log(n), 1 / n], axis=1)[use, :fitted]
    found, slopes, misfit = _least_squares(terms, mean[use], error[use])
    deviations = np.sqrt(np.diagonal(np.linalg.pinv(slopes.T @ slopes)))
    bias = 2 * np.sqrt(floor * np.abs(mean)) + floor if squared else floor
    shift = np.abs(np.linalg.pinv(slopes)[1]) @ (bias[use] / error[use])
    degrees = len(terms) - fitted
    used, left_out = (tuple(int(k) for k in n[which]) for which in (use, ~use))
    correction, correction_se = (float(found[2]), float(deviations[2])) if corrected else (0.0, 0.0)
    p = float(gammaincc(degrees / 2, misfit / 2)) if degrees else math.nan
    return Rate(
        float(found[1]),
        float(deviations[1]),
        math.exp(found[0]),
        misfit,
        degrees,
        p,
        scatter,
        used,
        left_out,
        correction,
        correction_se,
        float(shift),
    )


def _enough(use: Array, least: int, what: str) -> None:
    """Refuse a fit to too few widths.

    Raises    ProgramError
    """
    if np.count_nonzero(use) < least:
        raise ProgramError(f"{NO_RATE}fewer than {'three' if least == 3 else 'two'} widths have a distance {what}")


def _least_squares(terms: Array, mean: Array, error: Array) -> tuple[Array, Array, float]:
    """Minimise chi-square of exp(terms @ x) against means; from a fit of the logarithms of those that have one.

    Shapes    terms (K, m), mean and error (K,) -> x (m,), slopes of exp(terms @ x) / error (K, m), chi-square
    """
    from scipy.optimize import least_squares

    def residuals(x: Array) -> Array:
        return np.asarray((np.exp(np.minimum(terms @ x, 700.0)) - mean) / error)

    def slopes(x: Array) -> Array:
        return np.asarray((np.exp(np.minimum(terms @ x, 700.0)) / error)[:, None] * terms)

    seen, weight = mean > 0, mean / error
    start = np.linalg.lstsq(terms[seen] * weight[seen, None], np.log(mean[seen]) * weight[seen])[0]
    found = least_squares(residuals, start, slopes, method="lm", x_scale="jac", ftol=1e-14, xtol=1e-14, gtol=1e-14)
    return found.x, slopes(found.x), 2 * float(found.cost)


def _scatter(values: Array, stated: Array) -> float:
    """Scatter of the repeats about their means, in units of the errors stated; nan for one repeat."""
    count, repeats = values.shape
    if count * (repeats - 1) == 0:
        return math.nan
    squares = ((values - values.mean(axis=1, keepdims=True)) / stated[:, None]) ** 2
    return math.sqrt(float(squares.sum()) / (count * (repeats - 1)))


def rate(
    dataset: Any,
    distance: str = "kl_precise",
    variable: str | None = None,
    *,
    corrected: bool = False,
    **constants: float,
) -> Rate:
    """The rate at which a distance of a sweep falls with the width: that of a number with a standard error beside it.

    `variable` and the constants swept say which, where there are several: rate(sweep, "ks", "y[0]", H=2).  With
    `corrected` a factor exp(c / n) is fitted too, and the exponent is that for large n.

    Shapes    `dataset` as `sweep` gives it
    Accuracy  see `fit`: distances with a noise floor have a rate only where the floor is small beside them
    Raises    ProgramError if it is not clear what is meant, or too few widths stand out from the noise
    """
    needed = {"width", "repeat", "variable"}
    if not needed <= set(getattr(dataset, "dims", ())):
        raise fail(f"rate takes the result of a sweep, not {type(dataset).__name__}")
    distances = [name for name in dataset.data_vars if f"{name}_se" in dataset.data_vars]
    if distance not in distances:
        raise fail(f"{distance} is not a number of the sweep that has an error", fix=did_you_mean(distance, distances))
    chosen = _one(dataset, constants | ({} if variable is None else {"variable": variable.replace(" ", "")}))
    names = (name for name in (distance, f"{distance}_se", f"{distance}_floor") if name in chosen.data_vars)
    numbers = {name: chosen[name].transpose("width", "repeat").values for name in names}
    return rate_of(distance, chosen["width"].values.tolist(), numbers, corrected)


def rate_of(distance: str, width: Sequence[int], numbers: Mapping[str, ArrayLike], corrected: bool = False) -> Rate:
    """The rate of a distance named among numbers, which have its standard errors and maybe its noise floors.

    Shapes    width (K,); distance, distance_se, distance_floor -> (K, R)
    Raises    ProgramError as `fit`
    """
    values, errors = numbers[distance], numbers[f"{distance}_se"]
    return fit(width, values, errors, numbers.get(f"{distance}_floor", 0.0), corrected, distance in SQUARES)


def _one(dataset: Any, wanted: dict[str, Any]) -> Any:
    """The part of a sweep with one variable and one value of each constant."""
    axes = [str(name) for name in dataset.dims if name not in ("width", "repeat")]
    for name in wanted:
        if name not in axes:
            raise fail(f"{name} was not swept", fix=did_you_mean(name, axes))
    for name in axes:
        known = dataset[name].values.tolist()
        if name not in wanted and len(known) > 1:
            raise fail(
                f"the sweep has several values of {name}: {', '.join(map(str, known))}",
                fix=f"rate(..., {name}={known[0]!r})",
            )
        if wanted.get(name, known[0]) not in known:
            raise fail(f"the sweep has no {name} = {wanted[name]}", fix=", ".join(map(str, known)))
        dataset = dataset.isel({name: known.index(wanted.get(name, known[0]))})
    return dataset
