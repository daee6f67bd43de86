"""What is certified of members that masks, boundaries and definitions tell apart."""

from __future__ import annotations

import pytest

from tensorprog.check.certificates import Calculus, Profile
from tensorprog.language.facts import FAILS
from tests.reading import loads

PROGRAM = """
program: members
constants: {{s: 3, "b[i]": [-1, 1, 2]}}
indices: {{i: s, j: s, k: s, t: 2, o: {{size: s, boundary: zero}}}}
initial:
  h: {{mean: 0, cov: 1}}
  e[i]: {{mean: "b[i]", cov: 0}}
  f[o]: {{mean: 1, cov: 0}}
weights:
  W[i]: 1
  WQ: 1
  WK: 1
body:
  - v[i] = MatMul(W[i], h)
  - x[i] = Nonlin(tanh(v[i]))
  - q[i] = MatMul(WQ, x[i])
  - g[j] = MatMul(WK, x[j])
  - p[i,j] = Dot(q[i], g[j])
  - z[o] = MatMul(W[o], h)
  - r[o] = Nonlin(1 + tanh(z[o])**2)
  - m = Dot(h, h, scale=1/n)
{body}
outputs: [y]
"""


def _last(*lines: str) -> tuple[Calculus, Profile]:
    netsor = loads(PROGRAM.format(body="\n".join(f"  - {line}" for line in lines)))
    calculus = Calculus(netsor)
    return calculus, calculus.statement(len(netsor.body) - 1)


@pytest.mark.parametrize(("condition", "certified"), [("j <= i", True), ("j < i", False)])
@pytest.mark.parametrize(
    "share", ["y[i,k] = Nonlin(exp(w[i,k]) / sum[j](exp(w[i,j])))", "y[i] = Nonlin(log(sum[j](exp(w[i,j]))))"]
)
def test_sums_over_named_masks_have_logarithms_if_no_row_is_empty(share: str, condition: str, certified: bool) -> None:
    _, facts = _last(f"w[i,j] = Nonlin(where({condition}, p[i,j], -inf))", share)
    assert facts.pseudo_lipschitz == certified


@pytest.mark.parametrize(("member", "certified"), [(0, True), (1, True), (2, False)])
def test_only_members_that_are_summed_are_parts_of_a_sum(member: int, certified: bool) -> None:
    _, facts = _last(f"y = Nonlin(exp(v[{member}]) / sum[t](exp(v[t])))")
    assert facts.bounded == certified


@pytest.mark.parametrize("mask", ["where(j <= i, {}, -inf)", "{}"])
def test_what_a_mask_leaves_needs_what_it_needed_before(mask: str) -> None:
    _, facts = _last(f"y[i] = Nonlin(sum[j](exp({mask.format('-abs(1 / (m - 1))')})))")
    assert [text for text, _ in facts.assumes] == ["m - 1 is not 0 at the limiting value of the averages"]


@pytest.mark.parametrize("text", ["v[i] / e[i]", "v[i] / e[i]**3 + exp(2 * e[i])", "v[i] * exp(v[i] * (e[i] - e[i]))"])
def test_initial_vectors_without_variance_are_numbers(text: str) -> None:
    _, facts = _last(f"y[i] = Nonlin({text})")
    assert facts.pseudo_lipschitz
    assert facts.growth == 1


def test_initial_vectors_without_variance_make_no_witness() -> None:
    calculus, facts = _last("y[i] = Nonlin(exp(abs(v[i]) * (sin(v[i])**2 + cos(v[i])**2 - e[i]**2 - 0.5)))")
    assert not facts.bounded
    assert calculus.fact("bounded", len(calculus.netsor.body) - 1).verdict is not FAILS


@pytest.mark.parametrize(
    ("text", "certified"),
    [
        ("z[o] / f[o]", True),
        ("z[o] / f[o + 1]", False),
        ("z[o] / r[o]", True),
        ("z[o] / r[o - 1]", False),
        ("z[o] / (f[o + 1] + 1)", True),
    ],
)
def test_zeros_are_read_beyond_boundaries_only(text: str, certified: bool) -> None:
    _, facts = _last(f"y[o] = Nonlin({text})")
    assert facts.pseudo_lipschitz == certified


# without scores a step is no fault: what matters is that there is a number
OPEN = "where(v[j] > 0, v[j], -inf)"


@pytest.mark.parametrize(
    ("text", "certified"),
    [
        (f"max[j]({OPEN})", False),
        (f"logsumexp[j]({OPEN})", False),
        (f"sum[j](softmax[j]({OPEN}) * v[j])", False),
        (f"max[j]({OPEN} + v[j])", False),
        (f"max[j](where(j <= i, {OPEN}, -inf))", False),
        (f"max[j](max({OPEN}, where(x[j] > 0, v[j], -inf)))", False),
        (f"max[j](max({OPEN}, v[j]))", True),
        (f"sum[j](exp({OPEN}))", True),
        ("max[j](where(j <= i, v[j], -inf))", True),
    ],
)
def test_masks_that_depend_on_vectors_may_leave_nothing(text: str, certified: bool) -> None:
    _, facts = _last(f"y[i] = Nonlin({text})")
    assert facts.controlled == certified


@pytest.mark.parametrize("condition", ["i < 1", "v[i] > 0"])
def test_masked_values_are_no_numbers(condition: str) -> None:
    calculus, facts = _last(f"y[i] = Nonlin(where({condition}, tanh(v[i]), -inf))")
    assert not (facts.bounded or facts.pseudo_lipschitz or facts.controlled)
    assert "-inf where it is masked" in calculus.fact("controlled", len(calculus.netsor.body) - 1).reason
