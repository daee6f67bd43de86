"""The commands, one function each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tensorprog.cli.exits import Group
from tensorprog.cli.listing import atom_rows, program_rows
from tensorprog.cli.options import (
    ACCURACY,
    FILE,
    FORMAT,
    INFINITE,
    LATEX,
    METHOD,
    QUIET,
    REQUIRE,
    SEED,
    SET,
    SYMBOLIC,
    WIDTH,
    averages,
    options,
    whole_number,
)
from tensorprog.cli.paper import paper
from tensorprog.cli.shared import exit_code, header, load, open_program, print_json, writable
from tensorprog.cli.sweep import sweep
from tensorprog.errors import fail

if TYPE_CHECKING:
    from tensorprog.assumptions import Report
    from tensorprog.ir import Netsor


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tensorprog", prog_name="tensorprog")
def main() -> None:
    """Tensor Programs with attention: check, run at finite width, compile the infinite-width limit.

    FILE is the path of a program file, or the bare name of a shipped program (see `tp list`).

    Exit codes: 0 done; 1 the program is outside the theory; 2 bad input; 3 accuracy or memory not met; 130 interrupted.
    """


@main.command()
@options(FILE, SET, SEED, FORMAT)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Where files go; default runs/<program>.")
@QUIET
@WIDTH
@click.option("--samples", metavar="N", callback=whole_number("--samples", 2), help="Networks drawn at each width.")
@METHOD
@click.option("--threads", metavar="N", callback=whole_number("--threads", 1), help="Threads; default all cores.")
@click.option("--scheduler", metavar="ADDRESS", help="Draw networks on the workers of a dask.distributed scheduler.")
@click.option("--max-memory", "max_memory", metavar="SIZE", help="What networks and results may take; default 1GiB.")
@click.option("--stream", is_flag=True, help="Write samples to disk as they are drawn; the same command again goes on "
              "where this one was stopped.")
@click.option("--average", "average", metavar="NAME=PSI", multiple=True, callback=averages,
              help="Average PSI over the coordinates, e.g. 'm=tanh(y[0])**2'; may be repeated.")
@REQUIRE
def run(
    file: str, overrides: dict[str, str], seed: int | None, form: str, out: Path | None, quiet: bool,
    width: tuple[int, ...] | None, samples: int | None, method: str | None, threads: int | None,
    scheduler: str | None, max_memory: str | None, stream: bool, average: tuple[tuple[str, str], ...] | None,
    require: str | None,
) -> int:
    """Check FILE, compile its limit, run it at each width, compare, and write pictures.

    Options left out come from the program's `run:` section. The folder receives report.html, report.json, samples.npz,
    density.png, convergence.png and program.svg; with --stream a folder samples/ instead of samples.npz.
    """
    program = open_program(file, overrides)
    from tensorprog import study as job
    from tensorprog.display import Progress, columns_of, run_tables, show
    from tensorprog.page import Page

    given = {"width": width, "samples": samples, "seed": seed, "method": method, "threads": threads,
             "max_memory": max_memory, "averages": average}
    settings = job.settings_of(program.netsor, given)
    folder = out or job.default_out(program.netsor)
    with Progress(notes=not quiet).shown() as listener, _workers(scheduler, listener.note) as executor:
        study = job.run(program, settings, folder, listener, executor=executor, stream=stream, page=Page())
    if form == "json":
        print_json(study.to_json())
    elif not quiet:
        click.echo("\n".join(line for line in str(study.report).splitlines() if not line.startswith("holds")))
        for table in run_tables(study, columns_of(sys.stdout)):
            click.echo()
            show(table, click.echo)
        click.echo("\n" + "\n".join(_wrapped_paths(folder, study.written)))
    if study.refusal is not None and study.report.grade != "outside":
        return study.refusal.exit_code  # said already
    return exit_code(study.report.grade, require)


def _workers(scheduler: str | None, note: Callable[[str], None]) -> AbstractContextManager[Executor | None]:
    """Those of a scheduler, if one is named."""
    if scheduler is None:
        return nullcontext()
    from tensorprog.finite.cluster import connected

    return connected(scheduler, note)


def _wrapped_paths(folder: Path, written: list[Path]) -> list[str]:
    return [f"written to {folder}{os.sep}", *(f"  {path.relative_to(folder)}" for path in written)]


@main.command()
@options(FILE, SET)
@click.option("--rewritten", is_flag=True, help="Show the exact rewrites and the program in the theorem's form, "
              "h = phi(g^1, ..., g^m; p_1, ..., p_r).")
@click.option("--facts", is_flag=True, help="Show what is certified of each statement: range, growth, pseudo-Lipschitz "
              "order, parity, monotonicity and kinks.")
@options(FORMAT, QUIET, REQUIRE)
def check(
    file: str, overrides: dict[str, str], rewritten: bool, facts: bool, form: str, quiet: bool, require: str | None
) -> int:
    """Check FILE against the theorem's assumptions and say what fails, where, and what to write instead."""
    from tensorprog.judge import judge

    netsor = load(file, overrides)
    report = judge(netsor)
    if form == "json":
        print_json(header(netsor, report) | _asked(netsor, rewritten, facts))
    elif not quiet:
        _show(report)
        if rewritten:
            click.echo("\n" + _written_out(netsor, report))
        if facts:
            from tensorprog.display import facts_of, show
            from tensorprog.normalize import normalize

            click.echo()
            show(facts_of(normalize(netsor).netsor), click.echo)
    return exit_code(report.grade, require)


