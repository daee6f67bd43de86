"""`rate`: the power of the width n with which a distance falls, with its standard error and how well a power fits.

Of the mean d_k over R repeats at width n_k, log d_k is fitted by a + b log n_k with weights 1 / var(log d_k).  Where
the law at width n has an expansion in 1/n, so has the distance over its leading power: fitted with a further term c/n,
b is the exponent for large n although small widths are not there yet.

The errors stated with the single distances say how var(d_k) goes along the widths; the scatter of the repeats says
whether they are right.  With s_k^2 the mean of the squared errors stated at n_k and K widths,

    scatter^2 = sum_k sum_r (d_kr - d_k)^2 / s_k^2 / (K (R - 1))

is 1 up to sqrt(2 / (K (R - 1))) if they are, and var(d_k) = max(1, scatter)^2 s_k^2 / R, so that errors stated too
small are made good, while one that all repeats share, such as the limit's own, is kept.  By Taylor,
var(log d_k) = v_k = var(d_k) / d_k^2, and E log d_k = log E d_k - v_k / 2, which is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.comparison import chance, quantity
from tensorprog.errors import ProgramError, did_you_mean, fail
from tensorprog.markup import notebook, paragraph

__all__ = ["Rate", "fit", "rate"]

Array = NDArray[Any]
ABOVE_FLOOR = 3.0  # a distance must be so many times its noise floor
ABOVE_ERROR = 3.0  # and so many times its standard error: the logarithm is then near linear


@dataclass(frozen=True, repr=False)
class Rate:
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
    left_out: tuple[int, ...]  # widths at which the distance does not stand out from its noise
    correction: float = 0.0
    correction_se: float = 0.0

    def __str__(self) -> str:
        text = f"n^{quantity(self.exponent, self.exponent_se)}"
        if self.correction_se:
            text += f" exp({quantity(self.correction, self.correction_se)}/n)"
        text += f", n = {self.used[0]}..{self.used[-1]}"
        if self.degrees:
            text += f", p of the fit {chance(self.p)}"
        return text + (f" (within noise: n = {', '.join(map(str, self.left_out))})" if self.left_out else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook(paragraph(self))

    def to_json(self) -> dict[str, Any]:
        """The fields; None for numbers that do not exist."""
        return {key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in asdict(self).items()}


def fit(
    width: Sequence[int], values: ArrayLike, errors: ArrayLike, floors: ArrayLike = 0.0, corrected: bool = False
) -> Rate:
    """Fit a power law to the repeats of a distance, with a factor exp(c / n) if `corrected`.

    Shapes    width (K,); values and their standard errors (K, R); floors of noise, which broadcast against them
    Accuracy  `exponent_se` is the standard error if a power law holds, see `p`
    Raises    ProgramError if fewer widths stand out from the noise than numbers are fitted: two, corrected three
    """
    n, d = np.asarray(width, dtype=np.float64), np.asarray(values, dtype=np.float64)
    repeats = d.shape[1]
    mean = d.mean(axis=1)
    stated = np.sqrt((np.asarray(errors, dtype=np.float64) ** 2).mean(axis=1))
    floor = np.broadcast_to(np.asarray(floors, dtype=np.float64), d.shape).mean(axis=1)
    known = np.isfinite(mean) & (stated > 0)
    scatter = _scatter(d[known], stated[known])
    error = stated * np.nanmax([1.0, scatter]) / math.sqrt(repeats)
    use = known & (mean > ABOVE_ERROR * error) & (mean > ABOVE_FLOOR * floor)
    fitted = 3 if corrected else 2
    if np.count_nonzero(use) < fitted:
        raise ProgramError(f"no rate can be fitted: fewer than {'three' if corrected else 'two'} widths have a "
                           "distance that stands out from noise")
    relative = error[use] / mean[use]
    terms = np.stack([np.ones(relative.shape), np.log(n[use]), 1 / n[use]], axis=1)[:, :fitted] / relative[:, None]
    seen = (np.log(mean[use]) + relative**2 / 2) / relative
    found = np.linalg.lstsq(terms, seen)[0]
    deviations = np.sqrt(np.diagonal(np.linalg.pinv(terms.T @ terms)))
    misfit, degrees = float(((seen - terms @ found) ** 2).sum()), len(seen) - fitted
    used, left_out = (tuple(int(k) for k in n[which]) for which in (use, ~use))
    correction, correction_se = (float(found[2]), float(deviations[2])) if corrected else (0.0, 0.0)
    return Rate(float(found[1]), float(deviations[1]), math.exp(found[0]), misfit, degrees, _chance(misfit, degrees),
                scatter, used, left_out, correction, correction_se)


def _scatter(values: Array, stated: Array) -> float:
    """Scatter of the repeats about their means, in units of the errors stated; nan for one repeat."""
    count, repeats = values.shape
    if count * (repeats - 1) == 0:
        return math.nan
    squares = ((values - values.mean(axis=1, keepdims=True)) / stated[:, None]) ** 2
    return math.sqrt(float(squares.sum()) / (count * (repeats - 1)))


def _chance(chi2: float, degrees: int) -> float:
    from scipy.special import gammaincc

    return float(gammaincc(degrees / 2, chi2 / 2)) if degrees else math.nan


def rate(
    dataset: Any, distance: str = "kl_precise", variable: str | None = None, *, corrected: bool = False,
    **constants: float,
) -> Rate:
    """The rate at which a distance of a sweep falls with the width: that of a number with a standard error beside it.

    `variable` and the constants swept say which, where there are several: rate(sweep, "ks", "y[0]", H=2).  With
    `corrected` a factor exp(c / n) is fitted too, and the exponent is that for large n.

    Shapes    `dataset` as `sweep` gives it
    Raises    ProgramError if it is not clear what is meant, or less than two widths stand out from the noise
    """
    needed = {"width", "repeat", "variable"}
    if not needed <= set(getattr(dataset, "dims", ())):
        raise fail(f"rate takes the result of a sweep, not {type(dataset).__name__}")
    distances = [name for name in dataset.data_vars if f"{name}_se" in dataset.data_vars]
    if distance not in distances:
        raise fail(f"{distance} is not a number of the sweep that has an error", fix=did_you_mean(distance, distances))
    chosen = _one(dataset, constants | ({} if variable is None else {"variable": variable.replace(" ", "")}))
    if f"{distance}_floor" in chosen.data_vars:
        floors = chosen[f"{distance}_floor"].transpose("width", "repeat").values
    else:
        floors = np.zeros(1)
    values, errors = (chosen[name].transpose("width", "repeat").values for name in (distance, f"{distance}_se"))
    return fit(chosen["width"].values.tolist(), values, errors, floors, corrected)


def _one(dataset: Any, wanted: dict[str, Any]) -> Any:
    """The part of a sweep with one variable and one value of each constant."""
    axes = [str(name) for name in dataset.dims if name not in ("width", "repeat")]
    for name in wanted:
        if name not in axes:
            raise fail(f"{name} was not swept", fix=did_you_mean(name, axes))
    for name in axes:
        known = dataset[name].values.tolist()
        if name not in wanted and len(known) > 1:
            raise fail(f"the sweep has several values of {name}: {', '.join(map(str, known))}",
                       fix=f"rate(..., {name}={known[0]!r})")
        if wanted.get(name, known[0]) not in known:
            raise fail(f"the sweep has no {name} = {wanted[name]}", fix=", ".join(map(str, known)))
        dataset = dataset.isel({name: known.index(wanted.get(name, known[0]))})
    return dataset
