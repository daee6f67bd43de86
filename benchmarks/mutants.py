"""Whether the tests notice mistakes: small changes of the package, each with the tests that run the changed line.

    python benchmarks/mutants.py --count 60 --seed 1 --processes 2

First the quick tests run once under coverage (pip install coverage), which tells for each line the tests that run it.
Then one mutant after another is written into a copy of the project: an operator, a comparison, a condition, a constant
or a returned value is changed somewhere in the files that `--under` names, and of the test functions that run the line,
at most `--tests`, the most specific first, one must fail. What survives is printed, as it was and as it is.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
SETTINGS = """[run]
source = tensorprog
data_file = {folder}/data
dynamic_context = test_function
parallel = true
concurrency = thread
patch = subprocess
"""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
Tests = dict[str, dict[int, list[str]]]


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the line, and the number of the place in a walk over the file's tree."""

    file: str
    line: int
    place: int


def places(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """What can be changed inside functions, each with its number; annotations and messages of errors are left."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes = [node for function in functions for statement in function.body for node in _changeable(statement)]
    yield from enumerate(dict.fromkeys(nodes))


def _changeable(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    if (
        (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS)
        or (isinstance(node, ast.Compare) and len(node.ops) == 1)
        or isinstance(node, ast.If | ast.IfExp)
        or (isinstance(node, ast.Constant) and type(node.value) in (int, float, bool))
        or (isinstance(node, ast.Return) and node.value is not None)
    ):
        yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changeable(child)


def change(node: ast.AST) -> None:
    """The change itself: one kind for each kind of place."""
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops = [SWAPS[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)


def tests_of_lines(folder: Path, suite: list[str], processes: int) -> Tests:
    """For each file and line the test functions that run it, those first that run least besides."""
    import coverage

    settings = folder / "settings"
    settings.write_text(SETTINGS.format(folder=folder), encoding="utf-8")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *QUICK, *suite]
    if subprocess.run([*command, "-n", str(processes)], cwd=ROOT, check=False).returncode:
        sys.exit("the tests fail without any mutant")
    subprocess.run([sys.executable, "-m", "coverage", "combine", f"--rcfile={settings}", "-q"], cwd=folder, check=True)
    data = coverage.CoverageData(str(folder / "data"))
    data.read()
    lines = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
    size = Counter(test for contexts in lines.values() for tests in contexts.values() for test in tests)
    return {
        str(Path(file).relative_to(ROOT)): {
            line: sorted((test for test in tests if "test_" in test), key=size.__getitem__)
            for line, tests in contexts.items()
        }
        for file, contexts in lines.items()
    }


def node_of(test: str) -> str:
    """`tests.limit.test_law.test_x`, or without folders where those are no packages, as pytest writes it."""
    parts = test.split(".")
    module = next(k for k, part in enumerate(parts) if part.startswith("test_"))
    if module:
        file = ROOT.joinpath(*parts[:module], f"{parts[module]}.py")
    else:
        found = (ROOT / "tests").rglob(f"{parts[module]}.py")
        file = next(path for path in found if not (path.parent / "__init__.py").exists())
    return "::".join([str(file.relative_to(ROOT)), *parts[module + 1 :]])


def judge(mutant: Mutant, copies: list[Path], tests: list[str]) -> tuple[str, str]:
    """`killed`, `survived` or `no test`, and what was changed."""
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    tree = ast.parse(source)
    node = dict(places(tree))[mutant.place]
    before = ast.unparse(node).splitlines()[0]
    change(node)
    said = f"{mutant.file}:{mutant.line}  {before}  ->  {ast.unparse(node).splitlines()[0]}"
    if not tests:
        return "no test", said
    copy = copies.pop()
    try:
        (copy / mutant.file).write_text(ast.unparse(tree), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", *QUICK, *map(node_of, tests)]
        try:
            ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            return "killed", said
        return ("survived" if ran.returncode == 0 else "killed"), said
    finally:
        shutil.copy(ROOT / mutant.file, copy / mutant.file)
        copies.append(copy)


def chosen(under: list[str], count: int, seed: int, tests: Tests) -> list[Mutant]:
    """Mutants at random: every place counts the same."""
    found = []
    for file in sorted(tests):
        if any(file.startswith(folder) for folder in under):
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            found += [Mutant(file, getattr(node, "lineno", 0), place) for place, node in places(tree)]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--suite", nargs="*", default=["tests"])
    parser.add_argument("--under", nargs="*", default=["tensorprog/"])
    options = parser.parse_args()
    tallied: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = tests_of_lines(folder, options.suite, options.processes)
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        copies = [folder / f"copy{k}" for k in range(options.processes)]
        for copy in copies:
            for file in files:
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, copy / file)
        mutants = chosen(options.under, options.count, options.seed, tests)
        wanted = [tests[mutant.file].get(mutant.line, [])[: options.tests] for mutant in mutants]
        with ThreadPoolExecutor(options.processes) as pool:
            for verdict, said in pool.map(judge, mutants, [copies] * len(mutants), wanted):
                tallied[verdict] += 1
                if verdict != "killed":
                    print(f"{verdict:9} {said}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(tallied.items())))


if __name__ == "__main__":
    main()