def _written_out(netsor: Netsor, report: Report) -> str:
    """The program written out, in the theorem's form if it has one, and the steps to it from the one judged."""
    from tensorprog.normalize import written_out
    from tensorprog.yaml_io import dump

    found = written_out(netsor)
    more = [step for step in found.steps[len(report.rewrites):] if step.kind != "unused"]
    dropped = [step.where for step in found.steps if step.kind == "unused"]
    lines = [str(step) for step in more] + ([f"unused: {', '.join(dropped)} dropped"] if dropped else [])
    head = "in the theorem's form:" if report.grade in ("theorem", "remark") else "rewritten:"
    return "\n".join([head, *(f"  {line}" for line in lines), "", dump(found.netsor).rstrip()])


def _asked(netsor: Netsor, rewritten: bool, facts: bool) -> dict[str, Any]:
    """What `tp check` adds to its JSON object on request."""
    found: dict[str, Any] = {}
    if rewritten:
        from tensorprog.normalize import written_out
        from tensorprog.yaml_io import dump

        program = written_out(netsor)
        found["rewritten"] = {"steps": [step.to_json() for step in program.steps], "program": dump(program.netsor)}
    if facts:
        from tensorprog.calculus import facts_table
        from tensorprog.normalize import normalize

        found["facts"] = [row.to_json() for row in facts_table(normalize(netsor).netsor)]
    return found


def _show(report: Report) -> None:
    """Print a report; what draws tables is imported on terminals only."""
    if not sys.stdout.isatty():
        click.echo(str(report))
        return
    from tensorprog.display import show_report

    show_report(report, click.echo)


@main.command()
@options(FILE, SET)
@WIDTH
@METHOD
@options(FORMAT, QUIET)
def plan(
    file: str, overrides: dict[str, str], width: tuple[int, ...] | None, method: str | None, form: str, quiet: bool
) -> int:
    """Show how networks of FILE would be drawn: for each statement, how its vectors are represented and the random
    numbers of one network. Nothing is drawn.
    """
    program = open_program(file, overrides)
    from tensorprog.study import settings_of

    settings = settings_of(program.netsor, {"width": width, "method": method})
    choices = {"method": settings.method, "coordinates": settings.coordinates, "keep": settings.keep,
               "averages": dict(settings.averages)}
    plans = [program.plan(n, **choices) for n in settings.width]
    if form == "json":
        print_json({"program": program.netsor.name, "plans": [each.to_json() for each in plans]})
    elif not quiet:
        click.echo("\n\n".join(map(str, plans)))
    return 0


def _refused(program: Any, require: str | None, form: str) -> int:
    """0 if the program may have a limit; else the reason is on stderr."""
    report = program.check()
    code = exit_code(report.grade, require)
    if code:
        if form == "json":
            print_json(header(program.netsor, report) | {"limit": None})
        click.echo(str(report), err=True)
    return code


@main.command()
@options(FILE, SET, FORMAT, QUIET, REQUIRE, ACCURACY, INFINITE, SYMBOLIC, LATEX)
def limit(
    file: str, overrides: dict[str, str], form: str, quiet: bool, require: str | None, accuracy: float | None,
    infinite: str | None, symbolic: bool, latex: bool,
) -> int:
    """Compile the infinite-width limit of FILE and print means, covariances and kurtosis with their errors, or
    formulas with --symbolic or --latex.
    """
    program = open_program(file, overrides)
    code = _refused(program, require, form)
    if code:
        return code
    if symbolic and latex:
        raise fail("--symbolic and --latex together: one prints formulas, the other a document", fix="--latex")
    if (symbolic or latex) and accuracy is not None:
        raise fail("--accuracy is about numbers; formulas are exact", fix="without --accuracy")
    if (symbolic or latex) and infinite is not None:
        raise fail("--infinite gives numbers; formulas are for a given number of heads", fix="without --infinite")
    if symbolic or latex:
        return _formulas(program, form, quiet, latex)
    from tensorprog.reference import Reference

    law = _compiled(program, accuracy)
    reference = Reference(law if infinite is None else law.infinite_heads(infinite))
    if form == "json":
        from tensorprog.report import limit_json

        print_json(header(program.netsor, program.check()) | {"limit": limit_json(reference)})
    elif not quiet:
        from tensorprog.display import limit_tables, show
        from tensorprog.limit.law import widths_text

        click.echo(str(program.check()).splitlines()[0])
        if len(law.widths) > 1:
            click.echo(widths_text(law.widths))
        if infinite is not None:
            click.echo(f"the range of {infinite} to infinity, after the widths (extension: a conjecture)")
        for table in limit_tables(reference):
            if table.title:
                click.echo()
                show(table, click.echo)
        click.echo(f"\nin brackets: the error of the last digits; largest error: {reference.law.error:.1e}")
    return 0


