"""Functions of one variable: kinks and pieces of expressions in which a part occurs again and again."""

from __future__ import annotations

import pytest

from tensorprog import Program
from tensorprog.limit.form import univariate
from tests.reading import loads

NESTED = "v"
for _ in range(7):
    NESTED = f"({NESTED})/(1 + abs({NESTED}))"


def test_a_part_that_occurs_again_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, seven levels hold 128 copies of the innermost."""
    count = 0
    applied = univariate._Functions.applied

    def counted(self: univariate._Functions, name: str, *args: univariate.RealFunction) -> univariate.RealFunction:
        nonlocal count
        count += 1
        return applied(self, name, *args)

    monkeypatch.setattr(univariate._Functions, "applied", counted)
    text = "program: nested\ninitial:\n  h: {cov: 1}\nweights: {V: 1}\nbody:\n  - v = MatMul(V, h)\n"
    law = Program.from_netsor(loads(f"{text}  - y = Nonlin({NESTED})\noutputs: [y]\n")).limit()
    assert float(law.var("y")) > 0
    assert 0 < count < 200
