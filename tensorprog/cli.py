"""The command line: arguments in, exit code out.

Modules are imported inside the commands, so that `tp --help` and `tp check` start fast.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tensorprog.errors import Problem, ProgramError, TensorprogError

if TYPE_CHECKING:
    from tensorprog.ir import Netsor

__all__ = ["main", "run_main"]

OUTSIDE, BAD_INPUT, INTERRUPTED, OUR_BUG, BROKEN_PIPE = 1, 2, 130, 70, 141
REQUIRED = ("theorem", "remark", "extension")
F = TypeVar("F", bound=Callable[..., Any])


# ---- from exceptions to exit codes ----------------------------------------------------------------------------------


def _guarded(call: Callable[[], Any]) -> NoReturn:
    """Run a command and leave with its exit code; no traceback ever reaches a user."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # terminals that are not UTF-8
    try:
        code = call()
        sys.stdout.flush()
    except TensorprogError as error:
        code = _say(str(error), error.exit_code)
    except click.ClickException as error:
        code = _say(str(_usage_problem(error)), BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        code = _say("interrupted; what was finished is on disk", INTERRUPTED)
    except MemoryError:
        code = _say("there is not enough memory: ask for fewer --samples or a smaller --width", 3)
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EINVAL):  # the reader of a pipe has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = BROKEN_PIPE
        else:
            reason = (error.strerror or str(error)).lower()
            code = _say(str(Problem(f"{error.filename or 'a file'}: {reason}")), BAD_INPUT)
    except Exception as error:
        if os.environ.get("TENSORPROG_DEBUG"):
            raise
        code = _say(f"This is a bug of tensorprog, not a mistake of yours: {type(error).__name__}: {error}\n"
                    "Please report it with the program file and the command. The environment variable "
                    "TENSORPROG_DEBUG=1 shows where it happened.", OUR_BUG)
    sys.exit(code if isinstance(code, int) else 0)


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        click.echo(text, err=True)
    return code


def _usage_problem(error: click.ClickException) -> Problem:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    command = context.command_path if context is not None else "tp"
    message = message[:1].lower() + message[1:] if not message.startswith(("'", "-")) else message
    return Problem(message, fix=f"{command} --help")


class _Command(click.Command):
    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        parent: Any = super()
        if not standalone_mode:
            return parent.main(*args, standalone_mode=False, **extra)
        return _guarded(lambda: parent.main(*args, standalone_mode=False, **extra))


class _Group(click.Group):
    command_class = _Command

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        parent: Any = super()
        if not standalone_mode:
            return parent.main(*args, standalone_mode=False, **extra)
        return _guarded(lambda: parent.main(*args, standalone_mode=False, **extra))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from tensorprog.errors import did_you_mean

            hint = did_you_mean(name, self.list_commands(ctx))
            file = Path(name).suffix in (".yaml", ".yml")
            fix = f"tp run {name}" if file else hint.replace("known names", "commands")
            raise ProgramError(Problem(f"there is no command {name}", fix=fix))
        return super().resolve_command(ctx, args)


# ---- options --------------------------------------------------------------------------------------------------------


