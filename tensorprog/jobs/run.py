"""The main job, `tp run`: check, compile the limit, run at each width, compare, write files."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.job import Job, make_job
from tensorprog.finite.run import Interrupted, check_memory, check_store, draw, estimate
from tensorprog.language.averages import Averages, with_averages
from tensorprog.language.errors import NotCompiledError, OutsideError, ProgramError, TensorprogError
from tensorprog.language.files import json_text, partial_name, write_text, writing
from tensorprog.language.formats import label, members, split
from tensorprog.language.ir import Netsor
from tensorprog.language.memory import parse_memory
from tensorprog.language.samples import Samples, column
from tensorprog.language.writing import pack
from tensorprog.results.comparison import MAX_MEMBERS, compare
from tensorprog.results.conditional import with_conditional
from tensorprog.results.expansion import first_orders
from tensorprog.results.reference import MAX_COVARIANCE, Reference, limit_density
from tensorprog.results.study import Settings, Study, finite_json
from tensorprog.show import plots
from tensorprog.show.progress import Listener

__all__ = ["SamplesFile", "run"]

Array = NDArray[Any]

MAX_PRECISE = 16  # members of outputs together up to which precise divergences are shown: each takes a second or so
DRAWS = 1 << 12  # of the first order in 1/n
MOST_TIMES = 2.0  # as long may a run take for conditional laws


def run(
    program: Any,
    settings: Settings,
    out: Path | None = None,
    listener: Listener | None = None,
    *,
    executor: Executor | None = None,
    stream: bool = False,
    page: Callable[[Study], str] | None = None,
) -> Study:
    """Check, compile, run, compare and write; without `out` nothing is written.

    A program outside the theory is run at finite width all the same.  What is finished when an exception passes is on
    disk: report.json and samples.npz hold the widths that are complete.  With `stream` samples go to folders
    samples/n64, .. as they are drawn, instead of samples.npz, and a run that was stopped goes on where it was.  `page`
    makes report.html of what is known at the end, or where the run is stopped.

    Raises    ProgramError, MemoryLimitError, WorkerError
    """
    from tensorprog.check.graph import build
    from tensorprog.show.graphs import to_svg

    told = listener or Listener()
    netsor: Netsor = program.netsor
    told.stage("checking")
    report = program.check()
    if report.grade != "outside" and _conditional(netsor, settings):
        settings = replace(settings, conditional=True)
    study = Study(netsor, report, settings)
    folders = {width: out / "samples" / f"n{width}" for width in settings.width if out is not None and stream}
    whole, separate = _extended(netsor, settings)
    jobs = {width: _job(whole, settings, width) for width in settings.width}
    told.note(_beforehand(study, jobs, executor, folders))
    if out is not None:
        try:
            plots.need_matplotlib()
        except plots.PlotsUnavailableError as error:
            told.note(f"there will be no pictures: {error}")
    with ExitStack() as stack:
        store = None
        if out is not None:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)
            if page is not None:
                stack.push(lambda kind, *_: _report(study, out, page, told, kind is not None))
            if not stream:
                store = stack.enter_context(SamplesFile(out / "samples.npz", *_about(study)))
            with suppress(plots.PlotsUnavailableError):  # which has been said
                svg = to_svg(build(netsor), report)
                _write(study, out, "program.svg", lambda path: write_text(path, svg))
        _limit(study, program, told)
        if settings.averages:
            _note_averages(study, told)
        _save_report(study, out)
        study.written += list(folders.values()) if store is None else [store.path]
        for number, width in enumerate(settings.width, 1):
            told.stage(f"drawing {number} of {len(settings.width)}, n = {width}")
            try:
                drawn = draw(
                    jobs[width],
                    settings.samples,
                    settings.threads,
                    settings.max_memory,
                    executor,
                    folders.get(width),
                    told.progress,
                )
            except Interrupted as stop:
                if store is not None and stop.drawn is not None:
                    _store(study, stop.drawn, store)
                    store.meta["interrupted"] = {"width": width, "samples": stop.drawn.samples}
                    told.note(f"n = {width}: the first {stop.drawn.samples:,} networks are kept in {store.path.name}")
                raise
            _width(study, separate(drawn), store, stream, told)
            _save_report(study, out)
        if study.compared is not None and study.comparisons:
            _first_orders(study, told)
        if out is not None:
            told.stage("drawing pictures")
            _pictures(study, out, told)
        _save_report(study, out)
    return study


# ---- before anything is drawn ----------------------------------------------------------------------------------------


def _extended(netsor: Netsor, settings: Settings) -> tuple[Netsor, Callable[[Samples], Samples]]:
    """The program with all statements that its runs draw, and what takes these apart in samples."""
    added = with_averages(netsor, dict(settings.averages))
    if not settings.conditional:
        return added.netsor, added.separate
    beside = with_conditional(added.netsor)
    return beside.netsor, lambda drawn: added.separate(beside.separate(drawn))


def _job(netsor: Netsor, settings: Settings, width: int) -> Job:
    """How networks of a width are drawn."""
    return make_job(
        netsor, width, settings.seed, settings.method, settings.coordinates, settings.keep, settings.dtype
    )  # fmt: skip


def _conditional(netsor: Netsor, settings: Settings) -> bool:
    """Whether conditional laws of all outputs compared cost little beside the networks themselves."""
    if sum(math.prod(netsor.families[name].shape) for name in netsor.outputs) > MAX_PRECISE:
        return False

    def cost(conditional: bool) -> tuple[float, int]:
        whole, _ = _extended(netsor, replace(settings, conditional=conditional))
        return estimate(_job(whole, settings, max(settings.width)), settings.samples, threads=1)

    try:
        (plain, _), (seconds, memory) = cost(False), cost(True)
    except NotCompiledError:
        return False
    return seconds <= MOST_TIMES * plain and memory <= parse_memory(settings.max_memory)


def _beforehand(study: Study, jobs: Mapping[int, Job], executor: Executor | None, folders: Mapping[int, Path]) -> str:
    """What will be drawn, after a look at whether it can be.

    Raises    MemoryLimitError, ProgramError for settings no width could run with
    """
    settings, samples = study.settings, study.settings.samples
    stored = bool(folders)
    memory = max(
        check_memory(job, samples, settings.threads, settings.max_memory, executor, stored).memory
        for job in jobs.values()
    )
    for width, folder in folders.items():
        check_store(jobs[width], samples, folder)
    widths = ", ".join(f"n = {width}" for width in settings.width)
    return f"{samples:,} networks at each of {widths}; drawing takes up to {memory / 2**20:.0f} MiB of memory"


def _about(study: Study) -> tuple[dict[str, Any], dict[str, Array]]:
    """What samples.npz says of the run, and the program's tables."""
    from tensorprog.version import __version__

    text, tables = pack(study.netsor)
    asked = {key: getattr(study.settings, key) for key in ("seed", "samples", "method", "coordinates")}
    return {"program": text, "version": __version__, **asked, "width": []}, tables


