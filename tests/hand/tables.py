"""The programs of the tables: one for each row and form, with the grade that is expected of it.

`python -m tests.hand.tables` checks them all, in some three minutes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tensorprog import Program, ProgramError
from tests.reading import loads

HERE = Path(__file__).parent
GOOD = {
    "error": ("error",),
    "refused": ("error", "outside"),
    "outside": ("outside",),
    "extension": ("outside", "extension"),
    "remark": ("outside", "extension", "remark"),
}
CERTAIN = (  # groups about weights, means and averages: nothing of them may be assumed
    "tied weights", "reused weights", "scores with a mean", "rings of weights", "recurrences", "averages",
    "vanishing norms beside scores", "ends of ranges",
)  # fmt: skip
STATEMENT = re.compile(r"^\w+(\[[^\]]*\])?\s*=\s*(MatMul|Nonlin|Dot)\(")


@dataclass(frozen=True)
class Row:
    """One program: what stands in the gap of which preamble, the grades it may have, and a wrong one reported today."""

    gap: str
    preamble: dict[str, Any]
    group: str
    good: tuple[str, ...]
    today: str

    @property
    def text(self) -> str:
        """The program file."""
        gap = self.gap
        for name, member in self.preamble["short"].items():
            gap = re.sub(rf"(?<![\w.]){name}\b(?!\s*\[)(?!\s*=[^=])", member, gap)
        statements = [part.strip() for part in gap.split(";")]
        if not STATEMENT.match(statements[0]):
            statements = [f"{self.preamble['gap']} = Nonlin({gap})"]
        given = self.preamble["program"]
        body = [line for part in given["body"] for line in (statements if part == "<row>" else [part])]
        return yaml.safe_dump({"program": "row", **given, "body": body}, sort_keys=False, width=10000)


@cache
def rows(name: str) -> list[Row]:
    """All programs of a table."""
    preambles, _ = _read("realistic")
    _, groups = _read(name)
    named = {group["name"]: group["rows"] for group in groups if "name" in group and "rows" in group}
    return [row for group in groups for row in _of(group, preambles[group["preamble"]], named)]


@cache
def _read(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    table = yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))
    return table.get("preambles", {}), table["groups"]


def disagreement(row: Row) -> str:
    """What is wrong with the grade of a row, or nothing."""
    said = ""
    try:
        report = Program.from_netsor(loads(row.text)).check()
        grade = report.grade
        if (report.assumed and row.group not in CERTAIN) or (grade == "remark" and "theorem" in row.good):
            return ""  # regularity that is not shown is assumed, or not used
    except ProgramError as error:
        grade, said = "error", f" ({error})"
    mended = "; the mark `today` can go" if row.today and grade in row.good else ""
    if grade in ({row.today} if row.today else row.good):
        return ""
    return f"{row.gap}: {grade}{said} where {row.today or ' or '.join(row.good)} is expected{mended}   [{row.group}]"


def _of(group: dict[str, Any], preamble: dict[str, Any], named: dict[str, list[Any]]) -> Iterator[Row]:
    forms = group.get("forms", ["<k>"])
    good = GOOD[group["grade"]] if "name" in group else (group["grade"],)
    taken = group["rows"] if "rows" in group else named[group["of"]][:: group.get("every", 1)]
    for k, row in enumerate(taken):
        kernel, today = (row, "") if isinstance(row, str) else (row["write"], row["today"])
        for name, other in group.get("rename", {}).items():
            kernel = re.sub(rf"\b{name}\b(?!\[)", f"<{other}>", kernel)
        kernel = re.sub(r"<(\w+)>", r"\1", kernel)
        for form in ["<k>", forms[k % len(forms)]] if group.get("rotate") else forms:
            gap = form.replace("<k>", kernel)
            yield Row(gap, preamble, group.get("name", group["why"]), good, today)


if __name__ == "__main__":
    for table in ("realistic", "hostile"):
        found = rows(table)
        wrong = [text for row in found if (text := disagreement(row))]
        marked = [row.gap for row in found if row.today]
        print(
            f"{table}: {len(found)} programs, {len(marked)} marked, {len(wrong)} disagree", *marked, *wrong, sep="\n  "
        )
