"""Every command on narrow screens, without colour, without Unicode, without a reader, and told to be quiet."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tensorprog as tp
from tensorprog.blocks import Grid
from tensorprog.jobs.cli import main
from tensorprog.language import files
from tensorprog.results.study import default_out
from tensorprog.show import terminal
from tensorprog.show.terminal import show, wrapped

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
POSIX = pytest.mark.skipif(os.name == "nt", reason="pseudo terminals and shells of POSIX")
WORDS = """\
program: größe
title: Schrödinger’s ‖x‖² − σ … 日本
initial: {h: {mean: 0, cov: 1}}
weights: {W: 1, V: 1, Z: 1}
body:
  - u = MatMul(W, h)
  - x = Nonlin(tanh(u))
  - y = MatMul(V, x)
outputs: [y]
run: {width: [8], samples: 100}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    (tmp_path / "u.yaml").write_text(WORDS, encoding="utf-8")
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


# ---- screens --------------------------------------------------------------------------------------------------------

EVERY = [  # one process calls them all, in a pseudo terminal
    ["list"],
    ["list", "--atoms"],
    ["check", "attention_tied"],
    ["check", "attention_tied", "--facts"],
    ["plan", "attention", "--width", "64"],
    ["limit", "mlp"],
    ["limit", "attention", "--infinite", "a"],
    ["run", "attention_tied", "--samples", "200", "--width", "16,64"],
    ["run", "mlp", "--samples", "200"],
    ["sample", "mlp", "--size", "100", "--out", "draws.npz"],
    ["new", "mine"],
    ["graph", "mlp", "-o", "mlp.svg"],
]
CALLS = """
import json, sys
from tensorprog.jobs.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words, prog_name="tp")
    except SystemExit as leaving:
        print(f"@ {leaving.code}", flush=True)
"""


def _in_a_terminal(commands: list[list[str]], columns: int, **environment: str) -> str:
    """All that a pseudo terminal receives."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    script = "import os; os.setsid(); import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n" + CALLS
    with subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(commands)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | environment,
    ) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # what Linux says at the end
                break
            if not part:
                break
            parts.append(part)
        os.close(ours)
    assert process.returncode == 0
    return b"".join(parts).decode(environment.get("PYTHONIOENCODING", "utf-8"))


@pytest.mark.turns(4)
@POSIX
@pytest.mark.parametrize("columns", [40, 60])
def test_every_command_fits_its_screen(columns: int) -> None:
    text = _in_a_terminal(EVERY, columns)
    assert re.findall(r"@ (\d+)", text) == ["0", "0", "1", "1", "0", "0", "0", "1", "0", "0", "0", "0"]
    assert "Traceback" not in text
    lines = re.split(r"[\r\n]+", ESCAPE.sub("", text))
    assert max(map(len, lines)) <= columns, max(lines, key=len)
    assert "\x1b[" in text
    assert "checking" in text  # the bar
    assert "networks at each of n = 16" in " ".join(text.split())


@pytest.mark.turns(6)
@POSIX
def test_colour_unicode_and_bars_are_for_those_who_have_them() -> None:
    commands = [["check", "u.yaml"], ["plan", "u.yaml"]]
    plain = _in_a_terminal(commands, 60, NO_COLOR="1")
    assert "\x1b[1m" in plain
    assert not re.search(r"\x1b\[[0-9;]*3[0-8]", plain)
    dumb = _in_a_terminal([*commands, ["run", "u.yaml"]], 60, TERM="dumb")
    assert "\x1b" not in dumb
    for encoding in ("ascii", "cp437", "cp1252"):
        text = _in_a_terminal(commands, 60, PYTHONIOENCODING=encoding)
        assert "Traceback" not in text
        assert ("größe" if encoding != "ascii" else "gr??e") in text


@pytest.mark.turns(4)
@POSIX
def test_a_run_shows_what_the_check_found_as_the_check_does() -> None:
    command = ["run", "attention_tied", "--samples", "100", "--width", "8"]
    checked, ran = (ESCAPE.sub("", _in_a_terminal([words], 120)) for words in (["check", "attention_tied"], command))
    table = checked[: checked.index("holds")]
    assert table.splitlines()[1].split() == ["verdict", "rule", "where", "line", "why"]
    assert table.rstrip() in ran
    assert "holds" not in ran


@pytest.mark.turns(4)
def test_forced_colour_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in call("check", "attention").output
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1m" in call("check", "attention").output
    assert "\x1b" not in call("run", "u.yaml", "--format", "json").stdout
    assert "\x1b" not in call("run", "u.yaml").stderr  # bars are for people
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-8]", call("check", "attention").output)


def test_names_and_numbers_are_never_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    table = Grid(
        "title",
        ("name", "value", "what"),
        (("a_name_of_some_length", "0.1234567(89)", "words " * 9),),
        text_columns=(0, 2),
    )
    for columns in (24, *range(40, 64), 64, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        stream = Screen()
        show([table], stream.write, stream)
        text = ESCAPE.sub("", stream.getvalue())
        assert max(map(len, text.splitlines())) <= columns
        assert "a_name_of_some_length" in text or columns == 24
        assert "0.1234567(89)" in text
        assert text.count("words") == 9


def test_wrapped_lines_hang_below_their_text() -> None:
    text = "        why   one two three four five six\nplain"
    assert wrapped(text, 30) == "        why   one two three\n              four five six\nplain"
    assert wrapped("", 30) == ""


@pytest.mark.turns(3)
@POSIX
def test_json_is_the_same_on_every_terminal() -> None:
    for encoding in ("ascii", "cp437"):
        command = [sys.executable, "-c", CALLS, json.dumps([["check", "u.yaml", "--format", "json"]])]
        done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": encoding}, capture_output=True, check=True)
        assert json.loads(done.stdout.decode(encoding).partition("@")[0])["program"] == "größe"


# ---- pipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.turns(4)
@POSIX
@pytest.mark.parametrize(("script", "codes"), [
    ("tp list --atoms | true; echo ${PIPESTATUS[0]}", "141"),
    ("FORCE_COLOR=1 tp list --atoms | true; echo ${PIPESTATUS[0]}", "141"),
    ("tp check u.yaml >&-; a=$?; tp check u.yaml --quiet >&- 2>&-; b=$?; tp check nosuch 2>&-; echo $a $b $?", "0 0 2"),
    ("tp run u.yaml >&- 2>&-; a=$?; tp limit u.yaml > /dev/full 2> /dev/null; echo $a $?", "0 3"),
])  # fmt: skip
def test_readers_that_go(script: str, codes: str, folder: Path) -> None:
    command = f'tp() {{ "{sys.executable}" -c "from tensorprog.jobs.cli import main; main()" "$@"; }}; {script}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.split() == codes.split()
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    assert "Exception ignored" not in done.stderr


# ---- quiet ----------------------------------------------------------------------------------------------------------

QUIET = {
    "run": ["u.yaml"],
    "check": ["u.yaml", "--facts"],
    "limit": ["u.yaml"],
    "sample": ["u.yaml", "--out", "a.npz"],
    "plan": ["u.yaml"],
    "graph": ["u.yaml"],
    "list": [],
    "new": ["mine"],
    "completion": ["bash"],
}


@pytest.mark.turns(4)
def test_quiet_commands_print_nothing_but_the_object() -> None:
    for name, command in main.commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--quiet" in options, name
        if name in QUIET:
            found = call(name, *QUIET[name], "--quiet")
            assert (found.exit_code, found.output) == (0, ""), name
            if "--format" in options:
                found = call(name, *QUIET[name], "--quiet", "--format", "json")
                assert found.stderr == ""
                assert json.loads(found.stdout)
    assert "warning: the weight Z is not used" in call("check", "u.yaml").stderr


def test_quiet_commands_say_why_they_fail() -> None:
    required = ["check", "attention_relu", "--require", "theorem"]
    for words in (["check", "nosuch"], ["limit", "attention_tied"], required):
        found = call(*words, "--quiet")
        assert found.exit_code
        assert found.stdout == ""
        assert found.stderr or found.exception


# ---- Windows --------------------------------------------------------------------------------------------------------


DATA = """\
program: a
indices: {{i: 2}}
initial:
  h[i]: {{data: '{}'}}
