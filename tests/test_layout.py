"""The shape of the code: who imports whom, docstrings, what is loaded when, and what no file says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tensorprog"
FILES = sorted(PACKAGE.rglob("*.py"))

# packages, of `limit` its rooms, and what stands alone: each imports from those above, or from itself
ORDER = """
    version
    fast
    blocks
    language
    check gaussian
    finite
    limit.memory limit.form limit.moment limit.draw limit.law limit.formulas
    results
    show
    law
    shipped
    program
    gradients
    training
    importing
    sklearn
    jobs
    __main__
"""
RANK = {name: rank for rank, name in enumerate(ORDER.split())}
# strangers: their agreement is evidence only while they know nothing of each other
NEVER = {
    "finite": {"limit", "check", "gaussian", "program"},
    "limit": {"finite", "check.graph", "check.facts", "check.clauses"},
    "gaussian": {"language", "check", "finite", "limit"},
}
ALLOWED = {("gaussian", "language.linalg"), ("limit", "check.graph")}  # what stands beside transposes is said once
# the only places for an outside package
HOMES = {
    "networkx": ("check.graph", "show.graphs"),
    "yaml": ("language.reading",),
    "matplotlib": ("show.plots", "show.graphs"),
    "click": ("jobs.cli",),
    "jinja2": ("blocks.html",),
    "latex2mathml": ("blocks.html",),
    "rich": ("show.terminal",),
    "threadpoolctl": ("finite",),
    "numba": ("finite", "gaussian"),
    "sympy": ("language.atoms", "limit"),
    "distributed": ("jobs.cli",),
    "xarray": ("jobs.sweeps",),
    "torch": ("importing",),
    "sklearn": ("sklearn",),
}
SLOW = ("sympy", "scipy.stats", "matplotlib", "rich", "xarray", "networkx")  # to import: never at the top of a module
FORMULAS = "limit.formulas"  # where everything is sympy; others import it inside functions only


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, with the way it is imported."""

    source: str  # 'limit.law'
    target: str  # 'tensorprog.language.reading', 'numpy.typing'
    deferred: bool  # inside a function
    typing: bool  # under TYPE_CHECKING
    line: int

    @property
    def own(self) -> str:
        """The module of this package that is imported, if any: 'limit.law'."""
        return self.target.removeprefix("tensorprog").removeprefix(".") if self.target.startswith("tensorprog") else ""


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
            names = [f"{base}.{alias.name}" for alias in node.names]
            found = [name if base == "scipy" or name.removeprefix("tensorprog.") in MODULES else base for name in names]
        for target in found:
            yield Import(name, target, deferred, typing, node.lineno)  # type: ignore[attr-defined]
        deferred |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        stack += [(child, deferred, typing) for child in ast.iter_child_nodes(node)]


MODULES = {_name(path) for path in FILES}


@cache
def imports() -> tuple[Import, ...]:
    return tuple(entry for path in FILES for entry in _imports(path))


