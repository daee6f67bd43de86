"""Options of the commands, and the reading of their values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from tensorprog.jobs.cli.frame import REQUIRED
from tensorprog.language.errors import ProgramError, fail
from tensorprog.language.memory import parse_memory

MAX_NUMBER = 2**63 - 1
F = TypeVar("F", bound=Callable[..., Any])
Reader = Callable[[click.Context, click.Parameter, Any], Any]


# ---- values ---------------------------------------------------------------------------------------------------------


def pairs(option: str, form: str, example: str) -> Reader:
    """Reader of texts NAME=VALUE, the last of equal names winning; lists of values V,V,.. are joined."""

    def convert(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for text in texts:
            name, equals, value = (part.strip() for part in text.partition("="))
            values = [part.strip() for part in value.split(",")]
            if not all([name, equals, *values]):
                raise fail(f"{option} {text}: is not of the form {form}", fix=f"{option} {example}")
            found[name] = [*found.get(name, ()), *values] if form.endswith(",..") else value
        return found

    return convert


def interval(_: click.Context, __: click.Parameter, text: str | None) -> tuple[float, float] | None:
    """Two numbers A,B."""
    try:
        low, high = map(float, text.split(",")) if text is not None else (0.0, 0.0)
    except ValueError:
        raise fail(f"--between {text}: is not two numbers", fix="--between 0.01,10") from None
    return None if text is None else (low, high)


def _whole(option: str, text: str, minimum: int, maximum: int = MAX_NUMBER) -> int:
    with suppress(ValueError, OverflowError):
        number = int(text) if text.strip().lstrip("+-").isdigit() else float(text)
        if number == int(number) and minimum <= number <= maximum:
            return int(number)
    raise fail(f"{option} {text[:40]}: is not a whole number of at least {minimum} and at most {maximum}")


def widths(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    """Whole numbers, separated by commas or given one by one."""
    return tuple(_whole("--width", text, 1, 10**7) for given in texts for text in given.split(",")) or None


def memory(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """An amount of memory, refused before anything is done if it is none."""
    try:
        parse_memory(text or ("1" if text is None else "none"))
    except ProgramError:
        raise fail(f"--max-memory {text}: is not an amount of memory", fix="--max-memory 1GiB") from None
    return text


def _place(_: click.Context, __: click.Parameter, text: str | None) -> Path | None:
    if text == "":
        raise fail("the path is empty; . is the folder you are in")
    return None if text is None else Path(text)


# ---- options --------------------------------------------------------------------------------------------------------


option = click.option


def options(*chosen: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, shown in this order by --help."""

    def apply(function: F) -> F:
        for option in reversed(chosen):
            function = option(function)
        return function

    return apply


def number(name: str, minimum: int, help: str, default: str | None = None) -> Callable[[F], F]:
    """An option that takes a whole number."""

    def convert(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        return None if text is None else _whole(name, text, minimum)

    return option(name, metavar="N", callback=convert, help=help, default=default, show_default=default is not None)


def out(help: str, metavar: str = "DIR", **extra: Any) -> Callable[[F], F]:
    """The option that says where something is written."""
    names = ("-o", "--out") if metavar == "FILE" else ("--out",)
    return option(*names, metavar=metavar, callback=_place, help=help, **extra)


FILE = click.argument("file", metavar="FILE")
SET = option(
    "--set",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs("--set", "NAME=VALUE", "H=16"),
    help="Replace a constant of the program; may be repeated.",
)
FORMAT = option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text, or json: one object and nothing else, with --quiet too.",
)
QUIET = option("--quiet", is_flag=True, help="Print nothing but errors.")
REQUIRE = option(
    "--require",
    type=click.Choice(REQUIRED),
    help="Leave with exit code 1 if the check's grade is below theorem, remark or extension.",
)
SEED = number("--seed", 0, "Seed of the random streams.")
MEMORY = option(
    "--max-memory",
    "max_memory",
    metavar="SIZE",
    callback=memory,
    help="What networks, results and limits may take, e.g. 500MB; default 1GiB.",
)
WIDTH = option("--width", metavar="N,..", multiple=True, callback=widths, help="Widths n to run at, e.g. 16,64,256.")
METHOD = option(
    "--method",
    type=click.Choice(["auto", "dense", "lazy", "collapsed"]),
    help="How networks are drawn: auto, dense, lazy or collapsed.",
)
SCHEDULER = option(
    "--scheduler", metavar="ADDRESS", help="Draw on the workers of a dask scheduler, e.g. tcp://host:8786."
)
FORCE = option("--force", is_flag=True, help="Replace files that exist.")
