"""Options of the commands, the reading of their values, and what shells are told while they are typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tensorprog.jobs.cli.frame import OUTPUT, REQUIRED, RESOURCES, HeadedOption
from tensorprog.language.errors import Problem, ProgramError, fail
from tensorprog.language.memory import parse_memory

if TYPE_CHECKING:
    from tensorprog.language.ir import Netsor

MAX_NUMBER = 2**63 - 1
F = TypeVar("F", bound=Callable[..., Any])
SUFFIXES = (".yaml", ".yml")
MEMBERS = 16  # of one family
ALL = "all"  # the name of all figures together


# ---- completion -----------------------------------------------------------------------------------------------------


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shipped programs by name, and the folders and program files that begin with what is typed."""
    from tensorprog.shipped import shipped_programs

    return _starting(incomplete, shipped_programs()) + [CompletionItem(path) for path in _paths(incomplete)]


def _paths(incomplete: str) -> list[str]:
    """Folders with a slash at their end; what is in a folder instead of it where no other path is possible."""
    found = [
        f"{path}/" if os.path.isdir(path) else path
        for path in sorted(glob(f"{escape(incomplete)}*"))
        if os.path.isdir(path) or path.lower().endswith(SUFFIXES)
    ]
    inside = incomplete and len(found) == 1 and found[0].endswith("/")
    return _paths(found[0]) if inside else found


