"""However an activation, a gate, a loss, a norm or a block is written, the same is certified of it, and no more."""

from __future__ import annotations

import math
import time

import pytest
from calculus_realistic import EXAMPLES, Example

from tensorprog.check.certificates import Calculus, Profile
from tests.reading import loads

PROGRAM = """
program: realistic
indices: {i: 3, j: 3, k: 3}
initial:
  e: {mean: 0, cov: 1}
weights: {U: 1, T: 1, Z: 1, F: 1, "A[j]": 1, "B[j]": 1, "V[j]": 1}
body:
  - u = MatMul(U, e)
  - w = MatMul(T, e)
  - z = MatMul(Z, e)
  - f = MatMul(F, e)
  - v[j] = MatMul(V[j], e)
  - a[j] = MatMul(A[j], e)
  - b[j] = MatMul(B[j], e)
  - p[j] = Dot(a[j], f)
  - q[j] = Dot(b[j], f)
  - y[i] = Nonlin(EXPRESSION)
outputs: [y]
"""
# of these no rule sees that they are bounded: sums of terms each of which is not, or grows and is weighed down, and
# what is divided by a sum, or a maximum, that it is a part of
NOT_SEEN = {
    "entropy of a softmax",
    "relu attention with epsilon",
    "unit vector with epsilon",
    "unit vector with a floor",
    "unit vector of absolute values",
    "unit vector of the largest",
}
# a larger order is certified than is needed, where slopes of several factors keep each other in check
LARGER = {"gated decay", "smooth maximum", *NOT_SEEN}


def _certified(text: str) -> Profile:
    calculus = Calculus(loads(PROGRAM.replace("EXPRESSION", text)))
    return calculus.written(len(calculus.netsor.body) - 1)


@pytest.mark.turns(6)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_spelling_gets_the_verdict_that_is_true(example: Example) -> None:
    verdicts = {text: _certified(text) for text in example.spellings}
    if example.order is None:
        assert not [text for text, found in verdicts.items() if found.pseudo_lipschitz]
        return
    orders = {text: found.order if found.pseudo_lipschitz else math.inf for text, found in verdicts.items()}
    assert len(set(orders.values())) == 1, orders
    assert min(orders.values()) == example.order + (example.name in LARGER), orders
    bounded = example.bounded and example.name not in NOT_SEEN
    assert {text: found.bounded for text, found in verdicts.items()} == dict.fromkeys(verdicts, bounded)


def test_work_is_bounded_however_deep_functions_are_nested() -> None:
    text = "u"
    for _ in range(9):
        text = f"({text}) / (1 + abs({text}))"
    start = time.process_time()
    found = _certified(text)
    assert (found.bounded, found.order) == (True, 1.0)
    assert time.process_time() - start < 5  # it takes a tenth of a second; without bounds it does not end
