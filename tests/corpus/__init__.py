"""Small programs with the grade they deserve, read from the tables beside this file.

Each table maps names of cases to

    base      text the program starts from (see `bases.yaml`): attention, the default; inputs; hidden; nothing
    replace   in that text, pieces by others
    then      statements that follow
    weights, initial, indices, constants, widths, fixed_widths, outputs
              as in program files; weights left out have the indices of their first use, and variance 1
    grade     theorem, remark, extension, outside
    rule      the one rule that decides: that fails, if the grade is outside, or makes a remark
    consequence  of outside: diverges, no limit, not covered
    claims    of extension: names with their standing
    warns     rules that warn
    rewritten whether it takes an exact rewrite to see it
    near      the case (or cases) that differs by little from this one, and is judged differently

The expectations come from the theory, not from the checker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.reading import Netsor, loads

HERE = Path(__file__).parent
BASES: dict[str, str] = yaml.safe_load((HERE / "bases.yaml").read_text(encoding="utf-8"))
COUNTS = {"s": 4, "H": 2, "C": 2}
INDICES = {"i": "s", "j": "s", "a": "H", "b": "H", "jj": "s"}
INITIAL = {"h": {"mean": 0, "cov": 1}}
WEIGHT = re.compile(r"MatMul\((\w+)(?:\.T)?(\[[^\]]*\])?")


@dataclass(frozen=True)
class Case:
    """One program with what is expected of its check."""

    name: str
    base: str = "attention"
    replace: Mapping[str, str] = field(default_factory=dict)
    then: str = ""
    weights: Mapping[str, Any] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=lambda: INITIAL)
    indices: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    widths: Mapping[str, str] = field(default_factory=dict)
    fixed_widths: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    grade: str = "theorem"
    rule: str = ""
    consequence: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)
    warns: tuple[str, ...] = ()
    rewritten: bool = False
    near: tuple[str, ...] = ()

    @cached_property
    def body(self) -> tuple[str, ...]:
        """The statements."""
        text = BASES[self.base]
        for old, new in self.replace.items():
            assert old in text, f"{self.name}: there is no {old!r}"
            text = text.replace(old, new)
        return tuple(line.strip() for line in (text + self.then).splitlines() if line.strip())

    def load(self) -> Netsor:
        """The program."""
        weights: dict[str, Any] = {}
        declared = {name.split("[")[0] for name in self.weights}
        for name, slots in WEIGHT.findall("\n".join(self.body)):
            if name not in declared:
                declared.add(name)
                weights[name + slots] = 1
        program = {
            "program": re.sub(r"\W+", "_", self.name),
            "constants": COUNTS | dict(self.constants),
            "indices": INDICES | dict(self.indices),
            "initial": dict(self.initial),
            "weights": weights | dict(self.weights),
            "widths": dict(self.widths),
            "fixed_widths": dict(self.fixed_widths),
            "body": list(self.body),
            "outputs": list(self.outputs),
        }
        return loads(
            yaml.safe_dump({key: value for key, value in program.items() if value}, sort_keys=False, width=10_000)
        )


def _case(name: str, entry: Mapping[str, Any]) -> Case:
    several = {
        key: tuple(value if isinstance(value, list) else [value])
        for key, value in entry.items()
        if key in ("outputs", "warns", "near")
    }
    return Case(name, **(dict(entry) | several))


TABLES: dict[str, dict[str, Case]] = {
    path.stem: {name: _case(name, entry) for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()}
    for path in sorted(HERE.glob("*.yaml"))
    if path.stem != "bases"
}
CASES: dict[str, Case] = {name: case for table in TABLES.values() for name, case in table.items()}
