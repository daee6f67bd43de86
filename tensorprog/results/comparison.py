"""`compare`: samples against a law (or other samples), variable by variable, every number with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.blocks.text import to_text
from tensorprog.language.averages import average_members
from tensorprog.language.errors import (
    MemoryLimitError,
    NotCompiledError,
    ProgramError,
    did_you_mean,
    need_package,
    need_xarray,
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
    short,
    split,
)
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import column, is_samples, samples_of
from tensorprog.results.conditional import gaussians
from tensorprog.results.distances import Number, distances, effective_size, kolmogorov, moments_of_one, tied
from tensorprog.results.reference import LawCurve, Reference

__all__ = ["HEADINGS", "AverageRow", "Comparison", "Row", "compare", "grouped", "table_of_widths"]

Array = NDArray[Any]

MAX_MEMBERS = 64  # members of one family for which distances are computed unless they are named
HEADINGS = {  # of the columns of tables, by field
    "variance": "variance",
    "kurtosis": "kurtosis",
    "ks": "KS",
    "ks_p": "p",
    "kl": "KL",
    "kl_floor": "KL floor",
    "kl_precise": "precise KL",
}
_NAN = float("nan")


@dataclass(frozen=True)
class Row:
    """One variable: its statistics, those of the reference, and the distances; nan where a number does not exist.

    `samples` counts networks; `effective` independent draws, between samples and samples * coordinates.
    """

    variable: str
    samples: int
    effective: float
    mean: float
    mean_se: float
    variance: float
    variance_se: float
    kurtosis: float
    kurtosis_se: float
    limit_mean: float = _NAN
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
        known = {
            "variance": (self.limit_variance, self.limit_variance_error),
            "kurtosis": (self.limit_kurtosis, self.limit_kurtosis_error),
        }
        return [quantity(*known[name]) if name in known else "" for name in names]

    to_json = plain_fields


@dataclass(frozen=True)
class AverageRow:
    """One average (1/n) sum_a psi over networks, beside E[psi | p-ring] over draws of the limit.

    `ks` is the two-sample distance of the two; nan where the limit is a number, or there is none.
    """

    average: str
    samples: int
    mean: float
    se: float
    std: float
    std_se: float
    limit_mean: float = _NAN
    limit_se: float = _NAN
    limit_std: float = _NAN
    limit_std_se: float = _NAN
    limit_draws: int = 0
    z_mean: float = _NAN
    ks: float = _NAN
    ks_pvalue: float = _NAN

    def cells(self) -> list[str]:
        """Mean, standard deviation, KS distance and its p-value as text."""
        return [quantity(self.mean, self.se), quantity(self.std, self.std_se), short(self.ks), chance(self.ks_pvalue)]

    def limit_cells(self) -> list[str]:
        """The mean and standard deviation of the limit."""
        return [quantity(self.limit_mean, self.limit_se), quantity(self.limit_std, self.limit_std_se), "", ""]

    to_json = plain_fields


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Samples against a law (or other samples), one row per variable.

    Coordinates of one network are pooled; every error counts networks as the independent unit (see `effective_size`).
    """

    rows: tuple[Row, ...]
    width: int | None
    reference: str  # "limit", "samples" or "nothing"
    program: str = ""
    averages: tuple[AverageRow, ...] = ()

    def __getitem__(self, variable: str) -> Row:
        rows = {row.variable: row for row in self.rows}
        if (name := name_of(variable)) in rows:
            return rows[name]
        raise ProgramError(f"{variable} was not compared; {did_you_mean(variable, list(rows))}")

    def to_json(self) -> dict[str, Any]:
        """Rows as dictionaries, with what was compared."""
        return {
            "program": self.program,
            "width": self.width,
            "reference": self.reference,
            "rows": [row.to_json() for row in self.rows],
            "averages": [row.to_json() for row in self.averages],
        }

    def average(self, name: str) -> AverageRow:
        """The row of an average such as "m" or "m[0]"."""
        rows = {row.average: row for row in self.averages}
        if (wanted := name_of(name)) in rows:
            return rows[wanted]
        raise ProgramError(f"{name} is not an average that was compared; {did_you_mean(name, list(rows))}")

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells as text, the row of the limit below each variable."""
        grid = self._grid()
        return list(grid.header), [list(row) for row in grid.rows]

    def _grid(self) -> Grid:
        against = {"limit": "limit", "samples": "others"}.get(self.reference, "")
        return table_of_widths(
            self.title,
            [self],
            [row.variable for row in self.rows],
            bool(against),
            further=f"; {self.rows[0].samples:,} networks" if self.rows else "",
            against=against,
        )

    def average_table(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells of the averages as text."""
        header = ["average", "networks", "mean", "sd", "limit mean", "limit sd", "KS", "p"]
        return header, [
            [row.average, str(row.samples), *row.cells()[:2], *row.limit_cells()[:2], *row.cells()[2:]]
            for row in self.averages
        ]

    @property
    def title(self) -> str:
        """What is compared with what."""
        subject = f"{self.program or 'samples'}{f' at n = {self.width}' if self.width else ''}"
        against = {"limit": " against its limit", "samples": " against other samples"}
        return subject + against.get(self.reference, "")

    def blocks(self) -> list[Block]:
        """The table of the variables, and that of the averages, below what is compared with what."""
        shown: list[Block] = [self._grid()] if self.rows else []
        if self.averages:
            header, cells = self.average_table()
            shown.append(Grid("" if shown else self.title, tuple(header), tuple(map(tuple, cells)), BRACKETS))
        return shown or [paragraph(self.title)]

    def to_dataframe(self) -> Any:
        """All numbers of the variables as a pandas.DataFrame, one row for each; averages are in `averages`.

        Raises    TensorprogError where pandas is not installed
        """
        pandas = need_package("pandas", "tables of comparisons", "sweep")
        return pandas.DataFrame([vars(row) for row in self.rows], columns=[f.name for f in fields(Row)]).set_index(
            "variable"
        )

    def to_xarray(self) -> Any:
        """The same as an xarray.Dataset over the axis `variable`.

        Raises    TensorprogError where xarray is not installed
        """
        need_xarray("labelled comparisons")
        attributes = {"title": self.title, "program_name": self.program, "reference": self.reference}
        width = {} if self.width is None else {"width": self.width}
        return self.to_dataframe().to_xarray().assign_attrs(attributes | width)

    def __str__(self) -> str:
        return to_text(self.blocks())

    __repr__ = __str__