def constants(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """NAME=VALUE of each number among the program's constants, with its value there."""
    entries = [(constant.name, constant.value) for constant in getattr(_program(ctx), "constants", ())]
    return _starting(incomplete, (f"{name}={value!r}" for name, value in entries if isinstance(value, int | float)))


def indices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The program's indices."""
    return _starting(incomplete, (index.name for index in getattr(_program(ctx), "indices", ())))


def variables(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Members of the program's vectors and scalars, the first of each family."""
    from tensorprog.language.formats import label, members

    netsor = _program(ctx)
    if netsor is None:
        return []
    names = (name for name, family in netsor.families.items() if family.kind != "weight")
    return _starting(incomplete, (label(name, index) for name in names for index in members(netsor, name, MEMBERS)))


def figures(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The figures of the paper."""
    from tensorprog.shipped import paper_figures

    return _starting(incomplete, (*paper_figures().FIGURES, ALL))


def _starting(incomplete: str, texts: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(text) for text in texts if text.startswith(incomplete)]


def _program(ctx: click.Context) -> Netsor | None:
    """The program named on the line, if it is one; click leaves it among `args` where an option has no value yet."""
    from tensorprog.language.errors import TensorprogError
    from tensorprog.language.reading import load
    from tensorprog.shipped import resolve

    try:
        return next((load(resolve(word)) for word in (ctx.params.get("file"), *ctx.args) if word), None)
    except TensorprogError:
        return None


# ---- values ---------------------------------------------------------------------------------------------------------


def _pairs(texts: Iterable[str], option: str, form: str, example: str) -> list[tuple[str, str]]:
    """Names and what stands behind their equals signs; nothing is empty, nor what stands between commas."""
    pairs = {text: [part.strip() for part in text.partition("=")] for text in texts}
    problems = [
        Problem(f"{option} {text}: is not of the form {form}", fix=f"{option} {example}")
        for text, (name, _, value) in pairs.items()
        if not all([name, *map(str.strip, value.split(","))])
    ]
    if problems:
        raise ProgramError(problems)
    return [(name, value) for name, _, value in pairs.values()]


def _overrides(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, the last of equal names winning."""
    return dict(_pairs(texts, "--set", "NAME=VALUE", "H=16"))


def averages(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...] | None:
    """NAME=PSI, the last of equal names winning; what PSI means is checked with the program."""
    return tuple(dict(_pairs(texts, "--average", "NAME=PSI", "'m=tanh(y[0])**2'")).items()) or None


def values(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, list[str]]:
    """NAME=VALUE,VALUE,.. of each constant, its values in one place or several."""
    found: dict[str, list[str]] = {}
    for name, listed in _pairs(texts, "--over", "NAME=VALUE,VALUE,..", "H=1,2,4"):
        found.setdefault(name, []).extend(map(str.strip, listed.split(",")))
    return found


def lists(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, list[str]]:
    """NAME=VALUE or NAME=VALUE,VALUE,.. of each constant, the last of equal names winning."""
    return {
        name: [part.strip() for part in listed.split(",")]
        for name, listed in _pairs(texts, "--set", "NAME=VALUE,VALUE,..", "g=1,4,16")
    }


def interval(_: click.Context, __: click.Parameter, text: str | None) -> tuple[float, float] | None:
    """Two numbers A,B."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise fail(f"--between {text}: is not two numbers", fix="--between 0.01,10") from None
    return low, high


def whole_number(option: str, minimum: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Reader of a whole number of at least `minimum`."""

    def convert(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        try:
            number = float(text.strip()) if not text.strip().lstrip("+-").replace("_", "").isdigit() else int(text)
            whole = int(number)
        except (ValueError, OverflowError):
            whole, number = minimum - 1, float("nan")
        if whole != number or not minimum <= whole <= MAX_NUMBER:
            bound = f"at least {minimum}" if whole <= MAX_NUMBER else f"at most {MAX_NUMBER}"
            raise fail(f"{option} {text}: is not a whole number of {bound}")
        return whole

    return convert


def widths(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    """Whole numbers, separated by commas or given one by one."""
    found: list[int] = []
    problems = []
    for text in (part.strip() for given in texts for part in given.split(",")):
        if not text.isascii() or not text.replace("_", "").isdigit() or not 1 <= int(text[:20]) <= 10**7:
            problems.append(
                Problem(f"--width {text[:40]}: is not a whole number between 1 and 10000000", fix="--width 16,64,256")
            )
        else:
            found.append(int(text))
    if problems:
        raise ProgramError(problems)
    return tuple(found) or None


def memory(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """An amount of memory, refused before anything is done if it is none."""
    if text is not None:
        try:
            parse_memory(text)
        except ProgramError:
            raise fail(f"--max-memory {text}: is not an amount of memory", fix="--max-memory 1GiB") from None
    return text


class Place(click.Path):
    """The path of something to write."""

    def __init__(self, **extra: Any) -> None:
        super().__init__(path_type=Path, **extra)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the path; an empty text is none."""
        if value == "":
            self.fail("the path is empty; . is the folder you are in", param, ctx)
        return super().convert(value, param, ctx)


# ---- options --------------------------------------------------------------------------------------------------------


def options(*chosen: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, shown in this order by --help."""

    def apply(function: F) -> F:
        for option in reversed(chosen):
            function = option(function)
        return function

    return apply


def option(*names: str, **extra: Any) -> Callable[[F], F]:
    """As `click.option`; `heading` says under which heading `--help` shows it."""
    return click.option(*names, cls=HeadedOption, **extra)


FILE = click.argument("file", metavar="FILE", shell_complete=files)
SET = option(
    "--set",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_overrides,
    shell_complete=constants,
    help="Replace a constant of the program; may be repeated.",
)
FORMAT = option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    metavar="FORMAT",
    default="text",
    show_default=True,
    heading=OUTPUT,
    help="text, or json: one object and nothing else, with --quiet too.",
)
QUIET = option("--quiet", is_flag=True, heading=OUTPUT, help="Print nothing but errors.")
REQUIRE = option(
    "--require",
    type=click.Choice(REQUIRED),
    metavar="GRADE",
    heading=OUTPUT,
    help="Leave with exit code 1 if the check's grade is below theorem, remark or extension.",
)
SEED = option("--seed", metavar="N", callback=whole_number("--seed", 0), help="Seed of the random streams.")
MEMORY = option(
    "--max-memory",
    "max_memory",
    metavar="SIZE",
    heading=RESOURCES,
    callback=memory,
    help="What networks, results and limits may take, e.g. 500MB; default 1GiB.",
)
WIDTH = option("--width", metavar="N,..", multiple=True, callback=widths, help="Widths n to run at, e.g. 16,64,256.")
METHOD = option(
    "--method",
    type=click.Choice(["auto", "dense", "lazy", "collapsed"]),
    metavar="METHOD",
    help="How networks are drawn: auto, dense, lazy or collapsed.",
)
