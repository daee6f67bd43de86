"""E[Z^u Z^v | p-ring] at a few draws of p-ring: what a score u.v / sqrt(n), divided by sqrt(n), converges to.

Source    Sakai et al. 2025 (arXiv 2506.00846), Theorem 1, of the average (1/n) u.v
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import MemoryLimitError
from tensorprog.language.ir import MatMul, Netsor
from tensorprog.language.named_arrays import broadcast
from tensorprog.limit.draw.layers import Layers
from tensorprog.limit.draw.sampler import Sampler, plain
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.replicates import REPLICATE
from tensorprog.limit.moment.values import Value

__all__ = ["coefficients"]

Array = NDArray[Any]
DRAWS, FEWEST = 64, 8
NUMBERS = 1 << 22  # held by all draws together
MEMBERS = 1 << 4  # members of the average
SMALL, NEARBY = 1e-3, 1 + 1e-9  # values that may be rounding, and how far off draws are that tell
COVARIANCES = 1 << 22  # of the outputs of one weight family, which are factored


def coefficients(netsor: Netsor, name: str, seed: int = 0) -> tuple[Array, Array, Box, bool]:
    """Values and errors of an average at draws of p-ring, its members that were looked at, and whether these are all.

    Of large families the first few members along each index are looked at.  An average that no score reaches has one
    draw.

    Shapes    (draws, *members), twice
    Scale     at most NUMBERS numbers are held for the draws
    Accuracy  bounds where integrals are in closed form or by quadrature, else it holds with a probability of 99.9 %
    Raises    NotCompiledError, AccuracyError, MemoryLimitError
    """
    largest = max((_covariances(netsor, s) for s in netsor.body if isinstance(s, MatMul)), default=0)
    if largest > COVARIANCES:
        raise MemoryLimitError(f"{largest} covariances of the outputs of one family of weights are too many to factor")
    compiler = Compiler(netsor)
    spans = compiler.netsor.families[name].ranges
    along = len(spans) and max(2, int(MEMBERS ** (1 / len(spans))))
    box = tuple((start, min(stop, start + along)) for start, stop in spans)
    if name not in compiler.random:
        return *_of(compiler, compiler.average(name), name, box, 1), box, box == spans
    drawn = _layered if compiler.layered else _one_layer
    value, error = drawn(compiler, name, box, seed)
    if np.max(np.abs(value), initial=0.0) < SMALL:  # what cancels leaves rounding, which nearby draws do not share
        error = error + np.abs(drawn(compiler, name, box, seed, NEARBY)[0] - value).max(axis=0)
    return value, error, box, box == spans


def _covariances(netsor: Netsor, statement: MatMul) -> int:
    """Between the outputs of the same member of a weight."""
    members, weights = (math.prod(netsor.families[v.name].shape) for v in (statement.target, statement.weight))
    return members * max(1, members // weights)


def _one_layer(compiler: Compiler, name: str, box: Box, seed: int, near: float = 1.0) -> tuple[Array, Array]:
    sampler = Sampler(compiler, {name: box}, vectors=False)
    count = sum(math.prod(b - a for a, b in members) for members in sampler.demand.values())
    values = sampler.draw(near * _points(sampler.dim, max(sampler.dim, count), seed))
    value = plain(sampler.wanted_value(name, values), len(values[name].data))
    return value, np.full(value.shape, max((average.error for average in sampler.averages.values()), default=0.0))


def _layered(compiler: Compiler, name: str, box: Box, seed: int, near: float = 1.0) -> tuple[Array, Array]:
    layers = Layers(compiler, (name,))
    points = near * _points(layers.dim, layers.width, seed)
    found = layers.at(points)
    value, error = _of(compiler, found.average(name), name, box, len(points))
    return value, error + found.relative * np.abs(value)


def _of(compiler: Compiler, found: Value, name: str, box: Box, draws: int) -> tuple[Array, Array]:
    """The members in a box, draw by draw."""
    ranges = position_names(compiler.netsor, name)
    sizes = {axis: stop - start for axis, (start, stop) in ranges.items()} | {REPLICATE: draws}
    at = (slice(None), *(slice(0, stop - start) for start, stop in box))
    value, error = (broadcast(each, (REPLICATE, *ranges), sizes)[at] for each in (found.value, found.error))
    return value, error


def _points(dim: int, numbers: int, seed: int) -> Array:
    """Standard normals of as many draws as fit.

    Shapes    (draws, dim)
    """
    draws = min(DRAWS, NUMBERS // max(1, numbers))
    if draws < FEWEST:
        raise MemoryLimitError(f"{numbers} numbers for a draw are too many")
    return np.random.default_rng(seed).standard_normal((draws, dim))
