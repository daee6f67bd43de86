"""The command line: arguments in, exit code out.

Modules are imported inside the commands, so that `tp --help` and `tp check` start fast.
"""

from __future__ import annotations

from typing import NoReturn

import click

from tensorprog.jobs.cli.commands import check, limit, run, sample
from tensorprog.jobs.cli.frame import Group
from tensorprog.jobs.cli.programs import exponents, graph, import_, list_, new
from tensorprog.jobs.cli.studies import depth, paper, solve, sweep, train

__all__ = ["main", "run", "run_main"]


@click.group(
    cls=Group,
    examples=[
        ("run attention", "the paper's layer, from check to pictures"),
        ("check attention_tied", "what is wrong with a program, and its cure"),
        ("new mine", "a commented program to start from"),
        ("COMMAND --help", "options and examples of a command"),
    ],
)
@click.version_option(package_name="tensorprog", prog_name="tensorprog")
def main() -> None:
    """Tensor Programs with attention: check, run at finite width, compile the infinite-width limit.

    FILE is the path of a program file, or the bare name of a shipped program (see `tp list`). `tp-run FILE` is the same
    as `tp run FILE`. A shell completes commands after eval "$(_TP_COMPLETE=bash_source tp)".
    """


for command in (
    run, check, limit, sample, sweep, depth, solve, train, exponents, graph, paper, list_, new, import_,
):  # fmt: skip
    main.add_command(command)


def run_main() -> NoReturn:
    """`tp-run FILE`, the same as `tp run FILE`."""
    run.main(prog_name="tp-run")
    raise AssertionError("unreachable")
