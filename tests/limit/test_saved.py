"""Laws, samples and folders of samples in files: whole without the files that the program was read from."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tests.reading import loads

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
WITH_DATA = [path.stem for path in sorted(PROGRAMS.glob("*.yaml")) if ".npy" in path.read_text(encoding="utf-8")]
SMALL = """
program: small
indices: {i: 3}
initial:
  X[i]: {data: data/x.npy, variance: 2}
weights: {W: 1}
body:
  - u[i] = MatMul(W, X[i])
outputs: [u]
"""


def elsewhere(name: str, folder: Path) -> tp.Program:
    """A shipped program read from a copy that is gone again."""
    shutil.copytree(PROGRAMS, folder / "gone")
    program = tp.load(folder / "gone" / f"{name}.yaml")
    shutil.rmtree(folder / "gone")
    return program


def small() -> Any:
    return loads(SMALL, base={"data/x.npy": np.arange(6.0).reshape(3, 2)})


@pytest.mark.parametrize("name", WITH_DATA)
def test_a_law_file_needs_no_other_file(name: str, tmp_path: Path) -> None:
    law = elsewhere(name, tmp_path).limit()
    law.save(tmp_path / "law.npz")
    again = tp.Law.load(tmp_path / "law.npz")
    assert again.netsor == law.netsor
    assert {n: t.file for n, t in again.netsor.tables.items()} == {n: t.file for n, t in law.netsor.tables.items()}
    assert again.grade == law.grade


def test_a_loaded_law_gives_the_same_numbers(tmp_path: Path) -> None:
    law = elsewhere("transformer_yang", tmp_path).limit()
    law.save(tmp_path / "law.npz")
    law.save(tmp_path / "again.npz")
    again = tp.Law.load(tmp_path / "again.npz")
    assert np.array_equal(np.asarray(again.cov("out")), np.asarray(law.cov("out")))


def test_a_law_of_large_data_given_in_python_survives_a_file(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(200, 300))
    P = tp.Program("large")
    i = P.index("i", 200)
    X = P.initial("X[i]", data=data)
    P.outputs(P.matmul("u[i]", P.weight("W"), X[i]))
    law = P.limit()
    law.save(tmp_path / "law.npz")
    again = tp.Law.load(tmp_path / "law.npz")
    assert again.netsor == law.netsor
    assert again.var("u[7]") == law.var("u[7]")
    stored = P.run(8, 4, store=tmp_path / "run")  # its settings hold the text, and a digest of the table
    assert np.array_equal(P.run(8, 4, store=tmp_path / "run")["u"], stored["u"])


# ---- files from somebody else ---------------------------------------------------------------------------------------


def entries(path: Path) -> dict[str, bytes]:
    tp.Law(small(), grade="theorem").save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": kind})
    return stream.getvalue()


class Run:
    def __reduce__(self) -> Any:
        return pytest.fail, ("something was executed",)


HOSTILE = {
    "an object": ("tables/data/x.npy.npy", npy(np.array([[Run()]], dtype=object), allow_pickle=True), "not real num"),
    "terabytes promised": ("tables/data/x.npy.npy", header((10**6, 10**6)), "allowed"),
    "a short array": ("tables/data/x.npy.npy", header((3, 2)), "other bytes follow"),
    "settings of objects": ("law.json.npy", npy(np.array(Run(), dtype=object), allow_pickle=True), "allow_pickle"),
    "settings of terabytes": ("law.json.npy", header((), "<U900000000"), "not a law"),
    "settings without entries": ("law.json.npy", npy(np.array("[]")), "wrong kind"),
    "settings of another kind": ("law.json.npy", npy(np.array('{"program": 3}')), "wrong kind"),
    "no array": ("tables/data/x.npy.npy", b"nothing", "valid .npy header"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_from_somebody_else_is_refused_in_words(case: str, tmp_path: Path) -> None:
    name, content, message = HOSTILE[case]
    path = tmp_path / "law.npz"
    parts = entries(path) | {name: content}
    assert name in entries(path)
    with zipfile.ZipFile(path, "w") as archive:
        for part, raw in parts.items():
            archive.writestr(part, raw)
    with pytest.raises(tp.ProgramError, match="not a law") as caught:
        tp.Law.load(path)
    assert message in str(caught.value)


def test_a_file_neither_grades_itself_nor_takes_what_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tp.Law(loads((PROGRAMS / "attention_tied.yaml").read_text(encoding="utf-8")), grade="theorem").save(
        tmp_path / "a.npz"
    )
    with pytest.raises(tp.OutsideError, match="no limit is claimed"):
        tp.Law.load(tmp_path / "a.npz")
    tp.Law(small(), grade="theorem").save(tmp_path / "b.npz")
    monkeypatch.setattr("tensorprog.law.MAX_TABLES", 100)
    with pytest.raises(tp.ProgramError, match="bytes, and 100 are allowed"):
        tp.Law.load(tmp_path / "b.npz")


@pytest.mark.parametrize("cut", [10, 200, 500])
def test_a_damaged_file_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "law.npz"
    tp.Law(small(), grade="theorem").save(path)
    raw = bytearray(path.read_bytes())
    raw[cut : cut + 40] = b"\xff" * 40
    path.write_bytes(bytes(raw))
    with pytest.raises(tp.ProgramError, match="not a law"):
        tp.Law.load(path)
    path.write_bytes(bytes(raw[:cut]))
    with pytest.raises(tp.ProgramError, match="not a law"):
        tp.Law.load(path)
