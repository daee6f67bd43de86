"""What a depth profile found: tables, an xarray Dataset, JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorprog.blocks import Block, Grid, Paragraph, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.finite.workers import libraries
from tensorprog.jobs.depths.networks import FEWEST, extrapolated
from tensorprog.jobs.depths.profile import Curves
from tensorprog.jobs.depths.quantities import LONG_NAMES, QUANTITIES
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.errors import need_xarray
from tensorprog.language.formats import BRACKETS, quantity
from tensorprog.language.samples import program_text
from tensorprog.results.study import constants_json

__all__ = ["DepthProfile", "summary"]

ROWS = 12  # of layers in a table
EXACT = 1e-9  # relative errors below it are not shown
HEADINGS = {
    "variance": "variance",
    "token_correlation": "correlation",
    "effective_rank": "rank",
    "attention_entropy": "entropy",
    "kurtosis": "kurtosis",
    "gradient_norm": "gradient",
}


def summary(name: str, report: Any) -> Paragraph:
    """The grade of a program's limit in a line, and what rests on a conjecture."""
    guessed = [claim.name for claim in report.claims if claim.standing == "conjecture"]
    more = (f"; rests on a conjecture: {', '.join(guessed)}",) if guessed else ()
    return paragraph(name, ": ", *report.summary.words, *more)


