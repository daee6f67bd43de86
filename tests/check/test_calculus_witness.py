"""Witnesses against a property, evaluated again with 60 digits and judged by the property itself."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import mpmath as mp
import pytest
from calculus_exact import DENOMINATORS, POLES, exact
from calculus_expressions import BASE, EXPRESSIONS, LAST, PROGRAM, parsed, profile
from hypothesis import assume, given, settings

from tensorprog import ProgramError
from tensorprog.check.certificates import Calculus, Witness
from tensorprog.language.expr import Expr, variables
from tensorprog.language.facts import FAILS, UNKNOWN
from tests.reading import Netsor, loads


class Exact:
    """A witness's expression at points of the witness's line."""

    def __init__(self, netsor: Netsor, witness: Witness) -> None:
        self.netsor, self.witness = netsor, witness
        self.first = {name: start for name, (start, _) in netsor.ranges.items()}

    def at(self, t: mp.mpf, rounded: bool = False) -> mp.mpf:
        """The value with the arguments at t; nan where there is no real number; `pole`, whether one was met.

        rounded: far out, where sines take any value between two floats, arguments are floats
        """

        def read(name: str, member: Sequence[int]) -> mp.mpf:
            start, direction = self.witness.ray(name, member)
            return mp.mpf(start + float(t) * direction) if rounded else mp.mpf(start) + t * mp.mpf(direction)

        POLES.clear()
        DENOMINATORS.clear()
        found = exact(self.netsor, self.witness.expr, read, dict(self.first))
        self.pole = bool(POLES)
        return found


def _agree(exact: mp.mpf, value: float, kind: str) -> bool:
    """Whether a value is right; of growth only its size, for far out terms cancel, as in log(exp(-64) + 1)."""
    near = abs(exact - value) <= 1e-6 * (1 + abs(exact))
    return near or (kind == "growth" and abs(value) < 10 * abs(exact) < 100 * abs(value))


def refutes(netsor: Netsor, name: str, witness: Witness) -> bool:
    """Whether the witness's points, evaluated anew, show what it says."""
    f = Exact(netsor, witness)
    t = [mp.mpf(x) for x in witness.at]
    if witness.kind in ("nan", "infinite"):
        first = f.at(t[0])
        if f.pole or mp.isinf(first) or (witness.kind == "nan" and mp.isnan(first)):
            return True
        coarse = list(DENOMINATORS)
        with mp.workdps(120):  # a denominator that is 0 but for rounding is smaller with more digits
            f.at(t[0])
        return any(abs(fine) < 1e-30 * abs(rough) for fine, rough in zip(DENOMINATORS, coarse, strict=True))
    v = [f.at(x, rounded=witness.kind == "growth") for x in t]
    if not all(map(mp.isfinite, v)) or not all(
        _agree(x, y, witness.kind) or math.isinf(y) for x, y in zip(v, witness.values, strict=True)
    ):
        return witness.kind == "jump" and abs(v[1] - v[0]) > 1e-3
    if witness.kind == "jump":
        return 0 < t[1] - t[0] < 1e-10 * (1 + abs(t[0])) and abs(v[1] - v[0]) > 1e-3
    if witness.kind == "slope":
        steps = [x - t[0] for x in t[1:]] + [(t[1] - t[0]) * far for far in (mp.mpf("1e-8"), mp.mpf("1e-12"))]
        steep = [abs(f.at(t[0] + step) - v[0]) / abs(step) for step in steps]
        rates = [
            (b - a) / mp.log(r / s)  # of what is Lipschitz they tend to 0
            for (a, b), (r, s) in zip(itertools.pairwise(steep), itertools.pairwise(steps), strict=True)
        ]
        return name == "pseudo-Lipschitz" and rates[0] > 0 and all(b > 0.8 * a for a, b in itertools.pairwise(rates))
    sizes = [abs(x) for x in v]
    if not all(b > a for a, b in itertools.pairwise(sizes)):
        return False
    if name == "bounded":  # it goes on rising as far beyond the points as numbers reach
        beyond = (abs(f.at(t[-1] * far, rounded=True)) for far in (1000, 100, 10, 2))
        return any(mp.isfinite(size) and size > sizes[-1] + (sizes[-1] - sizes[-2]) / 20 for size in beyond)
    logs = [mp.log(x) for x in sizes]
    rates = [
        (mp.log(b / a) if name == "controlled" else b - a) / mp.log(s / r)
        for (a, b), (r, s) in zip(itertools.pairwise(logs), itertools.pairwise(t), strict=True)
    ]
    return all(rate > 1.9 for rate in rates) if name == "controlled" else rates[0] > 14 and rates[-1] > 1.5 * rates[0]