def _overrides(_: click.Context, __: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, the last of equal names winning."""
    result = {}
    problems = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or not value.strip():
            problems.append(Problem(f"--set {pair}: is not of the form NAME=VALUE", fix="--set H=16"))
        result[name.strip()] = value.strip()
    if problems:
        raise ProgramError(problems)
    return result


def _whole(option: str, minimum: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    def convert(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        try:
            number = float(text.strip()) if not text.strip().lstrip("+-").replace("_", "").isdigit() else int(text)
            whole = int(number)
        except (ValueError, OverflowError):
            whole, number = minimum - 1, float("nan")
        if whole != number or not minimum <= whole < 2**63:
            raise ProgramError(Problem(f"{option} {text}: is not a whole number of at least {minimum}"))
        return whole

    return convert


def _widths(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    """Whole numbers, separated by commas or given one by one."""
    widths: list[int] = []
    problems = []
    for text in (part.strip() for given in texts for part in given.split(",")):
        if not text.isascii() or not text.replace("_", "").isdigit() or not 1 <= int(text[:20]) <= 10**7:
            problems.append(Problem(f"--width {text[:40]}: is not a whole number between 1 and 10000000",
                                    fix="--width 16,64,256"))
        else:
            widths.append(int(text))
    if problems:
        raise ProgramError(problems)
    return tuple(widths) or None


def _options(*chosen: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(chosen):
            function = option(function)
        return function

    return apply


_FILE = click.argument("file", metavar="FILE")
_SET = click.option("--set", "overrides", metavar="NAME=VALUE", multiple=True, callback=_overrides,
                    help="Replace a constant of the program; may be repeated.")
_FORMAT = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
                       help="json prints one object and nothing else.")
_QUIET = click.option("--quiet", is_flag=True, help="Print nothing but errors (and, with json, the object).")
_REQUIRE = click.option("--require", type=click.Choice(REQUIRED), default=None,
                        help="Leave with exit code 1 if the check's grade is lower.")
_SEED = click.option("--seed", metavar="N", callback=_whole("--seed", 0), help="Seed of the random streams.")
_ACCURACY = click.option("--accuracy", type=float, default=None, help="Largest error wanted in the limit's numbers.")


def _load(file: str, overrides: Mapping[str, str]) -> Netsor:
    from tensorprog.shipped import resolve
    from tensorprog.yaml_io import load

    netsor = load(resolve(file), overrides, file=file)
    for warning in netsor.warnings:
        click.echo(f"warning: {warning}", err=True)
    return netsor


def _program(file: str, overrides: Mapping[str, str]) -> Any:
    from tensorprog.program import Program

    return Program.from_netsor(_load(file, overrides))


def _below(grade: str, required: str | None) -> bool:
    """Whether a grade does not reach the bar (by default: anything but outside does)."""
    order = ("outside", *reversed(REQUIRED))
    return order.index(grade) < order.index(required or "extension")


def _bar(grade: str, required: str | None) -> int:
    if not _below(grade, required):
        return 0
    if grade != "outside":
        click.echo(f"the grade is {grade}, and --require asks for {required}", err=True)
    return OUTSIDE


def _header(netsor: Netsor, report: Any) -> dict[str, Any]:
    from tensorprog.report import constants_json

    return {"program": netsor.name, "constants": constants_json(netsor), "assumptions": report.to_json()}


def _print_json(value: Mapping[str, Any]) -> None:
    from tensorprog.report import to_text

    click.echo(to_text(value), nl=False)


def _writable(path: Path) -> None:
    """Refuse early what would fail after a long computation.

    Raises    ProgramError
    """
    folder = path.parent
    if path.is_dir():
        raise ProgramError(Problem(f"{path} is a directory", fix="name a file in it"))
    if not folder.is_dir():
        raise ProgramError(Problem(f"there is no folder {folder}", fix="create it first, or name another place"))
    if not os.access(folder, os.W_OK):
        raise ProgramError(Problem(f"{folder} cannot be written to", fix="name another place"))


# ---- commands -------------------------------------------------------------------------------------------------------


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tensorprog", prog_name="tensorprog")
def main() -> None:
    """Tensor Programs with attention: check, run at finite width, compile the infinite-width limit.

    FILE is the path of a program file, or the bare name of a shipped program (see `tp list`).

    Exit codes: 0 done; 1 the program is outside the theory; 2 bad input; 3 accuracy or memory not met; 130 interrupted.
    """


@main.command()
@_options(_FILE, _SET, _SEED, _FORMAT)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Where files go; default runs/<program>.")
@_QUIET
@click.option("--width", metavar="N,..", multiple=True, callback=_widths, help="Widths n to run at, e.g. 16,64,256.")
@click.option("--samples", metavar="N", callback=_whole("--samples", 2), help="Networks drawn at each width.")
@click.option("--method", type=click.Choice(["auto", "dense", "lazy", "collapsed"]), help="How networks are drawn.")
@click.option("--threads", metavar="N", callback=_whole("--threads", 1), help="Threads; default all cores.")
@_REQUIRE
def run(
    file: str, overrides: dict[str, str], seed: int | None, form: str, out: Path | None, quiet: bool,
    width: tuple[int, ...] | None, samples: int | None, method: str | None, threads: int | None, require: str | None,
) -> int:
    """Check FILE, compile its limit, run it at each width, compare, and write pictures.

    Options left out come from the program's `run:` section. The folder receives report.json, samples.npz, density.png,
    convergence.png and program.svg.
    """
    program = _program(file, overrides)
    from tensorprog import study as job
    from tensorprog.display import Progress, columns_of, run_tables, show

    given = {"width": width, "samples": samples, "seed": seed, "method": method, "threads": threads}
    settings = job.settings_of(program.netsor, given)
    folder = out or job.default_out(program.netsor)
    with Progress(notes=not quiet).shown() as listener:
        study = job.run(program, settings, folder, listener)
    if form == "json":
        _print_json(study.to_json())
    elif not quiet:
        click.echo("\n".join(line for line in str(study.report).splitlines() if not line.startswith("holds")))
        for table in run_tables(study, columns_of(sys.stdout)):
            click.echo()
            show(table, click.echo)
        click.echo("\n" + "\n".join(_wrapped_paths(folder, study.written)))
    if study.refusal is not None and study.report.grade != "outside":
        click.echo(str(study.refusal), err=True)
        return study.refusal.exit_code
    return _bar(study.report.grade, require)


def _wrapped_paths(folder: Path, written: list[Path]) -> list[str]:
    return [f"written to {folder}{os.sep}", *(f"  {path.name}" for path in written)]


@main.command()
@_options(_FILE, _SET, _FORMAT, _QUIET, _REQUIRE)
def check(file: str, overrides: dict[str, str], form: str, quiet: bool, require: str | None) -> int:
    """Check FILE against the theorem's assumptions and say what fails, where, and what to write instead."""
    from tensorprog.assumptions import check as checked

    netsor = _load(file, overrides)
    report = checked(netsor)
    if form == "json":
        _print_json(_header(netsor, report))
    elif not quiet:
        click.echo(str(report))
    return _bar(report.grade, require)


def _refused(program: Any, require: str | None, form: str) -> int:
    """0 if the program may have a limit; else the reason is on stderr."""
    report = program.check()
    code = _bar(report.grade, require)
    if code:
        if form == "json":
            _print_json(_header(program.netsor, report) | {"limit": None})
        click.echo(str(report), err=True)
    return code


@main.command()
@_options(_FILE, _SET, _FORMAT, _QUIET, _REQUIRE, _ACCURACY)
def limit(
    file: str, overrides: dict[str, str], form: str, quiet: bool, require: str | None, accuracy: float | None
) -> int:
    """Compile the infinite-width limit of FILE and print means, covariances and kurtosis with their errors."""
    program = _program(file, overrides)
    code = _refused(program, require, form)
    if code:
        return code
    from tensorprog.reference import Reference

    reference = Reference(_compiled(program, accuracy))
    if form == "json":
        from tensorprog.report import limit_json

        _print_json(_header(program.netsor, program.check()) | {"limit": limit_json(reference)})
    elif not quiet:
        from tensorprog.display import limit_tables, show

        click.echo(str(program.check()).splitlines()[0])
        for table in limit_tables(reference):
            if table.title:
                click.echo()
                show(table, click.echo)
        click.echo(f"\nin brackets: the error of the last digits; largest error: {reference.law.error:.1e}")
    return 0


def _compiled(program: Any, accuracy: float | None) -> Any:
    if accuracy is not None and not 0 < accuracy < float("inf"):
        raise ProgramError(Problem(f"--accuracy {accuracy}: is not a positive number", fix="--accuracy 1e-4"))
    return program.limit() if accuracy is None else program.limit(accuracy=accuracy)


@main.command()
@_options(_FILE, _SET, _SEED)
@click.option("--size", metavar="N", default="10000", show_default=True, callback=_whole("--size", 1), help="Draws.")
@click.option("--out", metavar="FILE.npz", type=click.Path(path_type=Path), required=True, help="The file to write.")
@_options(_FORMAT, _QUIET, _REQUIRE)
def sample(
    file: str, overrides: dict[str, str], seed: int | None, size: int, out: Path, form: str, quiet: bool,
    require: str | None,
) -> int:
    """Draw outputs and scores of FILE from its limit into an .npz file."""
    _writable(out)
    out = out if out.suffix == ".npz" else out.with_name(f"{out.name}.npz")
    program = _program(file, overrides)
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
@_options(_FILE, _SET)
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path),
              help="The file to write: .svg, .dot, or .mmd and .md for Mermaid; without it Mermaid text is printed.")