@dataclass
class DepthProfile(Shown):
    """A depth profile that is done."""

    question: Question
    report: Any  # of the check
    draws: int
    samples: int
    seed: int
    limit: dict[tuple[int, ...], Curves]  # by choice
    finite: dict[tuple[tuple[int, ...], int], Curves] = field(default_factory=dict)  # by choice and width
    refused: dict[tuple[int, ...], str] = field(default_factory=dict)  # why a choice has no limit
    gradients: Any = None  # the report of the adjoint program
    refused_gradients: dict[tuple[int, ...], str] = field(default_factory=dict)  # why their limit is left out
    written: list[Path] = field(default_factory=list)

    @property
    def widths(self) -> tuple[int, ...]:
        """Those of the networks drawn."""
        return tuple(sorted({width for _, width in self.finite}))

    def extrapolated(self, choice: tuple[int, ...]) -> Curves | None:
        """What has no limit, where a line in 1/n through at least three widths leads; None without any."""
        finite = {width: found for (place, width), found in self.finite.items() if place == choice}
        known = self.limit[choice].values if choice in self.limit else {}
        if len(finite) < FEWEST:
            return None
        found = extrapolated(finite)
        names = [name for name in found.values if name not in known]
        return Curves({n: found.values[n] for n in names}, {n: found.errors[n] for n in names}) if names else None

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities there are."""
        found = {name for curves in (*self.limit.values(), *self.finite.values()) for name in curves.values}
        return tuple(name for name in QUANTITIES if name in found)

    @property
    def head(self) -> Paragraph:
        """The grade of the limit, and what it rests on where that is a conjecture."""
        return summary(self.question.base.name, self.report)

    # -- tables -------------------------------------------------------------------------------------------------

    def blocks(self) -> list[Block]:
        """The grade first, then layers of the only choice of constants, or the last layer of all of them."""
        rows = self._layers() if len(self.question.choices) == 1 else self._choices()
        head = [self.head] if self.gradients is None else [self.head, summary("gradients", self.gradients)]
        said = [
            paragraph(
                f"no limit{' of gradients' if found is self.refused_gradients else ''}"
                f"{f' with {choice}' if str(choice) else ''}: {found[choice.position]}"
            )
            for choice in self.question.choices
            for found in (self.refused, self.refused_gradients)
            if choice.position in found
        ]
        return [*head, rows, *said]

    @property
    def _note(self) -> str:
        random = any(
            np.any(curves.errors[name] > EXACT * np.abs(curves.values[name]))
            for curves in self.limit.values()
            for name in curves.values
        )
        notes = [f"limit: {self.draws:,} draws of the scores, in brackets 99.9 % bounds of errors"] if random else []
        notes += [f"networks: {self.samples:,} of each width, {BRACKETS}"] if self.finite else []
        lines = any(self.extrapolated(choice.position) for choice in self.question.choices)
        notes += ["1/n = 0: where a line through the widths leads, measured and no theorem"] if lines else []
        return "; ".join(notes)

    def _rows(self, choice: Variant, layer: int) -> Iterator[tuple[str, ...]]:
        """The limit at one layer, and the networks of each width."""
        found = [("limit", self.limit.get(choice.position))]
        found += [(str(width), self.finite.get((choice.position, width))) for width in self.widths]
        found += [("1/n = 0", self.extrapolated(choice.position))]
        for who, curves in found:
            if curves is not None:
                yield (
                    who,
                    *(
                        _number(float(curves.values[name][layer]), float(curves.errors[name][layer]))
                        if name in curves.values
                        else "-"
                        for name in self.names
                    ),
                )

    def _layers(self) -> Grid:
        """Some layers, the last among them."""
        (choice,), layers = self.question.choices, self.question.layers
        title = f"{self.question.base.name}: {self._family} over {self.question.index}"
        rows, marked = list[tuple[str, ...]](), list[int]()
        for k in _spread(len(layers)):
            for number, row in enumerate(self._rows(choice, k)):
                if row[0] == "limit" and self.widths:
                    marked.append(len(rows))
                rows.append((str(layers[k]) if not number else "", *(row if self.widths else row[1:])))
        header = (self.question.index, *(("n",) if self.widths else ()), *(HEADINGS[name] for name in self.names))
        return Grid(title, header, tuple(rows), self._note, tuple(marked))

    def _choices(self) -> Grid:
        """The last layer of each choice of constants."""
        question = self.question
        title = f"{question.base.name}: {self._family} at {question.index} = {question.layers[-1]}"
        rows, marked = list[tuple[str, ...]](), list[int]()
        for choice in question.choices:
            values = tuple(f"{value:g}" for _, value in choice.values)
            for number, row in enumerate(self._rows(choice, len(question.layers) - 1)):
                if row[0] == "limit" and self.widths:
                    marked.append(len(rows))
                rows.append((*(values if not number else [""] * len(values)), *(row if self.widths else row[1:])))
        header = (
            *(name for name, _ in question.over),
            *(("n",) if self.widths else ()),
            *(HEADINGS[name] for name in self.names),
        )
        return Grid(
            title, header, tuple(rows), self._note, tuple(marked), text_columns=tuple(range(len(question.over)))
        )

    @property
    def _family(self) -> str:
        slots = [self.question.token] * (self.question.axes.token is not None)
        return f"{self.question.axes.name}[{','.join([self.question.index, *slots])}]" if len(slots) < 2 else ""

    # -- files --------------------------------------------------------------------------------------------------

    def to_xarray(self) -> Any:
        """An xarray.Dataset over the constants and the layer; of networks, over the width too.

        Shapes    NAME and NAME_error (*constants, layer); NAME_finite and NAME_finite_se (*constants, width, layer);
                  NAME_extrapolated and NAME_extrapolated_error (*constants, layer)
        """
        dataset = need_xarray("depth profiles").Dataset
        names = [name for name, _ in self.question.over]
        shape = tuple(len(values) for _, values in self.question.over)
        data: dict[str, Any] = {}
        lines_of = ((choice.position, self.extrapolated(choice.position)) for choice in self.question.choices)
        extrapolations = {place: curves for place, curves in lines_of if curves is not None}
        for name in self.names:
            attributes = {"long_name": LONG_NAMES[name], "units": "1"}
            if self.limit:
                value, error = self._arrays(name, shape, self.limit)
                data[name] = ((*names, "layer"), value, attributes)
                data[f"{name}_error"] = ((*names, "layer"), error, {"long_name": f"error of {LONG_NAMES[name]}"})
            for width in self.widths:
                value, error = self._arrays(
                    name, shape, {place: found for (place, n), found in self.finite.items() if n == width}
                )
                for key, array in ((f"{name}_finite", value), (f"{name}_finite_se", error)):
                    known = data.get(key)
                    data[key] = (
                        (*names, "width", "layer"),
                        array[..., None, :]
                        if known is None
                        else np.concatenate([known[1], array[..., None, :]], axis=-2),
                        attributes,
                    )
            lines = {place: curves for place, curves in extrapolations.items() if name in curves.values}
            if lines:
                value, error = self._arrays(name, shape, lines)
                long = {"long_name": f"{LONG_NAMES[name]}, extrapolated in 1/n from networks", "units": "1"}
                data[f"{name}_extrapolated"] = ((*names, "layer"), value, long)
                data[f"{name}_extrapolated_error"] = ((*names, "layer"), error, long)
        coordinates: dict[str, Any] = {
            name: (name, np.array(values), {"long_name": f"constant {name}"}) for name, values in self.question.over
        }
        coordinates["layer"] = (
            "layer",
            np.array(self.question.layers, dtype=np.int32),
            {"long_name": f"layer, the index {self.question.index}"},
        )
        if self.widths:
            coordinates["width"] = ("width", np.array(self.widths, dtype=np.int32), {"long_name": "width n"})
        return dataset(data, coordinates, self._attributes)

    def to_dataframe(self) -> Any:
        """The same as a pandas.DataFrame, one row for each layer and choice of constants."""
        return self.to_xarray().to_dataframe()

    def _arrays(self, name: str, shape: tuple[int, ...], found: Mapping[tuple[int, ...], Curves]) -> tuple[Any, Any]:
        """Values and errors over the constants and layers, nan where there are none."""
        value, error = (np.full((*shape, len(self.question.layers)), math.nan) for _ in range(2))
        for place, curves in found.items():
            if name in curves.values:
                value[place], error[place] = curves.values[name], curves.errors[name]
        return value, error

    @property
    def _attributes(self) -> dict[str, Any]:
        import json

        question = self.question
        refused = {
            str(choice) or "all": self.refused[choice.position]
            for choice in question.choices
            if choice.position in self.refused
        }
        return {
            "title": f"{question.base.name}: {question.axes.name} over the index {question.index}",
            "program_name": question.base.name,
            "program": program_text(question.base),
            "grade": self.report.grade,
            "claims": json.dumps([str(claim) for claim in self.report.claims]),
            "family": question.axes.name,
            "draws": self.draws,
            "seed": str(self.seed),
            "versions": json.dumps(libraries()),
            **({"samples": self.samples} if self.finite else {}),
            **({} if self.gradients is None else {"gradients_grade": self.gradients.grade}),
            **({"no_gradients": next(iter(self.refused_gradients.values()))} if self.refused_gradients else {}),
            **({"no_limit": json.dumps(refused)} if refused else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The content of depth.json."""
        question = self.question
        profiles = []
        for choice in question.choices:
            entry: dict[str, Any] = {"constants": dict(choice.values), "limit": _json(self.limit.get(choice.position))}
            if choice.position in self.refused:
                entry["limit_refused"] = self.refused[choice.position]
            if choice.position in self.refused_gradients:
                entry["gradients_refused"] = self.refused_gradients[choice.position]
            if self.widths:
                entry["finite"] = [
                    {"width": width, **(_json(self.finite[choice.position, width]) or {})}
                    for width in self.widths
                    if (choice.position, width) in self.finite
                ]
            line = self.extrapolated(choice.position)
            if line is not None:
                entry["extrapolated"] = _json(line)
            profiles.append(entry)
        return {
            "program": question.base.name,
            "constants": constants_json(question.base),
            "assumptions": self.report.to_json(),
            **({} if self.gradients is None else {"gradients": self.gradients.to_json()}),
            "family": question.axes.name,
            "index": question.index,
            "tokens": question.tokens,
            "layers": list(question.layers),
            "draws": self.draws,
            "seed": self.seed,
            **({"samples": self.samples} if self.finite else {}),
            "profiles": profiles,
        }


def _number(value: float, error: float) -> str:
    """A number with its error; six figures of one that is known far better."""
    return quantity(value, 0.0 if error < EXACT * abs(value) else error)


def _json(curves: Curves | None) -> dict[str, Any] | None:
    if curves is None:
        return None
    return {name: {"value": curves.values[name], "error": curves.errors[name]} for name in curves.values}


def _spread(count: int) -> list[int]:
    """Positions of up to ROWS of so many layers, dense at first, the last among them."""
    if count <= ROWS:
        return list(range(count))
    return sorted({round(float(k)) - 1 for k in np.geomspace(1, count, ROWS)})
