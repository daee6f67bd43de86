"""From exceptions to exit codes; no traceback ever reaches a user."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from tensorprog.errors import Problem, TensorprogError, did_you_mean, fail

OUTSIDE, BAD_INPUT, INTERRUPTED, OUR_BUG, BROKEN_PIPE = 1, 2, 130, 70, 141


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


class Command(click.Command):
    """A command that leaves with an exit code."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and in a shell leave with the exit code."""
        parent: Any = super()
        if not standalone_mode:
            return parent.main(*args, standalone_mode=False, **extra)
        return _guarded(lambda: parent.main(*args, standalone_mode=False, **extra))


class Group(Command, click.Group):
    """The commands by name; a wrong name is answered with the right one."""

    command_class = Command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command meant by the first argument."""
        name = args[0] if args else ""
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.list_commands(ctx))
            file = Path(name).suffix in (".yaml", ".yml")
            fix = f"tp run {name}" if file else hint.replace("known names", "commands")
            raise fail(f"there is no command {name}", fix=fix)
        return super().resolve_command(ctx, args)
