"""The check of a program on terminals, in pipes and in notebooks."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from tensorprog import Report
from tensorprog.blocks import COLOURS, badge, paragraph
from tensorprog.blocks.html import COLUMNS, to_html
from tensorprog.check.clauses import Fix, check
from tensorprog.check.rewrites import Rewrite
from tensorprog.show.terminal import show
from tests.corpus import CASES

TIED = CASES["tied queries and keys"]
GRADES = {"theorem", "remark", "extension", "outside"}  # stand above the table
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        return True


def _shown(report: Report, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    show(report.blocks(), stream.write, stream)
    return stream.getvalue()


def notebook(report: Report) -> str:
    return report._repr_html_()


def _words(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("name", ["tied queries and keys", "relu inputs", "low rank", "attention", "a used step"])
def test_tables_fit_and_leave_nothing_out(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(CASES[name].load())
    text = ESCAPE.sub("", _shown(report, columns, monkeypatch))
    assert max(map(len, text.splitlines())) <= columns
    assert _words(text).startswith(_words(f"{report.program}: {report.grade} - "))
    for finding in report.findings:
        assert finding.rule.split()[0] in text
    if columns != 100 and columns != 160:  # no columns between which words are torn
        for finding in report.findings:
            holds = finding.verdict == "holds"
            assert _words(finding.message) in _words(text)
            assert holds or _words(finding.fix) in _words(text)
    assert "…" not in text
    for claim in report.claims:
        assert claim.name in text


def test_a_report_without_findings_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    report = replace(check(CASES["attention"].load()), findings=())
    for columns in (40, 120):
        assert "verdict" not in _shown(report, columns, monkeypatch)


def test_what_fails_comes_first_and_reasons_stand_in_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ESCAPE.sub("", _shown(check(TIED.load()), 160, monkeypatch)).splitlines()
    head = next(line for line in lines if line.startswith("verdict"))
    assert head.split() == ["verdict", "rule", "where", "line", "why"]
    verdicts = [line.split()[0] for line in lines if re.match(r"(fails|holds|remark|warning)", line)]
    assert verdicts[0] == "fails"
    assert set(verdicts[1:]) == {"holds"}
    column = head.index("why")
    assert any(line[column:].startswith("try") for line in lines)


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(TIED.load())
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert re.search(r"\x1b\[[0-9;]*38;", _shown(report, 80, monkeypatch))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-8]", _shown(report, 80, monkeypatch))


def test_a_pipe_gets_the_plain_text() -> None:
    report, stream = check(TIED.load()), io.StringIO()
    show(report.blocks(), stream.write, stream)
    assert stream.getvalue() == str(report)


def _rewritten(text: str = "WO[a] moved inside the sum") -> Report:
    return replace(check(CASES["attention"].load()), rewrites=(Rewrite("move", "w[a,i]", 17, text),))


def test_rewrites_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "move: WO[a] moved inside the sum (exact at every n)   [line 17]"
    assert told in _shown(_rewritten(), 120, monkeypatch)
    assert told in notebook(_rewritten())
    assert f"rewrite {told}" in str(_rewritten())


class Balanced(HTMLParser):
    """Counts tags, and fails if they do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["tied queries and keys", "relu inputs", "low rank", "attention"])
def test_notebooks_get_a_table(name: str) -> None:
    report = check(CASES[name].load())
    page = Balanced()
    page.feed(notebook(report))
    assert not page.open
    assert page.seen.count("tr") == len(report.findings) + page.seen.count("table")
    assert {"script", "style", "link", "img"}.isdisjoint(page.seen)


def test_reasons_stand_below_where_there_is_no_room_for_a_column() -> None:
    shown = notebook(check(TIED.load()))
    assert shown.count("flex-wrap:wrap") == shown.count("<tr")
    assert shown.count("flex:9 1 24em") == shown.count("<tr")  # the last cell grows, and shrinks when it is alone
    assert "overflow-x" not in shown


def test_verdicts_fit_into_their_column() -> None:
    em = float(re.fullmatch(r"0 1 ([\d.]+)em", COLUMNS["verdict"])[1])  # type: ignore[index]
    frame = re.search(r"border:([\d.]+)px.*padding:[\d.]+em ([\d.]+)em", to_html([paragraph(badge("fails"))]))
    assert frame is not None
    sides = 2 * (float(frame[1]) / 14 + float(frame[2]))
    widest = max(len(word) for word in COLOURS if word not in GRADES) * 0.75  # bold letters of wide typefaces
    assert widest + sides <= em


def test_nothing_stands_between_a_name_and_its_comma() -> None:
    """Notebooks have style sheets that pad code."""
    shown = notebook(check(TIED.load()))
    codes = re.findall(r'<code style="([^"]*)">[^<]*</code>, line', shown)
    assert codes
    assert all("padding:0" in style.split(";") for style in codes)


def test_notebooks_escape_everything() -> None:
    evil = "<script>alert(1)</script>"
    report = check(TIED.load())
    finding = replace(report.findings[0], rule=evil, where=evil, message=evil, fixes=(Fix(evil),), source=evil)
    page = notebook(replace(_rewritten(evil), program=evil, source=evil, findings=(finding,)))
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") >= 6


def test_badges_are_readable() -> None:
    """Contrast with white text, by the formula of the Web Content Accessibility Guidelines."""

    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    for colour in COLOURS.values():
        red, green, blue = (linear(int(colour[k : k + 2], 16)) for k in (1, 3, 5))
        assert 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) > 3