@_QUIET
def graph(file: str, overrides: dict[str, str], out: Path | None, quiet: bool) -> int:
    """Draw the program as a graph, one node per statement, initial vector and weight; findings are marked."""
    kinds = (".svg", ".dot", ".gv", ".mmd", ".md")
    if out is not None:
        if out.suffix.lower() not in kinds:
            problem = Problem(f"{out}: pictures of programs end in {', '.join(kinds)}", fix=f"-o {out.stem}.svg")
            raise ProgramError(problem)
        _writable(out)
    netsor = _load(file, overrides)
    from tensorprog import graph as drawing
    from tensorprog.report import write_text

    built = drawing.build(netsor)
    kind = out.suffix.lower() if out is not None else ".mmd"
    if kind == ".svg":
        from tensorprog.assumptions import check as checked

        text = drawing.to_svg(built, checked(netsor))
    elif kind in (".dot", ".gv"):
        text = drawing.to_dot(built)
    else:
        text = drawing.to_mermaid(built)
        text = f"# {netsor.title or netsor.name}\n\n```mermaid\n{text.rstrip()}\n```\n" if kind == ".md" else text
    if out is None:
        click.echo(text.rstrip())
        return 0
    write_text(out, text)
    if not quiet:
        click.echo(f"written to {out}")
    return 0


