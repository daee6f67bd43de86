"""What the documents say is run: Python, commands, programs, links, and the lists of names."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import tensorprog as tp
from tensorprog.atoms import ATOMS, REDUCTIONS
from tensorprog.cli import main, run
from tensorprog.limit.law import Law
from tensorprog.schema import INITIAL_KEYS, RUN_KEYS, SECTIONS, WEIGHT_KEYS
from tensorprog.yaml_io import loads

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
QUICK = {"check", "list", "limit", "graph", "sample", "sweep"}  # commands whose output is compared


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    kind: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(kind: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if match.group(1) == kind:
                found.append(Block(page, kind, text.count("\n", 0, match.start(2)) + 1, match.group(2)))
    return found


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like that of a clone, so that nothing is written into the clone itself."""
    shutil.copytree(ROOT / "programs", tmp_path / "programs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("python")}), ids=lambda page: page.name)
def test_python_runs(page: Path, workplace: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("python"):
        if "from sklearn" in block.text and importlib.util.find_spec("sklearn") is None:
            continue  # not a dependency
        if block.page == page:
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


def test_the_readme_shows_the_example() -> None:
    (block,) = (b for b in blocks("python") if b.page.name == "README.md")
    assert block.text == (ROOT / "examples" / "attention.py").read_text(encoding="utf-8")


def _programs(kind: str = "yaml") -> list[Block]:
    return [block for block in blocks(kind) if re.search(r"^program:", block.text, re.MULTILINE)]


@pytest.mark.parametrize("block", _programs(), ids=str)
def test_programs_are_valid(block: Block) -> None:
    netsor = loads(block.text, file=str(block))
    assert not netsor.warnings
    assert tp.Program.from_netsor(netsor).check().grade != "outside"  # type: ignore[attr-defined]


def test_the_readme_shows_the_program() -> None:
    (block,) = (b for b in _programs() if b.page.name == "README.md")
    assert block.text == (ROOT / "programs" / "attention.yaml").read_text(encoding="utf-8")


def test_the_example_programs_load() -> None:
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    assert examples
    for path in examples:
        assert tp.load(path).check().grade == "theorem"
    first = next(b for b in _programs() if b.page.name == "program-files.md")
    assert first.text == (ROOT / "examples" / "grouped_attention.yaml").read_text(encoding="utf-8")


def test_every_yaml_block_is_a_whole_program() -> None:
    assert blocks("yaml") == _programs()


def _commands(block: Block) -> list[tuple[list[str], list[str]]]:
    """Arguments and expected lines of the commands of a console block."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:]), []))
        else:
            found[-1][1].append(line)
    return found


def _plain(line: str) -> str:
    """A line without the digits that depend on versions of the libraries."""
    return " ".join(re.sub(r"\d[\d.]*(\(\d+\))?(e-?\d+)?", "#", line).split())


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_commands_print_what_is_shown(block: Block, workplace: Path) -> None:
    for args, expected in _commands(block):
        program, *rest = args
        if program == "tp-run" or (program == "tp" and rest[0] == "run"):
            run.make_context("tp-run", rest if program == "tp-run" else rest[1:])  # too long here; see .ci/run
            continue
        assert program == "tp" and rest[0] in QUICK, args
        result = CliRunner().invoke(main, rest)
        assert result.exit_code == (1 if "attention_tied" in rest else 0), result.output
        lines = [_plain(line) for line in result.output.splitlines()]
        for line in expected:
            assert line == "..." or _plain(line) in lines, f"{line!r} is not in the output:\n{result.output}"


def test_the_table_of_the_readme_is_that_of_a_run() -> None:
    (block,) = (b for b in blocks("console") if b.page.name == "README.md")
    assert "limit" in block.text and "kurtosis" in block.text
    law = tp.load(ROOT / "programs" / "attention.yaml").limit()
    shown = re.search(r"limit\s+[\d.()]+\s+([\d.]+)\((\d+)\)", block.text)
    assert shown is not None
    assert abs(law.kurtosis("y[0]") - float(shown.group(1))) < 1e-3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", text)):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _words(page: str) -> set[str]:
    return set(re.findall(r"[\w-]+", (DOCS / page).read_text(encoding="utf-8")))


def test_the_file_format_is_complete() -> None:
    words = _words("program-files.md")
    functions = {name for name, atom in ATOMS.items() if not atom.operator and name not in ("minimum", "maximum")}
    assert not {*SECTIONS, *INITIAL_KEYS, *WEIGHT_KEYS, *RUN_KEYS, *functions, *REDUCTIONS} - words


def test_the_command_line_is_complete() -> None:
    words = _words("command-line.md")
    for name, command in main.commands.items():
        assert name in words
        for option in command.params:
            if isinstance(option, click.Option) and "--help" not in option.opts:
                assert set(option.opts) & words, f"{name} {option.opts}"


def test_the_python_page_is_complete() -> None:
    words = _words("python.md")
    public = {name for cls in (tp.Program, Law) for name in dir(cls) if not name.startswith("_")}
    inner = {"netsor", "names", "name", "from_netsor", "is_linear", "member", "outputs", "scores", "density_method"}
    assert not public - inner - words


def test_versions_and_citations_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["version"] == tp.__version__ == citation["version"]
    assert f"## {tp.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    (paper,) = citation["references"]
    assert "2506.00846" in json.dumps(paper)
    assert [author["family-names"] for author in paper["authors"]] == ["Sakai", "Karakida", "Imaizumi"]


def test_the_readme_opens_with_two_commands() -> None:
    first, second = (block.text for block in blocks("sh") if block.page.name == "README.md")
    assert "tp-run programs/attention.yaml" in first
    assert "pytest" in second and "not slow" not in second
    assert first.count("\n") == second.count("\n") == 1
