"""`--help` of every command, and tables on narrow screens, without colour and without Unicode."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tensorprog.jobs.cli import main, run

EVERY = {"tp": main, **{f"tp {name}": command for name, command in main.commands.items()}, "tp-run": run}


@pytest.mark.parametrize("name", EVERY)
def test_help_is_complete_and_examples_parse(name: str) -> None:
    words, command = [*name.split()[1:], "--help"], run if name == "tp-run" else main
    found = CliRunner().invoke(command, words, prog_name=name.split()[0], terminal_width=80)
    assert found.exit_code == 0
    assert found.output.startswith(f"Usage: {name} ")
    assert found.output.isascii()
    assert "Examples:" in found.output
    assert "0 done" in found.output
    for parameter in EVERY[name].params:
        assert all(option in found.output for option in parameter.opts if option.startswith("-"))
    for arguments, purpose in EVERY[name].examples:  # type: ignore[attr-defined]
        assert purpose
        words = re.split(r" >>? ", arguments)[0].split()
        if name != "tp":
            EVERY[name].make_context(name, words)


def test_no_words_ask_for_help() -> None:
    found = CliRunner().invoke(main, [], prog_name="tp", terminal_width=80)
    assert found.exit_code == 0
    assert found.output.startswith("Usage: tp ")
    assert list(main.commands)[:3] == ["run", "check", "limit"]


@pytest.mark.parametrize("columns", [30, 80, 160])
@pytest.mark.parametrize("words", [["list"], ["check", "attention_tied"], ["limit", "mlp"]], ids=" ".join)
def test_tables_fit_the_screen(words: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    text = CliRunner().invoke(main, words, color=True).output
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert max(map(len, plain.splitlines())) <= columns
    piped = CliRunner().invoke(main, words, env={"FORCE_COLOR": ""}).output
    known = set(re.findall(r"\w+", piped))
    if columns == 160:
        assert known <= set(re.findall(r"\w+", plain))


def test_completion_names_the_commands() -> None:
    from click.shell_completion import ShellComplete

    found = ShellComplete(main, {}, "tp", "_TP_COMPLETE").get_completions([], "sa")
    assert [item.value for item in found] == ["sample"]
