"""What the documents say is run: Python, commands, programs, links, and the lists of names.

Of what commands print, a page shows lines, and `...` for those left out.  Numbers are compared within the errors in
their brackets, to the last digit where a seed fixes them; times and sizes of memory are not.  With
TENSORPROG_WRITE_PAGES=1 lines whose numbers differ are written into the pages instead:

    TENSORPROG_WRITE_PAGES=1 python -m pytest tests/test_documents.py -k "a_page or generated"
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import tomllib
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from markdown_it import MarkdownIt

import tensorprog as tp
from tensorprog import Law
from tensorprog.jobs.cli import main
from tensorprog.results import reference as reference
from tests.reading import loads

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# commands that draw networks, or pictures of them, run by slow tests; with these options where nothing is shown of
# what they print
LONG = {
    "run": "--samples 200",
    "sweep": "--samples 200 --repeats 2",
    "paper": "--samples 500 --repeats 2",
    "train": "--samples 20",
}
# what becomes of each kind of block; there is no other
RUN = ("python", "yaml", "console", "sh", "text")  # by `walk`: executed, loaded, compared
# when the site is built
BUILT = ("{code-cell}", "{toctree}", "{figure}", "{image}")
PLAIN = {"command-line.md": 1, "development.md": 2}  # without a kind: outlines, and the import order


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
    printed, ran = "", True
    for block in blocks_of(page):
        if block.kind == "python":
            ran = _importable(block)
            with redirect_stdout(StringIO()) as stdout:
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec") if ran else "", names)
            printed = stdout.getvalue()
        elif block.kind == "text" and ran:
            _compare(block, block.text.splitlines(), printed, seeded=True)
        elif block.kind == "yaml" and (named := re.search(r"`([\w-]+\.yaml)`[^`]*:$", block.above)):
            Path(named.group(1)).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            for args, expected in _commands(block):
                _command(block, args, expected, long)
        elif block.kind == "sh":
            for args in _lines(block):
                if args[0] in ("tp", "tp-run"):
                    _command(block, args, [], long)


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
    """The commands of an sh block, without the variables that are set for them."""
    lines = (part for line in block.text.splitlines() for part in line.split("&&"))
    commands = (list(dropwhile(re.compile(r"[A-Z_]+=").match, shlex.split(line, comments=True))) for line in lines)
    return [args for args in commands if args]


def _command(block: Block, args: list[str], expected: list[str], long: bool) -> None:
    rest = args[1:] if args[0] == "tp" else ["run", *args[1:]]
    assert args[0] in ("tp", "tp-run") and rest[0] in main.commands, args
    if rest[0] in LONG and not long:
        main.commands[rest[0]].make_context(rest[0], rest[1:])
        return
    if rest[0] in LONG and not set(expected) - {"..."}:
        rest += LONG[rest[0]].split()
    result = CliRunner().invoke(main, rest)
    outside = re.search(r"^\w+: outside - |^unstable: |^There is no limit", result.output, re.MULTILINE)
    assert result.exit_code == (1 if outside else 0), result.output
    _compare(block, expected, result.output, seeded=rest[0] in LONG)


@dataclass(frozen=True)
class Shown:
    """A number of a line: 0.4274(39), 1.07(12)e-5, 1,145, <1e-9; sizes and times are numbers that nobody compares."""

    text: str
    mantissa: str
    bracket: str | None
    exponent: str | None
    compared: bool

    @property
    def unit(self) -> float:
        """The last digit."""
        return 10.0 ** (int(self.exponent or 0) - len(self.mantissa.partition(".")[2]))

    @property
    def error(self) -> float:
        """What the brackets say, half a digit where there are none."""
        return float(self.bracket or 0.5) * self.unit

    def agrees(self, other: Shown, seeded: bool) -> bool:
        """Equal, or apart by a last digit, or, if no seed fixes them, by no more than their errors.

        Below 1e-9 numbers are errors by rounding, which differ between machines.
        """
        if not self.compared or self.text == other.text:
            return True
        if {"."}.isdisjoint(self.mantissa) and not self.exponent and not self.bracket:
            return False  # a count
        if (self.bracket is None) != (other.bracket is None):
            return False
        apart = abs(
            float(self.mantissa) * 10.0 ** int(self.exponent or 0)
            - float(other.mantissa) * 10.0 ** int(other.exponent or 0)
        )
        digit = 1.001 * max(self.unit, other.unit) + 1e-9
        if seeded or self.bracket is None:
            return apart <= digit and abs(self.error - other.error) <= digit
        low, high = sorted((self.error, other.error))
        return apart <= low + high and high <= 2 * low + digit


NUMBER = re.compile(
    r"(?<![A-Za-z_])(-?\d+(?:,\d{3})*(?:\.\d+)?)(?:\((\d+)\))?(?:e([+-]?\d+))?"
    r"(?= (?:s|min|h|KiB|MiB|GiB|kB|MB|GB)\b)?"
)
UNITS = re.compile(r" (?:s|min|h|KiB|MiB|GiB|kB|MB|GB)\b")


@cache
def _parted(line: str) -> tuple[str, tuple[Shown, ...]]:
    """A line without its numbers and without its spaces, and the numbers."""
    numbers = [
        Shown(found[0], found[1].replace(",", ""), found[2], found[3], UNITS.match(line, found.end()) is None)
        for found in NUMBER.finditer(line)
    ]
    return " ".join(NUMBER.sub("#", line).split()), tuple(numbers)


def _agree(shown: str, printed: str, seeded: bool) -> bool:
    (text, ours), (other, theirs) = _parted(shown), _parted(printed)
    return text == other and all(a.agrees(b, seeded) for a, b in zip(ours, theirs, strict=True))


def _compare(block: Block, expected: list[str], output: str, seeded: bool) -> None:
    """Every line of a page is among those printed; `seeded`: a seed fixes them, but for those of the limit."""
    lines = output.splitlines()
    start = 0
    for line in expected:
        if line == "...":
            continue
        fixed = seeded and "limit" not in line
        found = [place for place, printed in enumerate(lines) if _agree(line, printed, fixed)]
        alike = [place for place, printed in enumerate(lines) if _parted(printed)[0] == _parted(line)[0]]
        if WRITE and alike and not found:
            found = [next((place for place in alike if place >= start), alike[-1])]
            _rewrite(block, line, lines[found[0]])
        assert found, f"{line!r} is not in the output:\n{output}"
        start = found[0] + 1


WRITE = os.environ.get("TENSORPROG_WRITE_PAGES", "") not in ("", "0")


def _rewrite(block: Block, line: str, printed: str) -> None:
    """Write what a command prints into its page; the block is where it was, for lines are as many."""
    lines = block.page.read_text(encoding="utf-8").split("\n")
    place = lines.index(line, block.line - 1)
    assert place < block.line - 1 + block.text.count("\n")
    lines[place] = printed
    block.page.write_text("\n".join(lines), encoding="utf-8")


def test_generated_parts_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    tables = importlib.import_module("tables")
    marks = re.compile(r"(?<=<!-- generated: )(\w+) -->\n\n(.*?)\n\n(?=<!-- end of generated -->)", re.DOTALL)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        current = marks.sub(lambda found: f"{found[1]} -->\n\n{getattr(tables, found[1])().strip()}\n\n", text)
        if WRITE and current != text:
            page.write_text(current, encoding="utf-8")
        assert WRITE or current == text, f"{page.name}: TENSORPROG_WRITE_PAGES=1 writes it anew"


DEAR = ("programs.md", "program-files.md", "python.md", "width.md", "depth.md")  # whose Python takes long


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in DEAR else ())
        for page in PAGES
        if blocks_of(page)
    ],
)
def test_what_a_page_says_is_so(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MIN_DRAWS", 1000)  # for averages in `tp.compare`, which no page prints
    walk(page, long=False)


@pytest.mark.parametrize(
    ("line", "printed", "seeded", "agree"),
    [
        ("y[0]  0.4274(39)", "y[0]   0.4274(39)", True, True),
        ("y[0]  0.4274(39)", "y[0]  0.4275(38)", True, True),  # rounding of another processor
        ("y[0]  0.4274(39)", "y[0]  0.4279(39)", True, False),
        ("y[0]  0.4274(39)", "y[0]  0.4279(39)", False, True),
        ("y[0]  0.4274(39)", "y[0]  0.4379(39)", False, False),
        ("y[0]  0.4274(39)", "y[0]  0.4274(9)", False, False),
        ("y[0]  0.4274(39)", "y[0]  0.4274", False, False),
        ("f[0]  0.314376  3", "f[0]  0.314375  3", False, True),
        ("f[0]  0.314376  3", "f[0]  0.314366  3", False, False),
        ("f[0]  0.314376  3", "f[0]  0.314376  4", False, False),
        ("f[0]  -0.314376", "f[0]  0.314376", False, False),
        ("largest error: 9.3e-13", "largest error: 1.4e-13", False, True),
        ("largest error: 9.3e-7", "largest error: 1.4e-7", False, False),
        ("1,145 normals, about 2.1 s and 76 MiB", "1,145 normals, about 12 s and 7 MiB", True, True),
        ("1,145 normals, about 2.1 s and 76 MiB", "1,146 normals, about 2.1 s and 76 MiB", True, False),
        ("1.07(12)e-5", "1.07(12)e-6", False, False),
        ("[line 17]", "[line 18]", False, False),
    ],
)
def test_numbers_of_pages_are_compared(line: str, printed: str, seeded: bool, agree: bool) -> None:
    assert _agree(line, printed, seeded) == agree


def _draw(page: Path) -> bool:
    commands = [args for b in blocks_of(page) if b.kind == "console" for args, _ in _commands(b)]
    commands += [args for b in blocks_of(page) if b.kind == "sh" for args in _lines(b) if args[0] in ("tp", "tp-run")]
    return any(args[0] == "tp-run" or not LONG.keys().isdisjoint(args[1:2]) for args in commands)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if _draw(page) or page.name in DEAR], ids=lambda page: page.name
)
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
    first = next(b for b in _programs() if b.page.name == "program-files.md" and "grouped" in b.text)
    assert first.text == (ROOT / "examples" / "grouped_attention.yaml").read_text(encoding="utf-8")


def test_every_yaml_block_is_a_whole_program() -> None:
    assert blocks("yaml") == _programs()


def test_the_readme_says_what_its_example_prints() -> None:
    (block,) = (b for b in blocks("python") if b.page.name == "README.md")
    shown = re.search(r"kurtosis.*# ([\d.]+) and its error", block.text)
    assert shown is not None
    law = tp.load(ROOT / "programs" / "attention.yaml").limit()
    assert f"{law.kurtosis('y[0]'):.4f}" == shown.group(1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", text)):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _words(page: str) -> set[str]:
    return set(re.findall(r"[\w-]+", (DOCS / page).read_text(encoding="utf-8")))


def test_the_command_line_is_complete() -> None:
    assert {*main.commands} <= _words("command-line.md")


def test_the_python_page_is_complete() -> None:
    words = _words("python.md")
    public = {name for cls in (tp.Program, Law) for name in dir(cls) if not name.startswith("_")}
    inner = {"blocks", "from_netsor", "is_linear"}
    assert not public - inner - words


def test_the_reference_is_complete() -> None:
    assert {*tp.__all__} <= _words("api.md")


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
