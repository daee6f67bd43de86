"""What the command line prints: rich tables and progress bars on a terminal, plain text in a pipe."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from tensorprog.jobs.study import Listener, Study
from tensorprog.results.comparison import BRACKETS, Row, chance, quantity, short
from tensorprog.results.law_summary import Reference, label, members
from tensorprog.show import findings
from tensorprog.show.screen import Table, console, show, show_text, stacked
from tensorprog.show.terminals import columns_of, is_styled, is_terminal

if TYPE_CHECKING:
    from tensorprog.check.clauses.report import Report
    from tensorprog.finite.plan import Plan
    from tensorprog.language.ir import Netsor
    from tensorprog.results.selfcheck import LawCheck

__all__ = [
    "Progress",
    "Table",
    "facts_of",
    "findings_table",
    "law_check_table",
    "limit_tables",
    "run_tables",
    "show",
    "show_plan",
    "show_report",
    "show_text",
    "stacked",
]

SHOWN = 4  # members of one family in the table of a run
MATRIX = 8  # members of a family whose covariance is printed as a matrix
LISTED = 12  # members listed one by one otherwise


# ---- reports --------------------------------------------------------------------------------------------------------

WIDE = 100  # columns from which the reasons stand in a column of their own


def facts_of(netsor: Netsor) -> tuple[Table, ...]:
    """What is certified of each statement; then, where functions lose a property, which of them and why."""
    from tensorprog.check.certificates import facts_table

    rows = facts_table(netsor)
    header = ("statement", "range", "growth", "order", "parity", "monotone", "kinks")
    note = "as functions of G-vars, initial vectors, scores and averages; order: pseudo-Lipschitz"
    facts = Table("", header, tuple(row.cells() for row in rows), note, text_columns=(0, 1, 4, 5, 6))
    losses = dict.fromkeys((each.statement, each.property, f"{each.part}: {each.why}")
                           for row in rows for each in row.lost)
    lost = Table("", ("lost in", "property", "by"), tuple(losses), text_columns=(0, 1, 2))
    return (facts, lost) if losses else (facts,)


def show_report(report: Report, write: Callable[[str], None], stream: TextIO | None = None) -> None:
    """Print the check of a program: a table on a terminal, with reasons below the rows of a narrow one; else text."""
    stream = stream or sys.stdout
    if not is_styled(stream):
        write(str(report))
        return
    from rich.text import Text

    screen = console(stream)
    screen.print(Text.assemble((f"{report.program}: ", "bold"), (report.grade, _ink(report.grade)),
                                f" - {report.says}"))
    screen.print(_labelled(findings.basis(report), 0))
    rows = [findings.cells(finding) for finding in report.findings]
    if rows:
        screen.print(_findings_grid(rows) if screen.width >= WIDE else _findings_blocks(rows, screen.width))


def _findings_grid(rows: Sequence[findings.Cells]) -> Any:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, expand=True)
    for name, widest in (("verdict", 7), ("rule", 20), ("where", 14), ("line", 4)):
        grid.add_column(Text(name), max_width=widest, overflow="fold", justify="right" if name == "line" else "left")
    grid.add_column(Text("why"), ratio=1, overflow="fold")
    for verdict, rule, where, line, said in rows:
        shown = Text(said[0][1]) if verdict == "holds" else _labelled(said, 0)
        grid.add_row(Text(verdict, style=_ink(verdict)), Text(rule), Text(where), Text(line), shown)
    return grid


def _findings_blocks(rows: Sequence[findings.Cells], width: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    aligned_rules = max((len(row[1]) for row in rows), default=0) if width >= 72 else 0
    blocks: list[Any] = []
    if aligned_rules:
        blocks.append(Text(f"{'verdict':<8} {'rule':<{aligned_rules}}  where, line", style="bold"))
    for verdict, rule, where, line, said in rows:
        head = Text.assemble((f"{verdict:<8} ", _ink(verdict)), f"{rule:<{aligned_rules}}  ")
        head.append(where + (f", line {line}" if line else ""))
        blocks += [head, _labelled(said, 9 if aligned_rules else 2)]
    return Group(*blocks)


def _labelled(said: Sequence[tuple[str, str]], indent: int) -> Any:
    """Paragraphs with hanging labels."""
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in said:
        grid.add_row(Text(name, style="italic"), Text(text))
    return Padding(grid, (0, 0, 0, indent))


def _ink(word: str) -> str:
    return f"bold {findings.COLOURS[word]}"


# ---- plans ---------------------------------------------------------------------------------------------------------


def show_plan(plan: Plan, write: Callable[[str], None], stream: TextIO | None = None) -> None:
    """Print how networks would be drawn: a table on a terminal, with one value per line if it is narrow; else text."""
    if not is_styled(stream or sys.stdout):
        write(str(plan))
        return
    show_text(f"{plan.title}\n\n", write, stream)
    header, *rows = plan.table
    show(Table("", header, tuple(rows), text_columns=(0, 1)), write, stream)


# ---- tables ---------------------------------------------------------------------------------------------------------


def run_tables(study: Study, columns: int = 1000) -> Iterator[Table]:
    """One table per output family: the widths against the limit; shorter numbers on screens below 100 columns."""
    netsor = study.netsor
    figures = 1 if columns < 100 else 2
    for name in study.names:
        size = math.prod(netsor.families[name].shape)
        rows: list[tuple[str, ...]] = []
        marked, sections = [], []
        for index in members(netsor, name, SHOWN):
            variable = label(name, index)
            found = [(c.width, c[variable]) for c in study.comparisons]
            rows += [_run_row(variable if k == 0 else "", width, row, figures) for k, (width, row) in enumerate(found)]
            if study.compared is not None and found:
                limit = found[0][1]
                marked.append(len(rows))
                variance = quantity(limit.limit_variance, limit.limit_variance_error, figures)
                kurtosis = quantity(limit.limit_kurtosis, limit.limit_kurtosis_error, figures)
                rows.append(("", "limit", variance, kurtosis, *[""] * 6))
            sections.append(len(rows) - 1)
        note = BRACKETS + (" (for the limit: its error); KL in nats" if study.compared is not None else "")
        precise = any(math.isfinite(c[label(name, index)].kl_precise) for c in study.comparisons
                      for index in members(netsor, name, SHOWN))
        if precise:
            note += " (the paper's estimator); precise KL: of the densities themselves, without a floor"
        if size > SHOWN:
            note += f"; {size - SHOWN:,} further members of {name} are in report.json"
        header = ["output", "n", "variance", "kurtosis", "KS", "p", "W1", "KL", "KL floor", "precise KL"]
        hidden = {"p"} if figures == 1 else set()
        hidden |= set() if precise else {"precise KL"}
        shown = range(4) if study.compared is None else [k for k, text in enumerate(header) if text not in hidden]
        header, rows = [header[k] for k in shown], [tuple(row[k] for k in shown) for row in rows]
        title = f"{netsor.name}: {name}"
        yield Table(title, tuple(header), tuple(rows), note, tuple(marked), sections=tuple(sections[:-1]))
    if study.comparisons and study.comparisons[0].averages:
        yield _averages_table(study, figures)


def _averages_table(study: Study, figures: int) -> Table:
    """The averages over the coordinates of a network at each width against E[psi | p-ring]."""
    rows: list[tuple[str, ...]] = []
    marked, sections = [], []
    families: dict[str, int] = {}
    for place, first in enumerate(study.comparisons[0].averages):
        name = first.average.partition("[")[0]
        families[name] = families.get(name, 0) + 1
        if families[name] > SHOWN:
            continue
        for k, comparison in enumerate(study.comparisons):
            row = comparison.averages[place]
            rows.append((row.average if k == 0 else "", str(comparison.width), quantity(row.mean, row.se, figures),
                         quantity(row.std, row.std_se, figures), short(row.ks), chance(row.ks_pvalue)))
        if math.isfinite(first.limit_mean):
            marked.append(len(rows))
            rows.append(("", "limit", quantity(first.limit_mean, first.limit_se, figures),
                         quantity(first.limit_std, first.limit_std_se, figures), "", ""))
        sections.append(len(rows) - 1)
    psi = study.averaged
    title = f"{study.netsor.name}: averages over the coordinates, " + ", ".join(f"{k} = {v}" for k, v in psi.items())
    note = BRACKETS
    if marked:
        note += "; limit: E[psi | scores] over draws of the scores; KS and p of the two samples"
    if any(count > SHOWN for count in families.values()):
        note += "; further members are in report.json"
    header = ("average", "n", "mean", "sd", "KS", "p")
    shown = range(6) if marked else range(4)
    return Table(title, tuple(header[k] for k in shown), tuple(tuple(row[k] for k in shown) for row in rows), note,
                 tuple(marked), sections=tuple(sections[:-1]))


def _run_row(variable: str, width: int | None, row: Row, figures: int) -> tuple[str, ...]:
    variance, kurtosis, ks, w1, kl, precise = (
        quantity(getattr(row, key), getattr(row, f"{key}_se"), figures)
        for key in ("variance", "kurtosis", "ks", "w1", "kl", "kl_precise")
    )
    return variable, str(width), variance, kurtosis, ks, chance(row.ks_p), w1, kl, short(row.kl_floor), precise


def limit_tables(reference: Reference, largest: int = 4096) -> Iterator[Table]:
    """Means, variances and kurtosis of each family of the limit, and covariances of those of `largest` members."""
    law, netsor = reference.law, reference.netsor
    for kind, names in (("output", law.outputs), ("score", law.scores)):
        for name in names:
            size = math.prod(netsor.families[name].shape)
            if size > 4096:
                yield Table(f"{kind} {name}: {size:,} members, not listed; ask for single ones in Python", (), ())
                continue
            values = reference.moments(name)
            listed = members(netsor, name, LISTED)
            rows = tuple(
                (label(name, index), *(_with_error(*(float(part[k]) for part in values[key]))
                                        for key in ("mean", "variance", "kurtosis")))
                for k, index in enumerate(listed)
            )
            note = f"{size - len(listed):,} further members" if size > len(listed) else ""
            yield Table(f"{kind} {name}", ("variable", "mean", "variance", "kurtosis"), rows, note)
            if size <= largest:
                yield _covariance_table(reference, name, size)


def law_check_table(check: LawCheck) -> Table:
    """Of a law's check, the largest disagreement of each kind of number; those beyond the threshold stand out."""
    rows = check.largest
    header, cells = check.table(rows)
    marked = tuple(k for k, row in enumerate(rows) if row in check.contradicted)
    title = f"{check.program}: the limit against its own draws" + (" and networks" if check.widths else "")
    return Table(title, tuple(header), tuple(tuple(row) for row in cells), "; ".join(check.notes), marked, (0, 2))


