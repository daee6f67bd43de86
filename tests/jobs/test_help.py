"""`--help` of every command, and completion in shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tensorprog.jobs.cli import main, run
from tensorprog.jobs.cli.frame import COMMANDS, MEANING
from tensorprog.shipped import shipped_programs

EVERY = {"tp": main, **{f"tp {name}": command for name, command in main.commands.items()}, "tp-run": run}


def _help(name: str, columns: int = 80) -> str:
    words = [*name.split()[1:], "--help"]
    command = run if name == "tp-run" else main
    found = CliRunner().invoke(command, words, prog_name=name.split()[0], terminal_width=columns)
    assert found.exit_code == 0
    return str(found.output)


@pytest.mark.parametrize("columns", [30, 40, 80, 100])
@pytest.mark.parametrize("name", EVERY)
def test_help_fits_and_is_complete(name: str, columns: int) -> None:
    text = _help(name, columns)
    assert text.startswith(f"Usage: {name} ")
    prose = text.split("Examples:")[0] if columns < 50 else text  # commands are not torn
    assert max(map(len, prose.splitlines())) <= columns
    assert text.isascii()
    meant = ("[ARGS]...", "[FIGURE]...", "g^1, ..., g^m", "p_1, ..., p_r")
    assert " ".join(text.split()).count("...") == sum(" ".join(text.split()).count(each) for each in meant)
    for option in EVERY[name].params:
        if isinstance(option, click.Option):
            assert all(each in text for each in option.opts), option.opts
            assert option.help, option.opts
    assert "Examples:" in text
    assert "0 done" in text


def test_commands_stand_in_the_order_in_which_they_are_wanted() -> None:
    text = _help("tp")
    names = re.findall(r"^  (\w+) {2,}\w", text.split("Options:")[0], re.MULTILINE)
    assert names[:3] == ["run", "check", "limit"]
    assert set(names) == set(main.commands)
    headings = re.findall(r"^(\S.*):$", text.split("Options:")[0], re.MULTILINE)
    assert headings == [heading for heading in COMMANDS if heading in headings]
    summary = r"^  \w+ {2,}\S.*\.$"
    assert len(re.findall(summary, text, re.MULTILINE)) == len(main.commands)  # one line each


def test_examples_parse() -> None:
    for name, command in EVERY.items():
        examples = getattr(command, "examples", ())
        assert examples, name
        for arguments, purpose in examples:
            assert purpose
            words = re.split(r" >>? ", arguments)[0].split()
            if command is not main:
                command.make_context(name, words)
            elif words[0] in main.commands:
                main.commands[words[0]].make_context(words[0], words[1:])


def test_no_words_ask_for_help() -> None:
    found = CliRunner().invoke(main, [], prog_name="tp", terminal_width=80)
    assert (found.exit_code, found.output) == (0, _help("tp"))


def test_help_of_tp_run_speaks_of_tp_run() -> None:
    assert "tp-run attention" in _help("tp-run")
    assert "-h, --help" in _help("tp-run")
    for code, meaning in MEANING.items():
        assert f"{code} {meaning.split(',')[0]}" in " ".join(_help("tp-run").split())


# ---- completion -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_bytes(shipped_programs()["attention"].read_bytes())
    (tmp_path / "notes.txt").write_text("no program")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "other.yml").write_text("program: broken")
    return tmp_path


def _completed(words: list[str], start: str, command: click.Command = main) -> list[str]:
    return [item.value for item in ShellComplete(command, {}, "tp", "_TP_COMPLETE").get_completions(words, start)]


def test_what_is_completed(folder: Path) -> None:
    assert _completed([], "") == list(main.commands)
    assert _completed([], "sa") == ["sample"]
    assert {"--set", "--width", "--stream", "--help"} <= set(_completed(["run", "attention"], "--"))
    assert _completed(["run", "x", "--method"], "") == ["auto", "dense", "lazy", "collapsed"]
    assert _completed(["check", "x", "--require"], "th") == ["theorem"]
    assert _completed(["completion"], "") == ["bash", "zsh", "fish"]
    files = _completed(["check"], "")
    assert {"attention", "mlp", "mine.yaml", "nets/"} <= set(files)
    assert "notes.txt" not in files
    assert _completed(["check"], "ne") == ["nets/other.yml"]
    assert _completed(["check"], "nets/") == ["nets/other.yml"]
    assert _completed(["check"], "nowhere/x") == []
    assert _completed(["new", "a", "--from"], "lst") == ["lstm"]
    assert _completed(["mine.yaml", "--set"], "", run) == ["s=4", "H=2", "C=100"]
    assert _completed(["limit", "attention", "--set"], "H") == ["H=2"]
    assert _completed(["limit", "attention", "--infinite"], "") == ["i", "j", "a"]
    assert _completed(["sweep", "attention", "--over"], "H") == ["H=2"]
    assert _completed(["sweep", "attention", "--variable"], "y") == ["y[0]", "y[1]", "y[2]", "y[3]"]
    assert {"h", "x[3]", "p[0,0,0]"} <= set(_completed(["sweep", "attention", "--variable"], ""))
    assert _completed(["sweep", "--variable"], "") == []  # no program yet
    assert _completed(["paper"], "fi") == ["fig1a", "fig1b", "fig2a", "fig2b", "fig3"]
    assert _completed(["paper", "fig1a"], "al") == ["all"]
    for unreadable in ("nets/other.yml", "nosuch", "notes.txt"):
        assert _completed(["check", unreadable, "--set"], "") == []
    assert _completed(["check", "--set"], "") == []  # no program yet


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_shells(shell: str) -> None:
    text = CliRunner().invoke(main, ["completion", shell]).stdout
    assert f"_TP_COMPLETE={shell}_complete" in text
    assert f"_TP_RUN_COMPLETE={shell}_complete" in text


def _bash(script: str, folder: Path) -> list[str]:
    """What bash offers for a line, with the commands of this interpreter on its path."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, entry in (("tp", "main"), ("tp-run", "run_main")):
        (tools / name).write_text(f"#!{sys.executable}\nfrom tensorprog.jobs.cli import {entry}\n{entry}()\n")
        (tools / name).chmod(0o755)
    (folder / "completion.sh").write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    package = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        ["bash", "--norc", "-c", f". ./completion.sh; {script}; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(package)},
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="no bash here")
def test_bash_completes(folder: Path) -> None:
    line = "COMP_WORDS=({}); COMP_CWORD={}; {} {}"
    assert _bash(line.format("tp che", 1, "_tp_completion", "tp"), folder) == ["check"]
    words = "tp-run mine.yaml --set H"
    assert _bash(line.format(words, 3, "_tp_run_completion", "tp-run"), folder) == ["H=2"]


def test_completing_loads_nothing_slow(folder: Path) -> None:
    code = (
        "import sys\nfrom tensorprog.jobs.cli import main\ntry: main(prog_name='tp')\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    for words in ("tp ", "tp check m", "tp check mine.yaml --set "):
        env = os.environ | {"_TP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout
        slow = {"sympy", "scipy.stats", "matplotlib", "rich", "tensorprog.limit"}
        if "--set" not in words:
            slow |= {"numpy", "yaml", "networkx"}
        assert not slow & set(done.stderr.split()), words
