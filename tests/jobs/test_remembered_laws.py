"""Laws that commands remember: the same numbers with and without, whatever has become of the files."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog
from tensorprog.jobs import cache
from tensorprog.jobs.remembered_law import RememberedLaw
from tensorprog.jobs.run import run
from tensorprog.language.files import json_text
from tensorprog.results.study import Settings
from tests.jobs.conftest import Tp

PROGRAM = """\
program: small
constants: {s: 2}
indices: {i: s, j: s}
initial:
  h[i]: {mean: 0, cov: 1}
weights: {WQ: 1, WK: 1, WV: 1}
body:
  - x[i] = Nonlin(tanh(h[i]))
  - q[i] = MatMul(WQ, x[i])
  - k[i] = MatMul(WK, x[i])
  - p[i,j] = Dot(q[i], k[j])
  - v[i] = MatMul(WV, x[i])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
outputs: [y]
"""


SIMPLE = """\
program: simple
constants: {s: 2}
indices: {i: s}
initial:
  h[i]: {mean: 0, cov: 1}
weights: {W: 1}
body:
  - y[i] = MatMul(W, h[i])
outputs: [y]
"""


def numbers() -> dict[str, Any]:
    """Those of a run."""
    program = tensorprog.load("small.yaml")
    found = run(program, Settings(width=(8, 16), samples=300)).to_json()
    for each in found["finite"]:
        each.pop("seconds")
    return json.loads(json_text(found))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORPROG_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No law can be compiled any more."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a law was compiled")

    monkeypatch.setattr(tensorprog.Program, "limit", refuse)


def test_what_a_run_asked_is_remembered_bit_for_bit(tp: Tp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORPROG_CACHE", "off")
    plain, shown = tp("limit", "small.yaml", "--format", "json"), tp("limit", "small.yaml")
    first = numbers()
    assert not folder.exists()
    monkeypatch.setenv("TENSORPROG_CACHE", str(folder))
    assert numbers() == first
    assert numbers() == first  # which takes part of what it needs from the one before
    uncompiled(monkeypatch)
    assert tp("limit", "small.yaml", "--format", "json") == plain
    assert tp("limit", "small.yaml") == shown
    with pytest.raises(AssertionError, match="a law was compiled"):
        RememberedLaw(tensorprog.load("small.yaml", s=3))


def test_answers_come_back_as_they_were(tp: Tp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    P = tensorprog.load("small.yaml")
    law, points = P.limit(), np.linspace(-1, 1, 5)
    asked = [
        ("mean", "y"),
        ("var", "y[0]"),
        ("kurtosis", "y"),
        ("cov", "p"),
        ("cov", "y"),
        ("cov", "x", "h"),
        ("density", "y[1]", points),
        ("cdf", "y[1]", points),
        ("density_method", "y[0]"),
        ("averages", {"m": "tanh(y[0])"}, 100),
    ]
    told = [getattr(law, method)(*args) for method, *args in asked]
    first = RememberedLaw(P)
    before = [getattr(first, method)(*args) for method, *args in asked]
    uncompiled(monkeypatch)
    second = RememberedLaw(P)
    for question, *answers in zip(asked, told, before, strict=True):
        again = getattr(second, question[0])(*question[1:])
        assert all(type(again) is type(answer) or question[0] == "cov" for answer in answers)  # which is an array
        for answer in answers:
            if isinstance(answer, str):
                assert again == answer
            elif isinstance(again, dict):
                np.testing.assert_equal(again, dict(answer))
            else:
                np.testing.assert_array_equal(np.asarray(again), np.asarray(answer), strict=True)
    assert second.error == first.error == law.error
    assert (second.outputs, second.scores, second.widths, second.grade) == (
        law.outputs,
        law.scores,
        law.widths,
        law.grade,
    )
    with pytest.raises(AssertionError, match="a law was compiled"):
        second.quantile("y[0]", 0.5)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("executed"),)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        path.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])
    elif how == "pickled":
        with path.open("wb") as stream:
            np.savez(stream, answer=np.array([Evil()], dtype=object))
    elif how == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    else:
        with path.open("wb") as stream:
            np.savez(stream, answer=np.array(json.dumps(json.loads(how))))


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "cut",
        "flipped",
        "pickled",
        "pickle",
        "[]",
        '[{"array": 3}, 0]',
        "7",
        '[{"what": 0}, 0]',
        '[{"tuple": 1, "list": 2}, 0]',
    ],
)
def test_a_damaged_file_is_as_good_as_none(tp: Tp, folder: Path, how: str) -> None:
    Path("small.yaml").write_text(SIMPLE)
    shown = tp("limit", "small.yaml")
    files = sorted(folder.glob("laws/*/*.npz"))
    assert len(files) == 5
    for path in files:
        damage(path, how)
    assert tp("limit", "small.yaml") == shown
    assert not Path("executed").exists()


def test_a_law_hangs_on_its_settings_and_on_the_code(tp: Tp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorprog.jobs import remembered_law

    Path("small.yaml").write_text(SIMPLE)
    tp("limit", "small.yaml")
    known = {*folder.glob("laws/*")}
    tp("limit", "small.yaml")
    assert {*folder.glob("laws/*")} == known
    tp("limit", "small.yaml", "--accuracy", "1e-3")
    tp("limit", "small.yaml", "--set", "s=1")
    assert len({*folder.glob("laws/*")}) == len(known) + 2
    monkeypatch.setattr(remembered_law, "_where", lambda: ["another version"])
    tp("limit", "small.yaml")
    assert len({*folder.glob("laws/*")}) == len(known) + 3
    text = Path("small.yaml").read_text()
    Path("small.yaml").write_text(text + "title: another\nrun: {samples: 20}\n")
    tp("limit", "small.yaml")
    assert len({*folder.glob("laws/*")}) == len(known) + 3  # which no law hangs on


def test_a_folder_that_cannot_be_used_is_no_reason_to_fail(tp: Tp, folder: Path) -> None:
    folder.write_text("a file")
    assert tp("limit", "small.yaml")[0] == 0
    assert tp("cache", "--clear")[:2] == (0, f"0 laws, 0.0 MiB in {folder}\n")


def test_the_command_shows_and_forgets(tp: Tp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tp("limit", "small.yaml")
    found = json.loads(tp("cache", "--format", "json")[1])
    assert found["laws"] == 1
    assert found["bytes"] == sum(path.stat().st_size for path in folder.glob("laws/*/*"))
    assert json.loads(tp("cache", "--clear", "--format", "json")[1]) == {"folder": str(folder), "laws": 0, "bytes": 0}
    monkeypatch.setenv("TENSORPROG_CACHE", "off")
    assert tp("cache")[1] == "nothing is remembered\n"


def test_old_laws_make_room(folder: Path) -> None:
    for age, name in enumerate("abc"):
        cache.write(folder / "laws" / name / "x.npz", bytes(1000))
        os.utime(folder / "laws" / name / "x.npz", (10**9 - age, 10**9 - age))
    cache.keep_below(2000)
    assert sorted(path.name for path in folder.glob("laws/*")) == ["a", "b"]


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TENSORPROG_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    expected = {
        "linux": ".cache/tensorprog",
        "darwin": "Library/Caches/tensorprog",
        "win32": "AppData/Local/tensorprog/Cache",
    }
    for system, place in expected.items():
        monkeypatch.setattr("sys.platform", system)
        assert cache.folder() == tmp_path / place
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "tensorprog"
