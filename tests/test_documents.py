"""What the documents say is run: Python, commands, programs, links, and the lists of names."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import tomllib
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from markdown_it import MarkdownIt

import tensorprog as tp
from tensorprog import reference
from tensorprog.atoms import ATOMS, REDUCTIONS
from tensorprog.cli import main
from tensorprog.limit.law import Law
from tensorprog.schema import INITIAL_KEYS, RUN_KEYS, SECTIONS, WEIGHT_KEYS
from tensorprog.yaml_io import loads

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# commands that draw networks, run by slow tests; with these options where nothing is shown of what they print
LONG = {"run": "--samples 200", "sweep": "--samples 200 --repeats 2", "paper": "--samples 500 --repeats 2"}
# what becomes of each kind of block; there is no other
RUN = ("python", "yaml", "console", "sh", "text")  # by `walk`: executed, loaded, compared
BUILT = ("{code-cell}", "{eval-rst}", "{generated}", "{toctree}", "{figure}", "{image}")  # when the site is built
PLAIN = {"command-line.md": 1, "development.md": 1}  # blocks without a kind: an object in outline, the import order


@dataclass(frozen=True)
class Block:
    """A block of a page, with the line above it."""

    page: Path
    kind: str
    line: int
    text: str
    above: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@cache
def blocks_of(page: Path) -> tuple[Block, ...]:
    """Every block, wherever it stands; those made by indentation have the kind `indented`."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block") and token.map is not None:
            kind = (token.info.split() or [""])[0] if token.type == "fence" else "indented"
            above = next((line for line in reversed(lines[: token.map[0]]) if line.strip()), "")
            found.append(Block(page, kind, token.map[0] + 2, token.content, above))
    return tuple(found)


def blocks(kind: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.kind == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_escapes(page: Path) -> None:
    kinds = [block.kind for block in blocks_of(page)]
    assert kinds.count("") == PLAIN.get(page.name, 0)
    assert not {*kinds} - {*RUN, *BUILT, ""}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like that of a clone, so that nothing is written into the clone itself."""
    shutil.copytree(ROOT / "programs", tmp_path / "programs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def walk(page: Path, long: bool) -> None:
    """Do what a page says, block by block; commands that draw networks only if `long`."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks_of(page):
        if block.kind == "python" and _importable(block):
            with redirect_stdout(StringIO()) as stdout:
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
            printed = stdout.getvalue()
        elif block.kind == "text":
            _compare(block.text.splitlines(), printed)
        elif block.kind == "yaml" and (named := re.search(r"`([\w-]+\.yaml)`[^`]*:$", block.above)):
            Path(named.group(1)).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            for args, expected in _commands(block):
                _command(args, expected, long)
        elif block.kind == "sh":
            for args in _lines(block):
                if args[0] in ("tp", "tp-run"):
                    _command(args, [], long)


def _importable(block: Block) -> bool:
    """Whether what a block imports is there; not all of it is a dependency of the tests."""
    wanted = re.findall(r"^(?:from|import) (\w+)", block.text, re.MULTILINE)
    return all(importlib.util.find_spec(name) is not None for name in wanted)


def _commands(block: Block) -> list[tuple[list[str], list[str]]]:
    """Arguments and expected lines of the commands of a console block."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:]), []))
        else:
            found[-1][1].append(line)
    return found


def _lines(block: Block) -> list[list[str]]:
    """The commands of an sh block."""
    lines = (part for line in block.text.splitlines() for part in line.split("&&"))
    return [args for line in lines if (args := shlex.split(line, comments=True))]


def _command(args: list[str], expected: list[str], long: bool) -> None:
    rest = args[1:] if args[0] == "tp" else ["run", *args[1:]]
    assert args[0] in ("tp", "tp-run") and rest[0] in main.commands, args
    if rest[0] in LONG and not long:
        main.commands[rest[0]].make_context(rest[0], rest[1:])
        return
    if rest[0] in LONG and not set(expected) - {"..."}:
        rest += LONG[rest[0]].split()
    result = CliRunner().invoke(main, rest)
    outside = re.search(r"^\w+: outside - ", result.output, re.MULTILINE)
    assert result.exit_code == (1 if outside else 0), result.output
    _compare(expected, result.output)


def _compare(expected: list[str], output: str) -> None:
    lines = [_plain(line) for line in output.splitlines()]
    for line in expected:
        assert line == "..." or _plain(line) in lines, f"{line!r} is not in the output:\n{output}"


def _plain(line: str) -> str:
    """A line without the digits that depend on versions of the libraries, and on the machine."""
    return " ".join(re.sub(r"<?\d[\d.,]*(\(\d+\))?(e-?\d+)?", "#", line).split())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name)
def test_what_a_page_says_is_so(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MIN_DRAWS", 1000)  # digits are not compared
    walk(page, long=False)


def _draw(page: Path) -> bool:
    commands = [args for b in blocks_of(page) if b.kind == "console" for args, _ in _commands(b)]
    commands += [args for b in blocks_of(page) if b.kind == "sh" for args in _lines(b) if args[0] in ("tp", "tp-run")]
    return any(args[0] == "tp-run" or not LONG.keys().isdisjoint(args[1:2]) for args in commands)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _draw(page)], ids=lambda page: page.name)
def test_what_a_page_draws_is_so(page: Path, workplace: Path) -> None:
    walk(page, long=True)


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_of_the_shell_exist(block: Block) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for args in _lines(block):
        if args[0] == "python":  # a benchmark, or the site
            script = ROOT / args[1]
            assert args[1] == "-m" or script.is_file(), args
            known = "" if args[1] == "-m" else script.read_text(encoding="utf-8")
            assert all(option in known for option in args[2:] if option.startswith("--") and known), args
        elif args[1:3] == ["-m", "pip"]:
            asked = {extra for arg in args for extra in re.findall(r"^\.\[(.*)\]$", arg)}
            assert asked <= {*project["optional-dependencies"]}, args
        else:
            assert args[0] in ("tp", "tp-run", ".ci/run") or args[0].startswith(".venv/bin/") or args[2] == "venv", args


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
