"""Networks in the kernel regime after gradient flow: their mean and covariance from the kernels K and Theta.

With the training rows T, B = Theta_TT + noise, and g(b) = (1 - exp(-t b)) / b, the outputs after time t are linear in
those at the start: f_t = f_0 + A (y - f_0T), A = Theta_:T g(B).  So

    mean S f_0 + A y,    covariance S K S^T + v A A^T,    S = 1 - A E_T

with v = noise where networks see targets with noise of their own, else 0.

What an error of the kernels does: let every entry of Theta be wrong by at most e, and E the error of the N training
rows, in the eigenbasis of B.  In the series of g(B + E) in powers of E, the k-th term is an integral over a part of a
cube of exp(-u_0 B) E exp(-u_1 B) .. E exp(-u_k B), so that its entries are at most those of g |E| g .. |E| g.
The norm of |E| is at most N e, as E has that Frobenius norm.  So a geometric series in r = N e max g is above it, and
with columns Y

    |(A~ - A) Y|_i  <=  e (sqrt(N) + N |A_i|) |g Y| / (1 - r).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.gradients.kernel import tangents_in_the_limit, vector_of
from tensorprog.language.errors import NotCompiledError, fail
from tensorprog.language.formats import name_of
from tensorprog.law import Law
from tensorprog.program import Program, netsor_of
from tensorprog.training.readouts import with_product

__all__ = ["Prediction", "predict"]

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Kernels:
    """What a prediction is made of: kernels between all members, each with a bound for its entries, and targets."""

    start: Array
    start_error: float
    covariance: Array
    covariance_error: float
    tangent: Array
    tangent_error: float
    targets: Array
    train: NDArray[np.intp]
    noise: float
    shared: bool  # all networks see the same targets

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of the tangent kernel of the training rows, with the noise."""
        own = self.tangent[np.ix_(self.train, self.train)]
        values, vectors = np.linalg.eigh((own + own.T) / 2 + self.noise * np.eye(len(own)))
        return values, vectors

    def after(self, t: float) -> tuple[Array, Array, Array, Array]:
        """Mean and covariance after time t, each with its error.

        Raises    ProgramError where the errors of the kernel leave open what the networks learn
        """
        if not isinstance(t, Real) or not t >= 0:
            raise fail(f"t is a time, 0 or positive, and inf at the end of training, not {t!r}")
        values, vectors = self.eigen
        count, rows = len(values), self.train
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            g = np.where(values == 0, t, -np.expm1(-t * values) / values) if t < math.inf else 1 / values
        e = self.tangent_error + 4 * EPS * float(np.abs(values).max())  # with that of the eigenvalues
        largest = float(g.max()) if values[0] > 0 or t < math.inf else math.inf
        share = count * e * largest
        if not share < 1:
            raise fail(
                f"the kernel of the {count} training rows is singular within its error {e:.1e}: what the networks "
                f"learn after time {t:g} is not known",
                fix=f"noise={max(4 * count * e, 1e-6):.0e}, an earlier time, or training rows that differ",
            )

        def solved(columns: Array) -> Array:
            return np.asarray(vectors @ (g * (vectors.T @ columns).T).T)

        answer = solved(self.tangent[rows]).T  # A
        rest = -answer @ np.eye(len(self.tangent))[rows]
        rest[np.diag_indices(len(rest))] += 1  # S
        norms = np.linalg.norm(answer, axis=1)
        moved = e * (math.sqrt(count) + count * norms) / (1 - share)  # of a row of A, without |g Y|

        y = (self.targets.T - self.start[rows]).T
        mean = (self.start + (answer @ y).T).T
        size = np.linalg.norm(solved(y), axis=0)
        off = (np.multiply.outer(size, moved) + self.start_error * np.abs(rest).sum(axis=1)).T

        v = 0.0 if self.shared else self.noise
        cov = rest @ self.covariance @ rest.T + v * answer @ answer.T
        tied = self.covariance[rows] @ rest.T - v * answer.T
        first = np.outer(moved, np.linalg.norm(solved(tied), axis=0))
        rows_off = moved * largest
        sizes = np.abs(rest).sum(axis=1) + math.sqrt(count) * rows_off
        top = float(np.linalg.norm(self.covariance[np.ix_(rows, rows)])) + v
        cov_off = first + first.T + np.outer(rows_off, rows_off) * top + np.outer(sizes, sizes) * self.covariance_error
        return mean, off, (cov + cov.T) / 2, cov_off


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The Gaussian law of the outputs of trained networks at infinite width, of all members of a family.

    Members are in C order; `train` and `test` are their positions.

    Shapes    mean, mean_error (members,), or (members, columns of the targets); cov, cov_error (members, members)
    Accuracy  mean_error and cov_error bound what the errors of the kernels and rounding may change
    """

    name: str
    kernel: str
    t: float
    noise: float
    grade: str
    mean: Array
    mean_error: Array
    cov: Array
    cov_error: Array
    train: NDArray[np.intp]
    test: NDArray[np.intp]
    _kernels: Kernels = field(compare=False)

    @property
    def std(self) -> Array:
        """Standard deviations over networks. Shapes: (members,)."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.cov), 0.0)))

    def at(self, t: float) -> Prediction:
        """The same networks at another time; the kernels are not computed again."""
        mean, mean_error, cov, cov_error = self._kernels.after(t)
        return replace(self, t=float(t), mean=mean, mean_error=mean_error, cov=cov, cov_error=cov_error)

    def __repr__(self) -> str:
        return (
            f"{self.name} after time {self.t:g} on {len(self.train)} training rows by the {self.kernel} kernel, "
            f"noise {self.noise:g}: .mean, .std and .cov of {len(self.cov)} members, {len(self.test)} of them for tests"
        )


