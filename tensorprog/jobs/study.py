"""The main job, `tp run`: check, compile the limit, run at each width, compare, write files."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorprog.finite.cost import parse_memory
from tensorprog.jobs import run_files as files
from tensorprog.language.averages import Averages, with_averages
from tensorprog.language.errors import NotCompiledError, OutsideError, TensorprogError
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import Samples
from tensorprog.language.writing_files import is_reserved
from tensorprog.language.yaml_io import pack
from tensorprog.results.comparison import MAX_MEMBERS, Comparison, compare
from tensorprog.results.conditional import with_conditional
from tensorprog.results.law_summary import Reference, column, label, members, split

__all__ = ["GRADES", "Listener", "Settings", "Study", "default_out", "estimate", "run", "settings_of"]

MAX_PRECISE = 16  # members of outputs together up to which precise divergences are shown: each takes a second or so
MAX_PICTURED = 6  # outputs in pictures
MOST_TIMES = 2.0  # as long may a run take for them
GRADES = ("outside", "extension", "remark", "theorem")  # each claims more than the one before
DEFAULTS: dict[str, Any] = {
    "width": (16, 64, 256, 1024), "samples": 10_000, "seed": 0, "method": "auto", "coordinates": 1, "threads": None,
    "max_memory": "1GiB", "dtype": "float64", "keep": (), "averages": (),
}


@dataclass(frozen=True)
class Settings:
    """How to run: the command line first, then the program's `run:` section, then defaults."""

    width: tuple[int, ...]
    samples: int
    seed: int = 0
    method: str = "auto"
    coordinates: int = 1
    threads: int | None = None
    max_memory: str | int = "1GiB"
    dtype: str = "float64"
    keep: tuple[str, ...] = ()
    averages: tuple[tuple[str, str], ...] = ()  # name, psi as text
    conditional: bool = False  # decided by `run`, where it is cheap

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `Program.run` besides width and progress."""
        return {"samples": self.samples, "seed": self.seed, "method": self.method, "coordinates": self.coordinates,
                "threads": self.threads, "max_memory": self.max_memory, "dtype": self.dtype, "keep": self.keep,
                "averages": dict(self.averages), "conditional": self.conditional}


def settings_of(netsor: Netsor, given: Mapping[str, Any]) -> Settings:
    """Merge options given (those not None) with the program's defaults and ours."""
    chosen = DEFAULTS | {key: value for key, value in netsor.run if key in DEFAULTS}
    chosen |= {key: value for key, value in given.items() if value is not None}
    widths = chosen["width"] if isinstance(chosen["width"], tuple | list) else (chosen["width"],)
    return Settings(**(chosen | {"width": tuple(dict.fromkeys(int(width) for width in widths))}))


def _whole(netsor: Netsor, settings: Settings) -> Netsor:
    """The program with all statements that its runs draw."""
    averaged = with_averages(netsor, dict(settings.averages)).netsor if settings.averages else netsor
    return with_conditional(averaged).netsor if settings.conditional else averaged


def _conditional(netsor: Netsor, settings: Settings) -> bool:
    """Whether conditional laws of all outputs compared cost little beside the networks themselves."""
    if sum(math.prod(netsor.families[name].shape) for name in netsor.outputs) > MAX_PRECISE:
        return False
    asked = replace(settings, conditional=True)
    try:
        (plain, _), (seconds, memory) = estimate(netsor, settings), estimate(netsor, asked)
    except NotCompiledError:
        return False
    return seconds <= MOST_TIMES * plain and memory <= parse_memory(settings.max_memory)


def estimate(
    netsor: Netsor, settings: Settings, executor: Executor | None = None, stream: bool = False
) -> tuple[float, int]:
    """Rough seconds of all widths together and peak bytes of the largest.

    Raises    ProgramError for settings no width could run with
    """
    from tensorprog.finite.run import estimate as one

    whole = _whole(netsor, settings)
    costs = [one(whole, width, settings.samples, method=settings.method, coordinates=settings.coordinates,
                 keep=settings.keep, threads=settings.threads, max_memory=settings.max_memory, executor=executor,
                 stored=stream) for width in settings.width]
    return sum(seconds for seconds, _ in costs), max(memory for _, memory in costs)


