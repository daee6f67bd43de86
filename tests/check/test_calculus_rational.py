"""Rational functions: poles of any multiplicity, ranges beside mpmath, and constants as small and large as floats."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest
from calculus_expressions import LAST, parsed, profile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensorprog.language.facts import FAILS, HOLDS

POLES = [
    "1 / (g[i] - 1)**6",
    "1 / (g[i]**2 - 2*g[i] + 1)**3",
    "1 / (g[i] - 1)**12",
    "1 / (g[i]**2 - 2)**4",
    "1 / ((g[i] - 1)**2 * (g[i] - 1.0001)**2)",
    "1 / (g[i]**2 - 2*sqrt(3)*g[i] + 3)",  # a double zero, but for the rounding of the root
    "1 / (g[i]**2 - 0.2*g[i] + 0.01)",
    "e / (g[i]**3 - 3*g[i]**2 + 3*g[i] - 1)**2",
    "g[i] / sqrt(g[i]**4 - 2*g[i]**2 + 1)",
    "1 / (sigmoid(relu(g[i])) - 0.5)",
    "1 / (tanh(g[i]) - tanh(g[i] + 1) + 2 * tanh(0.5))",
    "where(g[i] + tanh(g[i]) >= 0, 1 / (g[i] + tanh(g[i])), 1)",
    "1 / (0.99 + tanh(g[i]))",
    "1 / (4*g[i]**2 - 12*g[i] + 9)",
]
POSITIVE = [
    "1 - sigmoid(g[i])",
    "1 + tanh(g[i]) + e**2",
    "2 - sigmoid(e) - sigmoid(g[i])",
]


@pytest.mark.parametrize("text", POSITIVE)
def test_what_is_positive_though_as_small_as_one_likes_has_a_logarithm(text: str) -> None:
    assert profile(parsed(f"log({text})"))[1].partial is None


@pytest.mark.parametrize("text", POLES)
def test_poles_are_seen_whatever_their_multiplicity(text: str) -> None:
    calculus, facts = profile(parsed(text))
    assert facts.partial is not None or facts.modulus == math.inf
    assert not any(calculus.fact(name, LAST).verdict is HOLDS for name in ("bounded", "pseudo-Lipschitz"))


EXTREME = [  # expression, range, modulus
    ("1 / (1e-300 + g[i]**2)", (0, 1e300), 0),
    ("1 / (1e-320 + g[i]**2)", (0, math.inf), 0),
    ("(abs(g[i]) + 1e-200)**-1", (0, 1e200), 0),
    ("1 / (1e-200 + abs(g[i]))**3", (-math.inf, math.inf), 0),
    ("clip(g[i], -1e200, 1e200)**3", (-math.inf, math.inf), 0),
    ("1e-200 * g[i]**2 / (1 + 1e-200 * g[i]**2)", (0, 1), 0),
    ("g[i] / sqrt(1e-300 + g[i]**2)", (-1, 1), 0),
    ("g[i] * e / (1e14 + g[i]**2 + e**2)", (-1, 1), 0),
]


@pytest.mark.parametrize(("text", "interval", "modulus"), EXTREME, ids=[c[0] for c in EXTREME])
def test_tiny_and_huge_constants(text: str, interval: tuple[float, float], modulus: float) -> None:
    calculus, facts = profile(parsed(text))
    assert facts.interval == pytest.approx(interval, rel=1e-8, abs=1e-8)
    assert all(type(end) is float for end in facts.interval)
    assert (facts.growth, facts.modulus, facts.partial) == (0, modulus, None)
    assert calculus.fact("bounded", LAST).verdict is not FAILS


def test_an_overflow_is_no_constant() -> None:
    _, facts = profile(parsed("g[i] / (1e300 + g[i]**2)**2"))
    assert facts.modulus == 0
    assert facts.low < 0 < facts.high
    assert profile(parsed("1 / exp(1000 + abs(g[i]))"))[1].high > 0


ZERO = st.tuples(st.integers(-4, 4), st.sampled_from(["0", "1/4", "1", "7"]), st.integers(1, 2))
FACTORS = st.lists(ZERO, max_size=3)
SCALES = st.sampled_from(["1", "1e-150", "3e120"])


def _expanded(factors: list[tuple[int, str, int]]) -> list[Fraction]:
    """The product of ((x - b)**2 + c)**m."""
    result = [Fraction(1)]
    for b, c, m in factors:
        for _ in range(m):
            square = [b * b + Fraction(c), Fraction(-2 * b), Fraction(1)]
            result = [
                sum((x * square[k - j] for j, x in enumerate(result) if 0 <= k - j <= 2), Fraction(0))
                for k in range(len(result) + 2)
            ]
    return result


def _text(p: list[Fraction]) -> str:
    return " + ".join(f"({float(a)!r}) * e**{k}" if k else f"({float(a)!r})" for k, a in enumerate(p))


@pytest.mark.turns(4)
@settings(max_examples=40)
@given(FACTORS, FACTORS, SCALES)
@example([], [(1, "0", 2), (2, "0", 2)], "1")
@example([(0, "0", 1)], [(0, "1", 1)], "1e-150")
def test_expanded_quotients_are_judged_as_their_factors_say(
    top: list[tuple[int, str, int]], bottom: list[tuple[int, str, int]], scale: str
) -> None:
    p, q = _expanded(top), _expanded(bottom)
    _, facts = profile(parsed(f"{scale} * ({_text(p)}) / ({_text(q)})"))
    if any(c == "0" for _, c, _ in bottom):
        common = {b for b, c, _ in top if c == "0"}
        assert facts.partial is not None or common, facts  # what cancels is still no number there
        return
    assert facts.partial is None or bottom  # of an expanded denominator it may not be seen that it has no zero
    if facts.partial is not None:
        return
    degree = len(p) - len(q)
    assert (facts.growth, facts.modulus) == (max(degree, 0), max(degree - 1, 0))
    with mp.workdps(60):
        points = [mp.mpf(b) + mp.mpf(shift) for b, _, _ in (*top, *bottom) for shift in ("0", "0.1", "-0.3")]
        points += [sign * mp.mpf(10) ** k for k in range(-3, 9) for sign in (1, -1)]
        for x in points:
            value = mp.mpf(scale) * mp.polyval([float(a) for a in reversed(p)], x)
            value /= mp.polyval([float(a) for a in reversed(q)], x)
            assert facts.low <= value * (1 + mp.sign(value) * mp.mpf("1e-14")) or facts.low <= value
            assert value * (1 - mp.sign(value) * mp.mpf("1e-14")) <= facts.high
