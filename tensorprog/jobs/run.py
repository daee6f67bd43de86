"""The main job, `tp run`: check, compile the limit, run at each width, compare, write files."""

from __future__ import annotations

import json
import math
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tensorprog.finite.plan import Job, make_job
from tensorprog.finite.run import Resources, batching, draw, one_blas_thread
from tensorprog.finite.store import Store
from tensorprog.language.averages import Averages, with_averages
from tensorprog.language.errors import (
    MissingPackageError,
    NotCompiledError,
    OutsideError,
    TensorprogError,
)
from tensorprog.language.files import json_text, locked, whole, write_text, writing
from tensorprog.language.formats import label, members, split
from tensorprog.language.ir import Netsor
from tensorprog.language.memory import parse_memory
from tensorprog.language.samples import Samples, column
from tensorprog.language.writing import pack
from tensorprog.results.comparison import MAX_MEMBERS, compare
from tensorprog.results.conditional import ConditionalProgram, with_conditional
from tensorprog.results.expansion import first_orders
from tensorprog.results.reference import MAX_COVARIANCE, Reference
from tensorprog.results.study import Settings, Study, finite_json
from tensorprog.show import plots
from tensorprog.show.terminal import Progress

__all__ = ["run"]

MAX_PRECISE = 16  # members of outputs together up to which precise divergences are shown: each takes a second or so
DRAWS = 1 << 12  # of the first order in 1/n
FILES = ("program.svg", "report.json", "samples.npz", "report.html", "density.png", "convergence.png")
UNDONE = ".unfinished"  # a folder in that of an earlier run, until its files replace those


def run(
    program: Any,
    settings: Settings,
    out: Path | None = None,
    listener: Progress | None = None,
    *,
    executor: Executor | None = None,
    stream: bool = False,
    page: Callable[[Study], str] | None = None,
) -> Study:
    """Check, compile, run, compare and write; without `out` nothing is written.

    A program outside the theory is run at finite width all the same.  What is finished when an exception passes is on
    disk: report.json and samples.npz hold the widths that are complete; the files of an earlier run are replaced all
    together.  With `stream` samples go to folders samples/n64, .. as they are drawn, instead of samples.npz, and a run
    that was stopped goes on where it was.  `page` makes report.html of what is known at the end, or where the run is
    stopped.

    Raises    ProgramError, MemoryLimitError, WorkerError
    """
    told = listener or Progress(notes=False)
    told.stage("checking")
    report = program.check()
    added = with_averages(program.netsor, dict(settings.averages))
    beside = _conditional(added.netsor) if report.grade != "outside" else None
    study = Study(program.netsor, report, settings)
    drawn = added.netsor if beside is None else beside.netsor
    chosen = settings.seed, settings.method, settings.coordinates, settings.keep, settings.dtype
    jobs = {width: make_job(drawn, width, *chosen) for width in settings.width}
    stores = {width: out / "samples" / f"n{width}" for width in settings.width if out is not None and stream}
    limits = settings.threads, settings.max_memory, executor
    resources = {width: Resources(*limits, stores.get(width)) for width in jobs}
    told.note(_beforehand(settings.samples, jobs, resources))
    with nullcontext() if out is None else _replaced(out, stream) as folder, one_blas_thread():

        def save(name: str, write: Callable[[Path], None]) -> None:
            if folder is not None:
                with writing(folder / name):
                    write(folder / name)

        def report_page() -> None:
            if page is not None and folder is not None:
                told.stage("writing the report")
                save("report.html", lambda path: write_text(path, page(study)))

        def report_json() -> None:
            save("report.json", lambda path: write_text(path, json_text(study.to_json())))

        try:
            pictures = folder is not None and _graph(study, save, told)
            _limit(study, program, added, told)
            report_json()
            for number, width in enumerate(settings.width, 1):
                told.stage(f"drawing {number} of {len(settings.width)}, n = {width}")
                samples = draw(jobs[width], settings.samples, resources[width], told.progress)
                samples = added.separate(samples if beside is None else beside.separate(samples))
                if not stream:  # first, since comparing may be interrupted
                    save("samples.npz", lambda path, samples=samples: _store(study, samples, path))  # type: ignore[misc]
                _compare(study, samples, stream, told)
                report_json()
            if study.compared is not None and study.comparisons:
                _first_orders(study, told)
            if pictures:
                told.stage("drawing pictures")
                _pictures(study, save, told)
            report_json()
        except BaseException:
            with suppress(Exception):  # of many kinds, after an interrupt; none is the first thing to be told
                report_page()
            raise
        report_page()
    if out is not None:
        study.written = [out / name for name in FILES if (out / name).exists()] + list(stores.values())
    return study