class Listener:
    """What a run tells while it runs; the base class is silent."""

    def stage(self, text: str) -> None:
        """A step begins."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def progress(self, done: int, total: int) -> None:
        """Networks drawn at the current width."""

    def width_done(self, study: Study) -> None:
        """One more width is complete."""


@dataclass
class Study:
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
    written: list[Path] = field(default_factory=list)

    @property
    def compared(self) -> Reference | None:
        """The limit that networks are compared with; None where there is none, or where asking it failed."""
        return None if self.refusal is not None else self.reference

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

    def to_json(self) -> dict[str, Any]:
        """The object of `tp run --format json`."""
        return {"program": self.netsor.name, "constants": files.constants_json(self.netsor),
                "assumptions": self.report.to_json(), "limit": self.limit,
                **({} if self.reason is None else {"limit_refused": self.reason}), "finite": self.finite}

    @property
    def reason(self) -> str | None:
        """Why there is no limit, or none to compare with, as text; a program outside has its findings instead."""
        if self.refusal is None or self.report.grade == "outside":
            return None
        if isinstance(self.refusal, TensorprogError):
            return str(self.refusal)
        return f"{type(self.refusal).__name__}: {self.refusal}"


def default_out(netsor: Netsor) -> Path:
    """runs/<program>, with a name that is safe as that of a folder."""
    name = re.sub(r"[^\w.-]+", "_", netsor.name).strip(".") or "program"
    return Path("runs") / (f"{name}_" if is_reserved(name) else name)


def run(
    program: Any, settings: Settings, out: Path | None = None, listener: Listener | None = None, *,
    executor: Executor | None = None, stream: bool = False, page: Callable[[Study], str] | None = None,
) -> Study:
    """Check, compile, run, compare and write; without `out` nothing is written.

    A program outside the theory is run at finite width all the same.  What is finished when an exception passes is on
    disk: report.json and samples.npz hold the widths that are complete.  With `stream` samples go to folders
    samples/n64, .. as they are drawn, instead of samples.npz, and a run that was stopped goes on where it was.  `page`
    makes report.html of what is known; it is written again as widths come in, and at the end.

    Raises    ProgramError, MemoryLimitError, WorkerError
    """
    from tensorprog.finite.run import check_store

    told = listener or Listener()
    netsor: Netsor = program.netsor
    told.stage("checking")
    report = program.check()
    if report.grade != "outside" and _conditional(netsor, settings):
        settings = replace(settings, conditional=True)
    study = Study(netsor, report, settings)
    seconds, memory = estimate(netsor, settings, executor, stream)
    told.note(f"estimate: about {duration(seconds)} and {memory / 2**20:.0f} MiB for drawing "
              f"{settings.samples:,} networks at each of {', '.join(f'n = {width}' for width in settings.width)}")
    folders = {width: out / "samples" / f"n{width}" for width in settings.width if out is not None and stream}
    for width, folder in folders.items():
        check_store(_whole(netsor, settings), width, settings.samples, folder, settings.seed, settings.method,
                    settings.coordinates, settings.keep, settings.dtype)
    written = _Page(study, out, page)
    with ExitStack() as stack:
        stack.callback(written.finish)
        store = None
        if out is not None:
            with files.writing(out):
                out.mkdir(parents=True, exist_ok=True)
            if not stream:
                text, tables = pack(netsor)
                store = stack.enter_context(files.SamplesFile(out / "samples.npz", _meta(text, settings), tables))
            _write(study, out, "program.svg", lambda path: files.write_text(path, _svg(study)))
        _limit(program, study, told)
        if settings.averages:
            _note_averages(study, told)
        _save_report(study, out)
        study.written += list(folders.values()) if store is None else [store.path]
        for width in settings.width:
            told.stage(f"n = {width}")
            samples = program.run(width=width, progress=told.progress, executor=executor, store=folders.get(width),
                                  **settings.options)
            _width(study, samples, store, stream, told)
            _save_report(study, out)
            written.again()
            told.width_done(study)
    if out is not None:
        told.stage("drawing")
        _pictures(study, out, told)
    return study


class _Page:
    """report.html: written again where that takes a tenth at most of the time since it was written last."""

    def __init__(self, study: Study, out: Path | None, make: Callable[[Study], str] | None) -> None:
        self.study, self.out, self.make = study, out, make
        self.started, self.took, self.shows = time.monotonic(), 1.0, -1

    def again(self) -> None:
        """After a width."""
        if time.monotonic() - self.started > 10 * self.took:
            self.finish()

    def finish(self) -> None:
        """At the end, or where the run is stopped."""
        if self.out is None or self.make is None or self.shows == len(self.study.finite):
            return
        started, make = time.monotonic(), self.make
        _write(self.study, self.out, "report.html", lambda path: files.write_text(path, make(self.study)))
        self.started, self.shows = time.monotonic(), len(self.study.finite)
        self.took = self.started - started


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, roughly."""
    if seconds < 90:
        return f"{max(seconds, 0.1):.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"


