"""`tp list`, `tp new`, `tp graph`, `tp exponents` and `tp import`: programs, with nothing computed of them."""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
import sys
from pathlib import Path, PureWindowsPath
from typing import Any

import click

from tensorprog.blocks import Grid
from tensorprog.jobs.cli.frame import (
    DONE,
    FILE,
    FORCE,
    FORMAT,
    MEMORY,
    OUTSIDE,
    QUIET,
    SET,
    Command,
    answer,
    echo,
    load,
    notice,
    number,
    open_program,
    option,
    options,
    out,
    pairs,
    writable,
    write_files,
)
from tensorprog.language.errors import TensorprogError, fail
from tensorprog.language.files import write_text
from tensorprog.shipped import SCHEMA, STARTER, judged, resolve

__all__ = ["exponents", "graph", "import_", "list_", "new"]

SUFFIXES = (".yaml", ".yml")
MODELINE = "# yaml-language-server: $schema="


# ---- tp list --------------------------------------------------------------------------------------------------------


@click.command(
    name="list",
    cls=Command,
    short_help="List the programs that ship.",
    examples=[("", "the programs and their grades"), ("--atoms", "the functions that programs may use")],
)
@option("--atoms", is_flag=True, help="List the nonlinearities that programs may use instead.")
@options(FORMAT, QUIET)
def list_(atoms: bool) -> int:
    """List the shipped programs with the grade of each."""
    from tensorprog.language.atoms import ATOMS, REDUCTIONS

    columns, rows = ("name", "grade", "title"), judged() if not atoms else []
    if atoms:
        columns = ("name", "arguments", "what")
        for atom in ATOMS.values():
            given = [key if value is None else f"{key}={value:g}" for key, value in atom.params.items()]
            written = ", ".join([*"xyz"[: atom.arity], *given])
            rows.append((atom.name, f"x {atom.operator} y" if atom.operator and "," in written else written, atom.doc))
        rows += [(f"{reducer.name}[i]", "x", reducer.doc) for reducer in REDUCTIONS.values()]
    answer(
        lambda: {"atoms" if atoms else "programs": [dict(zip(columns, row, strict=True)) for row in rows]},
        lambda: [Grid("", columns, tuple(rows), text_columns=tuple(range(len(columns))))],
    )
    return DONE


# ---- tp new ---------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="Write a commented program file to start from.",
    examples=[
        ("mine", "a small attention layer, into mine.yaml"),
        ("mine --from lstm", "a copy of a program that ships"),
        ("mine -o programs/mine.yaml", "into another file"),
    ],
)
@click.argument("name", metavar="NAME")
@option(
    "--from",
    "source",
    metavar="PROGRAM",
    help="Copy this program, shipped or a file, with the data it reads; default a small attention layer.",
)
@options(out("The file to write, or the folder to put it into; default NAME.yaml.", "FILE"), FORCE, QUIET)
def new(name: str, source: str | None, out: Path | None, force: bool) -> int:
    """Write NAME.yaml, a small program with a comment on every section, ready to be checked, run and changed.

    Its first line leads editors to the schema of program files.
    """
    from tensorprog.language.data_files import data_path

    if not re.fullmatch(r"\w([\w.-]*\w)?", name) or name.endswith(SUFFIXES):
        raise fail(
            f"{name!r} cannot name a program: letters, digits, and . - _ between them, without an ending or a folder",
            fix="tp new mine -o FOLDER",
        )
    target = out / f"{name}.yaml" if out is not None and out.is_dir() else out or Path(f"{name}.yaml")
    if target.suffix.lower() not in SUFFIXES:
        raise fail(f"{target}: program files end in {' or '.join(SUFFIXES)}", fix=f"-o {name}.yaml")
    writable(target)
    path = resolve(source) if source is not None else STARTER
    files = [table.file for table in load(str(path), {}).tables.values() if table.file]
    data = {
        target.parent.joinpath(*PureWindowsPath(each).parts): data_path(each, path.parent).read_bytes()
        for each in files
    }
    text = re.sub(r"(?m)^program:[^#\n]*[^#\s]", f"program: {name}", path.read_text(encoding="utf-8-sig"))
    lines = [line for line in text.splitlines() if not line.startswith(MODELINE)]
    text = "\n".join([f"{MODELINE}{SCHEMA.as_uri()}", *lines, ""])  # which leads editors to the schema
    write_files({target: text.encode()} | data, force)
    written = [f"written to {each}" for each in (target, *data)]
    commands = [f"  {command} {shlex.quote(str(target))}" for command in ("tp check", "tp-run", "tp graph")]
    answer(dict, lambda: [*written, "next:", *commands])
    return DONE


