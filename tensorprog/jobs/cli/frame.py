"""What every command has: help with examples, options, exit codes, and messages instead of tracebacks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tensorprog.language.errors import Problem, TensorprogError, did_you_mean, fail, need_package, visible
from tensorprog.language.files import FULL, json_text
from tensorprog.language.memory import parse_memory
from tensorprog.show.terminal import prepare

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorprog.blocks import Block
    from tensorprog.language.ir import Netsor

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DONE, OUTSIDE, BAD_INPUT, NOT_MET, OUR_BUG, INTERRUPTED = 0, 1, 2, 3, 70, 130
EXIT_CODES = (
    "0 done; 1 the program is outside the theory, or below --require; 2 bad input; 3 accuracy, memory or disk do not "
    "suffice, or a limit that is not compiled; 130 interrupted"
)
MAX_NUMBER = 2**63 - 1
REQUIRED = ("theorem", "remark", "extension")  # grades that --require takes
F = TypeVar("F", bound=Callable[..., Any])
Reader = Callable[[click.Context, click.Parameter, Any], Any]


# ---- from exceptions to exit codes ----------------------------------------------------------------------------------


def _guarded(call: Callable[[], Any]) -> NoReturn:
    """Run a command and leave with its exit code; no traceback ever reaches a user."""
    prepare()
    try:
        code = call()
    except (Exception, KeyboardInterrupt) as error:
        text, code = _said(error)
        with contextlib.suppress(OSError):  # with the notes of the error: where it happened
            complain("\n  ".join([text, *getattr(error, "__notes__", ())]))
    sys.exit(code if isinstance(code, int) else 0)


def _said(error: BaseException) -> tuple[str, int]:
    if isinstance(error, TensorprogError):
        return str(error), error.exit_code
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        message = error.format_message().rstrip(".")
        message = message if message.startswith(("'", "-")) else message[:1].lower() + message[1:]
        return str(Problem(message, fix=f"{context.command_path if context else 'tp'} --help")), BAD_INPUT
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted; what was finished is on disk", INTERRUPTED
    if isinstance(error, MemoryError):
        return "there is not enough memory: ask for fewer --samples or a smaller --width", NOT_MET
    if isinstance(error, OSError):
        text = str(Problem(f"{error.filename or 'a file'}: {(error.strerror or str(error)).lower()}"))
        return text, NOT_MET if error.errno in FULL else BAD_INPUT
    if os.environ.get("TENSORPROG_DEBUG"):
        raise error
    return (
        f"This is a bug of tensorprog, not a mistake of yours: {type(error).__name__}: {error}\n"
        "Please report it with the program file and the command. The environment variable TENSORPROG_DEBUG=1 shows "
        "where it happened."
    ), OUR_BUG


# ---- commands -------------------------------------------------------------------------------------------------------


class Command(click.Command):
    """A command that shows examples, pairs of arguments and purpose, and leaves with an exit code."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **extra: Any) -> None:
        super().__init__(*args, **extra | {"context_settings": SETTINGS | extra.get("context_settings", {})})
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the exit codes."""
        rows = [(f"{ctx.command_path} {arguments}".rstrip(), purpose) for arguments, purpose in self.examples]
        if rows:
            with formatter.section("Examples"):
                formatter.write_dl(rows, col_max=formatter.width * 3 // 5)
        with formatter.section("Exit codes"):
            formatter.write_text(EXIT_CODES)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and in a shell leave with the exit code."""
        parent: Any = super()
        if not standalone_mode:
            return parent.main(*args, standalone_mode=False, **extra)
        return _guarded(lambda: parent.main(*args, standalone_mode=False, **extra))


class Group(Command, click.Group):
    """The commands by name, in the order in which they were added; a wrong name is answered with the right one."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the words of the line; no words ask for help."""
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command meant by the first argument."""
        name = args[0] if args else ""
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.list_commands(ctx)).replace("known names", "commands")
            is_file = name.endswith((".yaml", ".yml"))
            raise fail(f"there is no command {name}", fix=f"tp run {name}" if is_file else hint)
        return super().resolve_command(ctx, args)


# ---- what several commands do ----------------------------------------------------------------------------------------


def echo(text: str = "") -> None:
    """Print a line on stdout as it is encoded: click takes ASCII terminals for ones that know UTF-8."""
    print(visible(text), flush=True)


def complain(text: str) -> None:
    """Print an error on stderr."""
    print(visible(text), file=sys.stderr, flush=True)


def notice(text: str) -> None:
    """Print on stderr what is no error; nothing if the command was told to be quiet."""
    if not asked("quiet"):
        complain(text)


def asked(name: str) -> Any:
    """What an option says that every command has, such as `quiet`."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name)


