"""Moments and distances of one variable's draws, with their uncertainties: arrays in, numbers out.

For draws x_1..x_n with distribution function F_n, against a law with distribution function F and density f:

    KS   = max |F_n - F|                      p-value of Kolmogorov's distribution
    W1   = integral |F_n - F|                 Wasserstein-1, in the units of x
    energy = sqrt(2 integral (F_n - F)**2)    energy distance, in the root of the units of x, as in scipy.stats
    KL   = sum p log(p / q), in nats          p: Gaussian kernel estimate of the draws, q: f, on 500 points

Even a perfect sample is at some distance from its law: the `*_floor` values say how far, on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.results.reference import LawCurve

__all__ = ["binned_kde", "distances", "effective_size", "kernel_kl", "kolmogorov", "moments", "moments_of_one", "tied"]

Array = NDArray[Any]
Number = tuple[float, float]
Distribution = Callable[[Array, Any], Array]  # a distribution function at points, continuous from the "right" or "left"

KL_POINTS = 500  # the estimator of the paper's scripts: points over the pooled range, floor of the densities
KL_DENSITY_FLOOR = 1e-12
REPLICATES = 40  # of the bootstrap: standard errors good to about 11 %
FLOOR_REPLICATES = 20
_REFINEMENT = 8  # nodes of the fine grid per point of the coarse one
_MAX_NODES = 1 << 17
_KS_MEAN = math.sqrt(math.pi / 2) * math.log(2)  # mean of Kolmogorov's distribution
_NAN = float("nan")


def moments(values: Array, variances: Array | None = None) -> dict[str, tuple[Array, Array]]:
    """Mean, variance and central kurtosis (Gaussian = 3), each with its standard error over networks.

    With `variances` the values are means of Gaussians, and the moments are those of draws from these.

    Shapes    (samples, coordinates, members) -> name -> (value, error), each (members,)
    Accuracy  delta method: the influence function of each statistic, averaged over the coordinates of a network,
              so that coordinates of one network may depend on each other.  nan where there is too little to see
    """
    count, _, size = values.shape
    results = {key: (np.full(size, _NAN), np.full(size, _NAN)) for key in ("mean", "variance", "kurtosis")}
    step = max(1, (1 << 22) // max(1, values[..., :1].size))
    for start in range(0, size, step):
        block = slice(start, start + step)
        x = np.asarray(values[..., block], dtype=np.float64)
        with np.errstate(all="ignore"):
            mean = x.mean(axis=(0, 1))
            d = x - mean
            two = d * d
            three, four = two * d, two * two
            if variances is not None:
                v = variances[..., block]
                two, three, four = two + v, three + 3 * d * v, four + 6 * two * v + 3 * v * v
            m2, m3, m4 = (power.mean(axis=(0, 1)) for power in (two, three, four))
            m2 = np.where(m2 > 1e-28 * (mean**2 + 1e-280), m2, 0.0)  # rounding of a constant is not variance
            influence = {
                "mean": (mean, d),
                "variance": (m2, two - m2),
                "kurtosis": (m4 / m2**2, (four - m4 - 4 * m3 * d) / m2**2 - 2 * m4 / m2**3 * (two - m2)),
            }
            for key, (value, effect) in influence.items():
                results[key][0][block] = value
                if count > 1:
                    results[key][1][block] = effect.mean(axis=1).std(axis=0, ddof=1) / math.sqrt(count)
    return results


def moments_of_one(values: Array, variances: Array | None = None) -> dict[str, Number]:
    """The same of one variable.

    Shapes    (samples, coordinates) -> name -> (value, error)
    """
    found = moments(values[..., None], None if variances is None else variances[..., None])
    return {key: (float(value[0]), float(error[0])) for key, (value, error) in found.items()}


def tied(values: Array) -> bool:
    """Whether values repeat, as those of relu do at 0: the law has atoms, and a density does not describe it."""
    return bool((np.diff(np.sort(values, axis=None)) == 0).mean() > 1e-3) if values.size > 1 else False


def effective_size(values: Array) -> float:
    """Number of independent draws that say as much about the distribution function as these do.

    Shapes    (samples, coordinates) -> between samples and samples * coordinates
    Accuracy  the worst design effect of nine indicator functions, those of the deciles
    """
    count, coordinates = values.shape
    if coordinates == 1 or count < 2:
        return float(count)
    levels = np.quantile(values, np.arange(1, 10) / 10)
    effects = []
    for level in levels:
        inside = values <= level
        share = inside.mean()
        if 0 < share < 1:
            effects.append(inside.mean(axis=1).var(ddof=1) * coordinates / (share * (1 - share)))
    effect = min(max([1.0, *effects]), float(coordinates))
    return float(count * coordinates / effect)


class _Nodes:
    """A fine grid around low..high, on which samples are binned; every few nodes one is on the coarse grid."""

    def __init__(self, low: float, high: float, bandwidth: float) -> None:
        coarse = (high - low) / (KL_POINTS - 1)
        finest = _MAX_NODES // KL_POINTS  # which only outliers want that no sample of a few millions has
        self.refinement = min(max(_REFINEMENT, math.ceil(8 * coarse / bandwidth)), finest)
        self.step = coarse / self.refinement
        self.first = min(math.ceil(4 * bandwidth / self.step), self.refinement * KL_POINTS)
        self.start = low - self.first * self.step
        self.size = (KL_POINTS - 1) * self.refinement + 1 + 2 * self.first
        self.nodes = self.start + self.step * np.arange(self.size)

    def coarse(self, values: Array) -> Array:
        """Values at the coarse grid's points (last axis)."""
        return values[..., self.first : self.first + (KL_POINTS - 1) * self.refinement + 1 : self.refinement]

    def bin(self, x: Array) -> Array:
        """Share each draw between its two neighbouring nodes: total len(x)."""
        place = (x.ravel() - self.start) / self.step
        left = np.clip(place.astype(np.int64), 0, self.size - 2)
        share = place - left
        counts = np.bincount(left, 1 - share, self.size)
        counts[1:] += np.bincount(left, share, self.size)[:-1]
        return np.asarray(counts, dtype=np.float64)

    def smooth(self, counts: Array, bandwidth: float) -> Array:
        """Gaussian kernel estimate on all nodes from counts (last axis), normalised to density one."""
        from scipy.fft import irfft, next_fast_len, rfft

        bandwidth = max(bandwidth, self.step)
        reach = min(self.size - 1, int(8.5 * bandwidth / self.step) + 1)
        length = next_fast_len(self.size + reach, real=True)
        distance = np.minimum(np.arange(length), length - np.arange(length)) * self.step
        kernel = np.exp(-0.5 * (distance / bandwidth) ** 2) / (bandwidth * math.sqrt(2 * math.pi))
        density = irfft(rfft(counts, length) * rfft(kernel), length)[..., : self.size]
        total = counts.sum(axis=-1, keepdims=True)
        smooth: Array = np.maximum(density, 0.0) / np.maximum(total, 1e-300)
        return smooth