# ---- tp graph -------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="Draw the program as a graph.",
    examples=[
        ("attention", "into attention.svg"),
        ("attention_tied --check -o tied.svg", "what is at fault, and where"),
    ],
)
@options(FILE, SET)
@option("--check", "judged", is_flag=True, help="Show the roles of Assumption 1, the grade and what is at fault.")
@options(out("The picture to write, .svg; default <program>.svg.", "FILE"), QUIET)
def graph(file: str, overrides: dict[str, str], judged: bool, out: Path | None) -> int:
    """Draw the program as a graph, one node per statement, initial vector and weight.

    With --check boxes tell what they are in Assumption 1 (operands, their inputs and weights, scores, outputs), the
    title has the grade, and faults are numbered, with the path that leads to them, and listed.
    """
    netsor = load(file, overrides)
    from tensorprog.check.graph import build
    from tensorprog.results.limit_answers import check_with_limit
    from tensorprog.results.study import default_out
    from tensorprog.show.graphs import to_svg

    target = out or Path(f"{default_out(netsor).name}.svg")
    if target.suffix.lower() != ".svg":
        raise fail(f"{target}: pictures of programs end in .svg", fix=f"-o {target.stem}.svg")
    writable(target)
    write_text(target, to_svg(build(netsor), check_with_limit(netsor) if judged else None))
    answer(dict, lambda: [f"written to {target}"])
    return DONE


# ---- tp exponents ---------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="Which learning rates are wrong, from powers of the width.",
    examples=[
        ("sp_mlp", "a network in the standard parametrisation, with the rates of its file"),
        ("sp_mlp --lr n**-1", "rates that fall with the width"),
        ("mlp --rate W2=n --rate W1=0", "rates of single parameters; 0 keeps one fixed"),
    ],
)
@options(FILE)
@option("--lr", metavar="RATE", help="Learning rate of all parameters, a power of n; default that of the file, or 1.")
@option(
    "--rate",
    "rates",
    metavar="NAME=RATE",
    multiple=True,
    callback=pairs("--rate", "NAME=RATE", "W=n**-1"),
    help="Learning rate of parameters, a power of the width n, e.g. W*=n**-1; may be repeated.",
)
@option("--adam", is_flag=True, help="Learning rates are those of Adam, not of plain gradient descent.")
@options(SET, FORMAT, QUIET)
def exponents(file: str, lr: str | None, rates: dict[str, str], adam: bool, overrides: dict[str, str]) -> int:
    """Say whether FILE has a limit in training, whether it learns features, and which learning rates are wrong.

    Counts powers of the width n: what the updates of each parameter move, the largest rate at which nothing grows, and
    the rates of the maximal update parametrisation (Yang & Hu 2021), with what to change. Learning rates are on the
    scale of muP, as in `tp train`; with --adam they are those of entries of weights and vectors. The exit code is 1 if
    training is unstable.
    """
    from tensorprog.training import exponents as counted

    found = counted(open_program(file, overrides), lr, rates, optimizer="adam" if adam else "sgd")
    answer(found.to_json, lambda: [found.blocks()])
    return OUTSIDE if found.verdict == "unstable" else DONE


