"""Joint draws of scores whose covariances are known as numbers: those of functions of MatMul outputs.

Products of MatMul outputs are drawn by the factors of their inputs (`layers`).  Of functions of such only
the covariance E[Z^u Z^v Z^u' Z^v'] is known, and a factor of it draws all that depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY
from tensorprog.language.arrows import connected
from tensorprog.language.evaluate import BATCH, Open
from tensorprog.language.expr import Affine
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.memory import need
from tensorprog.limit.moment.indexed import difference
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import REPLICATE, IndexedValues

__all__ = ["ROUNDING", "CovarianceOfScores", "Members", "dependent", "given_before", "relative_error"]

Array = NDArray[Any]
ROUNDING = 64 * EPS  # of second moments, beside the largest


class Members(NamedTuple):
    """The members of a family of scores in a box."""

    name: str
    box: Box


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


class CovarianceOfScores:
    """The covariance of some scores, one block for each value of the `independent` positions.

    Members that differ in one of these are independent.

    Shapes    cov (draws or 1, lead, members, members), members those of one family after those of the other; `wrong`,
              its errors averaged over the draws, (lead, members, members)
    """

    def __init__(self, recursion: NumericRecursion, entries: Sequence[Members], draws: int = 0) -> None:
        moments = {(k, m): recursion.score(f.name, g.name)
                   for k, f in enumerate(entries) for m, g in enumerate(entries)}  # fmt: skip
        if all(REPLICATE not in term.value.axes for moment in moments.values() for term in moment.terms):
            draws = 0  # one covariance for all
        self.entries, first = tuple(entries), entries[0].box
        self.independent = tuple(
            k for k, span in enumerate(first)
            if all(len(entry.box) > k and entry.box[k] == span for entry in entries)
            and all(_apart(moment, k) for moment in moments.values())
        )  # fmt: skip
        self.lead = math.prod(first[k][1] - first[k][0] for k in self.independent)
        sizes = [self._size(entry.box) for entry in entries]
        self.offsets = np.cumsum([0, *sizes])
        names = ", ".join(dict.fromkeys(entry.name for entry in entries))
        total = int(self.offsets[-1])
        need(
            6 * max(draws, 1) * self.lead * total**2,
            f"factoring the covariance of {total} scores ({names}) that depend on each other",
        )
        self.cov = np.zeros((max(draws, 1), self.lead, total, total))
        self.wrong = np.zeros(self.cov.shape[1:])
        batch = {REPLICATE: np.arange(draws)[:, None, None, None]} if draws else {}
        for (k, m), moment in moments.items():
            places = self._places(entries[k].box, "", 0) | self._places(entries[m].box, "_", 1)
            found = moment.at({**places, **batch})
            rows, columns = (slice(self.offsets[n], self.offsets[n + 1]) for n in (k, m))
            there = self.cov[..., rows, columns]
            there[...] = found.value
            self.wrong[..., rows, columns] = np.broadcast_to(found.error, there.shape).mean(axis=0)
        self.error = relative_error(self.cov, self.wrong)
        if self.lead > 1 and np.all(self.cov == self.cov[:, :1]):
            self.cov = self.cov[:, :1]

    def _size(self, box: Box) -> int:
        return math.prod(stop - start for k, (start, stop) in enumerate(box) if k not in self.independent)

    def _places(self, box: Box, copy: str, axis: int) -> dict[str, Array]:
        """Index values of all members: independent positions along axis 1, the others along axis 2 or 3."""
        found = {}
        others = tuple(k for k in range(len(box)) if k not in self.independent)
        for group, along in ((self.independent, 1), (others, 2 + axis)):
            sizes = [box[k][1] - box[k][0] for k in group]
            rows = np.indices(sizes).reshape(len(group), math.prod(sizes))
            for k, row in zip(group, rows, strict=True):
                shape = [1, 1, 1, 1]
                shape[along] = row.size
                found[f"{k}{copy}"] = (box[k][0] + row).reshape(shape)
        return found

    def members(self, drawn: Array, number: int) -> Open:
        """One of the entries, from draws of the members of all.

        Shapes    drawn (draws, lead, members) -> over BATCH and the positions
        """
        box = self.entries[number].box
        order = [*self.independent, *(k for k in range(len(box)) if k not in self.independent)]
        part = drawn[..., self.offsets[number] : self.offsets[number + 1]]
        data = part.reshape(len(drawn), *(box[k][1] - box[k][0] for k in order))
        back = [1 + order.index(k) for k in range(len(box))]
        return Open((BATCH, *(str(k) for k in range(len(box)))), np.transpose(data, (0, *back)))

    def normals(self, given: Array, number: int) -> Array:
        """The normals of one of the entries, given over its members in C order, as they are multiplied.

        Shapes    given (draws, members) -> (draws, lead, members)
        """
        box = self.entries[number].box
        whole = given.reshape(len(given), *(stop - start for start, stop in box))
        order = [*self.independent, *(k for k in range(len(box)) if k not in self.independent)]
        return np.transpose(whole, (0, *(1 + k for k in order))).reshape(len(given), self.lead, self._size(box))


def relative_error(cov: Array, error: Array) -> float:
    """The largest error of covariances beside the deviations of both members, averaged over draws.

    Below what rounding of the largest does, errors count as that.
    Shapes    cov (draws, lead, members, members), error (lead, members, members)
    """
    var = np.diagonal(cov, axis1=2, axis2=3).sum(axis=0) / max(1, len(cov))
    sizes = np.sqrt(np.maximum(var[:, :, None] * var[:, None, :], TINY))
    each = np.where(error > ROUNDING * np.max(var, initial=0.0), error / sizes, ROUNDING * (error > 0))
    return float(np.max(each, initial=0.0))


def given_before(recursion: NumericRecursion, entry: Members, before: Sequence[Members]) -> list[Members]:
    """Those drawn before on which some scores may depend."""

    def meets(other: Members) -> bool:
        moment = recursion.score(entry.name, other.name)
        disjoint = [k for k, (one, two) in enumerate(zip(entry.box, other.box, strict=False))
                    if one[1] <= two[0] or two[1] <= one[0]]  # fmt: skip
        return bool(moment.terms) and not any(_apart(moment, k) for k in disjoint)

    return [other for other in before if meets(other)]


def _apart(moment: IndexedValues, k: int) -> bool:
    """Whether members of two families that differ in a position are independent."""
    same = difference(Affine.index(str(k)), Affine.index(f"{k}_"))
    return all(same in term.equations for term in moment.terms)
