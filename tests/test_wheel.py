"""The wheel: what is inside, and that it runs from a folder that has nothing else of the project."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    zipfile.ZipFile(path).extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_holds_programs_schema_types_and_licence(wheel: Path) -> None:
    names = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*")}
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in ("programs", "examples/paper")
        for path in (ROOT / folder).rglob("*")
        if path.suffix != ".pyc"
    }
    shipped = {f"tensorprog/{name}" for name in files if "__pycache__" not in name}
    assert "tensorprog/programs/data/tokens.npy" in shipped
    assert {"tensorprog/program.schema.json", "tensorprog/starter.yaml", "tensorprog/py.typed", *shipped} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"tensorprog", f"tensorprog-{_version()}.dist-info"}


def _version() -> str:
    import tensorprog

    return tensorprog.__version__


@pytest.mark.slow  # without bytecode everything is compiled anew
def test_the_wheel_runs_from_an_unrelated_folder(wheel: Path, tmp_path: Path) -> None:
    code = "from tensorprog.jobs.cli import main; import tensorprog; assert 'unpacked' in tensorprog.__file__; main()"
    small = ["--samples", "50", "--width", "8", "--out", "out"]
    commands = {
        "mlp_bias": ["run", "mlp_bias", *small],  # reads data
        "attention": ["new", "attention_of_mine"],
        "fig1a": ["paper"],
    }
    for said, arguments in commands.items():
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(wheel)},
        )
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
    assert (tmp_path / "out" / "report.json").is_file()
    assert "prefers-color-scheme" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