def table_of_widths(
    title: str,
    comparisons: Sequence[Comparison],
    variables: Sequence[str],
    limited: bool,
    first_orders: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
    further: str = "",
    against: str = "limit",
) -> Grid:
    """The table of variables at each width, with the row of what they are compared with if `limited`.

    `first_orders` are those of limit + a/n by variable and quantity, with their errors.
    """
    orders = first_orders or {}
    precise = any(math.isfinite(c[variable].kl_precise) for c in comparisons for variable in variables)
    names = [name for name in HEADINGS if precise or name != "kl_precise"] if limited else ["variance", "kurtosis"]
    groups = {}
    for variable in variables:
        rows = [(c, c[variable]) for c in comparisons]
        first = orders.get(variable) if limited and rows else None
        groups[variable] = (
            [[str(c.width or ""), *row.cells(names)] for c, row in rows],
            [against, *rows[0][1].limit_cells(names)] if limited and rows else [],
            ["a", *(quantity(*first[name]) if name in first else "" for name in names)] if first else [],
        )
    note = BRACKETS + (f" (for the {against}: its error); KL in nats" if limited else "")
    note += " (the paper's estimator); precise KL: of the densities themselves, without a floor" if precise else ""
    if any(variable in orders for variable in variables):
        note += "; a: limit + a/n to first order in 1/n, an asymptotic expansion, not a bound"
    return grouped(title, ("output", "n", *(HEADINGS[name] for name in names)), groups, note + further)


