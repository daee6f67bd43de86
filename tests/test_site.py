"""The documentation site: every page and every name is in it, and what is generated says what there is."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

import tensorprog as tp
from tensorprog.blocks.mathml import mathml
from tensorprog.jobs.cli import main
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.schema import INITIAL, RUN_KEYS, SECTIONS, WEIGHT

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS / "_ext"), *sys.path])


def test_every_page_is_in_a_table_of_contents() -> None:
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M | re.S)
    entries = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert sorted(entries) == sorted({page.stem for page in DOCS.glob("*.md")} - {"index"})


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("command-line.md", "commands"),
        ("program-files.md", "schema"),
        ("own-functions.md", "atoms"),
    ],
)
def test_what_is_generated_stands_on_a_page(page: str, table: str) -> None:
    assert f"```{{generated}} {table}\n" in (DOCS / page).read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.M)) == set(tp.__all__)


def test_the_page_of_functions_has_every_function() -> None:
    atoms = import_module("tables").atoms()
    names = {"minimum": "min", "maximum": "max"}
    for name, atom in ATOMS.items():
        assert atom.declared or f"`{atom.operator or names.get(name, name)}" in atoms.replace(r"\|", "|")
    assert all(f"`{name}[i](...)`" in atoms for name in REDUCTIONS)
    assert "| `tanh(x)` | $\\tanh{\\left(x \\right)}$ | $[-1, 1]$ | 0 | 1 | 1 | increasing, odd |" in atoms


def test_the_page_of_the_file_format_has_every_key() -> None:
    schema = import_module("tables").schema()
    assert all(f"| `{key}`" in schema for key in (*SECTIONS, *INITIAL.options, *WEIGHT.options, *RUN_KEYS))


def test_the_page_of_commands_has_every_option() -> None:
    commands = import_module("tables").commands()
    for name, command in main.commands.items():
        section = commands.split(f"### tp {name}\n")[1].split("\n### ")[0]
        options = {option for given in command.params if isinstance(given, click.Option) for option in given.opts}
        assert all(option in section for option in options)


def test_docstrings_become_fields_and_prose() -> None:
    docstrings = import_module("docstrings")
    assert docstrings.prose("Draw |x|**2 of `width`.") == r"Draw \|x\|\*\*2 of ``width``."
    lines = ["Shapes    (n,)", "          or more", "Raises    ValueError", "", "Last."]
    assert docstrings.restructured(lines) == [
        ":Shapes:",
        "    (n,)",
        "    or more",
        ":Raises:",
        "    ValueError",
        "",
        "Last.",
    ]
    assert docstrings.comment("tensorprog.check.clauses.Finding.where") == 'statements, separated by ", "'
    assert docstrings.comment("tensorprog.check.clauses.Finding.message") == ""


def test_formulas_are_mathml_that_can_be_read_alone() -> None:
    formulas = pytest.importorskip("formulas", reason="needs the extra docs")
    text = mathml(r"\lvert x'\rvert \le 1/2")
    assert text.startswith("<math") and "′" in text and '<mo lspace="0" rspace="0">/</mo>' in text
    assert formulas.UNKNOWN.findall(text + mathml(r"\nosuch{p}_{i} + 1")) == [r"\nosuch"]
