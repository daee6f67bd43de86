"""Tangent kernels of networks of a finite width, which are random where scores are: their law.

A tangent along random directions is Gaussian given the network, and its covariance the kernel.  So products of its
coordinates, averaged over them and over a few directions, are the kernel and noise, which the spread between directions
tells.  Without scores its relative size is about sqrt(2 / (n directions)).  Behind scores it does not fall with n, as
a score moves all coordinates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gradients.kernel import chosen_parameters, vector_of
from tensorprog.gradients.tangents import Tangents
from tensorprog.language.averages import unused
from tensorprog.language.errors import check_count, fail
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index, Netsor
from tensorprog.language.schedule import upstream
from tensorprog.program import Program

__all__ = ["NetworkKernels", "kernels_of_networks"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NetworkKernels:
    """Neural tangent kernels of networks of one width, between all members of a family.

    Shapes    each (networks, directions, members, members): for every network and direction
    """

    name: str
    width: int
    each: Array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The kernel of each network, with the noise of its directions: (networks, members, members)."""
        return np.asarray(self.each.mean(axis=1), dtype=dtype)

    @property
    def mean(self) -> Array:
        """The mean over networks. Shapes: (members, members)."""
        return np.asarray(self.each.mean(axis=(0, 1)))

    @property
    def mean_se(self) -> Array:
        """Its standard error."""
        return np.asarray(np.std(np.asarray(self), axis=0, ddof=1) / np.sqrt(len(self.each)))

    @property
    def deviation(self) -> Array:
        """Standard deviation of the kernel over networks, the noise of directions taken off; 0 where that is all."""
        return np.asarray(np.sqrt(np.maximum(_squares(self.each).mean(axis=0), 0.0)))

    @property
    def deviation_se(self) -> Array:
        """Its standard error, from that of its square; of the root of its square near 0."""
        squares = _squares(self.each)
        error = squares.std(axis=0, ddof=1) / np.sqrt(len(squares))
        total = np.maximum(squares.mean(axis=0), 1e-300)
        return np.asarray(np.minimum(error / (2 * np.sqrt(total)), np.sqrt(error)))

    def __str__(self) -> str:
        """The size of the kernel and how much it differs from network to network."""
        mean, deviation = np.diag(self.mean).mean(), np.diag(self.deviation).mean()
        return (
            f"tangent kernels of {self.name}, {len(self.each)} networks of width {self.width}: "
            f"mean of the diagonal {mean:.4g}, standard deviation over networks {deviation:.2g}"
        )


def kernels_of_networks(
    netsor: Netsor,
    name: str,
    parameters: Sequence[str] | None,
    width: int,
    samples: int,
    directions: int,
    seed: int,
    max_memory: str | int,
) -> NetworkKernels:
    """Draw networks with tangents along directions of their own.

    Raises    ProgramError for names that are no vectors or no parameters, and numbers out of range
    """
    check_count("samples", samples, 2)
    check_count("directions", directions, 2)
    family = vector_of(netsor, name)
    chosen = chosen_parameters(netsor, upstream(netsor, [name]), parameters)
    extended, tangents = replace(netsor, outputs=(name,)), list[str]()
    for _ in range(directions):
        made = Tangents(extended, [name], chosen, copies=False)
        if name not in made.tangent:
            raise fail(f"{name} depends on no parameter: its kernel is 0")
        tangents.append(made.tangent[name])
        known = set(extended.body)
        extended = replace(
            extended, indices=tuple(made.indices.values()), initial=(*extended.initial, *made.initial),
            weights=(*extended.weights, *made.weights), outputs=tuple(tangents), run=(), train=(),
            body=(*extended.body, *(statement for statement in made.body if statement not in known)),
        )  # fmt: skip
    taken = extended.taken
    rows, columns = ([unused(f"{word}{k}", taken) for k in range(len(family.ranges))] for word in ("row", "column"))
    indices = [Index(own, *span) for names in (rows, columns) for own, span in zip(names, family.ranges, strict=True)]
    averages, names = dict[str, str](), list[str]()
    for tangent in tangents:
        names.append(unused(f"kernel_{tangent}", taken))
        product = Variable(tangent, slots_of(rows)) * Variable(tangent, slots_of(columns))
        averages[f"{names[-1]}[{','.join([*rows, *columns])}]" if rows else names[-1]] = str(product)
    program = Program.from_netsor(replace(extended, indices=(*extended.indices, *indices)))
    drawn = program.run(width, samples, seed=seed, averages=averages, max_memory=max_memory)
    members = int(np.prod(family.shape))
    each = np.stack([np.asarray(drawn.averages[own]).reshape(samples, members, members) for own in names], axis=1)
    return NetworkKernels(name, width, each)


def _squares(each: Array) -> Array:
    """For each network a number whose mean is the variance over networks: the average product of two directions."""
    networks, directions = each.shape[:2]
    centred = each - each.mean(axis=0)
    pairs = centred.sum(axis=1) ** 2 - (centred**2).sum(axis=1)
    return np.asarray(pairs * (networks / (networks - 1) / (directions * (directions - 1))))