def grouped(
    title: str,
    header: tuple[str, ...],
    groups: Mapping[str, tuple[list[list[str]], list[str], list[str]]],
    note: str,
) -> Grid:
    """A table of variables, each with its rows, that of its limit, if there is one, which stands out, and one below."""
    rows: list[tuple[str, ...]] = []
    marked, sections = [], []
    for variable, (found, limit, below) in groups.items():
        rows += [(variable if k == 0 else "", *row) for k, row in enumerate(found)]
        if limit:
            marked.append(len(rows))
            rows.append(("", *limit))
        if below:
            rows.append(("", *below))
        sections.append(len(rows) - 1)
    return Grid(title, header, tuple(rows), note, tuple(marked), sections=tuple(sections[:-1]))


def _z(value: float, error: float, limit: float, limit_error: float) -> float:
    scale = math.hypot(error, limit_error if math.isfinite(limit_error) else 0.0)
    return (value - limit) / scale if scale > 0 else (0.0 if value == limit else _NAN)


def compare(samples: Any, law: Any, variables: str | Iterable[str] | None = None) -> Comparison:
    """Compare samples with a law, or with other samples, variable by variable.

    `variables` are members ("y[0]") or families ("y") or averages ("m"); by default the outputs, of large families the
    first 64 members, and all averages that the samples have.
    Without a law (None) only the moments are there.  With several coordinates per network all of them are pooled, and
    every error, p-value and floor allows for their dependence.

    Accuracy  standard errors by the delta method (moments, KS) and a bootstrap (KL); p-values for a
              reference known exactly.  `kl_precise`: samples drawn with `conditional=True`,
              see `tensorprog.results.divergence`
    Source    KL: Sakai et al. 2025 (arXiv 2506.00846), Sec. 5.1 and its scripts, with the law's own density as the
              second argument where the law has one
    """
    two_samples = is_samples(law)
    samples_of(samples, "compare takes samples first, then a law or other samples")
    against = law if two_samples or law is None else Reference.of(law, "compare takes a law or samples second")
    if law is not None and _law_text(samples.netsor) != _law_text(law.netsor):
        raise ProgramError("the samples and what they are compared with belong to different programs")
    netsor: Netsor = samples.netsor
    chosen = None if variables is None else one_or_several(variables, name_of)
    means = [name for name in samples.averages if chosen is None or name in chosen]
    if chosen is not None:
        chosen = [name for name in chosen if name not in samples.averages]
    rows = []
    for number, (name, position, variable) in enumerate(_variables(netsor, samples.outputs, chosen)):
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(0, spawn_key=(number,))))
        rows.append(_row(samples, against, name, position, variable, rng))
    kind = "nothing" if law is None else "samples" if two_samples else "limit"
    averages = tuple(row for name in means for row in _average_rows(samples, against, name))
    return Comparison(tuple(rows), samples.width, kind, netsor.name, averages)


def _average_rows(samples: Any, against: Any, name: str) -> Iterator[AverageRow]:
    """Rows of one average, those of its first members if it is a family."""
    values = np.asarray(samples.averages[name], dtype=np.float64)
    other: Array | None = None
    if isinstance(against, Reference):
        with suppress(NotCompiledError, MemoryLimitError):  # then there is no limit to compare with
            other = against.averages(samples.psi, len(values))[name]
    elif against is not None and against.psi == samples.psi:
        other = against.averages[name]
    index = average_members(samples.netsor, samples.psi, name)[:MAX_MEMBERS]
    for place, member in zip(np.ndindex(values.shape[1:]), index, strict=False):
        x = values[(slice(None), *place)]
        mean, se, std, std_se = _mean_and_deviation(x)
        row = AverageRow(label(name, member), len(x), mean, se, std, std_se)
        if other is not None:
            y = np.asarray(other[(slice(None), *place)], dtype=np.float64)
            limit = _mean_and_deviation(y)
            ks = kolmogorov(x, y, len(x), len(y))
            row = replace(
                row,
                limit_mean=limit[0],
                limit_se=limit[1],
                limit_std=limit[2],
                limit_std_se=limit[3],
                limit_draws=len(y),
                z_mean=_z(mean, se, limit[0], limit[1]),
                ks=ks.get("ks", _NAN),
                ks_pvalue=ks.get("ks_p", _NAN),
            )
        yield row