REFUTED = [
    ("step(g[i])", "pseudo-Lipschitz", "jump"),
    ("where(g[i] > 0.3, 1, 2)", "pseudo-Lipschitz", "jump"),
    ("sign(g[i] - 1/3) * e", "pseudo-Lipschitz", "jump"),
    ("exp(g[i])", "pseudo-Lipschitz", "growth"),
    ("exp(exp(g[i]))", "pseudo-Lipschitz", "growth"),
    ("sum[j](exp(p[i,j]) * v[j])", "pseudo-Lipschitz", "growth"),
    ("sqrt(abs(g[i]))", "pseudo-Lipschitz", "slope"),
    ("abs(g[i] - 2)**0.7", "pseudo-Lipschitz", "slope"),
    ("abs(g[i] - 2)**0.9", "pseudo-Lipschitz", "slope"),
    ("sqrt(relu(g[i]) - relu(0.5 * g[i]))", "pseudo-Lipschitz", "slope"),
    ("1 / g[i]", "pseudo-Lipschitz", "infinite"),
    ("1 / relu(g[i])", "pseudo-Lipschitz", "infinite"),
    ("g[i] / abs(g[i])", "pseudo-Lipschitz", "nan"),
    ("log(g[i])", "controlled", "nan"),
    ("log(abs(g[i]))", "controlled", "infinite"),
    ("sqrt(g[i])", "pseudo-Lipschitz", "nan"),
    ("exp(g[i]**2)", "controlled", "growth"),
    ("exp(exp(g[i]))", "controlled", "growth"),
    ("exp(abs(g[i])**2.5)", "controlled", "growth"),
    ("relu(g[i])", "bounded", "growth"),
    ("log(1 + abs(g[i]))", "bounded", "growth"),
    ("sqrt(1 + abs(g[i]))", "bounded", "growth"),
    ("sum[j](softmax[j](p[i,j]) * v[j])", "bounded", "growth"),
    ("max[j](p[i,j])", "bounded", "growth"),
    ("g[i] - e", "bounded", "growth"),
    ("where(g[i] > 0, p[i,0], 0)", "pseudo-Lipschitz", "jump"),
    ("clip(-2 / g[i], -1, 2)", "pseudo-Lipschitz", "jump"),
    ("exp(0.1 * p[i,0]) * g[i]", "pseudo-Lipschitz", "growth"),
    ("exp(1e-6 * g[i])", "pseudo-Lipschitz", "growth"),
    ("exp(1e-6 * g[i]**2)", "controlled", "growth"),
    ("exp(g[i]) / (1 + g[i]**4)", "bounded", "growth"),
    ("sum[j](clip(p[i,j]**-1, -1, 1)) * clip(g[i]**-1, -1, 1)", "pseudo-Lipschitz", "jump"),
    ("tanh(-2) / sign(g[i])", "bounded", "infinite"),
    ("logsumexp[j](p[i,j] - (p[i,j] - 2)) * g[i]", "bounded", "growth"),
]


@pytest.mark.parametrize(("text", "name", "kind"), REFUTED, ids=[f"{c[0]} {c[1]}" for c in REFUTED])
def test_a_refutation_shows_what_it_says(text: str, name: str, kind: str) -> None:
    calculus, _ = profile(parsed(text))
    fact = calculus.fact(name, LAST)
    witness = calculus.witness(name, LAST)
    assert witness is not None
    assert (fact.verdict, witness.kind) == (FAILS, kind)
    assert fact.witness == str(witness)
    assert refutes(BASE, name, witness), witness


