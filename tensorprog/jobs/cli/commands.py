"""The main job and its parts, one function each: `tp run`, `check`, `limit`, `sample`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from tensorprog.blocks import paragraph
from tensorprog.jobs.cli.frame import (
    DONE,
    FILE,
    FORMAT,
    MEMORY,
    METHOD,
    NOT_MET,
    OUR_BUG,
    QUIET,
    REQUIRE,
    SCHEDULER,
    SEED,
    SET,
    WIDTH,
    Command,
    answer,
    asked,
    cluster,
    complain,
    exit_code,
    header,
    load,
    number,
    open_program,
    option,
    options,
    out,
    pairs,
    places,
    watching,
    writable,
)
from tensorprog.language.errors import NotCompiledError, ProgramError, TensorprogError, fail

__all__ = ["check", "limit", "run", "sample"]


@click.command(
    cls=Command,
    short_help="Check, compile the limit, run each width, compare, draw.",
    examples=[
        ("attention", "into runs/attention"),
        ("attention --set H=1 --width 64,256", "one head, two widths"),
        ("mine.yaml --samples 1e6 --stream", "more than memory holds"),
        ("attention --format json > report.json", "for programs to read"),
    ],
)
@options(FILE, SET, WIDTH, number("--samples", 2, "Networks drawn at each width."), SEED, METHOD)
@option(
    "--average",
    "average",
    metavar="NAME=PSI",
    multiple=True,
    callback=pairs("--average", "NAME=PSI", "'m=tanh(y[0])**2'"),
    help="Average PSI over the coordinates, e.g. 'm=tanh(y[0])**2'; may be repeated.",
)
@options(number("--threads", 1, "Threads; default all cores."), MEMORY)
@option(
    "--stream",
    is_flag=True,
    help="Write samples to disk as they are drawn; the same command again goes on where this one was stopped.",
)
@options(SCHEDULER, out("Where files go; default runs/<program>."), FORMAT, QUIET, REQUIRE)
def run(
    file: str,
    overrides: dict[str, str],
    average: dict[str, str],
    stream: bool,
    scheduler: str | None,
    out: Path | None,
    **given: Any,
) -> int:
    """Check FILE, compile its limit, run it at each width, compare, and write pictures.

    Options left out come from the program's `run:` section. The folder receives report.html, report.json, samples.npz,
    density.png, convergence.png and program.svg; with --stream a folder samples/ instead of samples.npz.
    """
    program = open_program(file, overrides)
    from tensorprog.jobs import run as job
    from tensorprog.results.study import default_out, settings_of
    from tensorprog.show.page import report_page

    settings = settings_of(program.netsor, given | {"averages": tuple(average.items()) or None})
    folder = out or default_out(program.netsor)
    with watching() as listener, cluster(scheduler) as executor:
        study = job.run(program, settings, folder, listener, executor=executor, stream=stream, page=report_page)
    said = tuple(finding for finding in study.report.findings if finding.verdict != "holds")
    tables = chain.from_iterable(("", block) for block in study.blocks())
    files = [path.relative_to(folder) for path in study.written]
    answer(study.to_json, lambda: [replace(study.report, findings=said).blocks(), *tables, "", places(folder, files)])
    if study.reason is not None:
        if asked("quiet"):  # else it has been said when it happened
            complain(f"there is no limit to compare with: {study.reason}")
        if not isinstance(study.refusal, TensorprogError):
            return OUR_BUG
        if not isinstance(study.refusal, NotCompiledError):  # which the check says, and its grade is what it is
            return study.refusal.exit_code
    return exit_code(study.report.grade)


@click.command(
    cls=Command,
    short_help="Judge the program by the theorem's assumptions, with fixes.",
    examples=[
        ("attention", "the grade, and what it rests on"),
        ("attention_natural --rewritten", "the program in the theorem's form"),
        ("mine.yaml --require theorem --quiet", "for scripts: the exit code tells"),
        ("mine.yaml models", "files, and those of a folder, in a line for each fault, as linters print them"),
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@options(SET)
@option(
    "--rewritten",
    is_flag=True,
    help="Show the exact rewrites and the program in the theorem's form, h = phi(g^1, ..., g^m; p_1, ..., p_r).",
)
@option(
    "--facts",
    is_flag=True,
    help="Show what is known of each statement: range, growth and pseudo-Lipschitz order.",
)
@options(FORMAT, QUIET, REQUIRE)
def check(files: tuple[str, ...], overrides: dict[str, str], rewritten: bool, facts: bool) -> int:
    """Check FILE against the theorem's assumptions and say what fails, where, and what to write instead.

    Several files, or a folder: a line FILE:LINE:COLUMN for each fault, and the grades.  `-` is standard input.
    """
    from tensorprog.results.limit_answers import check_with_limit

    if len(files) > 1 or (files[0] and Path(files[0]).is_dir()):
        return _check_files(files, overrides)
    netsor = load(files[0], overrides)
    report = check_with_limit(netsor)
    from tensorprog.check.facts import facts_grid, facts_table
    from tensorprog.check.rewrites import normalize, written_out
    from tensorprog.language.writing import shown

    written = written_out(netsor) if rewritten else None
    found, lines = header(netsor, report), list[Any]()
    if written is not None:
        text = shown(written.netsor)
        found["rewritten"] = {"steps": [step.to_json() for step in written.steps], "program": text}
        head = "in the theorem's form:" if report.grade in ("theorem", "remark") else "rewritten:"
        own = [f"  {step}" for step in written.steps[len(report.rewrites) :]]  # from the program judged
        lines += ["\n".join(["", head, *own, "", text.rstrip()])]
    if facts:
        found["facts"] = facts_table(normalize(netsor).netsor)
        lines += ["", facts_grid(normalize(netsor).netsor)]
    answer(lambda: found, lambda: [report.blocks(), *lines])
    return exit_code(report.grade)


def _check_files(files: tuple[str, ...], overrides: dict[str, str]) -> int:
    """Judge files and those of folders, in a line for each mistake and each fault; the exit code of the worst."""
    from tensorprog.results.limit_answers import check_with_limit

    rows: list[dict[str, Any]] = []
    lines, worst = list[str](), DONE
    parts = (sorted(map(str, Path(f).rglob("*.y*ml"))) if f and Path(f).is_dir() else [f] for f in files)
    for name in chain.from_iterable(parts):
        try:
            netsor = load(name, overrides)
            report = check_with_limit(netsor)
        except ProgramError as error:
            places = [(p.span.line, p.span.column, p.message, p.fix) for p in error.problems]
            rows.append({"file": name, "error": str(error)})
            code, last = error.exit_code, f"{name}: not valid"
        else:
            columns = {statement.span.line: statement.span.column for statement in netsor.body}
            found = [f for f in report.findings if f.failing]
            places = [(f.line, columns.get(f.line, 0), f"{f.rule}: {f.message}", f.fix) for f in found]
            rows.append({"file": name} | header(netsor, report))
            code, last = exit_code(report.grade), f"{name}: {report.grade}"
        said = ((line, column, f"{text}; {fix}" if fix else text) for line, column, text, fix in places)
        lines += [*(f"{name}:{line or 1}:{column or 1}: {' '.join(text.split())}" for line, column, text in said), last]
        worst = max(worst, code)
    if not rows:
        raise fail(f"there are no program files in {', '.join(files)}", fix="a folder with files that end in .yaml")
    answer(lambda: {"programs": rows}, lambda: lines)
    return worst


def _refused(program: Any) -> int:
    """0 if the program may have a limit; else the reason is on stderr."""
    report = program.check()
    code = exit_code(report.grade)
    if code:
        answer(lambda: header(program.netsor, report) | {"limit": None}, tuple)
        complain(str(report))
    return code


@click.command(
    cls=Command,
    short_help="Compile the limit: covariances, kurtosis, or formulas.",
    examples=[
        ("attention", "numbers with their errors"),
        ("attention --set H=16 --accuracy 1e-4", "four digits, or exit code 3"),
        ("attention_regimes --infinite a", "infinitely many heads"),
        ("attention --self-check", "the limit against its own draws"),
        ("mlp --symbolic", "formulas in the constants"),
        ("attention --latex > derivation.tex", "the derivation"),
    ],
)
@options(FILE, SET)
@option("--accuracy", type=float, metavar="X", help="Largest error wanted in the limit's numbers.")
@option("--infinite", metavar="INDEX", help="Take the range of an index, that of heads, to infinity: a Gaussian limit.")
@option("--symbolic", is_flag=True, help="Print formulas in the constants instead of numbers.")
@option("--latex", is_flag=True, help="Print the derivation of the formulas as a LaTeX document.")
@option(
    "--self-check",
    "self_check",
    is_flag=True,
    help="Compare the limit with its own draws; exit code 3 if they contradict it.",
)
@options(number("--samples", 2, "Draws of the limit for --self-check.", "65536"))
@options(SEED, MEMORY, FORMAT, QUIET, REQUIRE)
def limit(
    file: str,
    overrides: dict[str, str],
    accuracy: float | None,
    infinite: str | None,
    symbolic: bool,
    latex: bool,
    self_check: bool,
    samples: int,
    seed: int | None,
    max_memory: int | None,
) -> int:
    """Compile the infinite-width limit of FILE and print means, covariances and kurtosis with their errors,
    formulas with --symbolic or --latex, or with --self-check what the limit's own draws say of it.
    """
    program = open_program(file, overrides)
    code = _refused(program)
    if code:
        return code
    formulas, report, told = symbolic or latex, program.check(), header(program.netsor, program.check())
    if sum((symbolic, latex, self_check, infinite is not None)) > 1 or (formulas and accuracy is not None):
        raise fail(
            "--symbolic, --latex, --self-check and --infinite print different things; --accuracy is about numbers",
            fix="one of them",
        )
    if formulas:
        from tensorprog.limit.formulas.writing import document, law_json, law_text

        known = program.limit(symbolic=True)
        texts = {"symbols": list(known.symbols), "formulas": law_json(known.formulas), "latex": known.latex()}
        plain = (str(report).splitlines()[0], *known.assumed)
        answer(
            lambda: told | {"limit": texts},
            lambda: (
                [document(known.formulas, known.grade, known.assumed).rstrip("\n")]
                if latex
                else ["\n".join(plain), f"\n{law_text(known.formulas)}"]
            ),
        )
        return DONE
    from tensorprog.results.reference import Reference

    law = program.limit(accuracy=accuracy, max_memory=max_memory or "1GiB")
    if self_check:
        found = law.check(samples, seed or 0)
        answer(lambda: told | {"self_check": found.to_json()}, lambda: [report.blocks()[0], "", found.blocks()])
        if found.agrees:
            return DONE
        worst, count = found.contradicted[0], f"{len(found.contradicted)} of {len(found.rows)}"
        complain(f"the limit is contradicted by its own draws in {count} numbers, most in {worst.quantity}")
        return NOT_MET
    reference = Reference(law if infinite is None else law.infinite_heads(infinite))
    whole = len(reference.refused()) == len(reference.law.outputs)

    def numbers() -> Iterator[Any]:
        from tensorprog.limit.law.law import widths_text

        yield report.blocks()[0]
        if len(law.widths) > 1:
            yield paragraph(widths_text(law.widths))
        if infinite is not None:
            yield paragraph(f"the range of {infinite} to infinity, after the widths (extension: a conjecture)")
        for block in reference.blocks():
            yield from ("", block)
        last = f"in brackets: the error of the last digits; largest error: {reference.law.error:.1e}"
        yield from ("", paragraph(last))

    answer(lambda: told | {"limit": None if whole else reference.to_json()}, tuple if whole else numbers)
    if refused := reference.refused():  # some of them only now
        raise reference.failed[refused[0]]
    return DONE


@click.command(
    cls=Command,
    short_help="Draw outputs and scores from the limit into a file.",
    examples=[("attention --size 1e6 --out draws.npz", "for numpy.load")],
)
@options(FILE, SET, number("--size", 1, "Draws.", "10000"))
@options(SEED, MEMORY, out("The file to write.", "FILE.npz", required=True), FORMAT, QUIET, REQUIRE)
def sample(
    file: str,
    overrides: dict[str, str],
    size: int,
    seed: int | None,
    max_memory: int | None,
    out: Path,
) -> int:
    """Draw outputs and scores of FILE from its limit into an .npz file."""
    if out.suffix not in ("", ".npz"):
        raise fail(f"--out {out}: draws are written as .npz", fix=f"--out {out.with_suffix('.npz')}")
    writable(out)
    out = out if out.suffix else out.with_name(f"{out.name}.npz")
    program = open_program(file, overrides)
    code = _refused(program)
    if code:
        return code
    from tensorprog.language.files import writing

    draws = program.limit(max_memory=max_memory or "1GiB").sample(size, seed=seed or 0)
    with writing(out):
        draws.save(out)
    shapes = {name: list(draws[name].shape) for name in draws}
    about = {"program": program.netsor.name, "file": str(out), "seed": seed or 0, "shapes": shapes}
    said = f"written to {out}: {', '.join(f'{name} {tuple(shape)}' for name, shape in shapes.items())}"
    answer(lambda: about, lambda: [said])
    return DONE
