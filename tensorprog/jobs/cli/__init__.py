"""The command line: arguments in, exit code out.

Modules are imported inside the commands, so that `tp --help` and `tp check` start fast.
"""

from tensorprog.jobs.cli.commands import main, run, run_main

__all__ = ["main", "run", "run_main"]
