"""A program file is data from somebody else: nothing runs, nothing large is allocated, one clear message, at once."""

from __future__ import annotations

import os
import time
import tracemalloc

import numpy as np
import pytest
from front_end_programs import program

from tensorprog import ProgramError
from tests.reading import load, loads


def nested(text: str) -> str:
    return program(f"q[i] = Nonlin({text})")


TEXTS = {
    "import": (nested("__import__('os').system('touch HERE')"), "only functions of the language can be called"),
    "attribute": (nested("u.__class__[i]"), "only a name can carry indices"),
    "attribute of a weight": (program("q = MatMul(V.__class__, h)"), "is not part of the language"),
    "attribute of a transpose": (program("q = MatMul(V.T.real, h)"), "is not part of the language"),
    "transposes": (program("q = MatMul(V" + ".T" * 3_000 + ", h)"), "nested too deeply"),
    "string": (nested("f'{u}'"), "is not part of the language"),
    "walrus": (nested("(k := 1)"), "is not part of the language"),
    "comprehension": (nested("[u for u in h]"), "is not part of the language"),
    "python tag": (
        program(constants="{s: !!python/object/apply:os.system ['touch HERE'], c: 2}"),
        "nothing is executed",
    ),
    "any tag": (program(constants="{s: !local 3, c: 2}"), "tags, anchors"),
    "anchor": (program(constants="{s: &x 3, c: *x}"), "anchors (&) and aliases (*)"),
    "merge": (program(constants="\n  <<: {s: 3}\n  s: 3\n  c: 2"), "a key must be a name"),
    "laughs": ("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "anchors"),
    "flow": (program(constants="[" * 10_000), "the file is nested more than"),
    "dashes": (program(constants="\n  " + "- " * 10_000 + "1"), "the file is nested more than"),
    "blocks": (
        program(constants="\n" + "\n".join(" " * k + "a:" for k in range(1, 900))),
        "the file is nested more than",
    ),
    "brackets": (nested("(" * 9_000 + "u[i]" + ")" * 9_000), "too many nested parentheses"),
    "brackets long": (nested("(" * 10_000 + "u[i]" + ")" * 10_000), "more than the 20000 characters allowed"),
    "minus": (nested("-" * 10_000 + "u[i]"), "nested too deeply"),
    "index": (program(indices="{i: s, j: s, t: 1..s, k: 1000000000000}"), "index k has 1000000000000 values"),
    "index power": (program(indices="{i: s, j: s, t: 1..s, k: 9**9**9}"), "9**9**9 is not a finite number"),
    "constant power": (program(constants="{s: 3, c: 2, k: 9**9**9**9**9}"), "is not a finite number"),
    "slot power": (nested("u[i + 9**9**9]"), "is not a finite number"),
    "width power": (program(widths="{d: n * 9**9**9}"), "9**9**9 is not a finite number"),
    "digits": (program(constants="{s: 3, c: 2, k: " + "9" * 9_000 + "}"), "this cannot be read"),
    "members": (
        program(indices="{i: s, j: s, t: 1..s, k: 9000000, l: 9000000}", weights="\n  W[i]: 1\n  V: 1\n  A[k,l]: 1"),
        "A has more than 1e+12 members",
    ),
    "covariance": (
        program(indices="{i: s, j: s, t: 1..s, k: 20000}", initial="\n  h: {cov: 1}\n  q[k]: {cov: 0.5**abs(k - k_)}"),
        "more than 100000000 values",
    ),
    "statements": (program([f"q{k} = Nonlin(1)" for k in range(2_500)]), "more than the 2000 allowed"),
    "entries": (program(constants="\n  s: 3\n  c: [" + "1," * 60_000 + "1]"), "50000 entries allowed"),
    "length": (program() + "#" * 600_000, "more than the 500000 characters"),
    "null": (program() + "\0", "a character is not allowed"),
    "bell": (program(title="a\ab"), "a character is not allowed"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_gives_one_clear_message_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, message = TEXTS[name]
    start = time.process_time()
    with pytest.raises(ProgramError) as caught:
        loads(text)
    seconds = time.process_time() - start
    tracemalloc.start()
    try:
        with pytest.raises(ProgramError):
            loads(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(caught.value.problems) == 1, str(caught.value)[:2000]
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert seconds < 1
    assert peak < 50_000_000
    assert not list(tmp_path.iterdir())


MISTAKES = {
    "weights: {W[i]: 1}\n": ('write "W[i]" in quotes', "unquoted brackets or commas"),
    "outputs: [y[0]]\n": ('write "W[i]" in quotes', "unquoted brackets"),
    "constants: {s: 3\n": ("close it", "never closed"),
    "body:\n\t- a\n": ("use spaces", "tabs cannot indent"),
    "title: a: b\n": ('title: "a: b"', "a second `: `"),
    "program: a\n---\nprogram: b\n": ("remove the second `---`", "one program"),
    "- a\n": ("program: name", "a program is a list of sections"),
    "": ("tp list", "the file is empty"),
    "# nothing\n": ("tp list", "the file is empty"),
    "? [a]\n: 1\n": ("quote names", "a key must be a name"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_of_yaml_are_explained(text):
    fix, message = MISTAKES[text]
    with pytest.raises(ProgramError) as caught:
        loads(text)
    assert any(message in problem.message and fix in problem.fix for problem in caught.value.problems), str(
        caught.value
    )


# -- files ----------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path):
    (tmp_path / "attention.yaml").write_text(program())
    with pytest.raises(ProgramError, match=r"there is no file .*attenton.yaml\n  try   did you mean attention.yaml"):
        load(tmp_path / "attenton.yaml")
    with pytest.raises(ProgramError, match="Is a directory"):
        load(tmp_path)
    with pytest.raises(ProgramError, match="cannot be read"):
        load("a\0b")


def test_encodings(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + program(title="Größe").replace("\n", "\r\n").encode())
    assert load(path) == loads(program(title="Größe"))
    path.write_bytes(program().encode() + "title: Größe\n".encode("latin-1"))
    with pytest.raises(ProgramError, match=r"not UTF-8 text   \[p.yaml, line 17\]"):
        load(path, file="p.yaml")


def with_constant(value: str) -> str:
    return program("q[i] = Nonlin(b[i])", constants=f"\n  s: 3\n  c: 2\n  b[i]: {value}")


@pytest.mark.parametrize("name", ["numbers.npy", "{file: numbers.npy}", "{file: sub/numbers.npy}"])
def test_numbers_come_from_files_beside_the_program(tmp_path, name):
    np.save(tmp_path / "numbers.npy", np.array([1.0, 2.0, 3.5]))
    (tmp_path / "sub").mkdir()
    np.save(tmp_path / "sub" / "numbers.npy", np.array([1.0, 2.0, 3.5]))
    path = tmp_path / "p.yaml"
    path.write_text(with_constant(name))
    assert load(path).constant["b"].value.array.tolist() == [1, 2, 3.5]
    with pytest.raises(ProgramError, match="was not read from a file"):
        loads(with_constant(name))
    assert loads(with_constant(name), base=tmp_path) == load(path)


def header(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


FILES = {
    "terabytes.npy": (header("(1000000000000,)"), "announces the shape (1000000000000,)"),
    "overflow.npy": (header("(9999999999, 9999999999, 9999999999)"), "announces"),
    "short.npy": (header("(3,)") + b"\0" * 8, "is damaged"),
    "negative.npy": (header("(-3,)") + b"\0" * 8, "announces the shape (-3,)"),
    "object.npy": (header("(3,)", "'|O'") + b"\x80\x04.", "objects are never unpickled"),
    "complex.npy": (header("(3,)", "'<c16'") + b"\0" * 48, "not real numbers"),
    "text.npy": (b"hello", "no valid .npy header"),
    "deep.npy": (header("(" * 3000 + ")" * 3000), "no valid .npy header"),
    "code.npy": (header("(__import__('os').system('touch HERE'),)"), "no valid .npy header"),
    "pickle.pkl": (b"\x80\x04.", "is not a .npy file"),
    "table.csv": (b"1,2,3\n", "is not a .npy file"),
    "zip.npz": (b"PK", "is not a .npy file"),
}


@pytest.mark.parametrize("name", FILES)
def test_hostile_data_files_are_refused_before_anything_is_allocated(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    path = tmp_path / "p.yaml"
    path.write_text(with_constant(name))
    tracemalloc.start()
    try:
        with pytest.raises(ProgramError) as caught:
            load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message in str(caught.value)
    assert peak < 5_000_000
    assert len(caught.value.problems) == 1
    assert not (tmp_path / "HERE").exists()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd.npy",
        "../secret.npy",
        "sub/../../secret.npy",
        "link.npy",
        "C:/secret.npy",
        "..\\secret.npy",
        "fifo.npy",
        "absent.npy",
        "folder.npy",
    ],
)
def test_paths_stay_below_the_program(tmp_path, name):
    (tmp_path / "secret.npy").write_bytes(header("(3,)"))
    folder = tmp_path / "programs"
    (folder / "sub").mkdir(parents=True)
    (folder / "folder.npy").mkdir()
    os.symlink(tmp_path / "secret.npy", folder / "link.npy")
    os.mkfifo(folder / "fifo.npy")
    path = folder / "p.yaml"
    path.write_text(with_constant(f'"{name}"'.replace("\\", "\\\\")))
    with pytest.raises(ProgramError) as caught:
        load(path)
    expected = {
        "fifo.npy": "not a plain file",
        "absent.npy": "does not exist",
        "folder.npy": "not a plain file",
        "link.npy": "link that leaves",
    }.get(name, "outside the program's folder")
    assert expected in str(caught.value)
    assert len(caught.value.problems) == 1
