"""Initial vectors: their means and covariances as arrays, block by block where members are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import fail
from tensorprog.language.evaluate import index_array
from tensorprog.language.ir import Initial, Netsor, Table
from tensorprog.language.linalg import alike, nearest_semidefinite, psd_cholesky, unit_roundoff

__all__ = ["InitialLaw", "covariance_size", "initial_law", "initial_laws"]


@dataclass(frozen=True)
class InitialLaw:
    """Mean and covariance of one initial family.

    Members that differ in an `independent` index are independent; `blocks` holds the covariance over the `joint`
    indices for every value of the independent ones.

    Shapes    mean (*members); blocks (*independent, J, J) with J the number of joint members in C order; error, a bound
              on the rounding of the blocks, broadcasts to them
    """

    mean: NDArray[np.float64]
    independent: tuple[str, ...]
    joint: tuple[str, ...]
    blocks: NDArray[np.float64]
    error: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """Cholesky factors of the blocks."""
        return np.asarray(psd_cholesky(self.blocks), dtype=np.float64)


def covariance_size(netsor: Netsor, initial: Initial) -> int:
    """Numbers of the covariances of an initial family, block by block."""
    shape = dict(zip(initial.indices, netsor.families[initial.name].shape, strict=True))
    return math.prod(shape.values()) * math.prod(shape[name] for name in initial.joint)


def initial_laws(netsor: Netsor) -> dict[str, InitialLaw]:
    """The laws of all initial families, by name."""
    return {initial.name: initial_law(netsor, initial) for initial in netsor.initial}


def initial_law(netsor: Netsor, initial: Initial) -> InitialLaw:
    """Evaluate the mean and covariance of an initial family.

    Raises    ProgramError for data whose inner products overflow
    """
    shape = netsor.families[initial.name].shape
    members = math.prod(shape)
    if isinstance(initial.mean, Table):
        mean = initial.mean.array
    else:
        mean = index_array(netsor, initial.mean, initial.indices)
    if isinstance(initial.cov, Table):
        return InitialLaw(mean, (), initial.indices, *_semidefinite(initial.cov.array.reshape(members, members)))
    if initial.data is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            gram, error = _gram(initial.data.array, float(index_array(netsor, initial.cov, ())))
        if not (np.isfinite(gram).all() and np.isfinite(error).all()):
            raise fail(
                f"{initial.name}: inner products of its data overflow, entries reach "
                f"{np.abs(initial.data.array).max():.3g}", initial.span, "divide the data by a constant",
            )
        return InitialLaw(mean, (), initial.indices, gram, error)
    joint = initial.joint
    independent = tuple(name for name in initial.indices if name not in joint)
    axes = (*independent, *joint, *(f"{name}_" for name in joint))
    values = index_array(netsor, initial.cov, axes)
    size = math.prod(netsor.index[name].stop - netsor.index[name].start for name in joint)
    return InitialLaw(mean, independent, joint, values.reshape(*values.shape[: len(independent)], size, size))


def _semidefinite(
    given: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A covariance matrix that was given, and how well it is known.

    It is taken as exact if it is a covariance.  Where rounding made an eigenvalue negative it is not: then the nearest
    that is one stands for it, and what its numbers were rounded to is an error, eps sqrt(a_ii a_jj) of each.

    Shapes    given (N, N) -> (N, N), and (N, N) or ()
    """
    near, distance = nearest_semidefinite((given + given.T) / 2)
    if not distance:
        return np.asarray(near, dtype=np.float64), np.zeros(())
    size = alike(np.sqrt(np.maximum(np.diagonal(given), 0.0))[:, None])
    return np.asarray(near, dtype=np.float64), np.asarray(distance + 2 * unit_roundoff(given) * size * size.T)


def _gram(
    data: NDArray[np.float64], variance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """variance x_i.x_j / d, exactly symmetric, and a bound on its rounding: d + 2 operations on sums of |x_i| |x_j|.

    Shapes    data (N, d) -> (N, N), and (N, N) or (1, 1)
    """
    dim = data.shape[1]
    gram = data @ data.T  # one triangle is computed
    gram *= variance / dim
    size = alike(np.sqrt(np.diagonal(gram))[:, None])
    return gram, np.asarray((dim + 2) / 2 * np.finfo(np.float64).eps * size * size.T)
