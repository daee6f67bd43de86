"""`tp import`: a torch module as a program file."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import click

from tensorprog.jobs.cli.frame import COMMANDS, OUTPUT, Command, complain, echo, show, writable
from tensorprog.jobs.cli.options import QUIET, Place, option, options, whole_number
from tensorprog.language.errors import TensorprogError, fail
from tensorprog.language.files import whole, writing


@click.command(
    "import",
    cls=Command,
    heading=COMMANDS[3],
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
@option(
    "--at",
    "at",
    metavar="N",
    callback=whole_number("--at", 2),
    help="Take variances as they are at this width, the width of your own network.",
)
@option(
    "--against",
    "against",
    metavar="N",
    callback=whole_number("--against", 2),
    help="Draw the module of this width, and set it beside the program and beside its limit.",
)
@option("--samples", metavar="N", callback=whole_number("--samples", 2), help="Networks for --against; default 2000.")
@option("--name", "name", metavar="NAME", default="", help="The program's name; default that of the module's class.")
@option(
    "-o",
    "--out",
    metavar="FILE",
    type=Place(),
    heading=OUTPUT,
    help="The program file to write, its data beside it; default: print the program.",
)
@option("--force", is_flag=True, heading=OUTPUT, help="Replace files that exist.")
@options(QUIET)
def import_(
    module: str,
    inputs: tuple[str, ...],
    widths: str,
    at: int | None,
    against: int | None,
    samples: int | None,
    name: str,
    out: Path | None,
    force: bool,
    quiet: bool,
) -> int:
    """Run FILE.py, and write what MAKE(n), a torch.nn.Module of width n, is at initialisation as a program.

    FILE.py is your own code, and this command executes it; all others never execute anything.
    """
    from tensorprog.importing import compare_torch, from_torch, needed

    needed()
    make = _function(module)
    given = tuple(_array(file) for file in inputs)
    program = from_torch(make, given, _widths(widths), at, name)
    told = program.imported
    assert told is not None
    if out is None:
        echo(told.text.rstrip())
    else:
        target = out / f"{program.name}.yaml" if out.is_dir() else out
        files = {target: told.text.encode()} | {target.parent / key: _bytes(a) for key, a in told.arrays.items()}
        taken = [path for path in files if path.exists()]
        if taken and not force:
            raise fail(f"{', '.join(map(str, taken))}: there already", fix="another -o, or --force to replace")
        writable(target)
        for path, content in files.items():
            with writing(path, "choose another place with -o"):
                path.parent.mkdir(parents=True, exist_ok=True)
                with whole(path) as partial:
                    partial.write_bytes(content)
    if not quiet:
        show(told.blocks())
        grade = program.check().grade
        echo(f"grade: {grade}" + (f"; written to {', '.join(map(str, files))}" if out is not None else ""))
    if against is not None:
        found = compare_torch(program, make, given, against, samples or 2000)
        show(found.blocks())
        if found.refused and not quiet:
            complain(f"no limit to compare with: {found.refused}")
    return 0


def _function(text: str) -> Any:
    """The function of a Python file."""
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
        raise fail(
            f"{file} stops with {type(error).__name__}: {error}", fix="it must run by itself: python " + path.name
        ) from None
    if not callable(getattr(loaded, name, None)):
        raise fail(f"{file} has no function {name}", fix="def make(n): return Net(n)")
    return getattr(loaded, name)


def _array(file: str) -> Any:
    import numpy as np

    try:
        return np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise fail(f"{file} cannot be read: {error}", fix="np.save('x.npy', array) writes one") from None


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise fail(f"--widths: {text} is not two numbers", fix="--widths 64,128") from None


def _bytes(array: Any) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
