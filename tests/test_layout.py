"""The shape of the code: who imports whom, docstrings, what is loaded when, and what no file says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tensorprog"
FILES = sorted(PACKAGE.rglob("*.py"))

# top-level modules and packages; each imports from lines above its own, or from its own package
ORDER = """
    errors facts files terminals formats markup mathml svg linalg
    atoms
    expr
    functions rename parse
    ir
    order
    arrays
    evaluate
    validity
    initials grouping
    graph
    normalize
    calculus
    findings
    assumptions
    drawn samples
    averages
    gaussian
    finite
    limit
    conditional
    judge
    schema
    records
    builder
    yaml_io
    shipped
    program
    reference
    distances
    divergence
    comparison
    selfcheck
    rates
    plots report screen
    study
    sweeps
    paper
    display
    page
    cli
    __main__
"""
RANK = {name: rank for rank, line in enumerate(ORDER.split("\n")) for name in line.split()}
# never, not even inside functions
NEVER = {
    "finite": {"limit", "assumptions", "calculus", "graph", "gaussian", "builder", "yaml_io", "program"},
    "limit": {"finite", "assumptions", "calculus", "graph", "builder", "program"},
    "gaussian": set(RANK) - {"linalg", "gaussian"},
}
# inside functions only: a program validates itself, files hold the text of their program, and a law is checked with
# networks, which it must not know otherwise
DEFERRED = {("ir", "validity"), ("samples", "yaml_io"), ("limit", "yaml_io"), ("limit", "selfcheck")}
# the only places for an outside package
HOMES = {
    "networkx": {"graph", "order"}, "yaml": {"yaml_io"}, "matplotlib": {"plots"}, "click": {"cli"},
    "rich": {"display", "screen"}, "sympy": {"atoms", "calculus", "expr", "limit"}, "threadpoolctl": {"finite"},
    "numba": {"finite"}, "distributed": {"finite"}, "xarray": {"sweeps"},
}
SLOW = ("sympy", "scipy.stats", "matplotlib", "rich", "xarray")  # to import: never at the top of a module
FORMULAS = "limit.symbolic"  # where everything is sympy; others import it inside functions only


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, with the way it is imported."""

    source: str  # 'limit.law'
    target: str  # 'tensorprog.yaml_io', 'numpy.typing'
    deferred: bool  # inside a function
    typing: bool  # under TYPE_CHECKING
    line: int

    @property
    def part(self) -> str:
        """The top-level module or package that imports."""
        return self.source.split(".")[0]

    @property
    def own(self) -> str:
        """The top-level module of this package that is imported, if any."""
        parts = self.target.split(".")
        return parts[1] if parts[0] == "tensorprog" and len(parts) > 1 else ""


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> Iterator[Import]:
    name = _name(path)
    package = ["tensorprog", *name.split(".")] if path.name == "__init__.py" else ["tensorprog", *name.split(".")[:-1]]
    stack: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), False, False)]
    while stack:
        node, deferred, typing = stack.pop()
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            found = [f"{base}.{alias.name}" if base in ("tensorprog", "scipy") else base for alias in node.names]
        for target in found:
            yield Import(name, target, deferred, typing, node.lineno)  # type: ignore[attr-defined]
        deferred |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        stack += [(child, deferred, typing) for child in ast.iter_child_nodes(node)]


@cache
def imports() -> tuple[Import, ...]:
    return tuple(entry for path in FILES for entry in _imports(path))


def test_every_module_has_a_place_in_the_order() -> None:
    assert {_name(path).split(".")[0] for path in FILES} - {""} == set(RANK)


def test_no_import_goes_right() -> None:
    wrong = []
    for entry in imports():
        if not entry.source or not entry.own or entry.own not in RANK or entry.typing or entry.own == entry.part:
            continue  # the package's __init__ loads what it is asked for
        if entry.deferred and (entry.part, entry.own) in DEFERRED:
            continue
        if RANK[entry.own] > RANK[entry.part]:
            wrong.append(f"{entry.source}, line {entry.line}, imports {entry.target}")
    assert not wrong, "\n".join(wrong)


