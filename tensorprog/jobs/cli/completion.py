"""`tp completion SHELL`: the script by which a shell completes `tp` and `tp-run`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tensorprog.jobs.cli.exits import SIMPLE, Command
from tensorprog.jobs.cli.help import COMMANDS
from tensorprog.jobs.cli.options import QUIET
from tensorprog.jobs.cli.shared import echo

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Command, heading=COMMANDS[3], exits=SIMPLE, short_help="Print the script that lets a shell complete commands.",
    examples=[("bash >> ~/.bashrc", "bash 4.4 or later"),
              ("zsh >> ~/.zshrc", "zsh, after compinit"),
              ("fish > ~/.config/fish/completions/tp.fish", "fish")],
)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@QUIET
def completion(shell: str, quiet: bool) -> int:
    """Print the script by which SHELL - bash, zsh or fish - completes tp and tp-run.

    It completes commands, options and their values, figures of the paper, shipped programs, program files, and of the
    program named its constants, indices and variables.
    """
    found = get_completion_class(shell)
    assert found is not None
    commands = click.Group()  # scripts are made of names only
    scripts = [found(commands, {}, name, f"_{name.replace('-', '_').upper()}_COMPLETE").source()
               for name in ("tp", "tp-run")]
    if not quiet:
        echo("\n".join(scripts).rstrip())
    return 0