# ---- tp import ------------------------------------------------------------------------------------------------------


@click.command(
    "import",
    cls=Command,
    short_help="Write a torch module as a program file.",
    examples=[
        ("model.py:make --inputs x.npy", "of widths 64 and 128, what vanishes with n left out"),
        ("model.py:make --inputs x.npy --at 768 -o block.yaml", "variances as they are at width 768"),
        ("model.py:make --inputs x.npy --at 256 --against 256", "beside the module itself"),
    ],
)
@click.argument("module", metavar="FILE.py:MAKE")
@option(
    "--inputs",
    "inputs",
    metavar="FILE",
    multiple=True,
    required=True,
    help="Inputs of the module, a .npy file of numbers or of tokens; may be repeated.",
)
@option("--widths", "widths", metavar="N,N", default="64,128", help="The two widths to look at; default 64,128.")
@options(number("--at", 2, "Take variances as they are at this width, the width of your own network."))
@options(number("--against", 2, "Draw the module of this width, and set it beside the program and beside its limit."))
@options(number("--samples", 2, "Networks for --against; default 2000."), MEMORY)
@option("--name", "name", metavar="NAME", default="", help="The program's name; default that of the module's class.")
@click.option("--no-check", is_flag=True, help="Give the program without comparing it with the module.")
@options(out("The program file to write, its data beside it; default: print the program.", "FILE"), FORCE, QUIET)
def import_(
    module: str,
    inputs: tuple[str, ...],
    widths: str,
    at: int | None,
    against: int | None,
    samples: int | None,
    max_memory: int | None,
    name: str,
    no_check: bool,
    out: Path | None,
    force: bool,
) -> int:
    """Run FILE.py, and write what MAKE(n), a torch.nn.Module of width n, is at initialisation as a program.

    FILE.py is your own code, and this command executes it; all others never execute anything.
    """
    import numpy as np

    from tensorprog.importing import compare_torch, from_torch, needed

    needed()
    make = _function(module)
    try:
        given = tuple(np.load(file, allow_pickle=False) for file in inputs)
        pair = tuple(int(part) for part in widths.split(","))
    except (OSError, ValueError) as error:
        fix = "--inputs x.npy, which np.save('x.npy', array) writes, and --widths 64,128"
        raise fail(f"--inputs and --widths cannot be read: {error}", fix=fix) from None
    program = from_torch(make, given, pair, at, name, not no_check)
    told = program.imported
    assert told is not None
    files: dict[Path, bytes] = {}
    if out is None:
        echo(told.text.rstrip())
    else:
        target = out / f"{program.name}.yaml" if out.is_dir() else out
        writable(target)
        files = {target: told.text.encode()}
        for key, array in told.arrays.items():
            np.save(stream := io.BytesIO(), array)
            files[target.parent / key] = stream.getvalue()
        write_files(files, force)
    where = f"; written to {', '.join(map(str, files))}" if files else ""
    answer(dict, lambda: [told.blocks(), f"grade: {program.check().grade}{where}"])
    if against is not None:
        found = compare_torch(program, make, given, against, samples or 2000, max_memory=max_memory or "1GiB")
        answer(dict, lambda: [found.blocks()])
        if found.refused:
            notice(f"no limit to compare with: {found.refused}")
    return DONE


def _function(text: str) -> Any:
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        file, name = text, "make"
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        raise fail(f"{file}: there is no such Python file", fix="tp import model.py:make --inputs x.npy")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded  # where classes of the file look for their module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(loaded)
    except TensorprogError:
        raise
    except Exception as error:
        said = f"{file} stops with {type(error).__name__}: {error}"
        raise fail(said, fix=f"it must run by itself: python {path.name}") from None
    if not callable(getattr(loaded, name, None)):
        raise fail(f"{file} has no function {name}", fix="def make(n): return Net(n)")
    return getattr(loaded, name)
