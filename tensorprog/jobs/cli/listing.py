"""`tp list`: the shipped programs, and the nonlinearities that programs may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensorprog.blocks import Grid
from tensorprog.jobs.cli.exits import SIMPLE, Command
from tensorprog.jobs.cli.help import COMMANDS
from tensorprog.jobs.cli.options import FORMAT, QUIET, option, options
from tensorprog.jobs.cli.shared import print_json, show

if TYPE_CHECKING:
    from tensorprog.language.atoms.core import Regularity


@click.command(
    name="list", cls=Command, heading=COMMANDS[3], exits=SIMPLE, short_help="List the programs that ship.",
    examples=[("", "the programs and their grades"), ("--atoms", "the functions that programs may use")],
)
@option("--atoms", is_flag=True, help="List the nonlinearities that programs may use instead.")
@options(FORMAT, QUIET)
def list_(atoms: bool, form: str, quiet: bool) -> int:
    """List the shipped programs with the grade of each."""
    columns, rows = (("name", "arguments", "range", "Lipschitz", "what"), atom_rows()) if atoms else (
        ("name", "grade", "title"), program_rows())
    if form == "json":
        print_json({"atoms" if atoms else "programs": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif not quiet:
        show([Grid("", columns, tuple(rows), text_columns=tuple(range(len(columns))))])
    return 0


def program_rows() -> list[tuple[str, ...]]:
    """Name, grade and title of each shipped program."""
    from tensorprog.language.yaml_io import load
    from tensorprog.results.judge import judge
    from tensorprog.shipped import shipped_programs

    rows: list[tuple[str, ...]] = []
    for name, path in shipped_programs().items():
        netsor = load(path)
        rows.append((name, judge(netsor).grade, netsor.title))
    return rows


def atom_rows() -> list[tuple[str, ...]]:
    """Name, arguments, range, Lipschitz constant and purpose of each function."""
    from tensorprog.language.atoms import ATOMS, REDUCTIONS

    rows: list[tuple[str, ...]] = []
    for atom in ATOMS.values():
        names = [*["x", "y", "z"][: atom.arity],
                 *(key if value is None else f"{key}={value:g}" for key, value in atom.params.items())]
        interval = "" if atom.params or atom.bounds is None else "[{:g}, {:g}]".format(*atom.bounds())
        everywhere = (-float("inf"), float("inf"))
        defaults = [value for value in atom.params.values() if value is not None]
        complete = len(defaults) == len(atom.params)
        regularity = atom.regularity_on(everywhere, *defaults) if atom.arity == 1 and complete else atom.regularity
        lipschitz = _lipschitz(regularity, complete)
        written = f"x {atom.operator} y" if atom.operator and atom.arity + len(atom.params) == 2 else ", ".join(names)
        rows.append((atom.name, written, interval, lipschitz, atom.doc))
    for reducer in REDUCTIONS.values():
        interval = "[{:g}, {:g}]".format(*reducer.bounds) if reducer.bounds is not None else ""
        rows.append((f"{reducer.name}[i]", "x", interval, "yes" if reducer.lipschitz else "no", reducer.doc))
    return rows


def _lipschitz(regularity: Regularity, complete: bool) -> str:
    """The best constant, `yes` if there is one that depends on the norm, '' if that depends on parameters."""
    if regularity.lipschitz < float("inf"):
        return f"{regularity.lipschitz:.4g}"
    return "yes" if regularity.modulus == 0 else "no" if complete else ""