def _meta(text: str, settings: Settings) -> dict[str, Any]:
    from tensorprog import __version__

    return {"program": text, "version": __version__, "seed": settings.seed, "samples": settings.samples,
            "width": [], "method": settings.method, "coordinates": settings.coordinates}


def _limit(program: Any, study: Study, told: Listener) -> None:
    if study.report.grade == "outside":
        told.note("no limit is claimed for this program; finite widths are run all the same")
        study.refusal = OutsideError(str(study.report))
        return
    told.stage("compiling the limit")
    try:
        reference = Reference(program.limit(max_memory=study.settings.max_memory))
        found = files.limit_json(reference, study.settings.keep)
    except Exception as error:  # networks of finite width do not depend on it
        _refused(study, error, told)
        return
    missing = [name for name in study.netsor.outputs if found["outputs"][name].get("refused")]
    if len(missing) == len(study.netsor.outputs):
        _refused(study, reference.failed[missing[0]], told)
        return
    study.limit, study.reference = found, reference
    for name in missing:
        told.note(f"there is no limit of {name} to compare with: {reference.failed[name]}")


def _refused(study: Study, error: Exception, told: Listener) -> None:
    """Go on without the limit."""
    study.refusal = error
    told.note(f"there is no limit to compare with: {study.reason}")


def _note_averages(study: Study, told: Listener) -> None:
    """Say where Theorem 1 is not certified for psi, and where its limit cannot be had."""
    added = with_averages(study.netsor, dict(study.settings.averages))
    for target, missing in uncertified(added).items():
        asked = "controlled" if "controlled" in missing else "bounded and pseudo-Lipschitz"
        told.note(f"average {target}: the theorem takes psi that is {asked}; {added.psi[target]} cannot be shown to be "
                  f"{' or '.join(missing)}")
    if study.compared is not None:
        try:
            study.compared.averages(added.psi, study.settings.samples)
        except TensorprogError as error:
            told.note(f"there is no limit of the averages to compare with: {error}")


def uncertified(added: Averages) -> dict[str, list[str]]:
    """Of each average, by its left side, what the theorem asks of psi and the calculus does not certify.

    With scores that is Theorem 1 of Sakai et al. 2025, without them Theorem 5.4 of Yang 2019.
    """
    from tensorprog.check.certificates import Calculus
    from tensorprog.check.graph import Structure
    from tensorprog.language.facts import HOLDS

    calculus = Calculus(added.netsor, Structure(added.netsor))
    scored = bool(added.original.scores)
    asked = ("bounded", "pseudo-Lipschitz") if scored else ("controlled",)
    result = {}
    for target, family in zip(added.psi, added.families.values(), strict=True):
        dot = added.netsor.body[added.netsor.families[family].statements[0]]
        position = added.netsor.families[dot.inputs[0].name].statements[0]
        missing = [name for name in asked if calculus.fact(name, position).verdict is not HOLDS]
        if missing:
            result[target] = missing
    return result