@contextlib.contextmanager
def cluster(scheduler: str | None) -> Iterator[Executor | None]:
    """The workers of a dask scheduler at an address such as tcp://host:8786, if one is named.

    Raises    ProgramError if nothing answers there, or dask.distributed is not installed
    """
    if scheduler is None:
        yield None
        return
    distributed = need_package("distributed", "schedulers", "cluster")
    try:
        client = distributed.Client(scheduler, timeout=5, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise fail(
            f"no scheduler answers at {scheduler}: {str(error).strip().splitlines()[0]}",
            fix="the address that dask scheduler prints, such as tcp://host:8786",
        ) from None
    with client:
        yield client.get_executor(pure=False)


def answer(found: Callable[[], Mapping[str, Any]], shown: Callable[[], Iterable[str | Block | list[Block]]]) -> None:
    """Print a result as it was asked for: one JSON object, or lines, blocks and groups of blocks, each as it comes, so
    that those before one that fails are seen; nothing if the command was told to be quiet.
    """
    from tensorprog.show.terminal import show

    if asked("form") == "json":
        echo(json_text(found(), ascii_only=True).rstrip("\n"))  # which every terminal and pipe leaves as it is
    elif not asked("quiet"):
        for part in shown():
            if isinstance(part, str):
                echo(part)
            else:
                show(part if isinstance(part, list) else [part], echo)


def watching() -> Any:
    """Notes on stderr and a bar on terminals, inside a `with` block."""
    from tensorprog.show.terminal import Progress

    return Progress(notes=not asked("quiet")).shown()


def places(folder: Path, names: Iterable[object]) -> str:
    """The folder that was written to, and the files in it."""
    return "\n".join([f"written to {folder}{os.sep}", *(f"  {name}" for name in names)])


def load(file: str, overrides: Mapping[str, str]) -> Netsor:
    """The program meant by FILE, `-` being standard input; its warnings go to stderr."""
    from tensorprog.language.reading import load as read
    from tensorprog.language.reading import loads
    from tensorprog.shipped import resolve

    if file == "-":
        netsor = loads(sys.stdin.read(), overrides, file="-", base=Path.cwd())
    else:
        netsor = read(resolve(file), overrides, file=file)
    for warning in netsor.warnings:
        notice(f"warning: {warning}")
    return netsor


def open_program(file: str, overrides: Mapping[str, str]) -> Any:
    """As `load`, as the `Program` of the Python interface."""
    from tensorprog.program import Program

    return Program.from_netsor(load(file, overrides))


def exit_code(grade: str) -> int:
    """0 if a grade reaches the bar, which by default is any but outside, else 1, after saying why if it is inside."""
    order, required = (*REQUIRED, "outside"), asked("require")
    if order.index(grade) <= order.index(required or "extension"):
        return DONE
    if grade != "outside":
        complain(f"the grade is {grade}, and --require asks for {required}")
    return OUTSIDE


def header(netsor: Netsor, report: Any) -> dict[str, Any]:
    """The entries that every JSON object begins with."""
    from tensorprog.language.formats import constants_json

    return {"program": netsor.name, "constants": constants_json(netsor), "assumptions": report.to_json()}


def writable(path: Path) -> None:
    """Refuse early what would fail after a long computation.

    Raises    ProgramError
    """
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a directory" if path.is_dir() else f"there is no folder {path.parent}"
        raise fail(f"{path} cannot be written: {why}", fix="name a file in a folder that there is")


def write_files(files: Mapping[Path, bytes], force: bool) -> None:
    """Write files, and the folders that they are in; ones that hold the same already are no obstacle.

    Raises    ProgramError if some are there, unless they may be replaced by `force`
    """
    from tensorprog.language.files import whole, writing

    taken = [path for path in files if path.exists() and path.read_bytes() != files[path]]
    if taken and not force:
        raise fail(f"{', '.join(map(str, taken))}: there already", fix="another place with -o, or --force to replace")
    for path, content in files.items():
        with writing(path, "choose another place with -o"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path) as partial:
                partial.write_bytes(content)


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
    with contextlib.suppress(ValueError, OverflowError):
        number = int(text) if text.strip().lstrip("+-").isdigit() else float(text)
        if number == int(number) and minimum <= number <= maximum:
            return int(number)
    raise fail(f"{option} {text[:40]}: is not a whole number of at least {minimum} and at most {maximum}")


def widths(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    """Whole numbers, separated by commas or given one by one."""
    return tuple(_whole("--width", text, 1, 10**7) for given in texts for text in given.split(",")) or None


def memory(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """An amount of memory in bytes, refused before anything is done if it is none."""
    return None if text is None else parse_memory(text)


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    context.meta[str(option.name)] = value


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
    callback=_keep,
    expose_value=False,
)
QUIET = option("--quiet", is_flag=True, help="Print nothing but errors.", callback=_keep, expose_value=False)
REQUIRE = option(
    "--require",
    type=click.Choice(REQUIRED),
    callback=_keep,
    expose_value=False,
    help="Leave with exit code 1 if the check's grade is below theorem, remark or extension.",
)
SEED = number("--seed", 0, "Seed of the random streams.")


def most_memory(what: str, default: str) -> Callable[[F], F]:
    """The option that says how much memory may be taken."""
    said = f"What {what} may take, e.g. 500MB; default {default}."
    return option("--max-memory", "max_memory", metavar="SIZE", callback=memory, help=said)


MEMORY = most_memory("networks, results and limits", "1GiB")
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