def _covariance_table(reference: Reference, name: str, size: int) -> Table:
    found = reference.covariance(name)
    assert found is not None  # at most 4096 members here
    matrix, errors = found
    names = [label(name, index) for index in members(reference.netsor, name)]
    if size <= MATRIX:
        rows = tuple((variable, *(_with_error(float(v), float(e)) for v, e in zip(row, error, strict=True)))
                     for variable, row, error in zip(names, matrix, errors, strict=True))
        return Table(f"covariance of {name}", ("", *names), rows) if size > 1 else Table("", (), ())
    upper = np.triu(matrix, 1)
    scale = float(np.abs(matrix.diagonal()).max())
    places = np.argwhere(np.abs(upper) > 1e-12 * scale)
    pairs = size * (size - 1) // 2
    order = np.argsort(-np.abs(upper[places[:, 0], places[:, 1]]), kind="stable")[:LISTED]
    rows = tuple((names[i], names[j], _with_error(float(upper[i, j]), float(errors[i, j]))) for i, j in places[order])
    title = f"covariance of {name}: {len(places):,} of {pairs:,} pairs are not zero" + (
        f", the largest {len(rows)}:" if len(places) > len(rows) else "")
    return Table(title, ("first", "second", "covariance") if rows else (), rows, text_columns=(0, 1))