@contextmanager
def _replaced(out: Path, stream: bool) -> Iterator[Path]:
    """Where the files of a run go until it ends: into the folder itself, or if an earlier run is there into one beside
    its files, which they then replace all together; nothing is replaced where no width was finished.

    Raises    ProgramError if another run is writing there
    """
    with locked(out):
        if stream or not (out / "report.json").exists():
            for name in FILES:
                (out / name).unlink(missing_ok=True)
            yield out
            return
        folder = out / UNDONE
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            for name in FILES if (folder / "samples.npz").exists() else ():
                (out / name).unlink(missing_ok=True)
                if (folder / name).exists():
                    (folder / name).replace(out / name)
            shutil.rmtree(folder)


# ---- before anything is drawn ----------------------------------------------------------------------------------------


def _conditional(netsor: Netsor) -> ConditionalProgram | None:
    """The program with the conditional laws of its outputs, which cost little where there are few."""
    if sum(math.prod(netsor.families[name].shape) for name in netsor.outputs) <= MAX_PRECISE:
        with suppress(NotCompiledError):
            return with_conditional(netsor)
    return None


def _beforehand(samples: int, jobs: Mapping[int, Job], resources: Mapping[int, Resources]) -> str:
    """What will be drawn, after a look at whether it can be.

    Raises    MemoryLimitError, ProgramError for settings no width could run with
    """
    memory = max(batching(job, samples, resources[width]).memory for width, job in jobs.items())
    for width, job in jobs.items():
        if (folder := resources[width].store) is not None:
            Store(folder, job, samples).known()
    widths = ", ".join(f"n = {width}" for width in jobs)
    return f"{samples:,} networks at each of {widths}; drawing takes up to {memory / 2**20:.0f} MiB of memory"


def _graph(study: Study, save: Callable[..., None], told: Progress) -> bool:
    """Write program.svg, unless pictures cannot be drawn."""
    from tensorprog.check.graph import build
    from tensorprog.show.graphs import to_svg

    try:
        study.drawing = to_svg(build(study.netsor), study.report)
    except MissingPackageError as error:
        told.note(f"there will be no pictures: {error}")
        return False
    save("program.svg", lambda path: write_text(path, study.drawing))
    return True


# ---- the limit -------------------------------------------------------------------------------------------------------


def _limit(study: Study, program: Any, added: Averages, told: Progress) -> None:
    """Compile the limit and ask it for its numbers; networks of finite width do not depend on it."""
    if study.report.grade == "outside":
        study.refusal = OutsideError(str(study.report))
        told.note("no limit is claimed for this program; finite widths are run all the same")
        return
    told.stage("compiling the limit")
    try:
        reference = Reference(program.limit(max_memory=study.settings.max_memory))
        found = reference.to_json(study.settings.keep)
        missing = [name for name in study.netsor.outputs if found["outputs"][name].get("refused")]
        if len(missing) == len(study.netsor.outputs):
            raise reference.failed[missing[0]]
    except Exception as error:
        _refused(study, error, told)
        return
    study.limit, study.reference = found, reference
    for name in missing:
        told.note(f"there is no limit of {name} to compare with: {reference.failed[name]}")
    if not added.psi:
        return
    asked = "bounded and pseudo-Lipschitz" if added.original.scores else "controlled"
    told.note(f"averages: the theorem is about psi that is {asked}, which is not checked")
    try:
        reference.averages(added.psi, study.settings.samples)
    except TensorprogError as error:
        told.note(f"there is no limit of the averages to compare with: {error}")


