"""The main job, `tp run`: check, compile the limit, run at each width, compare, write files."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.jobs.pace import Pace, Paced, about, about_curves, about_first_order
from tensorprog.jobs.remembered_law import RememberedLaw
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
from tensorprog.results.limit_density import limit_density
from tensorprog.results.reference import MAX_COVARIANCE, Reference
from tensorprog.results.study import Listener, Settings, Study, duration, finite_json

__all__ = ["SamplesFile", "estimate", "run"]

Array = NDArray[Any]

MAX_PRECISE = 16  # members of outputs together up to which precise divergences are shown: each takes a second or so
DRAWS, SECONDS = 1 << 12, 8.0  # of the first order in 1/n: draws, and the time that it may take
MOST_TIMES = 2.0  # as long may a run take for them
LIMIT, REPORT, PICTURES = "compiling the limit", "writing the report", "drawing pictures"  # steps of a run
EXPANDING = "first order in 1/n"
COMPARING = 0.02, 1e-6  # rough seconds to compare one variable, and more for each network
FIRST = 0.3  # before the first network is drawn


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
    costs = [
        one(
            whole,
            width,
            settings.samples,
            method=settings.method,
            coordinates=settings.coordinates,
            keep=settings.keep,
            threads=settings.threads,
            max_memory=settings.max_memory,
            executor=executor,
            stored=stream,
            exact=settings.exact,
        )
        for width in settings.width
    ]
    return sum(seconds for seconds, _ in costs), max(memory for _, memory in costs)


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
    from tensorprog import __version__
    from tensorprog.check.graph import build
    from tensorprog.finite.run import Interrupted, check_memory, check_store
    from tensorprog.show import plots
    from tensorprog.show.graphs import to_svg

    told = listener or Listener()
    netsor: Netsor = program.netsor
    told.stage("checking")
    report = program.check()
    if report.grade != "outside" and _conditional(netsor, settings):
        settings = replace(settings, conditional=True)
    study = Study(netsor, report, settings)
    for width in settings.width:
        check_memory(
            _whole(netsor, settings),
            width,
            settings.samples,
            method=settings.method,
            coordinates=settings.coordinates,
            keep=settings.keep,
            threads=settings.threads,
            max_memory=settings.max_memory,
            dtype=settings.dtype,
            executor=executor,
            stored=stream,
            exact=settings.exact,
        )
    if out is not None:
        try:
            plots.need_matplotlib()
        except plots.PlotsUnavailableError as error:
            told.note(f"there will be no pictures: {error}")
    _, memory = estimate(netsor, settings, executor, stream)
    law = _compiled(program, study)
    told = Paced(told, Pace(program.netsor.name), _steps(program, study, law, out, executor, stream))
    told.note(
        f"estimate: about {duration(sum(told.expected.values()))} and {memory / 2**20:.0f} MiB for the limit, "
        f"{settings.samples:,} networks at each of {', '.join(f'n = {width}' for width in settings.width)}"
        f"{'' if out is None else ', pictures and report'}"
    )
    folders = {width: out / "samples" / f"n{width}" for width in settings.width if out is not None and stream}
    for width, folder in folders.items():
        check_store(
            _whole(netsor, settings),
            width,
            settings.samples,
            folder,
            settings.seed,
            settings.method,
            settings.coordinates,
            settings.keep,
            settings.dtype,
            settings.exact,
        )
    with ExitStack() as stack:
        if out is not None and page is not None:
            stack.push(lambda kind, *_: _report(study, out, page, told, kind is not None))
        store = None
        if out is not None:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)
            if not stream:
                text, tables = pack(netsor)
                meta = {
                    "program": text,
                    "version": __version__,
                    "seed": settings.seed,
                    "samples": settings.samples,
                    "width": [],
                    "method": settings.method,
                    "coordinates": settings.coordinates,
                }
                store = stack.enter_context(SamplesFile(out / "samples.npz", meta, tables))
            _write(study, out, "program.svg", lambda path: write_text(path, to_svg(build(netsor), report)))
        _limit(study, law, told)
        if settings.averages:
            _note_averages(study, told)
        _save_report(study, out)
        study.written += list(folders.values()) if store is None else [store.path]
        for width in settings.width:
            told.stage(_drawing(width))
            try:
                samples = program.run(
                    width=width, progress=told.progress, executor=executor, store=folders.get(width), **settings.options
                )
            except Interrupted as stop:
                if store is not None and stop.drawn is not None:
                    _keep(study, stop.drawn, store, told)
                raise
            _width(study, samples, store, stream, told)
            _save_report(study, out)
        if study.compared is not None and study.comparisons:
            _first_orders(study, told)
            _save_report(study, out)
    if out is not None:
        told.stage(PICTURES)
        _pictures(study, out, told)
        _save_report(study, out)
    told.done()
    return study


def _steps(
    program: Any, study: Study, law: Any, out: Path | None, executor: Executor | None, stream: bool
) -> dict[str, tuple[str, float]]:
    """What is to be done, in order: kind and rough seconds of each step."""
    settings, netsor = study.settings, study.netsor
    compared = sum(min(math.prod(netsor.families[name].shape), MAX_MEMBERS) for name in study.names)
    fixed, each = COMPARING
    steps = {LIMIT: ("limit", 0.0 if law is None else about(program, law))}
    for number, width in enumerate(settings.width):
        seconds, _ = estimate(netsor, replace(settings, width=(width,)), executor, stream)
        steps[_drawing(width)] = "drawing", seconds + (FIRST if number == 0 else 0.0)
        curves = about_curves(program, law, study.names, MAX_MEMBERS) if number == 0 and law is not None else 0.0
        steps[_comparing(width)] = "comparing", compared * (fixed + each * settings.samples) + curves
    if law is not None:
        steps[EXPANDING] = "first order", about_first_order(netsor, SECONDS)
    if out is not None:
        steps |= {REPORT: ("report", 2.0), PICTURES: ("pictures", 0.9)}
    return steps


def _drawing(width: int) -> str:
    return f"n = {width}"


def _comparing(width: int | None) -> str:
    return f"comparing n = {width}"


def _report(study: Study, out: Path, page: Callable[[Study], str], told: Listener, stopped: bool) -> None:
    """Write report.html; where the run is stopped, what goes wrong then is not the first to be told."""
    told.stage(REPORT)
    try:
        _write(study, out, "report.html", lambda path: write_text(path, page(study)))
    except ProgramError:
        if not stopped:
            raise


def _compiled(program: Any, study: Study) -> RememberedLaw | None:
    """The limit; where there is none, the study knows why."""
    if study.report.grade == "outside":
        study.refusal = OutsideError(str(study.report))
        return None
    try:
        return RememberedLaw(program, max_memory=study.settings.max_memory)
    except Exception as error:  # networks of finite width do not depend on it
        study.refusal = error
        return None


def _limit(study: Study, law: RememberedLaw | None, told: Listener) -> None:
    if law is None:
        if study.report.grade == "outside":
            told.note("no limit is claimed for this program; finite widths are run all the same")
        else:
            assert study.refusal is not None
            _refused(study, study.refusal, told)
        return
    told.stage(LIMIT)
    try:
        reference = Reference(law)
        found = reference.to_json(study.settings.keep)
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


def _width(study: Study, samples: Samples, store: SamplesFile | None, stream: bool, told: Listener) -> None:
    width = samples.width
    if store is not None:  # first, since comparing may be interrupted
        _store(study, samples, store)
    told.stage(_comparing(width))
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


def _keep(study: Study, drawn: Samples, store: SamplesFile, told: Listener) -> None:
    """Write what was drawn at the width at which a run was interrupted."""
    _store(study, drawn, store)
    store.meta["interrupted"] = {"width": drawn.width, "samples": drawn.samples}
    told.note(f"n = {drawn.width}: the first {drawn.samples:,} networks are kept in {store.path.name}")


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
    told.stage(EXPANDING)
    variable = study.pictured[0]
    try:
        found = first_orders(study.netsor, variable, DRAWS, SECONDS)
    except (TensorprogError, FloatingPointError):
        return
    if isinstance(found, float):
        takes = f"about {duration(found)}" if math.isfinite(found) else "long behind several layers of scores"
        told.note(
            f"the first order in 1/n of {variable} would take {takes}: "
            f'law.correction("kurtosis", "{variable}") computes it'
        )
        return
    study.first_orders[variable] = found


def _write(study: Study, out: Path, name: str, write: Callable[[Path], None]) -> None:
    with writing(out / name):
        write(out / name)
    if out / name not in study.written:
        study.written.append(out / name)


def _save_report(study: Study, out: Path | None) -> None:
    if out is not None:
        _write(study, out, "report.json", lambda path: write_text(path, json_text(study.to_json())))


def _pictures(study: Study, out: Path, told: Listener) -> None:
    from tensorprog.show import plots

    first = study.pictured[0]

    def draw() -> None:
        limited = {name for name in study.pictured if study.limit_of(name)}
        panels = list(plots.DISTANCES if first in limited else plots.STATISTICS)
        if study.compared is not None:
            for variable in limited:
                found = limit_density(study.compared, variable, [x for _, x in study.columns[variable]])
                study.densities[variable] = found
        limit = study.densities.get(first) if first in limited else None
        _write(
            study,
            out,
            "density.png",
            lambda path: plots.save(
                path, lambda axes: plots.density_of(study.columns[first], first, limit, axes), 2, style="page"
            ),
        )
        _write(
            study,
            out,
            "convergence.png",
            lambda path: plots.save(
                path,
                lambda axes: plots.convergence(study.comparisons, first, axes, panels, study.first_orders.get(first)),
                len(panels),
                style="page",
            ),
        )

    try:
        draw()
    except plots.PlotsUnavailableError:  # which has been said
        pass
    except Exception as error:
        if study.compared is None:
            raise
        _refused(study, error, told)
        draw()


# ---- samples.npz ----------------------------------------------------------------------------------------------------


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
            self._file = _Written(self.partial, "w+b")
            self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        return self

    def add(self, name: str, array: Array) -> None:
        """Append one array, or nothing of it: what was written half, at an interrupt or on a full disk, is cut off."""
        start = self._zip.start_dir
        try:
            with writing(self.path), self._zip.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
        except BaseException:
            half = self._zip.NameToInfo.pop(f"{name}.npy", None)
            self._zip.filelist[:] = [entry for entry in self._zip.filelist if entry is not half]
            self._file.truncate(start)
            self._zip.start_dir = start
            raise
        self.names.append(name)

    def __exit__(self, *exception: object) -> None:
        with writing(self.path):
            try:
                if self.names:
                    for name, array in (self.tables | {"meta.json": np.array(json.dumps(self.meta))}).items():
                        self.add(name, array)
                self._zip.close()
                self._file.close()
                if self.names:
                    self.partial.replace(self.path)
            finally:
                self._zip.fp = None  # else what is left of a full disk is tried once more, when memory is freed
                self._file.close()
                self.partial.unlink(missing_ok=True)


class _Written(io.FileIO):
    """A file without a buffer, so that what does not fit is known at once; it writes all that it is given."""

    def write(self, data: Any) -> int:
        """Write everything."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[super().write(left) :]
        return size
