"""Many Gaussians of one mean as few of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.limit.law.averaging import Rule

__all__ = ["Nodes", "binned", "grouped"]

Array = NDArray[Any]
BINS = 2048  # of variances, on a logarithmic scale
LIGHT = 1e-30  # weights of draws that no density sees
LEAST = 1e-14  # variances that far below the largest share a bin


@dataclass(frozen=True)
class Nodes:
    """One variable as a mixture of Gaussians N(mean, var) with weights in each set.

    Shapes    mean, var (nodes,), weights (sets, nodes)
    Accuracy  `width` is the width in log V of the bins whose variances a pair of nodes stands for
    """

    mean: Array
    var: Array
    weights: Array
    width: float = 0.0

    def error(self, distance: Array, total: float) -> Array:
        """Relative error of densities and tails of a sum, from binning, at a distance from its mean.

        What a bin does not keep is the third order in the change of log V: up to 1 + d**2 / (2 V) times that change for
        one Gaussian, and the share of the summand's in the sum's largest variance, `total`, of it for a sum.
        """
        share = float(self.var.max()) / max(total, 1e-300)
        return np.asarray((self.width * share * (1 + 0.5 * distance**2 / max(total, 1e-300))) ** 3 / 6)


def grouped(mean: float, var: Array, weights: Array, rule: Rule) -> Nodes:
    """Nodes for variances at one mean: common ones for replicates, own ones for each order of a product rule.

    Shapes    var, weights (sets, draws)
    """
    groups = [[k] for k in range(len(var))] if rule.orders else [list(range(len(var)))]
    found = []
    for group in groups:
        real = (weights[group] > LIGHT).any(axis=0)  # sets of different lengths were filled up
        found.append(binned(var[group][:, real], weights[group][:, real]))
    full = np.zeros((len(var), sum(len(nodes) for nodes, _, _ in found)))
    start = 0
    for group, (nodes, own, _) in zip(groups, found, strict=True):
        full[group, start : start + len(nodes)] = own
        start += len(nodes)
    width = max(width for _, _, width in found)
    return Nodes(np.full(start, mean), np.concatenate([nodes for nodes, _, _ in found]), full, width)


def binned(var: Array, weights: Array) -> tuple[Array, Array, float]:
    """Nodes and their weights in each set: every set keeps mass and mean in each bin, all together the variance.

    Bins are even in log V, over as many decades as matter; V = 0 keeps a node of its own.
    Shapes    var, weights (sets, draws) -> (nodes,), (sets, nodes), width of the bins in log V
    """
    sets, draws = var.shape
    high = float(var.max())
    if var.min() == high:
        return np.array([high]), np.ones((sets, 1)), 0.0
    if var.size <= 4 * BINS:
        own = np.zeros((sets, sets, draws))
        own[np.arange(sets), np.arange(sets)] = weights
        return var.reshape(-1), own.reshape(sets, -1), 0.0
    low = max(float(np.min(var, where=var > 0, initial=high)), LEAST * high)
    width = math.log(high / low) / BINS
    with np.errstate(divide="ignore"):
        place = np.clip((np.log(var / low) / width), 0, BINS - 1).astype(np.int64)
    place[var == 0] = BINS
    each = (place + (BINS + 1) * np.arange(sets)[:, None]).reshape(-1)
    middle = np.append(low * np.exp(width * (0.5 + np.arange(BINS))), 0.0)

    def total_of(values: Array) -> Array:
        return np.bincount(each, (weights * values).reshape(-1), minlength=sets * (BINS + 1)).reshape(sets, BINS + 1)

    mass = total_of(np.ones_like(var))
    used = mass.sum(axis=0) > 0
    first, second = (total_of((var - middle[place]) ** k)[:, used] for k in (1, 2))
    mass, middle = mass[:, used], middle[used]
    total = mass.sum(axis=0)
    centre = first.sum(axis=0) / total
    half = np.sqrt(np.maximum(second.sum(axis=0) / total - centre**2, 0.0))
    half = np.minimum(half, middle + centre)  # no negative variances
    shifted = (first - centre * mass) / np.where(half > 0, half, np.inf)
    nodes = np.concatenate([middle + centre - half, middle + centre + half])
    return np.maximum(nodes, 0.0), np.concatenate([mass - shifted, mass + shifted], axis=1) / 2, width
