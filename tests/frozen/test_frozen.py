"""Programs say today what they said when the table was written: grades, moments, densities, kernels, networks.

Closed forms agree to 1e-9 of their size, averages within three of both errors together; a grade is equal, or an
`extension` whose regularity is assumed.  `python -m tests.frozen.record` writes the table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frozen.questions import agrees, ask
from tests.frozen.record import TABLE, program_of

ENTRIES = json.loads(TABLE.read_text(encoding="utf-8"))
QUICK = 4.0  # seconds of a program's rows; what takes longer is slow


def _case(entry: dict[str, Any]) -> Any:
    kind, name = entry["program"].split()[:2]
    quick = entry["seconds"] < QUICK and name != "attention_mqa" and (kind != "hand" or int(name) % 16 == 0)
    return pytest.param(entry, id=entry["program"].replace(" ", "-"), marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("entry", [_case(entry) for entry in ENTRIES])
def test_program_says_what_it_said(entry: dict[str, Any]) -> None:
    program = program_of(entry["program"], entry["text"])
    report = program.check()
    grades = {entry["grade"]}
    if any("assumed" in claim for claim in map(str, report.claims)):
        grades.add("extension")
    elif entry["program"].startswith("hand") and entry["grade"] == "theorem":
        grades.add("remark")  # a bound that functions spelled out by hand are not shown to have
    assert report.grade in grades
    wrong = []
    for question, value, error, _ in entry["rows"]:
        now = ask(program, question)
        if not agrees(question, now, (value, error)):
            wrong.append(f"{question}: {now[0]} +- {now[1]}, was {value} +- {error}")
    assert not wrong
