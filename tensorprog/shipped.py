"""The programs and the experiments that ship with the package, and the meaning of FILE on the command line."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tensorprog.language.errors import Problem, ProgramError, did_you_mean

__all__ = ["SCHEMA", "STARTER", "judged", "paper_figures", "resolve", "shipped_programs"]

PACKAGE = Path(__file__).resolve().parent
SCHEMA, STARTER = PACKAGE / "program.schema.json", PACKAGE / "starter.yaml"
GRADES = PACKAGE / "grades.json"  # of shipped programs as they are written


def shipped_programs() -> dict[str, Path]:
    """Shipped program files by bare name: inside the installed package, or beside it in a clone."""
    folder = _folder("programs")
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))} if folder else {}


def judged() -> list[tuple[str, str, str]]:
    """Name, grade and title of each shipped program, from `grades.json`."""
    return [(name, *row) for name, row in json.loads(GRADES.read_text(encoding="utf-8")).items()]


def text() -> str:
    """`grades.json`, from checks of all programs."""
    from tensorprog.language.reading import load
    from tensorprog.results.limit_answers import check_with_limit

    netsors = {name: load(path) for name, path in shipped_programs().items()}
    rows = {name: [check_with_limit(netsor).grade, netsor.title] for name, netsor in netsors.items()}
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def paper_figures() -> ModuleType:
    """`examples/paper`, which has the figures of the paper: `FIGURES` by name, `Settings`, `make`.

    Raises    ProgramError where it was not installed
    """
    name, folder = "tensorprog_paper", _folder("examples/paper")
    if name in sys.modules:
        return sys.modules[name]
    spec = folder and spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if not spec or not spec.loader:
        raise ProgramError(Problem("the figures of the paper are not here", fix="install the package from its wheel"))
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder(name: str) -> Path | None:
    """A folder of the project that is no part of the package."""
    if (PACKAGE / name).is_dir():
        return PACKAGE / name
    if (PACKAGE.parent / "pyproject.toml").is_file():  # else installed: what stands beside the package is not ours
        return PACKAGE.parent / name
    return None


def resolve(file: str) -> Path:
    """The path meant by FILE: an existing file, or the bare name of a shipped program.

    Raises    ProgramError if a bare name is neither; anything that looks like a path is returned as it is
    """
    path = Path(file)
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):
        raise ProgramError(Problem(f"{file[:80]!r} is not the name of a file")) from None
    known, bare = shipped_programs(), file.removesuffix(".yaml").removesuffix(".yml")
    if "/" in file or os.sep in file or path.drive or path.is_dir():
        return path
    if bare in known:
        return known[bare]
    fix = did_you_mean(bare, sorted(known)).replace("known names", "shipped programs")
    raise ProgramError(Problem(f"there is no file {file}, and no shipped program of that name", fix=fix))


if __name__ == "__main__":
    GRADES.write_text(text(), encoding="utf-8")
