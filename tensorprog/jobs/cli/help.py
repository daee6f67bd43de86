"""What `--help` shows: commands in the order in which they are wanted, options under headings, examples."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import click

COMMANDS = ("The main job", "Its parts", "Studies", "Programs and shell")  # headings of commands, in this order
OPTIONS, RESOURCES, OUTPUT = "Options", "Time and memory", "Output"  # headings of options
WIDEST, NARROWEST = 100, 24  # columns of text
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
FILE_TEXT = "FILE is the path of a program file, or the bare name of a shipped program (see `tp list`)."


class Option(click.Option):
    """An option that stands under a heading."""

    def __init__(self, *args: Any, heading: str = OPTIONS, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.heading = heading


class Formatter(click.HelpFormatter):
    """Text as narrow as the screen is; click's own is never narrower than 50 columns."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        room = min(shutil.get_terminal_size().columns, max_width or WIDEST) - 2
        super().__init__(indent_increment, width or max(room, NARROWEST), max_width)


class Context(click.Context):
    """A command that is being called."""

    formatter_class = Formatter


class Documented(click.Command):
    """A command that shows examples, and says what FILE is.

    `heading` is the one it stands under in the list of commands, `examples` are pairs: what follows the command's name,
    and what it is for.
    """

    context_class = Context

    def __init__(
        self, *args: Any, heading: str = COMMANDS[2], examples: Sequence[tuple[str, str]] = (), **extra: Any
    ) -> None:
        super().__init__(*args, **extra | {"context_settings": SETTINGS | extra.get("context_settings", {})})
        self.heading, self.examples = heading, examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the text, and what FILE is if there is one."""
        super().format_help_text(ctx, formatter)
        if any(parameter.metavar == "FILE" and isinstance(parameter, click.Argument) for parameter in self.params):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(FILE_TEXT)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings; that for help comes last."""
        rows: dict[str, list[tuple[str, str]]] = {}
        parameters = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            heading = next(reversed(rows), OPTIONS) if "--help" in parameter.opts else OPTIONS
            if record is not None:
                rows.setdefault(getattr(parameter, "heading", heading), []).append(record)
        _write_sections(rows, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        rows = [(f"{ctx.command_path} {arguments}".rstrip(), purpose) for arguments, purpose in self.examples]
        if rows:
            with formatter.section("Examples"):
                formatter.write_dl(rows, col_max=formatter.width * 3 // 5)
        super().format_epilog(ctx, formatter)


def _write_sections(rows: dict[str, list[tuple[str, str]]], formatter: click.HelpFormatter) -> None:
    """Lists under headings, whose texts begin in one column."""
    column = min(max((len(name) for part in rows.values() for name, _ in part), default=0), formatter.width // 3)
    for heading, part in rows.items():
        with formatter.section(heading):
            formatter.write_dl([(f"{name:<{column}}", text) for name, text in part], col_max=column + 2)


def write_commands(commands: Iterable[tuple[str, click.Command]], formatter: click.HelpFormatter) -> None:
    """Write the commands under their headings, each with its whole summary."""
    rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in COMMANDS}
    for name, command in commands:
        summary = command.short_help or command.get_short_help_str(limit=1000)
        rows.setdefault(getattr(command, "heading", COMMANDS[2]), []).append((name, summary))
    _write_sections({heading: part for heading, part in rows.items() if part}, formatter)