# values that are too large or too small for the computer, though real: no witness may speak of them
FINITE = [
    "(exp(8*g[i]) + g[i]) / (1 + exp(8*g[i]))",
    "exp(-exp(g[i])) / exp(-exp(g[i]))",
    "tanh(exp(exp(g[i])) * e)",
    "g[i] * gaussian(e) * exp(e)",
    "1 / (gaussian(g[i]) + gaussian(2*g[i]))",
]


@pytest.mark.parametrize("text", FINITE)
def test_overflow_is_no_witness(text: str) -> None:
    calculus, _ = profile(parsed(text))
    for name in ("bounded", "pseudo-Lipschitz", "controlled"):
        witness = calculus.witness(name, LAST)
        assert witness is None or (witness.kind not in ("nan", "infinite") and refutes(BASE, name, witness)), witness


# they grow, or are steep, for long, but not for ever
TRANSIENT = [
    ("g[i] * e / (1e14 + g[i]**2 + e**2)", "bounded"),
    ("g[i] * exp(-abs(g[i]) / 1e7)", "bounded"),
    ("g[i] / sqrt(1 + 1e-14 * (g[i]**2 + e**2))", "bounded"),
    ("g[i] * gaussian(1e-30 * e)", "bounded"),
    ("g[i]**32 * gaussian(1e-20 * g[i])", "bounded"),
    ("sigmoid(g[i] - 1000) * e / (1 + abs(e))", "pseudo-Lipschitz"),
    ("1 / (1e-250 + gaussian(g[i]))", "controlled"),
]


# what only rounding makes of them: a jump beside a double zero, a slope that is steep but settles, 0 / 0 where terms
# cancel, growth that is none where exp overflows
ROUNDED = [
    ("where(g[i] / (1 + g[i]**2) < 0.5, g[i], 7)", "pseudo-Lipschitz"),
    ("sign(g[i]**2 - 2*g[i] + 1)", "pseudo-Lipschitz"),
    ("g[i] / (1e-6 + sqrt(g[i]**2)) + sqrt(relu(e + 1) * relu(-e - 2))", "pseudo-Lipschitz"),
    ("sqrt(1e-11 + relu(g[i]) - relu(0.5 * g[i]))", "pseudo-Lipschitz"),
    ("sqrt(1e-13 + abs(g[i]))", "pseudo-Lipschitz"),
    ("sqrt(1e-30 + relu(g[i]) - relu(0.5 * g[i]))", "pseudo-Lipschitz"),
    ("sqrt(1e-10 + abs(g[i] - 2)) - sqrt(1e-10 + relu(g[i] - 2))", "pseudo-Lipschitz"),
    ("(g[i] + 1e16 - g[i]) / (g[i] + 1e16 - g[i] - 1e16 + gaussian(g[i] / 9))", "pseudo-Lipschitz"),
    ("log(exp(g[i]) + exp(0.1)) * (g[i] / (1 + g[i]**2))", "bounded"),
]


@pytest.mark.parametrize(("text", "name"), [*TRANSIENT, *ROUNDED], ids=[c[0] for c in (*TRANSIENT, *ROUNDED)])
def test_neither_growth_that_ends_nor_rounding_is_a_witness(text: str, name: str) -> None:
    calculus, _ = profile(parsed(text))
    witness = calculus.witness(name, LAST)
    assert witness is None or refutes(BASE, name, witness), witness


# bounded, but terms cancel, or the value is 0 / 0 at one point
CANCELLING = [
    "(g[i] + e)**2 - g[i]**2 - 2*g[i]*e - e**2",
    "(tanh(e) + g[i])**3 - g[i]**3 - 3*tanh(e)*g[i]**2 - 3*tanh(e)**2*g[i]",
    "sqrt(g[i]**2 + e**2 + 1) - sqrt(g[i]**2 + e**2)",
    "sin(g[i]) / g[i]",
    "tanh(g[i]) / g[i]",
    "g[i] / abs(g[i])",
]