def _width(study: Study, samples: Samples, store: files.SamplesFile | None, stream: bool, told: Listener) -> None:
    width = samples.width
    told.stage(f"comparing n = {width}")
    shown = _head(study, samples) if stream else samples
    if shown.samples < samples.samples:
        told.note(f"n = {width}: comparing the first {shown.samples:,} networks, which is what max_memory allows")
    variables = [label(name, index) for name in study.names for index in members(study.netsor, name, MAX_MEMBERS)]
    wanted = [*variables, *shown.averages]
    try:
        comparison = compare(shown, study.compared, wanted)
    except Exception as error:
        if study.compared is None:
            raise
        _refused(study, error, told)
        comparison = compare(shown, None, wanted)
    study.comparisons.append(comparison)
    entry = files.finite_json(shown, comparison, study.settings.keep)
    study.finite.append(entry | {"samples": samples.samples})
    for variable in study.pictured:
        draws = column(shown, *split(study.netsor, variable)).copy()
        study.columns.setdefault(variable, []).append((f"n = {width}", draws))
    if store is not None:
        for name in study.names:
            store.add(f"{name}_n{width}", samples[name])
        for name, values in samples.averages.items():
            store.add(f"averages/{name}_n{width}", values)
        store.meta["width"].append(width)


def _head(study: Study, samples: Samples) -> Samples:
    """As many of the first networks as can be compared within the memory allowed."""
    from tensorprog.finite.run import parse_memory

    sizes = (math.prod(samples.netsor.families[name].shape) for name in study.names)
    held = len(study.settings.width) * len(study.pictured)
    copies = 16 + held + 4 * max(min(size, files.MAX_COVARIANCE) for size in sizes)  # of a column
    count = max(1000, parse_memory(study.settings.max_memory) // (8 * samples.coordinates * copies))
    if count >= samples.samples:
        return samples
    arrays, averages = (
        {name: array[:count] for name, array in part.items()} for part in (samples.arrays, samples.averages)
    )
    laws = {name: (mean[:count], variance[:count]) for name, (mean, variance) in samples.conditional.items()}
    return replace(samples, arrays=arrays, averages=averages, conditional=laws, samples=count)


def _write(study: Study, out: Path, name: str, write: Callable[[Path], None]) -> None:
    with files.writing(out / name):
        write(out / name)
    if out / name not in study.written:
        study.written.append(out / name)


def _save_report(study: Study, out: Path | None) -> None:
    if out is not None:
        _write(study, out, "report.json", lambda path: files.write_text(path, files.to_text(study.to_json())))


def _svg(study: Study) -> str:
    from tensorprog.check.graph import build
    from tensorprog.show.graphs import to_svg

    return to_svg(build(study.netsor), study.report)


def _pictures(study: Study, out: Path, told: Listener) -> None:
    from tensorprog.show import plots
    from tensorprog.show.plots.widths import DISTANCES, STATISTICS

    first = study.pictured[0]

    def draw() -> None:
        panels = list(STATISTICS if study.compared is None else DISTANCES)
        _write(study, out, "density.png", lambda path: plots.save(
            path, lambda axes: plots.density_of(study.columns[first], first, study.compared, axes), 2, 10.0, 4.4))
        _write(study, out, "convergence.png", lambda path: plots.save(
            path, lambda axes: plots.convergence(study.comparisons, first, axes, panels), len(panels),
            4.1 * len(panels), 4.2))

    try:
        draw()
    except plots.PlotsUnavailableError as error:
        told.note(str(error))
    except Exception as error:
        if study.compared is None:
            raise
        _refused(study, error, told)
        draw()