def _bandwidth(x: Array) -> float:
    """Scott's rule, as in scipy.stats.gaussian_kde: n**-0.2 times the standard deviation."""
    return float(x.std(ddof=1) * x.size ** (-0.2)) if x.size > 1 else 0.0


def binned_kde(x: Array, low: float, high: float) -> Array:
    """Gaussian kernel density estimate at 500 points over low..high; Scott's bandwidth.

    Shapes    x (samples,) -> (500,), nan for samples of one value
    Accuracy  scipy.stats.gaussian_kde to about 1e-3 of its largest value, at the cost of one FFT
    """
    x = np.asarray(x, dtype=np.float64).ravel()
    bandwidth = _bandwidth(x)
    if not (bandwidth > 0 and high > low):
        return np.full(KL_POINTS, _NAN)
    nodes = _Nodes(low, high, bandwidth)
    inside = x[(x >= nodes.nodes[0]) & (x <= nodes.nodes[-1])]
    density: Array = nodes.coarse(nodes.smooth(nodes.bin(inside), bandwidth)) * (inside.size / x.size)
    return density


def _kl(p: Array, q: Array) -> Any:
    """KL(p || q) in nats of densities on the coarse grid (last axis), floored and normalised as in the paper."""
    p, q = p + KL_DENSITY_FLOOR, q + KL_DENSITY_FLOOR
    p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
    return (p * np.log(p / q)).sum(axis=-1)


