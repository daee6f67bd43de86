"""`compare`: samples against a law (or other samples), variable by variable, every number with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Printed
from tensorprog.language.averages import average_members
from tensorprog.language.errors import (
    MemoryLimitError,
    NotCompiledError,
    ProgramError,
    UnknownNameError,
    did_you_mean,
)
from tensorprog.language.formats import (
    BRACKETS,
    chance,
    label,
    members,
    name_of,
    one_or_several,
    plain_fields,
    quantity,
    split,
)
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import column, is_samples, samples_of
from tensorprog.results.conditional import gaussians
from tensorprog.results.distances import Number, distances, kolmogorov, moments, tied
from tensorprog.results.reference import LawCurve, Reference

__all__ = ["AVERAGED", "HEADINGS", "Comparison", "Row", "compare", "table_of_widths", "z_score"]

Array = NDArray[Any]

MAX_MEMBERS = 64  # members of one family for which distances are computed unless they are named
HEADINGS = {  # of the columns of tables, by field
    "mean": "mean",
    "variance": "variance",
    "kurtosis": "kurtosis",
    "ks": "KS",
    "ks_p": "p",
    "kl": "KL",
    "kl_floor": "KL floor",
    "kl_precise": "precise KL",
}
COMPARED, AVERAGED = tuple(HEADINGS)[1:], ("mean", "variance", "ks", "ks_p")  # of outputs, and of averages
ROUNDING = 1e-10  # of numbers that have no error
_NAN = float("nan")


@dataclass(frozen=True)
class Row:
    """One variable: its statistics, those of the reference, and the distances; nan where a number does not exist.

    `samples` counts networks.  Averages (1/n) sum_a psi stand beside draws of E[psi | p-ring], and have no KL.
    """

    variable: str
    samples: int
    mean: float
    mean_se: float
    variance: float
    variance_se: float
    kurtosis: float
    kurtosis_se: float
    limit_mean: float = _NAN
    limit_mean_error: float = _NAN
    limit_variance: float = _NAN
    limit_variance_error: float = _NAN
    limit_kurtosis: float = _NAN
    limit_kurtosis_error: float = _NAN
    z_mean: float = _NAN
    z_variance: float = _NAN
    z_kurtosis: float = _NAN
    ks: float = _NAN
    ks_se: float = _NAN
    ks_p: float = _NAN
    ks_floor: float = _NAN
    kl: float = _NAN
    kl_se: float = _NAN
    kl_floor: float = _NAN
    kl_method: str = "kde"
    kl_precise: float = _NAN
    kl_precise_se: float = _NAN

    def cells(self, names: Iterable[str]) -> list[str]:
        """Numbers by name as text, each with its standard error if it has one."""
        return [
            chance(self.ks_p) if name == "ks_p" else quantity(getattr(self, name), getattr(self, f"{name}_se", _NAN))
            for name in names
        ]

    def limit_cells(self, names: Iterable[str]) -> list[str]:
        """The same of the limit, with its errors; empty where the limit has no such number."""
        known = ("mean", "variance", "kurtosis")
        return [
            quantity(getattr(self, f"limit_{name}"), getattr(self, f"limit_{name}_error")) if name in known else ""
            for name in names
        ]

    to_json = plain_fields


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """Samples against a law (or other samples), one row per variable, and one per average in `averages`.

    Moments pool the coordinates of each network, and their errors count networks; distances take the first coordinate.
    """

    rows: tuple[Row, ...]
    width: int | None
    reference: str  # "limit", "samples" or "nothing"
    program: str = ""
    averages: tuple[Row, ...] = ()

    def __getitem__(self, variable: str) -> Row:
        rows = {row.variable: row for row in (*self.rows, *self.averages)}
        if (name := name_of(variable)) in rows:
            return rows[name]
        raise UnknownNameError(f"{variable} was not compared; {did_you_mean(name, list(rows))}")

    to_json = plain_fields

    @property
    def title(self) -> str:
        """What is compared with what."""
        subject = f"{self.program or 'samples'}{f' at n = {self.width}' if self.width else ''}"
        against = {"limit": " against its limit", "samples": " against other samples"}
        return subject + against.get(self.reference, "")

    def blocks(self) -> list[Block]:
        """The table of the variables, the row of the limit below each, and that of the averages."""
        against = {"limit": "limit", "samples": "others"}.get(self.reference, "")
        shown: list[Block] = []
        for rows, names in ((self.rows, COMPARED), (self.averages, AVERAGED)):
            if rows:
                variables, count = [row.variable for row in rows], f"; {rows[0].samples:,} networks"
                shown.append(table_of_widths(self.title, [self], variables, against, names, further=count))
        return shown or [paragraph(self.title)]


def table_of_widths(
    title: str,
    comparisons: Sequence[Comparison],
    variables: Sequence[str],
    against: str = "limit",
    names: Sequence[str] = COMPARED,
    first_orders: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
    further: str = "",
) -> Grid:
    """The table of variables at each width, with the row of what they are compared with, `against` ("" for nothing).

    `first_orders` are those of limit + a/n by variable and quantity, with their errors.
    """
    first_orders = first_orders if first_orders and against else {}
    precise = any(math.isfinite(c[variable].kl_precise) for c in comparisons for variable in variables)
    own = ("mean", "variance", "kurtosis")
    names = [name for name in names if (precise or name != "kl_precise") and (against or name in own)]
    rows: list[tuple[str, ...]] = []
    marked, sections = [], []
    for variable in variables:
        found = [(comparison.width, comparison[variable]) for comparison in comparisons]
        for k, (width, row) in enumerate(found):
            rows.append(("" if k else variable, str(width or ""), *row.cells(names)))
        if against and found:
            marked.append(len(rows))
            rows.append(("", against, *found[0][1].limit_cells(names)))
        if first := first_orders.get(variable):
            rows.append(("", "a", *(quantity(*first[name]) if name in first else "" for name in names)))
        sections.append(len(rows) - 1)
    note = BRACKETS + (f" (for the {against}: its error)" if against else "")
    note += "; KL in nats (the paper's estimator)" if "kl" in names else ""
    note += "; precise KL: of the densities themselves, without a floor" if precise else ""
    note += "; a: limit + a/n to first order in 1/n, an asymptotic expansion, not a bound" if first_orders else ""
    header = ("output", "n", *(HEADINGS[name] for name in names))
    return Grid(title, header, tuple(rows), note + further, tuple(marked), sections=tuple(sections[:-1]))


def compare(samples: Any, law: Any, variables: str | Iterable[str] | None = None) -> Comparison:
    """Compare samples with a law, or with other samples, variable by variable.

    `variables` are members ("y[0]") or families ("y") or averages ("m"); by default the outputs, of large families the
    first 64 members, and all averages that the samples have.
    Without a law (None) only the moments are there.  With several coordinates per network moments are those of all of
    them, with errors that allow for their dependence, and distances those of the first.

    Accuracy  standard errors by the delta method (moments, KS) and a bootstrap (KL); p-values for a
              reference known exactly.  `kl_precise`: samples drawn with `conditional=True`,
              see `tensorprog.results.divergence`
    Source    KL: Sakai et al. 2025 (arXiv 2506.00846), Sec. 5.1 and its scripts, with the law's own density as the
              second argument where the law has one
    """
    two_samples = is_samples(law)
    samples_of(samples, "compare takes samples first, then a law or other samples")
    against = law if two_samples or law is None else Reference.of(law, "compare takes a law or samples second")
    netsor: Netsor = samples.netsor
    if law is not None and netsor != law.netsor:
        raise ProgramError("the samples and what they are compared with belong to different programs")
    chosen = None if variables is None else one_or_several(variables, name_of)
    means = [name for name in samples.averages if chosen is None or name in chosen]
    wanted, rows = list[tuple[str, int, str]](), list[Row]()
    for variable in samples.outputs if chosen is None else [name for name in chosen if name not in means]:
        family = netsor.families.get(variable)
        if family is not None and family.kind != "weight":  # a whole family
            index = members(netsor, variable, MAX_MEMBERS if chosen is None else None)
            wanted += [(variable, k, label(variable, at)) for k, at in enumerate(index)]
        else:
            wanted.append((*split(netsor, variable), variable))
    for number, (name, position, variable) in enumerate(wanted):
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(0, spawn_key=(number,))))
        rows.append(_row(samples, against, name, position, variable, rng))
    kind = "nothing" if law is None else "samples" if two_samples else "limit"
    averages = tuple(row for name in means for row in _average_rows(samples, against, name))
    return Comparison(tuple(rows), samples.width, kind, netsor.name, averages)


def _average_rows(samples: Any, against: Any, name: str) -> Iterator[Row]:
    values, other = samples.averages[name], None
    if isinstance(against, Reference):
        with suppress(NotCompiledError, MemoryLimitError):  # then there is no limit to compare with
            other = against.averages(samples.psi, len(values))[name]
    elif against is not None and against.psi == samples.psi:
        other = against.averages[name]
    index = average_members(samples.netsor, samples.psi, name)[:MAX_MEMBERS]
    for place, member in zip(np.ndindex(values.shape[1:]), index, strict=False):
        x = np.asarray(values[(slice(None), *place)], dtype=np.float64)
        target, found = dict[str, Number](), dict[str, Any]()
        if other is not None:
            y = np.asarray(other[(slice(None), *place)], dtype=np.float64)
            target, found = moments(y[:, None]), kolmogorov(x, y)
        yield Row(label(name, member), len(x), **_statistics(moments(x[:, None]), target), **found)


def _statistics(own: Mapping[str, Number], target: Mapping[str, Number]) -> dict[str, Any]:
    """Moments and those of the reference, with errors, as fields of a row."""
    found: dict[str, float] = {}
    for key, (value, error) in own.items():
        limit, limit_error = target.get(key, (_NAN, _NAN))
        found |= {key: value, f"{key}_se": error, f"limit_{key}": limit, f"limit_{key}_error": limit_error}
        found[f"z_{key}"] = z_score((value, error), (limit, limit_error))
    return found


def z_score(own: Number, target: Number) -> float:
    """The difference of two numbers in units of their errors and of rounding."""
    (value, error), (limit, limit_error) = own, target
    scale = math.hypot(error, limit_error if limit_error >= 0 else 0.0, ROUNDING * abs(limit))
    return (value - limit) / scale if scale > 0 else (0.0 if value == limit else _NAN)


def _row(samples: Any, against: Any, name: str, position: int, variable: str, rng: np.random.Generator) -> Row:
    values = column(samples, name, position)
    own, x = moments(values), values[:, 0]
    given = name in samples.conditional and samples.samples > 1
    if given:  # the law N(m, V) of every network says it with far less noise than y
        better = moments(*gaussians(samples, name, position))
        own |= {key: better[key] for key in ("variance", "kurtosis") if better["variance"][0] > 0}
    target: dict[str, Number] = {}
    other: LawCurve | Array | None = None
    method, precise = "kde", (_NAN, _NAN)
    if isinstance(against, Reference):
        with suppress(NotCompiledError, MemoryLimitError):  # the law has no such numbers
            target = against.numbers(name, position)
        if target:
            curve = None if tied(x) else against.curve(variable, float(x.min()), float(x.max()))
            other = curve if curve is not None and curve.distribution is not None else None
        if target and given:
            from tensorprog.results.divergence import kl  # which loads the limit

            with suppress(NotCompiledError, MemoryLimitError):
                precise = kl(samples, against, variable)
        if target and other is None and target["variance"][0] > 0:
            # no density, or not only one: draw as many from the law and smooth both, as the paper does
            draws = against.law.sample(min(len(x), 200_000), seed=1, keep=(name,))
            other, method = column(draws, name, position)[:, 0], "kde of both"
    elif against is not None:
        others = column(against, name, position)
        target, other, method = moments(others), others[:, 0], "kde of both"
    found = distances(x, other, rng) if other is not None and len(x) > 1 else {}
    return Row(variable, len(x), **_statistics(own, target), **found, kl_method=method,
               kl_precise=precise[0], kl_precise_se=precise[1])  # fmt: skip