# ---- the limit -------------------------------------------------------------------------------------------------------


def _limit(study: Study, program: Any, told: Listener) -> None:
    """Compile the limit and ask it for its numbers; networks of finite width do not depend on it."""
    if study.report.grade == "outside":
        study.refusal = OutsideError(str(study.report))
        told.note("no limit is claimed for this program; finite widths are run all the same")
        return
    told.stage("compiling the limit")
    try:
        reference = Reference(program.limit(max_memory=study.settings.max_memory))
        found = reference.to_json(study.settings.keep)
    except Exception as error:
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
        told.note(
            f"average {target}: the theorem takes psi that is {asked}; {added.psi[target]} cannot be shown to be "
            f"{' or '.join(missing)}"
        )
    if study.compared is not None:
        try:
            study.compared.averages(added.psi, study.settings.samples)
        except TensorprogError as error:
            told.note(f"there is no limit of the averages to compare with: {error}")


def uncertified(added: Averages) -> dict[str, list[str]]:
    """Of each average, by its left side, what the theorem asks of psi and the calculus does not certify.

    With scores that is Theorem 1 of Sakai et al. 2025, without them Theorem 5.4 of Yang 2019.
    """
    from tensorprog.check.facts import PROPERTIES, Calculus

    calculus = Calculus(added.netsor)
    scored = bool(added.original.scores)
    asked = ("bounded", "pseudo-Lipschitz") if scored else ("controlled",)
    result = {}
    for target, family in zip(added.psi, added.families.values(), strict=True):
        dot = added.netsor.body[added.netsor.families[family].statements[0]]
        position = added.netsor.families[dot.inputs[0].name].statements[0]
        missing = [name for name in asked if not PROPERTIES[name](calculus.statement(position))]
        if missing:
            result[target] = missing
    return result


# ---- networks --------------------------------------------------------------------------------------------------------


def _width(study: Study, samples: Samples, store: SamplesFile | None, stream: bool, told: Listener) -> None:
    """Write the networks of one width, and compare them with the limit."""
    width = samples.width
    if store is not None:  # first, since comparing may be interrupted
        _store(study, samples, store)
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
    entry = finite_json(shown, comparison, study.settings.keep)
    study.finite.append(entry | {"samples": samples.samples})
    for variable in study.pictured:
        draws = column(shown, *split(study.netsor, variable)).copy()
        study.columns.setdefault(variable, []).append((f"n = {width}", draws))


def _store(study: Study, samples: Samples, store: SamplesFile) -> None:
    for name in study.names:
        store.add(f"{name}_n{samples.width}", samples[name])
    for name, values in samples.averages.items():
        store.add(f"averages/{name}_n{samples.width}", values)
    store.meta["width"].append(samples.width)


