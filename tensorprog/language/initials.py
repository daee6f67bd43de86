"""Initial vectors: their means and covariances as arrays, block by block where members are independent."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import fail
from tensorprog.language.evaluate import COORDINATE, Open, contract, elementwise, index_array, index_values
from tensorprog.language.expr import Affine, Expr, substitute
from tensorprog.language.ir import Initial, Netsor, Table
from tensorprog.language.linalg import (
    INDEFINITE,
    fault_of_covariance,
    nearest_semidefinite,
    psd_cholesky,
    unit_roundoff,
)
from tensorprog.language.validity import LOOKED_AT, MAX_JOINT


@dataclass(frozen=True)
class InitialLaw:
    """Mean and covariance of one initial family.

    Members that differ in an `independent` index are independent; `blocks` holds the covariance over the `joint`
    indices for every value of the independent ones.  It is computed when it is read.

    Shapes    mean (*members); blocks (*independent, J, J) with J the number of joint members in C order; spread (J,) or
              (1,): products of two of these bound the rounding of the blocks
    """

    netsor: Netsor = field(repr=False)
    initial: Initial = field(repr=False)
    mean: NDArray[np.float64]

    @property
    def joint(self) -> tuple[str, ...]:
        """Indices over which members are not independent."""
        return self.initial.joint

    @property
    def independent(self) -> tuple[str, ...]:
        """The other indices."""
        return tuple(name for name in self.initial.indices if name not in self.joint)

    @property
    def shape(self) -> tuple[int, ...]:
        """(*independent, J)."""
        sizes = dict(zip(self.initial.indices, self.netsor.families[self.initial.name].shape, strict=True))
        return (*(sizes[name] for name in self.independent), math.prod(sizes[name] for name in self.joint))

    @cached_property
    def _covariance(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        members, initial = math.prod(self.netsor.families[self.initial.name].shape), self.initial
        if isinstance(initial.cov, Table):
            given = initial.cov.array.reshape(members, members)
            near, error = nearest_semidefinite((given + given.T) / 2)
            rounded = 2 * unit_roundoff(initial.cov.array) * np.maximum(np.diagonal(given), 0.0)
            return near.astype(np.float64), np.sqrt(error + rounded) if error else np.zeros(1)
        if initial.data is not None:
            data = initial.data.array
            gram = data @ data.T
            gram *= self._variance / data.shape[1]
            return gram, np.zeros(1)
        axes = (*self.independent, *self.joint, *(f"{name}_" for name in self.joint))
        values = index_array(self.netsor, initial.cov, axes)
        blocks = values.reshape(*self.shape, self.shape[-1])
        if self.shape[-1] > MAX_JOINT or blocks.size * self.shape[-1] > LOOKED_AT:  # more than validity looks at
            for block in blocks.reshape(-1, *blocks.shape[-2:]):
                if fault := fault_of_covariance(block):
                    raise fail(f"initial vector {initial.name}: cov {fault}", initial.span)
        return blocks, np.zeros(1)

    @property
    def _variance(self) -> float:
        assert isinstance(self.initial.cov, Expr)
        return float(index_array(self.netsor, self.initial.cov, ()))

    @property
    def blocks(self) -> NDArray[np.float64]:
        """The covariance of joint members."""
        return self._covariance[0]

    @property
    def spread(self) -> NDArray[np.float64]:
        """Numbers for the joint members, or one for all, whose products bound the rounding of the blocks."""
        if self.initial.data is not None:
            return np.asarray(np.sqrt(_rounding(self.initial.data.array.shape[1]) * self.variances))
        return self._covariance[1] if isinstance(self.initial.cov, Table) else np.zeros(1)

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """Cholesky factors of the blocks."""
        return np.asarray(psd_cholesky(self.blocks), dtype=np.float64)

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """A part of the covariance over one index, of those that are given by data or by a formula.

        Raises    ProgramError for entries that no covariance has beside its variances
        """
        if self.initial.data is not None:
            data = self.initial.data.array
            return np.asarray((data[rows] * (self._variance / data.shape[1])) @ data[columns].T)
        (index,), variances = self.joint, self.variances
        start, stop = self.netsor.ranges[index]
        assert isinstance(self.initial.cov, Expr)
        spans = {n: (start + k.start, min(start + k.stop, stop)) for n, k in ((index, rows), (f"{index}_", columns))}
        found = index_array(self.netsor, self.initial.cov, tuple(spans), {**self.netsor.ranges, **spans})
        largest = np.sqrt(variances[rows, None]) * np.sqrt(variances[columns])
        if not np.all(np.abs(found) <= (1 + INDEFINITE) * largest):
            raise fail(f"initial vector {self.initial.name}: cov is not positive semidefinite", self.initial.span)
        return found

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """The diagonal of the covariance over one index, of those that are given by data or by a formula."""
        if self.initial.data is not None:
            data = self.initial.data.array
            return np.asarray(np.einsum("ij,ij->i", data, data) * (self._variance / data.shape[1]))
        (index,) = self.joint
        assert isinstance(self.initial.cov, Expr)
        return index_array(self.netsor, substitute(self.initial.cov, {f"{index}_": Affine.index(index)}), self.joint)

    @property
    def tiled(self) -> bool:
        """Whether the covariance can be read in tiles: over one index, of data, or of more members than are checked."""
        enough = self.initial.data is not None or self.shape[-1] > MAX_JOINT
        return enough and isinstance(self.initial.cov, Expr) and not self.independent and len(self.joint) == 1

    def at(self, equal: Collection[str]) -> tuple[Open, Open] | None:
        """Covariances of members whose indices in `equal` are equal, and a bound on their rounding.

        None where they are given as a whole.

        Shapes    over the indices that matter, and second copies of those that are not equal
        """
        initial = self.initial
        if isinstance(initial.cov, Table):
            return None
        if initial.data is None:
            values = index_values(self.netsor, substitute(initial.cov, {f"{n}_": Affine.index(n) for n in equal}))
            return values, Open((), np.zeros(()))
        rows = initial.data.array.reshape(*self.netsor.families[initial.name].shape, -1)
        scale = self._variance / rows.shape[-1]
        size = alike(np.sqrt(np.square(rows).sum(axis=-1) * (scale * _rounding(rows.shape[-1]))))
        others = tuple(n if n in equal else f"{n}_" for n in initial.indices)
        found = contract(Open((*initial.indices, COORDINATE), rows), Open((*others, COORDINATE), rows), [COORDINATE])
        np.multiply(found.data, scale, out=found.data)  # of one side alone it would round both orders of a pair apart
        bound = elementwise(np.multiply, Open(initial.indices, size), Open(others, size))
        return found, bound


def alike(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """A bound on each of the sizes: the largest for all, on axes of length 1, if no other but zero is much smaller."""
    top = sizes.max(initial=0.0)
    return np.full((1,) * sizes.ndim, top) if np.all((sizes == 0) | (4 * sizes >= top)) else sizes


def _rounding(dim: int) -> float:
    """Of an inner product of `dim` numbers and its scaling, relative to the lengths."""
    return (dim + 2) / 2 * float(np.finfo(np.float64).eps)


def covariance_size(netsor: Netsor, initial: Initial) -> int:
    """Numbers of the covariances of an initial family, block by block."""
    shape = dict(zip(initial.indices, netsor.families[initial.name].shape, strict=True))
    return math.prod(shape.values()) * math.prod(shape[name] for name in initial.joint)


def initial_laws(netsor: Netsor) -> dict[str, InitialLaw]:
    """The laws of all initial families, by name; families that differ in nothing else have one, of the first."""
    made, found = dict[Initial, InitialLaw](), dict[str, InitialLaw]()
    for initial in netsor.initial:
        nameless = replace(initial, name="")
        if nameless not in made:
            made[nameless] = initial_law(netsor, initial)
        found[initial.name] = made[nameless]
    return found


def initial_law(netsor: Netsor, initial: Initial) -> InitialLaw:
    """The law of an initial family, whose covariance is evaluated when it is read.

    Raises    ProgramError for data whose inner products overflow
    """
    mean = initial.mean.array if isinstance(initial.mean, Table) else index_array(netsor, initial.mean, initial.indices)
    law = InitialLaw(netsor, initial, mean)
    if initial.data is not None:
        with np.errstate(over="ignore", invalid="ignore"):  # no inner product is larger than the largest square
            finite = np.isfinite(np.square(initial.data.array).sum(axis=1).max(initial=0.0) * max(law._variance, 1.0))
        if not finite:
            said = f"{initial.name}: inner products of its data overflow"
            raise fail(said, initial.span, "divide the data by a constant")
    return law
