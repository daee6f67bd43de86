"""The packages that only parts of tensorprog need, its extras, and the command that installs them where it runs.

What is missing is named by its packages, as `xarray>=2024.10`, not as an extra of tensorprog: that works for a clone, a
wheel and an archive alike, and leaves tensorprog itself as it is.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path

__all__ = ["how_to_install"]

PACKAGE = "tensorprog"
HAS_PIP = "import sys; from importlib.util import find_spec; sys.exit(find_spec('pip') is None)"


def how_to_install(extra: str) -> str:
    """The command that adds the packages of an extra to the environment of the running interpreter."""
    return " ".join([*map(_quoted, _installer()), *(f'"{name}"' for name in requirements(extra))])


# ---- which packages --------------------------------------------------------------------------------------------------


def requirements(extra: str) -> list[str]:
    """The packages of an extra, as pip takes them; the extra's own name where they are written nowhere."""
    found: list[str] = []
    for requirement, name in _optional():
        if name != extra:
            continue
        within = re.fullmatch(rf"{PACKAGE}\[(.+)\]", requirement)
        parts = within[1].split(",") if within else []
        found += [each for part in parts for each in requirements(part.strip())] or [requirement]
    return list(dict.fromkeys(found)) or [f"{PACKAGE}[{extra}]"]


def _optional() -> list[tuple[str, str]]:
    """Each optional requirement with its extra: of the source tree that is imported, else of what is installed."""
    source = Path(__file__).resolve().parents[2] / "pyproject.toml"
    try:
        project = tomllib.loads(source.read_text(encoding="utf-8"))["project"]
        if project["name"] == PACKAGE:
            listed = project["optional-dependencies"]
            return [(_bare(text), extra) for extra, texts in listed.items() for text in texts]
    except (OSError, ValueError, KeyError):
        pass  # a wheel has none beside it
    try:
        listed = importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    marked = [(text, re.search(r"""\bextra\s*==\s*["']([^"']+)["']""", text)) for text in listed]
    return [(_bare(text), extra[1]) for text, extra in marked if extra]


def _bare(requirement: str) -> str:
    """A requirement without its conditions."""
    return requirement.partition(";")[0].strip()


# ---- by which installer ----------------------------------------------------------------------------------------------


def _installer() -> list[str]:
    """The words that stand before the packages, of the first way that works here."""
    prefix, python = Path(sys.prefix), _interpreter()
    if (prefix / "pipx_metadata.json").is_file() and shutil.which("pipx"):
        return ["pipx", "inject", prefix.name]
    by_uv = ["uv", "pip", "install", "--python", python] if shutil.which("uv") else None
    if by_uv and _made_by_uv(prefix):
        return by_uv
    if find_spec("pip") is not None:
        return [python, "-m", "pip", "install", *_permission()]
    if sys.prefix != sys.base_prefix and (outside := _interpreter_with_pip()):
        return [outside, "-m", "pip", "--python", _near(prefix), "install"]
    if by_uv:
        return by_uv
    pip = ["-m", "pip", "install", *_permission()]
    return [python, "-m", "ensurepip", "&&", python, *pip] if find_spec("ensurepip") else [python, *pip]


def _made_by_uv(prefix: Path) -> bool:
    """A virtual environment that uv made says so."""
    try:
        return bool(re.search(r"^uv\s*=", (prefix / "pyvenv.cfg").read_text(encoding="utf-8"), re.MULTILINE))
    except (OSError, ValueError):
        return False


def _permission() -> list[str]:
    """What pip must be told where the system's Python refuses packages, which holds for no virtual environment."""
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    return ["--break-system-packages"] if sys.prefix == sys.base_prefix and marker.is_file() else []


def _interpreter() -> str:
    """The running interpreter, as the shell finds it."""
    named = [name for name in ("python", "python3") if _absolute(shutil.which(name)) == _absolute(sys.executable)]
    return named[0] if named else _near(Path(sys.executable or "python"))


def _interpreter_with_pip() -> str | None:
    """The interpreter that the virtual environment was made with, if it has a pip for others."""
    base = getattr(sys, "_base_executable", None) or ""
    try:
        asked = subprocess.run([base, "-I", "-c", HAS_PIP], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    if asked.returncode:
        return None
    names = ("python3", "python", f"python3.{sys.version_info.minor}")
    return next((name for name in names if _real(name) == os.path.realpath(base)), base)


def _real(name: str) -> str | None:
    """What a command runs; nothing for a link in a virtual environment, which is not what it points to."""
    found = shutil.which(name)
    if found is None or (Path(found).absolute().parents[1] / "pyvenv.cfg").is_file():
        return None
    return os.path.realpath(found)


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(path) if path else None


def _near(path: Path) -> str:
    """A path as one would type it: from the current folder if it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _quoted(word: str) -> str:
    """A word as the shell takes it."""
    if re.fullmatch(r"[\w@%+=:,./\\&-]+", word):
        return word
    return f'"{word}"' if os.name == "nt" else shlex.quote(word)