def test_modules_of_equal_rank_do_not_import_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    modules = {f"tensorprog.{_name(path)}" for path in FILES}
    for entry in imports():
        if not entry.deferred and not entry.typing and entry.target in modules:
            edges.setdefault(f"tensorprog.{entry.source}", set()).add(entry.target)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for target in edges.get(module, ()):
                if target != module and not module.startswith(f"{target}."):  # a package gathers its modules
                    visit(target, (*path, module))
            done.add(module)

    for module in modules:
        visit(module, ())


@pytest.mark.parametrize("part", NEVER)
def test_independent_parts_stay_independent(part: str) -> None:
    wrong = [f"{e.source}, line {e.line}: {e.target}" for e in imports() if e.part == part and e.own in NEVER[part]]
    assert not wrong, wrong


def test_outside_packages_stay_at_home() -> None:
    wrong = []
    for entry in imports():
        outside = entry.target.split(".")[0]
        if outside in HOMES and entry.part not in HOMES[outside]:
            wrong.append(f"{entry.source}, line {entry.line}: {entry.target}")
        slow = SLOW if not entry.source.startswith(FORMULAS) else tuple(name for name in SLOW if name != "sympy")
        slow += (f"tensorprog.{FORMULAS}",) if not entry.source.startswith(FORMULAS) else ()
        if entry.target.startswith(slow) and not entry.deferred and not entry.typing:
            wrong.append(f"{entry.source}, line {entry.line}: {entry.target} at the top of a module")
    assert not wrong, "\n".join(wrong)


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
                            and not any(ast.unparse(d) == "overload" for d in n.decorator_list))


def test_everything_public_has_a_docstring() -> None:
    missing = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree) is not None, path
        missing += [f"{_name(path)}.{node.name}" for node in _public(tree) if ast.get_docstring(node) is None]
    assert not missing, missing


def _loaded(code: str) -> set[str]:
    code += "\nimport sys; print(*sorted(sys.modules), sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stderr.split("\n"))


def test_the_package_loads_nothing_before_it_is_asked() -> None:
    loaded = _loaded("import tensorprog")
    assert not loaded & {"numpy", "scipy", "sympy", "matplotlib", "networkx", "yaml", "click", "rich"}


def test_a_check_loads_nothing_slow() -> None:
    loaded = _loaded("import tensorprog.cli\ntensorprog.cli.main(['check', 'attention'], standalone_mode=False)")
    assert "tensorprog.assumptions" in loaded
    assert not loaded & {"sympy", "scipy.stats", "matplotlib", "rich", "tensorprog.limit", "tensorprog.finite.lazy",
                         "numpy.ma", "concurrent.futures", "urllib.request"}


def texts() -> list[Path]:
    """Every text file of the project."""
    folders = ("tensorprog", "programs", "tests", "docs", "examples", "benchmarks", ".ci")
    kinds = {".py", ".md", ".yaml", ".yml", ".json", ".toml", ".cff", ".svg", ".csv", ".txt", ""}
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    top = ("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml", ".gitignore")
    found += [ROOT / name for name in top]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


PRIVATE = re.compile(r"""(?<![\w.~}])/(work|opt|root|home|Users|mnt)/\w  # folders of one machine
                         | \bpypi\.(org|python) | pythonhosted | devpi | artifactory  # hosts of registries
                         | [/]simple[/] | \b127\.0\.0\.1 | \blocal[h]ost\b""", re.VERBOSE | re.IGNORECASE)


def test_no_file_names_a_machine_or_a_registry() -> None:
    wrong = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if PRIVATE.search(line) and path != Path(__file__).resolve():
                wrong.append(f"{path.relative_to(ROOT)}, line {number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)


def test_the_layout_page_knows_every_part() -> None:
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)/?`", page.split("## Layout")[1].split("## Import order")[0]))
    assert set(RANK) <= named, set(RANK) - named
    order = page.split("## Import order")[1].split("```")[1]
    assert re.findall(r"\w+", order) == ORDER.split()