def _head(study: Study, samples: Samples) -> Samples:
    """As many of the first networks as can be compared within the memory allowed."""
    sizes = (math.prod(samples.netsor.families[name].shape) for name in study.names)
    held = len(study.settings.width) * len(study.pictured)
    copies = 16 + held + 4 * max(min(size, MAX_COVARIANCE) for size in sizes)  # of a column
    count = max(1000, parse_memory(study.settings.max_memory) // (8 * samples.coordinates * copies))
    if count >= samples.samples:
        return samples
    arrays, averages = (
        {name: array[:count] for name, array in part.items()} for part in (samples.arrays, samples.averages)
    )
    laws = {name: (mean[:count], variance[:count]) for name, (mean, variance) in samples.conditional.items()}
    return replace(samples, arrays=arrays, averages=averages, conditional=laws, samples=count)


def _first_orders(study: Study, told: Listener) -> None:
    """The first order in 1/n of the first output, where it takes no longer than a moment."""
    told.stage("first order in 1/n")
    variable = study.pictured[0]
    try:
        found = first_orders(study.netsor, variable, DRAWS)
    except (TensorprogError, FloatingPointError):
        return
    if found is None:
        told.note(
            f"the first order in 1/n of {variable} would take long: "
            f'law.correction("kurtosis", "{variable}") computes it'
        )
        return
    study.first_orders[variable] = found


# ---- files -----------------------------------------------------------------------------------------------------------


def _write(study: Study, out: Path, name: str, write: Callable[[Path], None]) -> None:
    with writing(out / name):
        write(out / name)
    if out / name not in study.written:
        study.written.append(out / name)


def _save_report(study: Study, out: Path | None) -> None:
    if out is not None:
        _write(study, out, "report.json", lambda path: write_text(path, json_text(study.to_json())))


def _report(study: Study, out: Path, page: Callable[[Study], str], told: Listener, stopped: bool) -> None:
    """Write report.html; where the run is stopped, what goes wrong then is not the first to be told."""
    told.stage("writing the report")
    try:
        _write(study, out, "report.html", lambda path: write_text(path, page(study)))
    except ProgramError:
        if not stopped:
            raise


def _pictures(study: Study, out: Path, told: Listener) -> None:
    try:
        _draw(study, out)
    except plots.PlotsUnavailableError:  # which has been said
        pass
    except Exception as error:
        if study.compared is None:
            raise
        _refused(study, error, told)
        _draw(study, out)


def _draw(study: Study, out: Path) -> None:
    """density.png and convergence.png of the first output."""
    first = study.pictured[0]
    limited = {name for name in study.pictured if study.limit_of(name)}
    if study.compared is not None:
        for variable in limited:
            found = limit_density(study.compared, variable, [x for _, x in study.columns[variable]])
            study.densities[variable] = found
    limit = study.densities.get(first) if first in limited else None
    panels = plots.DISTANCES if first in limited else plots.STATISTICS
    order = study.first_orders.get(first)

    def density(axes: Any) -> None:
        plots.density_of(study.columns[first], first, limit, axes)

    def convergence(axes: Any) -> None:
        plots.convergence(study.comparisons, first, axes, tuple(panels), order)

    _write(study, out, "density.png", lambda path: plots.save(path, density, 2))
    _write(study, out, "convergence.png", lambda path: plots.save(path, convergence, len(panels)))


class SamplesFile:
    """samples.npz, written array by array: memory holds one width at a time, and leaving the block completes the file.

    Holds `meta.json` (program text, version, seed, widths), the program's tables, and, for each output and width, e.g.
    `y_n64` with shape (samples, *members) or (samples, coordinates, *members).
    """

    def __init__(
        self, path: str | os.PathLike[str], meta: Mapping[str, Any], tables: Mapping[str, Array] | None = None
    ) -> None:
        self.path = Path(path)
        self.partial = partial_name(self.path)
        self.meta, self.tables = dict(meta), dict(tables or {})
        self.names: list[str] = []

    def __enter__(self) -> SamplesFile:
        with writing(self.path):
            self.partial.parent.mkdir(parents=True, exist_ok=True)
            self._zip = zipfile.ZipFile(self.partial, "w", zipfile.ZIP_STORED)
        return self

    def add(self, name: str, array: Array) -> None:
        """Append one array, or nothing of it: one that was written half, at an interrupt, is not listed."""
        try:
            with writing(self.path), self._zip.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
        except BaseException:
            half = self._zip.NameToInfo.pop(f"{name}.npy", None)
            self._zip.filelist[:] = [entry for entry in self._zip.filelist if entry is not half]
            raise
        self.names.append(name)

    def __exit__(self, *exception: object) -> None:
        with writing(self.path):
            try:
                if self.names:
                    for name, array in (self.tables | {"meta.json": np.array(json.dumps(self.meta))}).items():
                        self.add(name, array)
                self._zip.close()
                if self.names:
                    self.partial.replace(self.path)
            finally:
                stream, self._zip.fp = self._zip.fp, None  # a full disk is not tried again
                if stream is not None:
                    stream.close()
                self.partial.unlink(missing_ok=True)