@pytest.mark.parametrize("text", CANCELLING)
def test_what_is_bounded_is_not_refuted(text: str) -> None:
    fact = profile(parsed(text))[0].fact("bounded", LAST)
    assert fact.verdict is UNKNOWN, fact


def test_growth_that_only_rounded_values_show_is_not_refuted() -> None:
    # it does outgrow every power, but floats hardly know: exp(-64) + 1 is 1
    text = "sum[j](p[i,j]) / clip(log(exp(g[i]) + exp(0.0)), -1, 2)"
    assert profile(parsed(text))[0].fact("pseudo-Lipschitz", LAST).verdict is UNKNOWN


def test_a_root_of_what_rounding_leaves_is_not_refuted() -> None:
    text = "sqrt((g[i] + e)**2 - g[i]**2 - 2*g[i]*e - e**2)"
    assert profile(parsed(text))[0].witness("controlled", LAST) is None


PLACE = re.compile(r"([a-z]\w*(?:\[[\d,]+\])?) = (-?[\d.e+-]*\d)")
SHOWN = [
    "step(g[i] + e - 0.3) * sum[j](v[j])",
    "where(p[i,1] > v[2], e, 0)",
    "step(e * g[i] - 0.1)",
]


@pytest.mark.parametrize("text", SHOWN)
def test_a_jump_is_printed_as_two_points_that_can_be_evaluated(text: str) -> None:
    calculus, _ = profile(parsed(text))
    witness = calculus.witness("pseudo-Lipschitz", LAST)
    assert witness is not None
    first, second = re.fullmatch(r"value \S+ at (.*), but \S+ at (.*)", str(witness)).groups()  # type: ignore[union-attr]
    listed = {str(v).replace("[j]", "[0]").replace("[i", "[0") for v in variables(witness.expr)}
    for k, place in enumerate((first, second)):
        found = {name: float(value) for name, value in PLACE.findall(place)}
        assert listed <= set(found)
        assert len(found) <= 4
        assert len(found) == 4 or "more" not in place
        for name, index in witness.members:
            shown = f"{name}[{','.join(map(str, index))}]" if index else name
            assert found[shown] == witness.argument(name, index, k)


def test_witnesses_name_members_as_they_are_written() -> None:
    text = PROGRAM.replace("  - y[i] = ", "  - a[i] = Nonlin(sum[j](p[i,j]))\n  - y[i] = ")
    netsor = loads(text.replace("Nonlin(g[i])", "Nonlin(step(a[i] * g[i] - 0.1))"))
    shown = Calculus(netsor).fact("pseudo-Lipschitz", LAST + 1).witness
    assert "#" not in shown
    assert "p[0,0] = " in shown
    assert "p[0,2] = " in shown


def check_refutations(expr: Expr) -> None:
    try:
        calculus, _ = profile(expr)
    except ProgramError:
        assume(False)
        raise
    for name in ("bounded", "pseudo-Lipschitz", "controlled"):
        if calculus.fact(name, LAST).verdict is FAILS:
            witness = calculus.witness(name, LAST)
            assert witness is not None
            assert refutes(BASE, name, witness), (str(expr), name, witness)


@settings(max_examples=30)
@given(EXPRESSIONS)
def test_refutations_of_random_expressions_check_out(expr: Expr) -> None:
    check_refutations(expr)


@pytest.mark.slow
@settings(max_examples=120)
@given(EXPRESSIONS)
def test_refutations_of_many_expressions_check_out(expr: Expr) -> None:
    check_refutations(expr)


RECURRENCE = """
program: recurrence
constants: {T: 5}
indices: {t: "1..T"}
initial:
  x[t]: {cov: 1}
weights:
  W: 1
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(step(x[t] + u[t]))
  - r[t] = Nonlin(s[t] + u[t])
  - y    = Nonlin(r[2])
outputs: [y]
"""


def test_recurrences_are_refuted_at_a_member() -> None:
    netsor = loads(RECURRENCE)
    calculus = Calculus(netsor)
    for position in (2, 4):
        witness = calculus.witness("pseudo-Lipschitz", position)
        assert witness is not None
        assert refutes(netsor, "pseudo-Lipschitz", witness), witness
