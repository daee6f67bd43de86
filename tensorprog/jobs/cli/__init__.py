"""The command line: arguments in, exit code out.

Modules are imported inside the commands, so that `tp --help` and `tp check` start fast.
"""

from tensorprog.jobs.cli.commands import check, limit, main, plan, run, run_main, sample
from tensorprog.jobs.cli.programs import graph, list_

__all__ = ["check", "graph", "limit", "list_", "main", "plan", "run", "run_main", "sample"]