def _with_error(value: float, error: float) -> str:
    return "0" if abs(value) < 1e-15 and not error > 1e-15 else quantity(value, error)


def findings_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of text."""
    return Table(title, tuple(header), tuple(tuple(row) for row in rows), text_columns=tuple(range(len(header))))


# ---- progress -------------------------------------------------------------------------------------------------------


TEXTS = 42  # columns of a bar's description, numbers and time


class Progress(Listener):
    """Notes on stderr, and one progress bar per width if it is a terminal."""

    counted = True  # steps are counted and alike: they tell the time that remains

    def __init__(self, notes: bool = True, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.notes = notes
        self.bar: Any = None
        self.task: Any = None
        self.text = ""

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        """Show the bar inside the block, and take it away at the end."""
        if not (self.notes and is_terminal(self.stream)):
            yield self
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        room = columns_of(self.stream) - TEXTS
        bars = [BarColumn(bar_width=min(room, 24))] if room > 4 else []
        counts = (MofNCompleteColumn(), TimeRemainingColumn()) if self.counted else ()
        self.bar = Bar(TextColumn("{task.description}", markup=False), *bars, *counts,
                       console=console(self.stream), transient=True)
        with self.bar:
            self.task = self.bar.add_task("", total=None)
            yield self
        self.bar = None

    def stage(self, text: str) -> None:
        """Name the step that begins."""
        self.text = text
        if self.bar is not None:
            self.bar.reset(self.task, total=None, description=text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.notes:
            return
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def progress(self, done: int, total: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total)
