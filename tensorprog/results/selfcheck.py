"""A law against its own draws: every number it states beside one that was found without it.

The numbers of a law come from averages over the scores by rules that choose their nodes; its draws come from random
numbers.  So a rule that misses a spike is seen here.  What is compared is what `compare(law.sample(N), law)` compares,
and covariances:

    z = (|difference| - stated error, if that is positive) / hypot(standard error, stated error / t)

with the sign of the difference, and t the number of standard errors that a stated error is (`gaussian.several`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.blocks.text import to_text
from tensorprog.gaussian.several import deviations
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, check_count
from tensorprog.language.formats import BRACKETS, label, members, plain_fields, quantity, split
from tensorprog.language.samples import Samples, column
from tensorprog.results.comparison import Row, compare
from tensorprog.results.distances import moments_of_one
from tensorprog.results.reference import Reference

if TYPE_CHECKING:
    from tensorprog.limit.law.law import NumericLaw

__all__ = ["CHANCE", "LawCheck", "LawRow", "check_law"]

Array = NDArray[Any]
Number = tuple[float, float]
CHANCE = 1e-6  # that a right law has any |z| above the threshold
MEMBERS = 6  # of each family that are compared, spread over it
LARGEST = 4096  # members of a family of scores that is compared
HEAVY = 8.0  # kurtosis above which that of draws has no normal law
ROUNDING = 1e-10  # relative to the size of a variable


@dataclass(frozen=True)
class LawRow:
    """One number of a law beside the same from its draws; `z` in standard errors.

    `kind` is "mean", "variance", "kurtosis", "covariance" or "distribution".
    """

    quantity: str
    kind: str
    family: str
    value: float
    error: float
    other: float
    se: float
    z: float

    to_json = plain_fields


@dataclass(frozen=True, repr=False)
class LawCheck(Shown):
    """The comparisons of `Law.check`, all of them in `rows`; `missing` says what the law does not offer.

    `threshold` is the |z| that any comparison exceeds with a probability of one in a million if the law is right.
    """

    program: str
    rows: tuple[LawRow, ...]
    samples: int
    seed: int
    missing: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        """The |z| from which a number counts as contradicted."""
        from scipy.special import ndtri

        return float(-ndtri(CHANCE / (2 * max(1, len(self.rows)))))

    @property
    def contradicted(self) -> tuple[LawRow, ...]:
        """The comparisons beyond the threshold, the worst first."""
        return tuple(row for row in sorted(self.rows, key=lambda row: -abs(row.z)) if abs(row.z) > self.threshold)

    @property
    def agrees(self) -> bool:
        """Whether no comparison is beyond the threshold."""
        return not self.contradicted

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        count = f"{len(self.rows)} numbers compared with {self.samples:,} draws"
        if self.agrees:
            return f"{count}: no |z| above {self.threshold:.1f}; the law agrees with them"
        return f"{count}: {len(self.contradicted)} have |z| above {self.threshold:.1f}; the law contradicts them"

    def blocks(self) -> list[Block]:
        """The largest disagreement of each kind of number, those beyond the threshold marked; then the outcome."""
        wrong = self.contradicted
        worst = {(row.family, row.kind): row for row in sorted(self.rows, key=lambda row: abs(row.z))}
        rows = [*dict.fromkeys((*wrong, *worst.values()))]
        cells = tuple(
            (row.quantity, quantity(row.value, row.error), quantity(row.other, row.se), f"{row.z:.1f}") for row in rows
        )
        notes = [f"of each kind of number that with the largest |z|; {len(self.rows) - len(rows)} others are smaller"]
        notes += [*(f"not compared: {text}" for text in self.missing), f"{BRACKETS} (of the law: its stated error)"]
        title, header = f"{self.program}: the limit against its own draws", ("quantity", "law", "draws", "z")
        return [Grid(title, header, cells, "; ".join(notes), tuple(range(len(wrong)))), paragraph(self.verdict)]

    def __str__(self) -> str:
        return to_text(self.blocks())

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """All rows as dictionaries, with the threshold and whether the law agrees."""
        known = {name: getattr(self, name) for name in ("program", "samples", "seed", "threshold", "agrees")}
        return known | {"missing": list(self.missing), "rows": [row.to_json() for row in self.rows]}


def check_law(law: NumericLaw, samples: int = 2**16, seed: int = 0) -> LawCheck:
    """What `Law.check` gives."""
    samples, seed = check_count("samples", samples, 2), check_count("seed", seed, 0)
    missing: list[str] = []
    rows = tuple(_rows(law, law.sample(samples, seed=seed), missing))
    return LawCheck(law.netsor.name, rows, samples, seed, tuple(missing))


def _rows(law: NumericLaw, drawn: Samples, missing: list[str]) -> Iterator[LawRow]:
    reference, netsor = Reference(law), law.netsor
    columns: dict[str, dict[str, Array]] = {}  # centred draws by family and variable
    for name in (*law.outputs, *law.scores):
        every = members(netsor, name, LARGEST + 1)
        if len(every) > LARGEST and name in law.scores:
            missing.append(f"{name}, which has more than {LARGEST} members")
            continue
        try:
            reference.moments(name)
        except (NotCompiledError, MemoryLimitError) as reason:
            missing.append(f"{name}: {reason}")
            continue
        places = np.unique(np.linspace(0, len(every) - 1, MEMBERS).astype(int))
        columns[name] = {}
        for row in compare(drawn, reference, [label(name, every[k]) for k in places]).rows:
            values = column(drawn, *split(netsor, row.variable))
            columns[name][row.variable] = values - values.mean()
            yield from _of_one(reference, name, row)
    for one, two in ((one, two) for one in columns for two in columns if one <= two):
        shape = [math.prod(netsor.families[name].shape) for name in (one, two)]
        if (one != two and not {one, two} <= set(law.outputs)) or math.prod(shape) > LARGEST**2 // 16:
            continue
        try:
            matrix, wrong = (np.reshape(part, shape) for part in law.cov(one, two, with_error=True))
        except (NotCompiledError, MemoryLimitError) as reason:
            missing.append(f"the covariance of {one} and {two}: {reason}")
            continue
        for first, x in columns[one].items():
            for second, y in columns[two].items():
                if one != two or first < second:
                    at = split(netsor, first)[1], split(netsor, second)[1]
                    found = moments_of_one(x * y)["mean"]
                    stated = float(matrix[at]), float(wrong[at])
                    z = _score(stated, found, ROUNDING * float(x.std() * y.std()))
                    yield LawRow(f"cov({first}, {second})", "covariance", one, *stated, *found, z)


def _of_one(reference: Reference, name: str, row: Row) -> Iterator[LawRow]:
    from scipy.special import ndtri

    stated = reference.numbers(name, split(reference.netsor, row.variable)[1])
    size = math.hypot(stated["mean"][0], math.sqrt(max(0.0, stated["variance"][0])))
    for kind, power in (("mean", 1), ("variance", 2), ("kurtosis", 0)):
        if kind != "kurtosis" or (row.variance > (ROUNDING * size) ** 2 and not stated[kind][0] > HEAVY):
            found = getattr(row, kind), getattr(row, f"{kind}_se")
            z = _score(stated[kind], found, ROUNDING * size**power)
            yield LawRow(f"{kind} {row.variable}", kind, name, *stated[kind], *found, z)
    if math.isfinite(row.ks):
        z = float(-ndtri(max(row.ks_p, 1e-300) / 2))
        yield LawRow(f"KS {row.variable}", "distribution", name, 0.0, 0.0, row.ks, row.ks_floor, z)


def _score(stated: Number, found: Number, rounding: float) -> float:
    """By how many standard errors two numbers differ beyond the stated error; infinite if one is not a number."""
    value, error, other, se = *stated, *found
    if math.isinf(value) or math.isinf(error):
        return 0.0  # nothing that a finite number of draws contradicts
    excess = abs(other - value) - error - rounding
    scale = math.hypot(se, error / deviations())
    if excess <= 0:
        return 0.0
    z = excess / scale if scale > 0 else math.inf
    return math.inf if math.isnan(z) else math.copysign(z, other - value)