def room(module: str) -> str:
    """The package of a module, in `limit` the room: 'limit.form'."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "limit" else parts[0]


def inside(module: str, places: Iterable[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def arrows() -> Iterator[Import]:
    """Imports of one module of the package by another; a package that gathers its modules is no arrow."""
    return (
        entry
        for entry in imports()
        if entry.source and entry.own and entry.source != entry.own and not entry.source.startswith(f"{entry.own}.")
    )


def test_every_module_has_a_place_in_the_order() -> None:
    assert {room(module) for module in MODULES} - {"", "limit"} == set(RANK)


def test_no_import_goes_up() -> None:
    wrong = {f"{entry.source} -> {entry.own}" for entry in arrows() if RANK[room(entry.own)] > RANK[room(entry.source)]}
    assert not wrong


def test_files_do_not_import_each_other_in_circles() -> None:
    graph = nx.DiGraph((entry.source, entry.own) for entry in arrows())
    circles = [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    assert not circles


def test_no_class_name_is_used_twice() -> None:
    found: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(_name(path))
    assert not {name: places for name, places in found.items() if len(places) > 1}


@pytest.mark.parametrize("part", NEVER)
def test_independent_parts_stay_independent(part: str) -> None:
    wrong = [
        f"{e.source}, line {e.line}: {e.target}"
        for e in imports()
        if inside(e.source, [part]) and inside(e.own, NEVER[part]) and (part, e.own) not in ALLOWED
    ]
    assert not wrong, wrong


def test_outside_packages_stay_at_home() -> None:
    wrong = []
    for entry in imports():
        outside = entry.target.split(".")[0]
        if outside in HOMES and not inside(entry.source, HOMES[outside]):
            wrong.append(f"{entry.source}, line {entry.line}: {entry.target}")
        slow = SLOW if not entry.source.startswith(FORMULAS) else tuple(name for name in SLOW if name != "sympy")
        slow += (f"tensorprog.{FORMULAS}",) if not entry.source.startswith(FORMULAS) else ()
        if entry.target.startswith(slow) and not entry.deferred and not entry.typing:
            wrong.append(f"{entry.source}, line {entry.line}: {entry.target} at the top of a module")
    assert not wrong, "\n".join(wrong)


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    def said(node: ast.AST) -> bool:
        overloads = isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "overload" for d in node.decorator_list)
        return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_") and not overloads

    for node in filter(said, tree.body):
        assert isinstance(node, ast.FunctionDef | ast.ClassDef)
        yield node
        if isinstance(node, ast.ClassDef):
            yield from (n for n in node.body if isinstance(n, ast.FunctionDef) and said(n))


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
    loaded = _loaded("from tensorprog.jobs.cli import main\nmain(['check', 'attention'], standalone_mode=False)")
    assert "tensorprog.check.clauses" in loaded
    assert not loaded & {
        "sympy",
        "scipy.stats",
        "matplotlib",
        "rich",
        "networkx",
        "tensorprog.limit",
        "tensorprog.finite.block",
        "numpy.ma",
        "concurrent.futures",
        "urllib.request",
    }


def texts() -> list[Path]:
    """Every text file of the project."""
    folders = ("tensorprog", "programs", "tests", "docs", "examples", "benchmarks", ".ci")
    kinds = {".py", ".md", ".yaml", ".yml", ".json", ".toml", ".cff", ".svg", ".csv", ".txt", ""}
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    top = ("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml", ".gitignore")
    found += [ROOT / name for name in top]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


PRIVATE = re.compile(
    r"""(?<![\w.~}])/(work|opt|root|home|Users|mnt)/\w  # folders of one machine
                         | \bpypi\.(org|python) | pythonhosted | devpi | artifactory  # hosts of registries
                         | [/]simple[/] | \b127\.0\.0\.1 | \blocal[h]ost\b""",
    re.VERBOSE | re.IGNORECASE,
)


def test_no_file_names_a_machine_or_a_registry() -> None:
    wrong = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if PRIVATE.search(line) and path != Path(__file__).resolve():
                wrong.append(f"{path.relative_to(ROOT)}, line {number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)


def test_the_layout_page_knows_every_part() -> None:
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+?)/?`", page))
    assert {name.replace(".", "/") for name in RANK} <= named, set(RANK) - named


def test_the_layout_page_knows_the_order_within_limit() -> None:
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    rooms = [name.removeprefix("limit.") for name in RANK if name.startswith("limit.")]
    assert "Within `limit` the order is " + ", ".join(f"`{name}`" for name in rooms) + "." in page


def _listed(package: Path) -> tuple[str, set[str], set[str]]:
    """The docstring of a package, the names that a table in it explains, and the files and packages inside."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    rows = re.findall(r"^    (\w+(?:, \w+)*)  +\S", text, re.MULTILINE)
    inside = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return text, {name for row in rows for name in row.split(", ")}, inside - {"__init__"}


@pytest.mark.parametrize(
    "package",
    [path.parent for path in FILES if path.name == "__init__.py" if _listed(path.parent)[1] & _listed(path.parent)[2]],
    ids=lambda path: path.name,
)
def test_packages_that_list_their_files_list_all(package: Path) -> None:
    text, listed, inside = _listed(package)
    assert listed <= inside, listed - inside
    assert inside <= set(re.findall(r"\w+", text)), inside


def test_files_that_the_page_names_exist() -> None:
    text = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+/\w+\.(?:py|yaml|md))`", text))
    assert len(named) > 10
    assert not {name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()}
