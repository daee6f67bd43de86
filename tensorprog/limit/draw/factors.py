"""What draws are made with: triangular factors of covariances, and normals in streams that have seeds of their own.

Products of MatMul outputs are drawn by the factors of their inputs (`conditioned`).  Of scores of functions of such
only the covariance E[Z^u Z^v Z^u' Z^v'] is known, and a factor of it draws all that depend on each other.  Factors
that are the same for all draws are made once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY
from tensorprog.language.arrows import connected
from tensorprog.language.expr import Affine
from tensorprog.language.linalg import triangular, undetermined
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.moment.indexed import difference
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import REPLICATE, IndexedValues

__all__ = [
    "CHUNK",
    "ROUNDING",
    "SHOWN",
    "Factor",
    "GivenNormals",
    "Members",
    "Normals",
    "Some",
    "Source",
    "Streams",
    "dependent",
    "given_before",
    "relative_error",
    "same_for_all",
]


Array = NDArray[Any]


def same_for_all(moment: IndexedValues) -> bool:
    """Whether a moment is the same for all draws."""
    return all(REPLICATE not in term.value.axes for term in moment.terms)


@dataclass(frozen=True)
class Factor:
    """Triangular factors, one for each of some weight members, of which many share one.

    Shapes    rows (draws or 1, kinds, columns, columns), or (draws or 1, kinds, columns) where they are diagonal; kind
              (members,); sizes, lost (draws or 1, kinds, columns): deviations, and see `undetermined`
    """

    rows: Array
    kind: NDArray[np.int64]
    sizes: Array
    lost: Array
    relative: float = 0.0  # the largest error of a covariance, beside the deviations of both members

    @classmethod
    def of(cls, each: Iterable[tuple[Array, Array]]) -> Factor:
        """The factors of covariances, each with its errors averaged over draws: those of one member after another."""
        kinds: list[Array] = []
        kind, relative = list[int](), 0.0
        for cov, error in each:
            if not kinds or not (cov.shape == kinds[-1].shape and np.array_equal(cov, kinds[-1])):
                kinds.append(cov)
                relative = max(relative, relative_error(cov, error))
            kind.append(len(kinds) - 1)
        draws, size = (max((cov.shape[k] for cov in kinds), default=1) for k in (0, 1))
        whole = np.stack([np.broadcast_to(cov, (draws, size, size)) for cov in kinds] or [np.zeros((1, 0, 0))], axis=1)
        diagonal = np.einsum("...ii->...i", whole)
        sizes = np.sqrt(np.maximum(diagonal, 0.0))
        if np.count_nonzero(whole) == np.count_nonzero(diagonal):
            return cls(sizes, np.array(kind, np.int64), sizes, np.zeros((1, *sizes.shape[1:])), relative)
        rows = triangular(whole)
        return cls(rows, np.array(kind, np.int64), sizes, undetermined(whole, rows), relative)

    def at(self, members: NDArray[np.int64] | slice) -> Factor:
        """The factors of some of the members."""
        return replace(self, kind=self.kind[members])

    def errors(self, other: Factor, place: Array, columns: Sequence[Array]) -> Array:
        """What is lost of scores of columns of the members at `place` of two weights, signed like that.

        Shapes    place and each of columns (*positions) -> (draws or 1, *positions)
        """
        (size, lost), (other_size, other_lost) = (
            [array[:, factor.kind[place], column] for array in (factor.sizes, factor.lost)]
            for factor, column in ((self, columns[0]), (other, columns[1]))
        )
        error = np.abs(lost) * other_size + size * np.abs(other_lost)
        return np.asarray(np.where((lost > 0) | (other_lost > 0), error, -error))

    def times(self, block: Array, right: bool = False) -> Array:
        """Factors times normals, or normals times transposed factors, of every draw and member.

        Shapes    block (draws, members, rows, columns)
        """
        rows = self.rows if self.rows.shape[1] == 1 else self.rows[:, self.kind]
        if rows.ndim == 3:
            return np.asarray(block * (rows[:, :, None] if right else rows[..., None]))
        found = np.empty(np.broadcast_shapes(rows.shape[:2], block.shape[:2]) + block.shape[2:])
        for start in range(0, rows.shape[-1], STRIP):  # what stands above the diagonal is not multiplied
            own = slice(start, start + STRIP)
            strip, stop = rows[..., own, : start + STRIP], start + STRIP
            if right:
                np.matmul(block[..., :stop], np.swapaxes(strip, -1, -2), out=found[..., own])
            else:
                np.matmul(strip, block[..., :stop, :], out=found[..., own, :])
        return found


Members = tuple[str, Box]  # of a family of scores
SHOWN = 1e-2  # errors of scores that move a softmax
ROUNDING = 64 * EPS  # of second moments, beside the largest


def dependent(recursion: NumericRecursion, names: Collection[str]) -> list[list[str]]:
    """Families of scores that may depend on each other, because weights make operands of both, group by group.

    Only groups with functions of MatMul outputs; the others are drawn by factors.
    """
    made = []
    for name in (name for name in sorted(names) if name in recursion.summands):
        own = {recursion.parts.source(variable.name) for part in recursion.parts.of(recursion.summands[name])
               for factor in recursion.parts.factors_of(part) for _, variable, _ in factor.inner
               if recursion.netsor.families[variable.name].statements}  # fmt: skip
        made.append((name, own))
    groups = [sorted(name for name, _ in group) for group in connected(made, lambda a, b: not a[1].isdisjoint(b[1]))]
    base = recursion.parts.is_base
    return [group for group in groups
            if not all(base(operand.name) for name in group for operand in recursion.dot(name).inputs)]  # fmt: skip


def relative_error(cov: Array, error: Array) -> float:
    """The largest error of covariances beside the deviations of both members, averaged over draws.

    Below what rounding of the largest does, errors count as that.
    Shapes    cov (draws, *kinds, members, members), error (*kinds, members, members)
    """
    var = np.diagonal(cov, axis1=-2, axis2=-1).sum(axis=0) / max(1, len(cov))
    sizes = np.sqrt(np.maximum(var[..., :, None] * var[..., None, :], TINY))
    each = np.where(error > ROUNDING * np.max(var, initial=0.0), error / sizes, ROUNDING * (error > 0))
    return float(np.max(each, initial=0.0))


def given_before(
    covariance: Callable[[Members, Members], IndexedValues], entry: Members, before: Sequence[Members]
) -> list[Members]:
    """Those drawn before on which some scores may depend."""
    box = entry[1]

    def meets(other: str, held: Box) -> bool:
        moment = covariance(entry, (other, held))
        pairs = enumerate(zip(box, held, strict=False))
        disjoint = [k for k, (one, two) in pairs if one[1] <= two[0] or two[1] <= one[0]]
        return bool(moment.terms) and not any(_apart(moment, k) for k in disjoint)

    return [known for known in before if meets(*known)]


def _apart(moment: IndexedValues, k: int) -> bool:
    """Whether members of two families that differ in a position are independent."""
    same = difference(Affine.index(str(k)), Affine.index(f"{k}_"))
    return all(same in term.equations for term in moment.terms)


Key = tuple[str, ...]
Source = tuple[Key, tuple[int, ...]]
STRIP = 128  # rows of a triangle that are multiplied at once
CHUNK = 1 << 18  # numbers held at once, about, while draws are evaluated


class GivenNormals:
    """Normals of `draws` draws, given as points, source after source.

    Shapes    points (draws, numbers)
    """

    def __init__(self, sources: Sequence[Source], points: Array) -> None:
        self.draws, self._points, start = len(points), points, 0
        self._at: dict[Key, tuple[int, tuple[int, ...]]] = {}
        for key, shape in sources:
            self._at[key] = start, shape
            start += math.prod(shape)

    def of(self, key: Key, places: Array) -> Array:
        """Those of the members at `places` (ascending) of a source.

        Shapes    (draws, places, *rest)
        """
        start, shape = self._at[key]
        block = self._points[:, start : start + math.prod(shape)].reshape(self.draws, *shape)
        return block if len(places) == shape[0] else block[:, places]


class Streams:
    """Normals of block number `number` of the draws with a seed.

    Each source is cut into runs of whole members of about CHUNK numbers, and each run has a stream of its own.  So
    numbers depend on neither what else is read nor in which order, and those of large sources need not be kept.
    """

    def __init__(self, sources: Sequence[Source], draws: int, seed: int, number: int) -> None:
        self.draws, self._seed, self._number = draws, seed, number
        self._at = {key: (position, shape) for position, (key, shape) in enumerate(sources)}

    def of(self, key: Key, places: Array) -> Array:
        """See `GivenNormals.of`."""
        position, (members, *rest) = self._at[key]
        length = max(1, CHUNK // max(1, self.draws * math.prod(rest)))
        runs, run_of = np.unique(places // length, return_inverse=True)
        parts = []
        for run in runs:
            entropy = np.random.SeedSequence(self._seed, spawn_key=(self._number, position, int(run)))
            size = (self.draws, min(length, members - int(run) * length), *rest)
            parts.append(np.random.Generator(np.random.SFC64(entropy)).standard_normal(size))
        none = np.empty((self.draws, 0, *rest))
        block = parts[0] if len(parts) == 1 else np.concatenate([none, *parts], axis=1)
        return block if len(places) == block.shape[1] else block[:, run_of * length + places % length]


class Some:
    """Those of some draws among others, by a slice or by their numbers, which may occur again."""

    def __init__(self, whole: Normals, part: slice | NDArray[np.int64]) -> None:
        self.draws: int = len(np.arange(whole.draws)[part])
        self._whole, self._part = whole, part

    def of(self, key: Key, places: Array) -> Array:
        """See `GivenNormals.of`."""
        return self._whole.of(key, places)[self._part]


Normals: TypeAlias = GivenNormals | Streams | Some
