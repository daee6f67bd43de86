"""Moments and distances of one variable's draws, with their uncertainties: arrays in, numbers out.

For draws x_1..x_n with distribution function F_n, against a law with distribution function F and density f:

    KS   = max |F_n - F|                      p-value of Kolmogorov's distribution
    KL   = sum p log(p / q), in nats          p: Gaussian kernel estimate of the draws, q: f, on 500 points

Even a perfect sample is at some distance from its law: the `*_floor` values say how far, on average.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.results.reference import LawCurve

__all__ = ["binned_kde", "distances", "kernel_kl", "kolmogorov", "moments", "tied"]

Array = NDArray[Any]
Number = tuple[float, float]

KL_POINTS = 500  # the estimator of the paper's scripts: points over the pooled range, floor of the densities
KL_DENSITY_FLOOR = 1e-12
REPLICATES = 40  # of the bootstrap: standard errors good to about 11 %
FLOOR_REPLICATES = 20
REFINEMENT = 8  # nodes of the fine grid per point of the coarse one
MAX_NODES = 1 << 17
KS_MEAN = math.sqrt(math.pi / 2) * math.log(2)  # mean of Kolmogorov's distribution
NAN = float("nan")


def moments(values: Array, variances: Array | None = None) -> dict[str, Number]:
    """Mean, variance and central kurtosis (Gaussian = 3), each with its standard error over networks.

    With `variances` the values are means of Gaussians, and the moments are those of draws from these.

    Shapes    (samples, coordinates) -> name -> (value, error)
    Accuracy  delta method: the influence function of each statistic, averaged over the coordinates of a network,
              so that coordinates of one network may depend on each other.  nan where there is too little to see
    """
    with np.errstate(all="ignore"):
        mean = values.mean()
        d = values - mean
        two = d * d
        three, four = two * d, two * two
        if variances is not None:
            v = variances
            two, three, four = two + v, three + 3 * d * v, four + 6 * two * v + 3 * v * v
        m2, m3, m4 = two.mean(), three.mean(), four.mean()
        m2 = m2 if not m2 <= 1e-28 * (mean**2 + 1e-280) else m2 * 0  # rounding of a constant is not variance
        influence = {
            "mean": (mean, d),
            "variance": (m2, two - m2),
            "kurtosis": (m4 / m2**2, (four - m4 - 4 * m3 * d) / m2**2 - 2 * m4 / m2**3 * (two - m2)),
        }
        root = math.sqrt(len(values)) if len(values) > 1 else NAN
        return {
            key: (float(value), float(effect.mean(axis=1).std(ddof=min(1, len(values) - 1)) / root))
            for key, (value, effect) in influence.items()
        }


def tied(values: Array) -> bool:
    """Whether values repeat, as those of relu do at 0: the law has atoms, and a density does not describe it."""
    return bool((np.diff(np.sort(values, axis=None)) == 0).mean() > 1e-3) if values.size > 1 else False


def _bandwidth(x: Array) -> float:
    """Scott's rule, as in scipy.stats.gaussian_kde: n**-0.2 times the standard deviation."""
    return float(x.std(ddof=1) * x.size ** (-0.2)) if x.size > 1 else 0.0


def _nodes(low: float, high: float, bandwidth: float) -> tuple[Array, int]:
    """A fine grid on which samples are counted, and every how many nodes is one of the 500 points."""
    finest = MAX_NODES // KL_POINTS  # which only outliers want that no sample of a few millions has
    every = min(max(REFINEMENT, math.ceil(8 * (high - low) / (KL_POINTS - 1) / bandwidth)), finest)
    return np.linspace(low, high, (KL_POINTS - 1) * every + 1), every


def _counts(x: Array, nodes: Array) -> Array:
    """How many draws are nearest to each node."""
    place = np.rint((x - nodes[0]) / (nodes[1] - nodes[0])).astype(np.int64)
    return np.bincount(np.clip(place, 0, nodes.size - 1), minlength=nodes.size).astype(np.float64)


def _smoothed(counts: Array, nodes: Array, bandwidth: float) -> Array:
    """Gaussian kernel estimate on all nodes from counts (last axis), normalised to density one."""
    step = float(nodes[1] - nodes[0])
    bandwidth = max(bandwidth, step)
    reach = min(nodes.size - 1, int(8.5 * bandwidth / step) + 1)
    size = 1 << (nodes.size + reach).bit_length()  # of a ring so large that its ends do not meet
    around = step * np.minimum(np.arange(size), size - np.arange(size))
    kernel = np.exp(-0.5 * (around / bandwidth) ** 2) / (bandwidth * math.sqrt(2 * math.pi))
    density = np.fft.irfft(np.fft.rfft(counts, size) * np.fft.rfft(kernel), size)[..., : nodes.size]
    return np.asarray(np.maximum(density, 0.0) / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300))