def kernel_kl(x: Array, y: Array, low: float, high: float) -> float:
    """KL(p || q) in nats of the kernel estimates p, q of two samples on 500 points over low..high: the paper's.

    Accuracy  that of `binned_kde`, far below the estimator's own noise, whose mean is its value for equal laws
    """
    return float(_kl(binned_kde(x, low, high), binned_kde(y, low, high)))


def _steps(x: Array) -> Distribution:
    """The distribution function of a sorted sample."""
    return lambda points, side: np.searchsorted(x, points, side) / len(x)


def _ks(x: Array, y: LawCurve | Array) -> tuple[float, float]:
    """Largest |F_n - F| and F_n there, of a sorted sample and a law or another sorted sample."""
    if isinstance(y, LawCurve):
        shares = np.append(np.arange(1, len(x) + 1), np.arange(len(x))) / len(x)  # at each draw, and just below it
        other = np.tile(y.cdf(x), 2)
    else:
        points = np.concatenate([x, y])
        shares, other = _steps(x)(points, "right"), _steps(y)(points, "right")
    k = int(np.argmax(np.abs(shares - other)))
    return float(abs(shares[k] - other[k])), float(shares[k])


def kolmogorov(x: Array, y: Array) -> tuple[float, float]:
    """KS distance of two samples and its p-value; nan where one of them has a single value.

    Shapes    x (n,), y (m,): independent draws
    """
    x, y = np.sort(x), np.sort(y)
    if not (len(x) and len(y) and x[0] < x[-1] and y[0] < y[-1]):
        return _NAN, _NAN
    statistic, _ = _ks(x, y)
    return statistic, _p_value(statistic, len(x) * len(y) / (len(x) + len(y)))


def _integrals(x: Array, cdf: Distribution, knots: Array) -> tuple[float, float]:
    """W1 and energy distance for sorted x, F taken linear between draws and knots."""
    points = np.sort(np.concatenate([x, knots]))
    dx = np.diff(points)
    level = _steps(x)(points[:-1], "right")
    a, b = cdf(points[:-1], "right") - level, cdf(points[1:], "left") - level
    with np.errstate(all="ignore"):
        crossing = (a * a + b * b) / (2 * np.abs(b - a))
    w1 = dx @ np.where(a * b >= 0, (np.abs(a) + np.abs(b)) / 2, crossing)
    return float(w1), math.sqrt(2 / 3 * (dx @ (a * a + a * b + b * b)))


def _energy_floor(cdf: Array, step: float, size: float) -> float:
    """Mean energy distance of a sample of the law itself.

    Its square Q = 2 / n * Integral B**2, B a Brownian bridge with covariance F(x) (1 - F(y)) for x < y, has

        E Q = 2 / n * Integral F (1 - F)        Var Q = 16 / n**2 * Integral over x < y of F(x)**2 (1 - F(y))**2

    and the root of the gamma variable of this mean and variance the mean sought, to about 2 %.
    """
    beyond = np.cumsum(((1 - cdf) ** 2)[::-1])[::-1] * step
    mean = 2 / size * step * (cdf @ (1 - cdf))
    variance = 16 / size**2 * step * (cdf**2 @ beyond)
    if not variance > 0:
        return math.sqrt(max(mean, 0.0))
    shape = mean**2 / variance
    return math.sqrt(mean / shape) * math.exp(math.lgamma(shape + 0.5) - math.lgamma(shape))


def _p_value(statistic: float, size: float) -> float:
    from scipy.special import kolmogorov

    root = math.sqrt(size)
    return float(kolmogorov((root + 0.12 + 0.11 / root) * statistic))  # Stephens 1970