def _formulas(program: Any, form: str, quiet: bool, latex: bool) -> int:
    """Formulas as text, as a LaTeX document, or as strings in JSON."""
    law = program.limit(symbolic=True)
    from tensorprog.limit.symbolic.derivation import document
    from tensorprog.limit.symbolic.text import law_json, law_text

    if form == "json":
        print_json(header(program.netsor, program.check()) | {"limit": law_json(law)})
    elif latex:
        click.echo(document(law), nl=False)
    elif not quiet:
        click.echo(str(program.check()).splitlines()[0])
        click.echo(f"\n{law_text(law)}")
    return 0


def _compiled(program: Any, accuracy: float | None) -> Any:
    if accuracy is not None and not 0 < accuracy < float("inf"):
        raise fail(f"--accuracy {accuracy}: is not a positive number", fix="--accuracy 1e-4")
    return program.limit() if accuracy is None else program.limit(accuracy=accuracy)


@main.command()
@options(FILE, SET, SEED)
@click.option("--size", metavar="N", default="10000", show_default=True, callback=whole_number("--size", 1),
              help="Draws.")
@click.option("--out", metavar="FILE.npz", type=click.Path(path_type=Path), required=True, help="The file to write.")
@options(FORMAT, QUIET, REQUIRE)
def sample(
    file: str, overrides: dict[str, str], seed: int | None, size: int, out: Path, form: str, quiet: bool,
    require: str | None,
) -> int:
    """Draw outputs and scores of FILE from its limit into an .npz file."""
    writable(out)
    out = out if out.suffix == ".npz" else out.with_name(f"{out.name}.npz")
    program = open_program(file, overrides)
    code = _refused(program, require, form)
    if code:
        return code
    from tensorprog.report import writing

    draws = program.limit().sample(size, seed=seed or 0)
    with writing(out):
        draws.save(out)
    if form == "json":
        shapes = {name: list(draws[name].shape) for name in draws}
        click.echo(json.dumps({"program": program.netsor.name, "file": str(out), "seed": seed or 0, "shapes": shapes}))
    elif not quiet:
        shapes_text = ", ".join(f"{name} {tuple(draws[name].shape)}" for name in draws)
        click.echo(f"written to {out}: {shapes_text}")
    return 0


@main.command()
@options(FILE, SET)
@click.option("--check", "judged", is_flag=True, help="Show the roles of Assumption 1, the grade and what is at fault.")
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path),
              help="The file to write: .svg, .dot, or .mmd and .md for Mermaid; without it Mermaid text is printed.")
@QUIET
def graph(file: str, overrides: dict[str, str], judged: bool, out: Path | None, quiet: bool) -> int:
    """Draw the program as a graph, one node per statement, initial vector and weight.

    With --check boxes tell what they are in Assumption 1 (operands, their inputs and weights, scores, outputs), the
    title has the grade, and faults are numbered, with the path that leads to them, and listed.
    """
    kinds = (".svg", ".dot", ".gv", ".mmd", ".md")
    if out is not None:
        if out.suffix.lower() not in kinds:
            raise fail(f"{out}: pictures of programs end in {', '.join(kinds)}", fix=f"-o {out.stem}.svg")
        writable(out)
    netsor = load(file, overrides)
    from tensorprog import graph as drawing
    from tensorprog.judge import judge
    from tensorprog.report import write_text

    kind = out.suffix.lower() if out is not None else ".mmd"
    draw = {".svg": drawing.to_svg, ".dot": drawing.to_dot, ".gv": drawing.to_dot}.get(kind, drawing.to_mermaid)
    text = draw(drawing.build(netsor), judge(netsor) if judged else None)
    if kind == ".md":
        text = f"# {netsor.title or netsor.name}\n\n```mermaid\n{text.rstrip()}\n```\n"
    if out is None:
        click.echo(text.rstrip())
        return 0
    write_text(out, text)
    if not quiet:
        click.echo(f"written to {out}")
    return 0


@main.command(name="list")
@click.option("--atoms", is_flag=True, help="List the nonlinearities that programs may use instead.")
@FORMAT
def list_(atoms: bool, form: str) -> int:
    """List the shipped programs with the grade of each."""
    columns, rows = (("name", "arguments", "range", "Lipschitz", "what"), atom_rows()) if atoms else (
        ("name", "grade", "title"), program_rows())
    if form == "json":
        entries = [dict(zip(columns, row, strict=True)) for row in rows]
        click.echo(json.dumps({"atoms" if atoms else "programs": entries}, indent=1))
        return 0
    from tensorprog.display import findings_table, show

    show(findings_table("", columns, rows), click.echo)
    return 0


main.add_command(paper)
main.add_command(sweep)


def run_main() -> NoReturn:
    """`tp-run FILE`, the same as `tp run FILE`."""
    run.main(prog_name="tp-run")
    raise AssertionError("unreachable")
