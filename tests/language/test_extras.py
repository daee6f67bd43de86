"""Extras: what `all` brings, and commands that install what is missing, which are run in environments of each kind."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tensorprog.language import extras

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BRINGS = {"sklearn": "scikit-learn", "yaml": "PyYAML"}  # packages whose names are not those of what they bring


def imported(page: Path) -> set[str]:
    """The packages that the Python of a page imports."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:python|\{code-cell\}.*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names}


def test_all_brings_what_the_pages_import_except_torch() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    needed = {BRINGS.get(name, name) for page in pages for name in imported(page)} - {"tensorprog", "torch"}
    listed = [*PROJECT["dependencies"], *extras.requirements("all")]
    assert {"numpy", "scikit-learn"} <= needed
    assert needed <= {re.split(r"[<>=\[; ]", text)[0] for text in listed}
    parts = {*PROJECT["optional-dependencies"]} - {"all", "test", "docs", "dev", "torch"}
    assert all({*extras.requirements(part)} <= {*listed} for part in parts)
    assert not {*extras.requirements("torch")} & {*listed}


def test_the_documents_install_all() -> None:
    for page in ("README.md", "docs/index.md", "docs/tutorial.md"):
        installed = re.findall(r'install (?:-q )?"\.\[(\w+)\]"', (ROOT / page).read_text(encoding="utf-8"))
        assert installed[0] == "all"


def test_packages_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_optional", list)
    assert extras.requirements("plot") == ["tensorprog[plot]"]


# ---- commands that are run -------------------------------------------------------------------------------------------


def wheel(folder: Path, name: str, files: dict[str, str], metadata: str = "", scripts: str = "") -> None:
    """A wheel of a few files."""
    info = f"{name}-1.0.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        record = []
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(text.encode())}")
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small tensorprog, which prints what installs its extra, and with what that extra brings."""
    folder = tmp_path / "index of wheels"
    folder.mkdir()
    say = "from tensorprog.language.extras import how_to_install\n\ndef main():\n    print(how_to_install('plot'))\n"
    source = Path(extras.__file__).read_text(encoding="utf-8")
    wheel(
        folder,
        "tensorprog",
        {
            "tensorprog/__init__.py": "",
            "tensorprog/language/__init__.py": "",
            "tensorprog/language/extras.py": source,
            "tensorprog/say.py": say,
        },
        "Provides-Extra: plot\nRequires-Dist: tiny_picture>=0.5; python_version > '3' and extra == 'plot'\n",
        "tp = tensorprog.say:main",
    )
    wheel(folder, "tiny_picture", {"tiny_picture.py": ""})
    # nothing is fetched, and no setting of this machine counts
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "PIPX_", "PYTHON", "VIRTUAL_ENV"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": folder.as_uri(),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(folder),
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_OFFLINE": "1",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return folder / "tensorprog-1.0-py3-none-any.whl"


def run(command: str | list[str]) -> str:
    done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def folder_of(environment: str) -> str:
    return str(Path(environment, "Scripts" if os.name == "nt" else "bin"))


def installs(environment: str) -> str:
    """Run the command that the small tensorprog of an environment prints, and see that it brought what was missing."""
    python = str(Path(folder_of(environment), "python"))
    has = [python, "-c", "from importlib.util import find_spec; print(find_spec('tiny_picture') is not None)"]
    command = run([str(Path(folder_of(environment), "tp"))])
    assert run(has) == "False"
    run(command)
    assert run(has) == "True"
    return command


@pytest.fixture
def pip() -> list[str]:
    """An interpreter with pip."""
    found = sys._base_executable  # type: ignore[attr-defined]
    if subprocess.run([found, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("Python has no pip here")
    return [found, "-m", "pip"]


def test_the_command_in_an_environment_without_pip(index: Path, pip: list[str]) -> None:
    run([pip[0], "-m", "venv", "--without-pip", "with space/.venv"])
    run([*pip, "--python", "with space/.venv", "install", "-q", str(index)])
    command = installs("with space/.venv")
    assert re.fullmatch(r""".*-m pip --python (['"])with space.\.venv\1 install "tiny_picture>=0\.5\"""", command)


def test_the_command_in_an_environment_of_uv(index: Path) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    run(["uv", "venv", "-q", "--python", sys.executable, ".venv"])
    run(["uv", "pip", "install", "-q", "--python", ".venv", str(index)])
    assert installs(".venv").startswith("uv pip install --python ")


def test_the_command_in_an_environment_of_pipx(index: Path, pip: list[str]) -> None:
    if shutil.which("pipx") is None:
        pytest.skip("pipx is not installed")
    run(["pipx", "install", "--python", pip[0], str(index)])
    assert installs(str(Path(os.environ["PIPX_HOME"]) / "venvs" / "tensorprog")).startswith("pipx inject tensorprog ")


def test_the_command_with_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment with a pip of its own, the system's Python, and one that refuses packages."""
    monkeypatch.chdir(tmp_path)  # paths below the current folder are written from there
    folder = Path(sys.executable).parent
    monkeypatch.setattr(extras, "find_spec", lambda name: object())
    monkeypatch.setattr(extras, "_made_by_uv", lambda prefix: False)
    monkeypatch.setenv("PATH", str(folder))
    assert extras.how_to_install("sweep") == f'{Path(sys.executable).name} -m pip install "xarray>=2024.10"'
    monkeypatch.setenv("PATH", "")
    assert extras.how_to_install("sweep") == f'{sys.executable} -m pip install "xarray>=2024.10"'
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(extras.sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setattr(Path, "is_file", lambda self: self.name == "EXTERNALLY-MANAGED")
    assert " -m pip install --break-system-packages " in extras.how_to_install("sweep")


def test_the_command_where_no_pip_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "_made_by_uv", lambda prefix: False)
    monkeypatch.setattr(extras, "_interpreter_with_pip", lambda: None)
    monkeypatch.setattr(extras, "find_spec", lambda name: find_spec("ensurepip") if name == "ensurepip" else None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    python = sys.executable
    assert extras.how_to_install("sweep") == f'{python} -m ensurepip && {python} -m pip install "xarray>=2024.10"'
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "uv" else None)
    assert extras.how_to_install("sweep") == f'uv pip install --python {python} "xarray>=2024.10"'