def _refused(study: Study, error: Exception, told: Progress) -> None:
    study.refusal = error
    told.note(f"there is no limit to compare with: {study.reason}")


# ---- networks --------------------------------------------------------------------------------------------------------


def _compare(study: Study, samples: Samples, stream: bool, told: Progress) -> None:
    told.stage(f"comparing n = {samples.width}")
    shown = _head(study, samples) if stream else samples
    if shown.samples < samples.samples:
        count = f"{shown.samples:,} networks, which is what max_memory allows"
        told.note(f"n = {samples.width}: comparing the first {count}")
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
    study.finite.append(finite_json(shown, comparison, study.settings.keep) | {"samples": samples.samples})
    for variable in study.pictured:
        draws = column(shown, *split(study.netsor, variable)).copy()
        study.columns.setdefault(variable, []).append((f"n = {samples.width}", draws))


def _head(study: Study, samples: Samples) -> Samples:
    """As many of the first networks as can be compared within the memory allowed."""
    sizes = (math.prod(samples.netsor.families[name].shape) for name in study.names)
    held = len(study.settings.width) * len(study.pictured)
    copies = 16 + held + 4 * max(min(size, MAX_COVARIANCE) for size in sizes)  # of a column
    count = max(1000, parse_memory(study.settings.max_memory) // (8 * samples.coordinates * copies))
    if count >= samples.samples:
        return samples
    arrays, averages = ({k: v[:count] for k, v in held.items()} for held in (samples.arrays, samples.averages))
    laws = {name: (mean[:count], variance[:count]) for name, (mean, variance) in samples.conditional.items()}
    return replace(samples, arrays=arrays, averages=averages, conditional=laws, samples=count)


def _first_orders(study: Study, told: Progress) -> None:
    told.stage("first order in 1/n")
    variable = study.pictured[0]
    with suppress(TensorprogError, FloatingPointError):
        found = first_orders(study.netsor, variable, DRAWS)
        if found is not None:
            study.first_orders[variable] = found
        else:
            how = f'law.correction("kurtosis", "{variable}") computes it'
            told.note(f"the first order in 1/n of {variable} would take long: {how}")


# ---- files -----------------------------------------------------------------------------------------------------------


def _pictures(study: Study, save: Callable[..., None], told: Progress) -> None:
    first = study.pictured[0]
    for variable in study.pictured:
        if study.compared is not None and study.limit_of(variable):
            try:
                draws = [x for _, x in study.columns[variable]]
                study.densities[variable] = study.compared.limit_density(variable, draws)
            except Exception as error:
                _refused(study, error, told)
    density, convergence, panels = plots.of_study(study, first)

    def picture(name: str, drawing: Callable[[Any], Any], count: int) -> None:
        save(f"{name}.png", lambda path: study.drawn.update({name: plots.svg(drawing, count, path)}))

    picture("density", density, 2)
    picture("convergence", convergence, len(panels))


def _store(study: Study, samples: Samples, path: Path) -> None:
    """samples.npz with the networks of one more width, such as `y_n64` of shape (samples, *members) or (samples,
    coordinates, *members), beside the program's tables and `meta.json`: program text, version and settings.
    """
    from tensorprog.version import __version__

    arrays = {f"{name}_n{samples.width}": samples[name] for name in study.names}
    arrays |= {f"averages/{name}_n{samples.width}": values for name, values in samples.averages.items()}
    if not study.comparisons:
        text, tables = pack(study.netsor)
        meta: dict[str, Any] = {"program": text, "version": __version__}
        meta |= {key: getattr(study.settings, key) for key in ("width", "seed", "samples", "method", "coordinates")}
        arrays |= tables | {"meta.json": np.array(json.dumps(meta))}
    with whole(path) as partial:
        if study.comparisons:  # the arrays of these widths are there
            shutil.copyfile(path, partial)
        with zipfile.ZipFile(partial, "a") as file:
            for name, array in arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
