"""How much house there is: files and lines of the package, and what a command enters of it.

    python benchmarks/structure.py

Functions are counted as they are entered (sys.setprofile) in this process and its threads, each once.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import tensorprog

PACKAGE = Path(tensorprog.__file__).resolve().parent


def entered(work: Callable[[], object]) -> tuple[int, int]:
    """Files and functions of the package that `work` enters; bodies of modules, classes and lambdas do not count."""
    seen: set[tuple[str, str, int]] = set()
    root = str(PACKAGE)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and function and code.co_filename.startswith(root):
            seen.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return len({file for file, *_ in seen}), len(seen)


def run_attention() -> None:
    from tensorprog.jobs.cli import main

    with tempfile.TemporaryDirectory() as folder:
        main(
            ["run", "attention", "--samples", "200", "--width", "16", "--out", f"{folder}/runs", "--quiet"],
            standalone_mode=False,
        )


def main() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    print(f"package: {len(files)} files, {lines} lines")
    print("`tp run attention` enters {} files, {} functions".format(*entered(run_attention)))
    law = tensorprog.load("attention").limit()
    print('`law.kurtosis("y[0]")` enters {} files, {} functions'.format(*entered(lambda: law.kurtosis("y[0]"))))


if __name__ == "__main__":
    main()
