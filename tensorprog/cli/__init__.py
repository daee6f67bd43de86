"""The command line: arguments in, exit code out.

Modules are imported inside the commands, so that `tp --help` and `tp check` start fast.
"""

from tensorprog.cli.commands import check, graph, limit, list_, main, run, run_main, sample

__all__ = ["check", "graph", "limit", "list_", "main", "run", "run_main", "sample"]
