"""Trends: whether ratios keep growing along a scale of lengths, as far as numbers go."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST", "Trend", "grows", "racing", "rising"]

Array = NDArray[np.float64]
TRUST = 1e4  # growth as slow as a logarithm is told from what settles only on longer scales than this
HUGE = 1e100  # beyond this values have all but overflowed; what has arguments beyond it does not race
SETTLED = 64  # points: a maximum that is older is not exceeded any more
LEAST = 1e-300  # stands for 0 in logarithms


@dataclass(frozen=True)
class Trend:
    """Three places along a scale of lengths, and the ratios there, the last of which is the largest."""

    at: tuple[float, float, float]
    ratio: tuple[float, float, float]
    powers: tuple[float, float] | None = None  # of |x| between the places, where ratios are no numbers

    def __str__(self) -> str:
        if self.powers is not None:
            first, second = self.powers
            a, b, c = (f"{x:.3g}" for x in self.at)
            return f"like |x|**{first:.3g} from x = {a} to {b}, like |x|**{second:.3g} from there to {c}"
        places = ", ".join(f"{x:.3g}" for x in self.at)
        return f"{', '.join(f'{r:.3g}' for r in self.ratio)} at x = {places}"


def rising(x: Array, size: Array, power: float = 0.0) -> Trend | None:
    """Whether size / |x|**power grows without bound along |x| >= 1, as powers and logarithms of |x| do.

    Let the points end at R, X be the last at which the ratio is largest from R**(1/4) on, and L(u) the logarithm of its
    maximum from there to X**u: an envelope, which oscillation does not hide, past what happens near 0.
    In u, a power is a line, a power of log |x| is log u, exp is convex, and what settles is flat from some place on. So
    the ratio is taken to grow for ever if X is one of the last points, L rises in the last quarter about as much as
    in the one before (half as much where X is large, where log does and 1 - c/X does not), and rises up to the end.

    Accuracy  found: whatever grows along the points at least like a power of log |x| if R > 10**4, or else of |x|, also
              times waves of which some of any 64 points in a row are near a crest. Not found: what has not
              caught up at R with its values next to R**(1/4); log log |x|; crests that are rarer. Mistaken for growth:
              what rises like this as far as it can be computed and settles beyond
    """
    far = np.abs(x)
    order = np.argsort(far, kind="stable")
    order = order[(far[order] >= 1) & np.isfinite(size[order])]
    order = order[far[order] >= far[order[-1:]].max(initial=1.0) ** 0.25]
    x, far, size = x[order], far[order], size[order]
    if not size.max(initial=0.0) > 0 or far[-1] < 2:
        return None
    log = np.log(np.maximum(size, LEAST)) - power * np.log(far)
    last = len(log) - 1 - int(np.argmax(log[::-1]))
    if len(log) - 1 - last > SETTLED or far[last] < 2:
        return None
    log, u = log[: last + 1], np.log(far[: last + 1]) / np.log(far[last])
    top = np.maximum.accumulate(log)

    def below(place: float) -> float:
        return float(top[last] - top[max(int(np.searchsorted(u, place, "right")) - 1, 0)])

    rise, both = below(0.75), below(0.5)
    concave = 0.5 if far[last] >= TRUST else 0.9
    if not (rise >= math.log(1.05) and rise >= concave * (both - rise)):
        return None
    if any(below(1 - part) < 0.3 * 4 * part * rise for part in (1 / 16, 1 / 64)):
        return None
    quarters = [(u >= low) & (u <= low + 0.25) for low in (0.25, 0.5, 0.75)]
    places = [int(np.argmax(np.where(quarter, log, -np.inf))) for quarter in quarters]
    a, b, c = (float(x[k]) for k in places)
    d, e, f = (float(np.exp(np.minimum(log[k], 709.0))) for k in places)
    return Trend((a, b, c), (d, e, f))


def racing(x: Array, size: Array, power: float) -> Trend | None:
    """Whether size overflows while it grows from octave to octave by more and more powers of |x|, more than `power`.

    Accuracy  found: exp(|x|**r) for powers below half of its last exponent (500 for exp, 300 for exp(sqrt|x|))
    """
    kept = np.isfinite(size) & (np.abs(x) >= 1) & (size > 0)
    x, size = x[kept], size[kept]
    end = np.abs(x).max(initial=1.0)
    if not (8 < end < HUGE and size.max() > HUGE):
        return None
    places = [int(np.argmin(np.abs(np.abs(x) - end / part))) for part in (4, 2, 1)]
    early, middle, late = (float(np.log(size[k])) for k in places)
    before, after = (middle - early) / math.log(2), (late - middle) / math.log(2)
    if not (before > 0 and after > power + 1 and after > 1.3 * before):
        return None
    a, b, c = (float(x[k]) for k in places)
    return Trend((a, b, c), (math.inf, math.inf, math.inf), (before - power, after - power))


def grows(at: list[float], top: list[float]) -> Trend | None:
    """Whether the three ratios grow, the last step at least about as much as the one before."""
    if not min(top) > 0:
        return None
    first, second = math.log(top[1] / top[0]), math.log(top[2] / top[1])
    if min(first, second) < math.log(1.1) or second < 0.8 * first:
        return None
    return Trend((at[0], at[1], at[2]), (top[0], top[1], top[2]))