body:
  - y[i] = Nonlin(tanh(h[i]))
outputs: [y]
"""


def test_files_written_on_windows_are_read() -> None:
    Path("data").mkdir()
    np.save("data/tokens.npy", np.eye(2, 3))
    text = DATA.format("data\\tokens.npy")
    Path("dos.yaml").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    program = tp.load("dos.yaml")
    assert np.allclose(program.limit().cov("h"), np.eye(2) / 3)
    assert call("new", "copy", "--from", "dos.yaml", "-o", "data").exit_code == 0
    assert np.allclose(tp.load("data/copy.yaml").limit().cov("h"), np.eye(2) / 3)
    Path("dos.yaml").write_bytes(text.replace("tanh(h[i])", "tanh(g[i])").replace("\n", "\r\n").encode())
    with pytest.raises(tp.ProgramError, match="line 6"):
        tp.load("dos.yaml")


@pytest.mark.parametrize(("name", "reserved"), [
    ("con", True), ("NUL.txt", True), ("Com1.npy", True), ("lpt9", True), ("aux .txt", True), ("console", False),
    ("com", False), ("com10", False), ("attention.yaml", False),
])  # fmt: skip
def test_names_of_devices(name: str, reserved: bool) -> None:
    assert files.is_reserved(name) == reserved


@pytest.mark.parametrize("name", ["NUL.npy", "data/con.csv", "data\\aux.npy", "C:\\x.npy", "..\\x.npy", "C:x.npy"])
def test_data_files_that_are_none(name: str) -> None:
    Path("p.yaml").write_text(DATA.format(name))
    with pytest.raises(tp.ProgramError, match=r"device on Windows|outside the program's folder"):
        tp.load("p.yaml")


def test_results_of_programs_named_like_devices() -> None:
    program = tp.load("u.yaml").netsor
    assert default_out(program) == Path("runs/größe")
    object.__setattr__(program, "name", "CON")
    assert default_out(program) == Path("runs/CON_")


def test_texts_end_their_lines_alike_everywhere() -> None:
    assert call("graph", "mlp", "-o", "a.svg").exit_code == 0
    assert b"\r" not in Path("a.svg").read_bytes()


def test_screens_without_a_stream() -> None:
    assert not terminal.is_terminal(None)
    closed = io.StringIO()
    closed.close()
    assert not terminal.is_terminal(closed)
    assert terminal.columns_of(closed) == terminal.PIPE