def distances(
    values: Array, other: LawCurve | Array, size: float, other_size: float, rng: np.random.Generator
) -> dict[str, float]:
    """All distances of one variable with errors and floors; `size` counts independent draws (see `effective_size`).

    Shapes    values (samples, coordinates); other: a curve, or draws (any shape)
    """
    x = np.sort(values.ravel())
    curve = other if isinstance(other, LawCurve) else None
    y = np.sort(other.ravel()) if not isinstance(other, LawCurve) else x
    if not (x[0] < x[-1] and y[0] < y[-1]):
        return {}
    cdf: Distribution
    if curve is not None:
        cdf, knots, joint = curve.cdf, np.concatenate([curve.grid, curve.integral[0]]), size
        (low, high), bandwidth_y = _typical_range(curve, len(x)), math.inf
    else:
        cdf, knots, joint = _steps(y), y, size * other_size / (size + other_size)
        (low, high), bandwidth_y = (y[0], y[-1]), _bandwidth(y)
    ks, level = _ks(x, y if curve is None else curve)
    w1, energy = _integrals(x, cdf, knots)
    result = {
        "ks": ks,
        "ks_p": _p_value(ks, joint),
        "ks_floor": _KS_MEAN / math.sqrt(joint),
        "ks_se": math.sqrt(max(level * (1 - level), 0.25 / len(x)) / joint),
        "w1": w1,
        "energy": energy,
    }
    bandwidth = _bandwidth(x)
    nodes = _Nodes(min(low, x[0]), max(high, x[-1]), min(bandwidth, bandwidth_y))
    counts, at = nodes.bin(x), nodes.nodes
    reference_cdf = cdf(at + nodes.step / 2, "right")
    smooth = np.diff(reference_cdf, prepend=0.0) if curve is not None else nodes.smooth(nodes.bin(y), bandwidth_y)
    q = nodes.coarse(smooth) if curve is None else curve.pdf(nodes.coarse(at))
    result["kl"] = float(_kl(nodes.coarse(nodes.smooth(counts, bandwidth)), q))
    # bootstrap over (effectively independent) draws, on the bins
    bridge = np.sqrt(np.maximum(reference_cdf * (1 - reference_cdf), 0)).sum() * nodes.step
    result["w1_floor"] = float(math.sqrt(2 / math.pi / joint) * bridge)  # mean of |Brownian bridge|
    draws = max(2, round(size))
    replicas = _multinomial(rng, draws, counts, REPLICATES)
    result["kl_se"] = float(_kl(nodes.coarse(nodes.smooth(replicas, bandwidth)), q).std(ddof=1))
    result["energy_floor"] = _energy_floor(np.clip(reference_cdf, 0.0, 1.0), nodes.step, joint)
    away = np.cumsum(replicas, axis=1) / draws - reference_cdf
    both = 1.0 if curve is not None else math.sqrt(1 + size / other_size)  # the other sample is as uncertain
    result["w1_se"] = both * float(np.abs(away).sum(axis=1).std(ddof=1) * nodes.step)
    result["energy_se"] = both * float(np.sqrt(2 * nodes.step * (away**2).sum(axis=1)).std(ddof=1))
    # the noise floor of KL: the same estimator on samples of the reference itself
    fresh = _multinomial(rng, draws, np.maximum(smooth, 0), FLOOR_REPLICATES)
    if curve is not None:
        floor = _kl(nodes.coarse(nodes.smooth(fresh, _scott(fresh, at, draws))), q)
    else:
        again = _multinomial(rng, max(2, round(other_size)), smooth, FLOOR_REPLICATES)
        floor = _kl(nodes.coarse(nodes.smooth(fresh, bandwidth)), nodes.coarse(nodes.smooth(again, bandwidth_y)))
    result["kl_floor"] = float(floor.mean())
    return result


def _scott(counts: Array, at: Array, draws: int) -> float:
    """Scott's bandwidth of binned samples (the mean over replicates: they differ by 1/sqrt(draws) only)."""
    shares = counts.sum(axis=0) / counts.sum()
    mean = shares @ at
    return float(math.sqrt(shares @ (at - mean) ** 2) * draws ** (-0.2))


def _multinomial(rng: np.random.Generator, draws: int, weights: Array, replicates: int) -> Array:
    """Bins of `replicates` samples of size `draws`.

    Shapes    weights (bins,) -> (replicates, bins)
    """
    used = np.flatnonzero(weights > 0)
    chances = weights[used] / weights[used].sum()
    result = np.zeros((replicates, len(weights)))
    result[:, used] = rng.multinomial(draws, chances / chances.sum(), size=replicates)
    return result


def _typical_range(curve: LawCurve, count: int) -> tuple[float, float]:
    """Where the extremes of `count` draws typically lie."""
    at = curve.cdf(curve.grid)
    inside = np.flatnonzero((at > 1 / count) & (at < 1 - 1 / count))
    first, last = (inside[0], inside[-1]) if len(inside) else (0, -1)
    return float(curve.grid[first]), float(curve.grid[last])
