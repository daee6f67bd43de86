"""A law against its own draws: every number it states beside one that was found without it.

The numbers of a law come from averages over the scores by rules that choose their nodes; its draws come from random
numbers.  So a rule that misses a spike is seen here.  What is compared is what `compare(law.sample(N), law)` compares,
and covariances: z is the difference over hypot(standard error, stated error).  As a stated error is some four standard
errors, a right law exceeds a threshold more rarely than z of a normal law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Printed
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, check_count
from tensorprog.language.formats import BRACKETS, label, members, plain_fields, quantity
from tensorprog.language.samples import Samples, column
from tensorprog.results.comparison import compare, z_score
from tensorprog.results.distances import moments
from tensorprog.results.reference import Reference

if TYPE_CHECKING:
    from tensorprog.limit.law.law import NumericLaw

__all__ = ["CHANCE", "LawCheck", "LawRow", "check_law"]

Array = NDArray[Any]
Number = tuple[float, float]
CHANCE = 1e-6  # that a right law has any |z| above the threshold
MEMBERS = 6  # of each family that are compared, spread over it
LARGEST = 1024  # members of a family that is compared
HEAVY = 8.0  # kurtosis above which that of draws has no normal law
SHOWN = 8  # comparisons in a table, at least


@dataclass(frozen=True)
class LawRow:
    """One number of a law beside the same from its draws; `z` in standard errors.

    `kind` is "mean", "variance", "kurtosis", "covariance" or "distribution".
    """

    quantity: str
    kind: str
    value: float
    error: float
    other: float
    se: float
    z: float


@dataclass(frozen=True, repr=False)
class LawCheck(Printed):
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
        found = f"{wrong} have" if (wrong := len(self.contradicted)) else "no"
        said = "the law contradicts them" if wrong else "the law agrees with them"
        head = f"{len(self.rows)} numbers compared with {self.samples:,} draws"
        return f"{head}: {found} |z| above {self.threshold:.1f}; {said}"

    def blocks(self) -> list[Block]:
        """The largest disagreements, those beyond the threshold marked; then the outcome."""
        wrong = self.contradicted
        rows = sorted(self.rows, key=lambda row: -abs(row.z))[: max(SHOWN, len(wrong))]
        cells = tuple(
            (row.quantity, quantity(row.value, row.error), quantity(row.other, row.se), f"{row.z:.1f}") for row in rows
        )
        notes = [f"the largest |z|; {len(self.rows) - len(rows)} others are smaller"]
        notes += [*(f"not compared: {text}" for text in self.missing), f"{BRACKETS} (of the law: its stated error)"]
        title, header = f"{self.program}: the limit against its own draws", ("quantity", "law", "draws", "z")
        return [Grid(title, header, cells, "; ".join(notes), tuple(range(len(wrong)))), paragraph(self.verdict)]

    def to_json(self) -> dict[str, Any]:
        """All rows as dictionaries, with the threshold and whether the law agrees."""
        return plain_fields(self) | {"threshold": self.threshold, "agrees": self.agrees}


def check_law(law: NumericLaw, samples: int = 2**16, seed: int = 0) -> LawCheck:
    """What `Law.check` gives."""
    samples, seed = check_count("samples", samples, 2), check_count("seed", seed, 0)
    rows, missing = list[LawRow](), list[str]()
    drawn, reference = law.sample(samples, seed=seed), Reference(law)
    for name in (*law.outputs, *law.scores):
        size = math.prod(law.netsor.families[name].shape)
        if size > LARGEST:
            missing.append(f"{name}, which has more than {LARGEST} members")
            continue
        try:
            reference.moments(name)
            rows += _of_family(reference, drawn, name, np.unique(np.linspace(0, size - 1, MEMBERS).astype(int)))
        except (NotCompiledError, MemoryLimitError) as reason:
            missing.append(f"{name}: {reason}")
    return LawCheck(law.netsor.name, tuple(rows), samples, seed, tuple(missing))


def _of_family(reference: Reference, drawn: Samples, name: str, places: Array) -> Iterator[LawRow]:
    """Moments and distributions of some members of a family, and their covariances."""
    from scipy.special import ndtri

    index = members(reference.netsor, name)
    rows = compare(drawn, reference, [label(name, index[k]) for k in places]).rows
    for row in rows:
        for kind in ("mean", "variance", "kurtosis"):
            pair = getattr(row, f"limit_{kind}"), getattr(row, f"limit_{kind}_error")
            z = getattr(row, f"z_{kind}")
            if math.isfinite(z) and not (kind == "kurtosis" and pair[0] > HEAVY):
                found = getattr(row, kind), getattr(row, f"{kind}_se")
                yield LawRow(f"{kind} {row.variable}", kind, *pair, *found, z)
        if math.isfinite(row.ks):
            z = float(-ndtri(max(row.ks_p, 1e-300) / 2))
            yield LawRow(f"KS {row.variable}", "distribution", 0.0, 0.0, row.ks, row.ks_floor, z)
    if len(index) == 1:
        return
    matrix, wrong = reference.covariance(name)
    draws = [x - x.mean() for x in (column(drawn, name, place) for place in places)]
    for j, k in combinations(range(len(places)), 2):
        at, x, y = (places[j], places[k]), draws[j], draws[k]
        pair, found = (float(matrix[at]), float(wrong[at])), moments(x * y)["mean"]
        yield LawRow(f"cov({rows[j].variable}, {rows[k].variable})", "covariance", *pair, *found, z_score(found, pair))