@main.command(name="list")
@click.option("--atoms", is_flag=True, help="List the nonlinearities that programs may use instead.")
@_FORMAT
def list_(atoms: bool, form: str) -> int:
    """List the shipped programs with the grade of each."""
    header, rows = (("name", "arguments", "range", "Lipschitz", "what"), _atoms()) if atoms else (
        ("name", "grade", "title"), _programs())
    if form == "json":
        entries = [dict(zip(header, row, strict=True)) for row in rows]
        click.echo(json.dumps({"atoms" if atoms else "programs": entries}, indent=1))
        return 0
    from tensorprog.display import findings_table, show

    show(findings_table("", header, rows), click.echo)
    return 0


def _programs() -> list[tuple[str, ...]]:
    from tensorprog.assumptions import check as checked
    from tensorprog.shipped import shipped_programs
    from tensorprog.yaml_io import load

    rows: list[tuple[str, ...]] = []
    for name, path in shipped_programs().items():
        netsor = load(path)
        rows.append((name, str(checked(netsor).grade), netsor.title))
    return rows


def _atoms() -> list[tuple[str, ...]]:
    from tensorprog.atoms import ATOMS, REDUCTIONS

    rows: list[tuple[str, ...]] = []
    for atom in ATOMS.values():
        names = [*["x", "y", "z"][: atom.arity],
                 *(key if value is None else f"{key}={value:g}" for key, value in atom.params.items())]
        interval = "" if atom.params or atom.bounds is None else "[{:g}, {:g}]".format(*atom.bounds())
        lipschitz = f"{atom.regularity.lipschitz:.4g}" if atom.regularity.lipschitz < float("inf") else "no"
        written = f"x {atom.operator} y" if atom.operator and atom.arity + len(atom.params) == 2 else ", ".join(names)
        rows.append((atom.name, written, interval, lipschitz, atom.doc))
    for reducer in REDUCTIONS.values():
        interval = "[{:g}, {:g}]".format(*reducer.bounds) if reducer.bounds is not None else ""
        rows.append((f"{reducer.name}[i]", "x", interval, "yes" if reducer.lipschitz else "no", reducer.doc))
    return rows


def run_main() -> NoReturn:
    """`tp-run FILE`, the same as `tp run FILE`."""
    run.main(prog_name="tp-run")
    raise AssertionError("unreachable")
