"""What `tp run` is asked and what it finds: settings, everything known of a run, and its tables and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from tensorprog.blocks import Block, Grid
from tensorprog.blocks.html import Shown
from tensorprog.finite.plan import kept_families
from tensorprog.language.averages import average_members, with_averages
from tensorprog.language.errors import TensorprogError
from tensorprog.language.formats import constants_json, label, members, split
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import column
from tensorprog.results.comparison import AVERAGED, MAX_MEMBERS, Comparison, table_of_widths
from tensorprog.results.reference import LimitDensity, Reference

__all__ = ["Settings", "Study", "default_out", "finite_json", "settings_of"]

OPTIONAL = "first_order", "limit_refused", "densities"  # entries of report.json
MAX_PICTURED = 6  # outputs in pictures
SHOWN = 4  # members of one family in the table of a run
DISTANCES = ("ks", "ks_se", "ks_p", "ks_floor", "kl", "kl_se", "kl_floor", "kl_precise", "kl_precise_se", "kl_method")


@dataclass(frozen=True)
class Settings:
    """How to run: the command line first, then the program's `run:` section, then defaults."""

    width: tuple[int, ...] = (16, 64, 256, 1024)
    samples: int = 10_000
    seed: int = 0
    method: str = "auto"
    coordinates: int = 1
    threads: int | None = None
    max_memory: str | int = "1GiB"
    dtype: str = "float64"
    keep: tuple[str, ...] = ()
    averages: tuple[tuple[str, str], ...] = ()  # name, psi as text


def settings_of(netsor: Netsor, given: Mapping[str, Any]) -> Settings:
    """Merge options given (those not None) with the program's defaults and ours."""
    known = {field.name for field in fields(Settings)}
    chosen = {key: value for key, value in netsor.run if key in known}
    chosen |= {key: value for key, value in given.items() if value is not None}
    chosen["keep"] = kept_families(netsor, chosen.get("keep", ()))
    widths = chosen.get("width", Settings.width)
    widths = widths if isinstance(widths, tuple | list) else (widths,)
    return Settings(**(chosen | {"width": tuple(dict.fromkeys(int(width) for width in widths))}))


@dataclass
class Study(Shown):
    """What is known so far; `to_json` is the content of report.json."""

    netsor: Netsor
    report: Any  # of the check
    settings: Settings
    reference: Reference | None = None
    refusal: Exception | None = None  # why there is no limit, or none to compare with
    comparisons: list[Comparison] = field(default_factory=list)
    finite: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)  # draws of `pictured`, width by width
    limit: dict[str, Any] | None = None
    drawing: str = ""  # of the program, as SVG
    drawn: dict[str, str] = field(default_factory=dict)  # density and convergence of the first output, as SVG
    first_orders: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)  # in 1/n, with errors
    densities: dict[str, LimitDensity] = field(default_factory=dict)  # of `pictured` in the limit
    written: list[Path] = field(default_factory=list)

    @property
    def compared(self) -> Reference | None:
        """The limit that networks are compared with; None where there is none, or where asking it failed."""
        return None if self.refusal is not None else self.reference

    def limit_of(self, variable: str) -> bool:
        """Whether there is a limit of a member such as "y[0]" to compare with."""
        return self.compared is not None and split(self.netsor, variable)[0] not in self.compared.failed

    @property
    def names(self) -> tuple[str, ...]:
        """What is reported: the outputs, and the names kept."""
        return tuple(dict.fromkeys([*self.netsor.outputs, *self.settings.keep]))

    @property
    def averaged(self) -> dict[str, str]:
        """The averages asked for: left side -> psi."""
        return dict(with_averages(self.netsor, dict(self.settings.averages)).psi) if self.settings.averages else {}

    @property
    def pictured(self) -> tuple[str, ...]:
        """What is shown in pictures: of the first few outputs the first member each."""
        return tuple(label(name, members(self.netsor, name, 1)[0]) for name in self.netsor.outputs[:MAX_PICTURED])

    def blocks(self) -> list[Block]:
        """One table per output family, the widths against the limit; then averages."""
        tables: list[Block] = [self._table(name) for name in self.names]
        rows = self.comparisons[0].averages if self.comparisons else ()
        if rows:
            families = [row.variable.partition("[")[0] for row in rows]
            shown = [row.variable for k, row in enumerate(rows) if families[:k].count(families[k]) < SHOWN]
            psi = ", ".join(f"{name} = {value}" for name, value in self.averaged.items())
            title = f"{self.netsor.name}: averages over the coordinates, {psi}"
            limited = any(math.isfinite(row.limit_mean) for row in rows)
            further = "; limit: E[psi | scores] over draws of the scores" if limited else ""
            further += "; further members are in report.json" if len(shown) < len(rows) else ""
            against = "limit" if limited else ""
            tables.append(table_of_widths(title, self.comparisons, shown, against, AVERAGED, further=further))
        return tables

    def _table(self, name: str) -> Grid:
        size = math.prod(self.netsor.families[name].shape)
        variables = [label(name, index) for index in members(self.netsor, name, SHOWN)]
        further = f"; {size - SHOWN:,} further members of {name} are in report.json" if size > SHOWN else ""
        title, against = f"{self.netsor.name}: {name}", "limit" if self.limit_of(variables[0]) else ""
        orders = self.first_orders
        return table_of_widths(title, self.comparisons, variables, against, first_orders=orders, further=further)

    def to_json(self) -> dict[str, Any]:
        """The object of `tp run --format json`."""
        found = {
            "program": self.netsor.name,
            "constants": constants_json(self.netsor),
            "assumptions": self.report.to_json(),
            "limit": self.limit,
            "first_order": self.first_orders,
            "limit_refused": self.reason,
            "finite": self.finite,
            "densities": {name: found.to_json() for name, found in self.densities.items()} if self.compared else {},
        }
        return {key: value for key, value in found.items() if value or key not in OPTIONAL}

    @property
    def reason(self) -> str | None:
        """Why there is no limit, or none to compare with, as text; a program outside has its findings instead."""
        if self.refusal is None or self.report.grade == "outside":
            return None
        if isinstance(self.refusal, TensorprogError):
            return str(self.refusal)
        return f"{type(self.refusal).__name__}: {self.refusal}"