def _mean_and_deviation(x: Array) -> tuple[float, float, float, float]:
    """Mean, its standard error, standard deviation, its standard error."""
    found = moments_of_one(x[:, None])
    variance, error = found["variance"]
    std = math.sqrt(variance)
    return *found["mean"], std, error / (2 * std) if std > 0 else 0.0


def _law_text(netsor: Netsor) -> tuple[Any, ...]:
    """All of a program that its law depends on."""
    return netsor.constants, netsor.indices, netsor.initial, netsor.weights, netsor.body, netsor.widths, netsor.outputs


def _row(samples: Any, against: Any, name: str, position: int, variable: str, rng: np.random.Generator) -> Row:
    values = column(samples, name, position)
    own, size = moments_of_one(values) | _given_last(samples, name, position), effective_size(values)
    target: dict[str, Number] = {}
    other: LawCurve | Array | None = None
    other_size, method, precise = math.inf, "kde", (_NAN, _NAN)
    if isinstance(against, Reference):
        with suppress(NotCompiledError, MemoryLimitError):  # the law has no such numbers
            target = against.numbers(name, position)
        if target:
            other = _curve(against, variable, values)
            precise = _precise(samples, against, name, variable)
        if target and other is None and target["variance"][0] > 0:
            # no density, or not only one: draw as many from the law and smooth both, as the paper does
            draws = against.law.sample(min(values.size, 200_000), seed=1, keep=(name,))
            other, method = column(draws, name, position), "kde of both"
            other_size = float(len(other))
    elif against is not None:
        other, method = column(against, name, position), "kde of both"
        target, other_size = moments_of_one(other), effective_size(other)
    found = distances(values, other, size, other_size, rng) if other is not None and values.size > 1 else {}
    statistics: dict[str, float] = {}
    for key, (value, error) in own.items():
        limit, limit_error = target.get(key, (_NAN, _NAN))
        statistics |= {key: value, f"{key}_se": error, f"limit_{key}": limit}
        statistics[f"z_{key}"] = _z(value, error, limit, limit_error)
        statistics |= {f"limit_{key}_error": limit_error} if key != "mean" else {}
    return Row(variable, len(values), size, **statistics, **found, kl_method=method, kl_precise=precise[0],
               kl_precise_se=precise[1])  # fmt: skip


def _given_last(samples: Any, name: str, position: int) -> dict[str, Number]:
    """Variance and kurtosis from the conditional law N(m, V) of every network, where there is one, with their errors:
    with far less noise than from y."""
    if name not in samples.conditional or samples.samples < 2:
        return {}
    found = moments_of_one(*gaussians(samples, name, position))
    return {key: found[key] for key in ("variance", "kurtosis")} if found["variance"][0] > 0 else {}


def _curve(reference: Reference, variable: str, values: Array) -> LawCurve | None:
    """The law's own density, if it says all: not with atoms, and not a kernel estimate from draws."""
    curve = None if tied(values) else reference.curve(variable, float(values.min()), float(values.max()))
    return curve if curve is not None and not curve.smoothed else None


def _precise(samples: Any, reference: Reference, name: str, variable: str) -> Number:
    """KL of the densities themselves and its error, where both are averages of Gaussians."""
    from tensorprog.results.divergence import kl  # which loads the limit

    if name in samples.conditional and samples.samples > 1:
        with suppress(NotCompiledError, MemoryLimitError):
            return kl(samples, reference, variable)
    return _NAN, _NAN


def _variables(
    netsor: Netsor, outputs: Iterable[str], wanted: str | Iterable[str] | None
) -> list[tuple[str, int, str]]:
    """(family, position, label) of the variables to compare."""
    if wanted is None:
        return [
            (name, position, label(name, index))
            for name in outputs
            for position, index in enumerate(members(netsor, name, MAX_MEMBERS))
        ]
    chosen = []
    for variable in [wanted] if isinstance(wanted, str) else wanted:
        family = netsor.families.get(variable)
        if family is not None and family.kind != "weight":  # a whole family
            chosen += [(variable, k, label(variable, index)) for k, index in enumerate(members(netsor, variable))]
        else:
            name, position = split(netsor, variable)
            chosen.append((name, position, variable.replace(" ", "")))
    return chosen
