"""From exceptions to exit codes; no traceback ever reaches a user."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from tensorprog.jobs.cli.help import Documented, write_commands
from tensorprog.language.errors import Problem, TensorprogError, did_you_mean, fail
from tensorprog.show.terminal import prepare

DONE, OUTSIDE, BAD_INPUT, NOT_MET, OUR_BUG, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 70, 130, 141
MEANING = {  # those that `--help` explains
    DONE: "done", OUTSIDE: "the program is outside the theory, or below --require", BAD_INPUT: "bad input",
    NOT_MET: "accuracy or memory not met, or a limit that is not compiled", INTERRUPTED: "interrupted",
}
SIMPLE = (DONE, BAD_INPUT)  # of commands that neither judge nor compute


class _ReaderGoneError(Exception):
    """Nobody reads the pipe any more."""


def _reader_gone(error: OSError) -> bool:
    """Whether writing failed because the other end of a pipe is closed; Windows calls that an invalid argument."""
    return error.errno == errno.EPIPE or (error.errno == errno.EINVAL and os.name == "nt" and not error.filename)


def _guarded(call: Callable[[], Any]) -> NoReturn:
    """Run a command and leave with its exit code; no traceback ever reaches a user."""
    prepare()
    try:
        code = call()
    except TensorprogError as error:
        code = _say(_whole(str(error), error), error.exit_code)
    except click.ClickException as error:
        code = _say(str(_usage_problem(error)), BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        code = _say("interrupted; what was finished is on disk", INTERRUPTED)
    except MemoryError as error:
        said = "there is not enough memory: ask for fewer --samples or a smaller --width"
        code = _say(_whole(said, error), NOT_MET)
    except _ReaderGoneError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left goes nowhere
        code = BROKEN_PIPE
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        code = _say(_whole(str(Problem(f"{error.filename or 'a file'}: {reason}")), error), BAD_INPUT)
    except Exception as error:
        if os.environ.get("TENSORPROG_DEBUG"):
            raise
        said = f"This is a bug of tensorprog, not a mistake of yours: {type(error).__name__}: {error}"
        code = _say(_whole(said, error) + "\n"
                    "Please report it with the program file and the command. The environment variable "
                    "TENSORPROG_DEBUG=1 shows where it happened.", OUR_BUG)
    sys.exit(code if isinstance(code, int) else 0)


def _whole(text: str, error: BaseException) -> str:
    """A message with the notes of its error: where it happened."""
    return "\n".join([text, *(f"  {note}" for note in getattr(error, "__notes__", ()))])


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
    return code


def _usage_problem(error: click.ClickException) -> Problem:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    command = context.command_path if context is not None else "tp"
    message = message[:1].lower() + message[1:] if not message.startswith(("'", "-")) else message
    return Problem(message, fix=f"{command} --help")


class Command(Documented):
    """A command that leaves with an exit code; `exits` are those that it can leave with and `--help` explains."""

    def __init__(self, *args: Any, exits: Sequence[int] = tuple(MEANING), **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.exits = exits

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the words of the line; what is wrong with them is told with the command that they are for."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the exit codes."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_text("; ".join(f"{code} {MEANING[code]}" for code in self.exits))

    def invoke(self, ctx: click.Context) -> Any:
        """Run and write all that was printed; click would take a closed pipe for exit code 1."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            if _reader_gone(error):
                raise _ReaderGoneError from None
            raise
        return result

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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        write_commands(self.commands.items(), formatter)
        Command.format_options(self, ctx, formatter)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command meant by the first argument."""
        name = args[0] if args else ""
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.list_commands(ctx))
            file = Path(name).suffix in (".yaml", ".yml")
            fix = f"tp run {name}" if file else hint.replace("known names", "commands")
            raise fail(f"there is no command {name}", fix=fix)
        return super().resolve_command(ctx, args)