def predict(
    P: Program,
    name: str,
    targets: ArrayLike,
    train: slice | Sequence[int] | ArrayLike | None = None,
    *,
    t: float = math.inf,
    noise: float = 0.0,
    kernel: Literal["ntk", "nngp"] = "ntk",
    parameters: Sequence[str] | None = None,
    max_memory: str | int = "1GiB",
) -> Prediction:
    """The law of a family of outputs after gradient flow for time t, over networks of infinite width.

    An output is one coordinate of f[i] = MatMul(V, z[i]), or a readout f[i] = Dot(v, z[i]).  `train` names the members
    that have targets, as a slice, positions or a mask; by default the first ones.  Each network minimises half the sum
    over them of (f - y)**2, its weights sigma / sqrt(n_in) times standard normals that all move with the rate 1: t is
    the learning rate times the number of steps.  For half the mean of the squares, divide t by the number of rows.

    kernel="ntk" trains everything, or the `parameters` named; `noise` is weight decay towards the start, and the mean
    at t=inf a ridge regression with it.  kernel="nngp" trains the last layer, and gives each network's targets noise of
    this variance besides: at t=inf that is the posterior of the Gaussian process.  Noise of new observations is not in
    the covariance.

    Raises    ProgramError for targets and rows that do not fit, or a kernel of training rows that is singular within
              its error; NotCompiledError where outputs are not Gaussian in the limit
    Source    Lee et al. 2019 (arXiv 1902.06720); Jacot, Gabriel & Hongler 2018 (arXiv 1806.07572)
    """
    netsor, name = netsor_of(P, "predict"), name_of(name)
    if kernel not in ("ntk", "nngp"):
        raise fail(f"kernel is 'ntk' or 'nngp', not {kernel!r}")
    if not isinstance(noise, Real) or not 0 <= noise < math.inf:
        raise fail(f"noise is a variance, 0 or positive, not {noise!r}")
    netsor = with_product(netsor, name)
    if name in netsor.families and netsor.families[name].kind == "scalar":
        said = f"{name} is no readout on the scale n**-0.5 by an initial vector of its own"
        raise fail(said, fix="f[i] = MatMul(V, z[i]); on the scale 1/n features move, and tp.train has the limit")
    family = vector_of(netsor, name)
    try:
        columns = np.asarray(targets, dtype=np.float64)
    except (TypeError, ValueError):
        raise fail(f"the targets of {name} are no numbers, or rows of them", fix="[1, -1]") from None
    count = math.prod(family.shape)
    train = slice(len(columns)) if train is None and columns.ndim else train
    try:
        rows = np.atleast_1d(np.arange(count)[train if isinstance(train, slice) else np.asarray(train)])
    except IndexError as error:
        raise fail(f"train does not name members of {name}, which has {count}: {error}", fix="slice(0, 50)") from None
    if columns.ndim not in (1, 2) or len(columns) != len(rows) or not len(rows):
        raise fail(f"{len(rows)} training rows need as many targets, and these have shape {columns.shape}")
    if len(np.unique(rows)) < len(rows) or not np.isfinite(columns).all():
        raise fail("a training row stands twice" if np.isfinite(columns).all() else "targets are not all finite")
    tangent = name
    if kernel == "ntk":
        netsor, tangent = tangents_in_the_limit(netsor, name, parameters)
    program = Program.from_netsor(replace(netsor, outputs=tuple(dict.fromkeys((name, tangent))), run=()))
    law: Law = program.limit(max_memory=max_memory)
    if name in law.recursion.random or not law.is_linear(name):
        raise NotCompiledError(
            f"{name} is not Gaussian in the limit, and such networks do not train linearly: name the products by the "
            f"last weights, such as f[i] = MatMul(V, z[i])"
        )
    (start, start_error), own, other = law.mean(name, with_error=True), law.cov(name), law.cov(tangent)
    kernels = Kernels(
        np.reshape(start, count),
        float(np.max(start_error)),
        np.reshape(own, (count, count)),
        own.error,
        np.reshape(other, (count, count)),
        other.error,
        columns,
        rows,
        float(noise),
        kernel == "ntk",
    )
    test = np.setdiff1d(np.arange(count), rows)
    return Prediction(name, kernel, float(t), float(noise), law.grade, *kernels.after(t), rows, test, kernels)