def binned_kde(x: Array, low: float, high: float) -> Array:
    """Gaussian kernel density estimate at 500 points over low..high of the draws there; Scott's bandwidth.

    Shapes    x (samples,) -> (500,), nan for samples of one value
    Accuracy  scipy.stats.gaussian_kde to about 1e-3 of its largest value, at the cost of one FFT
    """
    x = np.asarray(x, dtype=np.float64).ravel()
    bandwidth = _bandwidth(x)
    if not (bandwidth > 0 and high > low):
        return np.full(KL_POINTS, NAN)
    nodes, every = _nodes(low, high, bandwidth)
    inside = x[(x >= low) & (x <= high)]
    return np.asarray(_smoothed(_counts(inside, nodes), nodes, bandwidth)[::every] * (inside.size / x.size))


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


def kolmogorov(x: Array, y: LawCurve | Array) -> dict[str, float]:
    """KS distance of draws to a law or to other draws, its error, p-value and floor; none where there is one value."""
    from scipy.special import kolmogorov as survival

    if len(x) < 2 or not np.ptp(x) > 0 or not (isinstance(y, LawCurve) or np.ptp(y) > 0):
        return {}
    own = np.sort(x)
    at = own if isinstance(y, LawCurve) else np.sort(np.concatenate([x, y]))
    before, below = (np.searchsorted(own, at, side) / len(x) for side in ("left", "right"))
    if isinstance(y, LawCurve):
        other = y.cdf(at)
        gaps = np.maximum(below - other, other - before)
    else:
        gaps = np.abs(below - np.searchsorted(np.sort(y), at, "right") / len(y))
    joint = len(x) if isinstance(y, LawCurve) else len(x) * len(y) / (len(x) + len(y))
    place, root = int(gaps.argmax()), math.sqrt(joint)
    found, level = float(gaps[place]), float(below[place])
    return {
        "ks": found,
        "ks_p": float(survival((root + 0.12 + 0.11 / root) * found)),  # Stephens 1970
        "ks_floor": KS_MEAN / root,
        "ks_se": math.sqrt(max(level * (1 - level), 0.25 / len(x)) / joint),
    }


def distances(x: Array, y: LawCurve | Array, rng: np.random.Generator) -> dict[str, float]:
    """KS distance and kernel estimate of KL of independent draws to a law or to other draws, with errors and floors.

    Shapes    x (samples,); y: a curve, or (samples,)
    """
    result = kolmogorov(x, y)
    if not result:
        return {}
    draws, bandwidth = len(x), _bandwidth(x)
    if isinstance(y, LawCurve):
        at = y.cdf(y.grid)
        typical = y.grid[(at > 1 / len(x)) & (at < 1 - 1 / len(x))]  # of the extremes of so many draws
        low, high, bandwidth_y = *((typical[0], typical[-1]) if typical.size else (x.min(), x.max())), math.inf
    else:
        low, high, bandwidth_y = y.min(), y.max(), _bandwidth(y)
    nodes, every = _nodes(float(min(low, x.min())), float(max(high, x.max())), min(bandwidth, bandwidth_y))
    counts = _counts(x, nodes)
    if isinstance(y, LawCurve):
        edges = np.append(nodes, 2 * nodes[-1] - nodes[-2]) - (nodes[1] - nodes[0]) / 2
        chances, q = np.maximum(np.diff(y.cdf(edges)), 0.0), y.pdf(nodes[::every])
    else:
        chances = _smoothed(_counts(y, nodes), nodes, bandwidth_y)
        q = chances[::every]

    def estimate(counts: Array, bandwidth: float) -> Array:
        return _smoothed(counts, nodes, bandwidth)[..., ::every]

    # bootstrap over draws, on the bins
    replicas = _multinomial(rng, draws, counts, REPLICATES)
    # the noise floor: the same estimator on samples of the reference itself
    fresh = _multinomial(rng, draws, chances, FLOOR_REPLICATES)
    if isinstance(y, LawCurve):
        shares = fresh.sum(axis=0) / fresh.sum()
        floor = _kl(estimate(fresh, math.sqrt(shares @ (nodes - shares @ nodes) ** 2) * draws ** (-0.2)), q)
    else:
        again = _multinomial(rng, len(y), chances, FLOOR_REPLICATES)
        floor = _kl(estimate(fresh, bandwidth), estimate(again, bandwidth_y))
    return result | {
        "kl": float(_kl(estimate(counts, bandwidth), q)),
        "kl_se": float(_kl(estimate(replicas, bandwidth), q).std(ddof=1)),
        "kl_floor": float(floor.mean()),
    }


def _multinomial(rng: np.random.Generator, draws: int, weights: Array, replicates: int) -> Array:
    """Bins of `replicates` samples of size `draws`.

    Shapes    weights (bins,) -> (replicates, bins)
    """
    used = np.flatnonzero(weights > 0)
    chances = weights[used] / weights[used].sum()
    result = np.zeros((replicates, len(weights)))
    result[:, used] = rng.multinomial(draws, chances / chances.sum(), size=replicates)
    return result