def default_out(netsor: Netsor, kind: str = "") -> Path:
    """runs/<program><kind>, with a name that is safe as that of a folder."""
    name = re.sub(r"[^\w.-]+", "_", netsor.name).strip(".") or "program"
    return Path("runs") / f"{name}{kind}"


# ---- numbers as JSON -------------------------------------------------------------------------------------------------


def finite_json(samples: Any, comparison: Comparison, kept: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers of one width, those of the names `kept` beside the outputs."""
    outputs: dict[str, Any] = {}
    for name in dict.fromkeys([*samples.outputs, *kept]):
        index = members(samples.netsor, name, MAX_MEMBERS)
        entry = _lists(comparison, name, index) | (
            dict.fromkeys(DISTANCES) if comparison.reference == "nothing" else {}
        )
        size = math.prod(samples.netsor.families[name].shape)
        if size > len(index):
            entry["members"] = size
        elif samples.samples > 1:
            cov = np.atleast_2d(np.cov([column(samples, name, k).ravel() for k in range(size)], bias=True))
            plain = np.diagonal(cov)  # in favour of the variances stated, with the correlations of the draws
            scale = np.sqrt(np.divide(entry["variance"], plain, out=np.ones(size), where=plain > 0))
            entry["cov"] = cov * scale[:, None] * scale
        outputs[name] = entry
    found = {key: getattr(samples, key) for key in ("width", "method", "samples", "seed")}
    found |= {"seconds": round(float(samples.seconds), 4), "outputs": outputs}
    if samples.averages:
        psi = {target.partition("[")[0]: text for target, text in samples.psi.items()}
        index_of = {name: average_members(samples.netsor, samples.psi, name)[:MAX_MEMBERS] for name in psi}
        found["averages"] = {
            name: {"psi": text} | _lists(comparison, name, index_of[name]) for name, text in psi.items()
        }
    return found


def _lists(comparison: Comparison, name: str, index: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """The rows of a family's members as a list for each number, None where it does not exist."""
    rows = [comparison[label(name, member)].to_json() for member in index]
    lists = {key: [row[key] for row in rows] for key in rows[0] if key not in ("variable", "samples", "kl_method")}
    return {"index": [list(member) for member in index], "cov": None} | lists | {"kl_method": rows[0]["kl_method"]}
