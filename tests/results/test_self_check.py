"""Laws against their own draws: what is right agrees, what is wrong is seen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensorprog as tp
from tensorprog import Law
from tensorprog.jobs.cli import main
from tensorprog.results.selfcheck import check_law
from tests.reading import loads

HEADS = """
program: family
indices: {{i: {tokens}, j: {tokens}}}
initial:
  "x[i]": {{cov: "where(i == i_, 0.6, 0.3)"}}
weights: {{Q: 1, K: 1, V: 1}}
body:
  - q[i] = MatMul(Q, x[i])
  - k[i] = MatMul(K, x[i])
  - v[i] = MatMul(V, x[i])
  - p[i,j] = Dot(q[i], k[j])
  - y[i] = Nonlin({y})
outputs: [y]
"""


def law(y: str, tokens: int = 1) -> Law:
    return tp.Law(loads(HEADS.format(y=y, tokens=tokens)))


class Wrong:
    """A law of which one answer is changed."""

    def __init__(self, right: Any, **changed: Any) -> None:
        self._right, self._changed = right, changed

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._right, name)
        if name not in self._changed:
            return answer

        def changed(*args: Any, **named: Any) -> Any:
            found = answer(*args, **named)
            change = self._changed[name]
            return (change(found[0]), found[1]) if named.get("with_error") else change(found)

        return changed


DEAR = pytest.param("0.5*v[i] + p[i,0]", marks=pytest.mark.slow)


@pytest.mark.parametrize("y", ["sum[j](softmax[j](p[i,j])*v[j])", DEAR, "tanh(v[i])", "relu(v[i])"])
def test_a_right_law_agrees_with_its_draws(y: str) -> None:
    found = law(y, 2).check(2**14, seed=3)
    assert found.agrees, found
    assert {"mean", "variance", "kurtosis", "covariance", "distribution"} == {row.kind for row in found.rows}


@pytest.mark.parametrize(("name", "change", "kind"), [
    ("var", lambda x: 1.02 * x, "variance"),
    ("mean", lambda x: x + 0.01, "mean"),
    ("kurtosis", lambda x: 1.08 * x, "kurtosis"),
    ("cov", lambda x: 0.95 * np.asarray(x), "covariance"),
])  # fmt: skip
def test_a_wrong_number_is_seen(name: str, change: Any, kind: str) -> None:
    wrong: Any = Wrong(law("v[i] + 0.5*tanh(p[i,0])*v[0]", 2), **{name: change})
    found = check_law(wrong, 2**18)
    assert kind in {row.kind for row in found.contradicted}, found
    assert "contradicts" in str(found)


def test_constants_and_scores_that_are_too_many() -> None:
    assert law("0*v[i] + 2").check(2**10).agrees
    found = tp.load("attention", s=33, H=1).limit().check(2**8)
    assert any("p, which has more than 1024 members" in text for text in found.missing)


def test_the_command_checks_a_limit() -> None:
    done = CliRunner().invoke(main, ["limit", "mlp", "--self-check", "--samples", "4096", "--format", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["self_check"]
    assert found["agrees"] and found["samples"] == 4096 and len(found["rows"]) > 10
