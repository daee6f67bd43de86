"""No certified range, growth, modulus, parity, monotonicity or smoothness is ever violated: an optimiser hunts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from calculus_expressions import EXPRESSIONS, KINDS, LAST, parsed, profile
from calculus_hunter import violation
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensorprog import ProgramError
from tensorprog.check.certificates import Calculus, Profile, composition, relations
from tensorprog.check.certificates import profile as rules
from tensorprog.language.atoms import ATOMS, Regularity
from tensorprog.language.expr import Expr


def _valid(expr: Expr) -> tuple[Calculus, Profile]:
    try:
        return profile(expr)
    except ProgramError:  # e.g. the root of a negative number
        assume(False)
        raise


@settings(max_examples=15)
@given(EXPRESSIONS)
def test_certified_facts_survive_the_hunt(expr: Expr) -> None:
    _, facts = _valid(expr)
    assert violation(expr, facts) == "", (str(expr), facts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(data=st.data())
def test_certified_facts_of_many_expressions_survive_the_hunt(kind: str, data: st.DataObject) -> None:
    expr = data.draw(KINDS[kind])
    _, facts = _valid(expr)
    assert violation(expr, facts) == "", (str(expr), facts)


@settings(max_examples=15)
@given(EXPRESSIONS)
def test_what_is_certified_has_no_witness_against_it(expr: Expr) -> None:
    calculus, facts = _valid(expr)
    for name, certified in (
        ("bounded", facts.bounded),
        ("pseudo-Lipschitz", facts.pseudo_lipschitz),
        ("controlled", facts.controlled),
    ):
        if certified:
            assert calculus.witness(name, LAST) is None, (str(expr), name, facts)


REALS = ((-math.inf, math.inf),)
CERTIFIED = [  # expression, range, growth, modulus
    ("clip(g[i], -C, C)", (-2, 2), 0, 0),
    ("g[i] / (1 + g[i]**2)", (-1, 1), 0, 0),
    ("g[i]**2 / (1 + g[i]**2)", (0, 1), 0, 0),
    ("g[i]**3 / (1 + g[i]**2)", (-math.inf, math.inf), 1, 0),
    ("g[i]**2 - 2*g[i] + 2", (-math.inf, math.inf), 2, 1),
    ("g[i] / sqrt(1 + g[i]**2)", (-1, 1), 0, 0),
    ("sqrt(1 + g[i]**2)", (1, math.inf), 1, 0),
    ("g[i] * sigmoid(g[i])", (-math.inf, math.inf), 1, 0),
    ("g[i] * (1 + erf(g[i] / sqrt(2))) / 2", (-math.inf, math.inf), 1, 0),
    ("g[i]**2 * tanh(3 * g[i])", (-math.inf, math.inf), 2, 1),
    ("g[i] * exp(-g[i]**2)", (-math.inf, math.inf), 0, 0),
    ("1 / (1 + exp(-g[i]))", (0, 1), 0, 0),
    ("exp(g[i]) / (1 + exp(g[i]))", (0, 1), 0, 0),
    ("log(1 + exp(g[i]))", (0, math.inf), 1, 0),
    ("g[i] * g[i]", (0, math.inf), 2, 1),
    ("sqrt(g[i]**2)", (0, math.inf), 1, 0),
    ("tanh(g[i]) * g[i]", (-math.inf, math.inf), 1, 0),
    ("tanh(g[i]) * e", (-math.inf, math.inf), 1, 1),
    ("sum[j](softmax[j](p[i,j]) * v[j])", (-math.inf, math.inf), 1, 1),
    ("sum[j](softmax[j](p[i,j]))", (0, 3), 0, 0),
    ("max[j](p[i,j])", (-math.inf, math.inf), 1, 0),
    ("sum[j](exp(p[i,j]) * v[j]) / sum[j](exp(p[i,j]))", (-math.inf, math.inf), 1, 1),
    ("where(g[i] > 0, g[i], exp(g[i]) - 1)", (-1, math.inf), 1, 0),
    ("where(i > 0, tanh(g[i]), relu(g[i]))", (-1, math.inf), 1, 0),
    ("exp(min(g[i], C))", (0, math.exp(2)), 0, 0),
    ("g[i] * (i + 1)", (-math.inf, math.inf), 1, 0),
    ("tanh(g[i]) / (2*i - 1)", (-1, 1), 0, 0),
    ("g[i] / (1 + abs(g[i]))", (-math.inf, math.inf), 0, 0),
    ("softplus(g[i]) / (1 + abs(softplus(g[i])))", (0, math.inf), 0, 0),
    ("abs(g[i]) / (2 + abs(g[i]))", (0, math.inf), 0, 0),
    ("sum[j](softmax[j](p[i,j] + where(j <= i, 0, -inf)) * v[j])", (-math.inf, math.inf), 1, 1),
    ("max[j](where(j <= i, p[i,j] / 2, -inf))", (-math.inf, math.inf), 1, 0),
    ("exp(p[i,0]) / sum[j](exp(p[i,j]))", (0, 1), 0, 0),
    ("v[0] / sqrt(1 + sum[j](v[j]**2))", (-1, 1), 0, 0),
    ("v[2] / sqrt(1 + mean[j](v[j]**2))", (-math.sqrt(3), math.sqrt(3)), 0, 0),
    ("g[i] * e / (1 + g[i]**2 + e**2)", (-1, 1), 0, 0),
    ("g[i]**2 * e / (1 + 4*g[i]**2 + e**2)", (-math.inf, math.inf), 1, 0),
    ("g[i] * e / (1 + g[i]**2 + e**2)**1.5", (-1, 1), 0, 0),
    ("e * v[1] / sqrt(0.1 + sum[j](v[j]**2))", (-math.inf, math.inf), 1, 1),
    ("sqrt(1 + g[i]**2 + e**2)", (1, math.inf), 1, 0),
    ("min(exp(g[i]), 1)", (0, 1), 0, 0),
    ("tanh(exp(g[i]))", (0, 1), 0, 0),
    ("1 / (1 + exp(g[i]) + exp(e))", (0, 1), 0, 0),
    ("log(1 + mean[j](exp(p[i,j])))", (0, math.inf), 1, 0),
    ("exp(-g[i]**2) * exp(g[i])", (0, math.inf), 0, 0),
    ("g[i] * gaussian(e) * exp(e)", (-math.inf, math.inf), 1, 1),
    ("where(g[i] < e, g[i], e)", (-math.inf, math.inf), 1, 0),
    ("where(g[i] < e, tanh(g[i]), tanh(e))", (-1, 1), 0, 0),
    ("log(exp(g[i]) + exp(e))", (-math.inf, math.inf), 1, 0),
    ("log(2 * exp(g[i]) + sum[j](exp(p[i,j])) + 1)", (0, math.inf), 1, 0),
    ("1 / (1 + g[i]**12)**6", (0, 1), 0, 0),
    ("log(0.1 + 0.1*exp(g[i]))", (math.log(0.1), math.inf), 1, 0),
    ("log(0.1*exp(-g[i]) + 0.1*exp(e))", (-math.inf, math.inf), 1, 0),
    ("(g[i] * e)**2", (0, math.inf), 4, 3),
    ("1 / (2 + sin(g[i]**2))", (1 / 3, 1), 0, 1),
    ("sqrt(4 * clip(g[i], -1, 1)**2)", (0, 2), 0, 0),
    ("exp(p[i,0]) / mean[j](exp(p[i,j]))", (0, 3), 0, 0),
    ("logsumexp[j](tanh(p[i,j]))", (-1, 1 + math.log(3)), 0, 0),
    ("log(mean[j](exp(tanh(p[i,j]))))", (-1, 1), 0, 0),
    ("v[0] - (2 - v[0])", (-math.inf, math.inf), 1, 0),
    ("v[0] - (max[j](v[j]) + d[i])", (-math.inf, -1), 1, 0),
    ("v[0] - mean[j](v[j])", (-math.inf, math.inf), 1, 0),
    ("tanh(g[i]) / (tanh(g[i]) + 1.5)", (-2, 2), 0, 0),
    ("where(abs(g[i]) < 1, g[i], 0.5)", (-1, 1), 0, math.inf),
    ("sum[j](where(j <= i, exp(p[i,j]) * v[j], 0)) / sum[l](where(l <= i, exp(p[i,l]), 0))", *REALS, 1, 1),
    ("sum[j](where(j < 2, 1, 0) * exp(p[i,j]) * v[j]) / sum[l](where(l < 2, 1, 0) * exp(p[i,l]))", *REALS, 1, 1),
    ("sum[j](where(j < 2, exp(p[i,j] - logsumexp[l](where(l < 2, p[i,l], -inf))) * v[j], 0))", *REALS, 1, 1),
]


@pytest.mark.turns(6)
@pytest.mark.parametrize(("text", "interval", "growth", "modulus"), CERTIFIED, ids=[c[0] for c in CERTIFIED])
def test_relations_are_seen(text: str, interval: tuple[float, float], growth: float, modulus: float) -> None:
    expr = parsed(text)
    _, facts = profile(expr)
    assert facts.interval == pytest.approx(interval, abs=1e-7)
    assert (facts.growth, facts.modulus) == (growth, modulus)
    assert facts.partial is None
    assert violation(expr, facts) == ""


REFUTED = [
    ("step(g[i])", "pseudo-Lipschitz"),
    ("exp(g[i])", "pseudo-Lipschitz"),
    ("sqrt(abs(g[i]))", "pseudo-Lipschitz"),
    ("1 / g[i]", "pseudo-Lipschitz"),
    ("log(g[i])", "pseudo-Lipschitz"),
    ("where(g[i] > 0.3, 1, 2)", "pseudo-Lipschitz"),
    ("exp(g[i]**2)", "controlled"),
    ("exp(abs(g[i])**2.5)", "controlled"),
    ("relu(g[i])", "bounded"),
    ("g[i]**2", "bounded"),
    ("softplus(g[i])", "bounded"),
    ("sqrt(1 + abs(g[i]))", "bounded"),
]


@pytest.mark.parametrize(("text", "name"), REFUTED, ids=[c[0] for c in REFUTED])
def test_refutations_have_witnesses(text: str, name: str) -> None:
    calculus, _ = profile(parsed(text))
    fact = calculus.fact(name, LAST)
    assert fact.verdict.value == "fails"
    assert fact.witness


UNDECIDED = [
    ("g[i] - g[i] * e / e", "pseudo-Lipschitz"),
    ("exp(exp(g[i])) / (1 + exp(exp(g[i])) + e**2)", "pseudo-Lipschitz"),  # bounded, with slopes like exp(g[i])
    ("where(abs(g[i]) < 1, g[i] + 1, 2 * abs(g[i]))", "pseudo-Lipschitz"),  # glued at 1, not at -1
    ("where(g[i] < 1, g[i], 1.05)", "pseudo-Lipschitz"),
    ("tanh(mean[j](c[j] * exp(p[i,j])))", "pseudo-Lipschitz"),
    ("sign(g[i]) * (1 + g[i]**2)", "pseudo-Lipschitz"),
    ("sqrt(abs(g[i])) / (1 + abs(g[i]))", "pseudo-Lipschitz"),
    ("log(elu(g[i], 2) + 1)", "pseudo-Lipschitz"),
    ("1 / (1 - exp(g[i]))", "pseudo-Lipschitz"),
    ("abs(g[i]) / (abs(g[i]) + abs(e))", "pseudo-Lipschitz"),
    ("relu(g[i]) / max(clip(e, -5, 0) + relu(g[i]), 1)", "bounded"),  # by 6, and not by 1
    ("exp(g[i])**2 / (1 + exp(g[i]))", "pseudo-Lipschitz"),
    ("sqrt(1 + mean[j](v[j]**2) - mean[j](p[i,j])**2)", "pseudo-Lipschitz"),
    ("tanh(sum[j](c[j] * exp(p[i,j])))", "pseudo-Lipschitz"),  # terms cancel, slopes do not
    # at i = 0 nothing is left of the sum
    ("sum[j](where(j < i, exp(p[i,j]), 0) * v[j]) / sum[j](where(j < i, exp(p[i,j]), 0))", "pseudo-Lipschitz"),
    ("log(where(i < 1, 0, exp(g[i])))", "pseudo-Lipschitz"),
    ("g[i] / where(i < 1, 0, exp(g[i]))", "pseudo-Lipschitz"),
    ("log(sum[j](exp(p[i,j]) * where(j < i, 1, 0)))", "pseudo-Lipschitz"),
    ("log(sum[j](where(j < i, 2, 0) * exp(p[i,j])))", "pseudo-Lipschitz"),
    ("log(where(i < 1, 0, exp(g[i])) + where(i < 1, 0, exp(e)))", "controlled"),
    ("abs(v[0]) * log(g[i]) / (1 + abs(v[0]) + abs(e))", "controlled"),
    ("sign(g[i]) * sign(e) * g[i]", "pseudo-Lipschitz"),
    ("1 / sqrt(mean[j](v[j]**2) + e**2 - mean[l](v[l])**2)", "pseudo-Lipschitz"),
    ("e / sqrt(d[i] - 1 + g[i]**2 + e**2)", "pseudo-Lipschitz"),
    ("sum[j](1 / (1 + tanh(where(j <= i, abs(p[i,j]), -inf))))", "controlled"),
    # more is left of one sum than of the other
    ("sum[j](exp(p[i,j]) * v[j]) / sum[l](where(l < 2, 1, 0) * exp(p[i,l]))", "pseudo-Lipschitz"),
    ("sum[j](where(j < 2, exp(p[i,j] - logsumexp[l](where(l < 1, p[i,l], -inf))), 0))", "pseudo-Lipschitz"),
    ("v[0] / sqrt(mean[j](v[j]**2) - mean[l](p[i,l])**2 + 0.1)", "pseudo-Lipschitz"),
    # softmax reads all members, of which one has the sign, or the value
    ("sum[j](sign(p[i,j]) * (softmax[j](p[i,j]) - 1/3))", "pseudo-Lipschitz"),
    ("sum[j](where(p[i,j] > 0, softmax[j](p[i,j]), 1/3))", "pseudo-Lipschitz"),
    ("sum[j](where(p[i,j] > 1, softmax[j](log(p[i,j])), 1/3) * v[j])", "controlled"),
    ("sum[j](v[j] / (1 / 3 + abs(v[j]) - softmax[j](abs(v[j]))))", "pseudo-Lipschitz"),
    # masks are -inf, where nothing is known of what they leave out
    ("sum[j](abs(where(j <= i, sigmoid(p[i,j]), -inf)))", "pseudo-Lipschitz"),
    ("sum[j](1 / relu(where(j <= i, 1 + sigmoid(p[i,j]), -inf)))", "pseudo-Lipschitz"),
    ("sum[j](1 / max(where(j <= i, 1 + sigmoid(p[i,j]), -inf), 0))", "pseudo-Lipschitz"),
    ("sum[j](max(where(j <= i, p[i,j], -inf), where(j <= i, v[j], -inf)))", "pseudo-Lipschitz"),
]


@pytest.mark.turns(6)
@pytest.mark.parametrize(("text", "name"), UNDECIDED, ids=[c[0] for c in UNDECIDED])
def test_what_the_rules_do_not_decide_is_not_claimed(text: str, name: str) -> None:
    calculus, _ = profile(parsed(text))
    assert calculus.fact(name, LAST).verdict.value in ("unknown", "fails")


SHAPES = [  # expression, monotone, kinks
    ("g[i] + tanh(e)", 1, {}),
    ("tanh(g[i]) - e", 0, {}),
    ("-relu(g[i]) - sum[j](p[i,j])", -1, {"g[i]": (0,)}),
    ("relu(tanh(g[i]))", 1, {"tanh(g[i])": (0,)}),
    ("clip(2*g[i] + 1, -1, C)", 1, {"2 * g[i] + 1": (-1, 2)}),
    ("relu(g[i]) * sigmoid(e)", 1, {"g[i]": (0,)}),
    ("relu(g[i]) * tanh(e)", 0, {"g[i]": (0,)}),
    ("relu(g[i])**2 / (1 + exp(-e))", 1, {"g[i]": (0,)}),
    ("1 / (1 + exp(g[i]))", -1, {}),
    ("abs(sigmoid(g[i]) + 1)", 1, {}),
    ("where(g[i] > 0, g[i], exp(g[i]) - 1)", 1, {"g[i]": (0,)}),
    ("where(i > 0, tanh(g[i]), relu(g[i]))", 1, {"g[i]": (0,)}),
    ("min(g[i], e)", 1, {"g[i] - e": (0,)}),
    ("min(sigmoid(g[i]), 3)", 1, {}),
    ("max[j](p[i,j])", 1, None),
    ("logsumexp[j](p[i,j])", 1, {}),
    ("sum[j](softmax[j](p[i,j]) * v[j])", 0, {}),
    ("leaky_relu(g[i], 0.1)", 1, {"g[i]": (0,)}),
    ("leaky_relu(g[i], -0.1)", 0, {"g[i]": (0,)}),
    ("leaky_relu(-relu(g[i]), 0.1)", -1, {"g[i]": (0,), "-relu(g[i])": (0,)}),
    ("g[i]**3", 1, {}),
    ("where(g[i] < 0.5, g[i], g[i] - 3)", 0, {"g[i]": (0.5,)}),
    ("log(sigmoid(g[i]))", 1, {}),
    ("1 / (3 + abs(clip(g[i], -2, 2)))", 0, {"g[i]": (-2, 2), "clip(g[i], -2, 2)": (0,)}),
    ("1 / (tanh(g[i]) - 2)**2", 1, {}),
    ("g[i]**2", 0, {}),
    ("m * g[i]", 1, {}),
    ("3", 1, {}),
    ("log(0.1 + 0.1*exp(g[i]))", 1, {}),
    ("log(0.1 + 0.1*exp(-g[i]))", -1, {}),
    ("1 / (2 + tanh(g[i]))", -1, {}),
    ("1 / (tanh(g[i]) - 2)", -1, {}),
    ("1 / (1 + relu(g[i]))", -1, {"g[i]": (0,)}),
    ("1 / g[i]", 0, {"g[i]": (0,)}),  # falls on either side of 0, but not from one to the other
    ("-1 / g[i]**3", 0, {"g[i]**3": (0,)}),
    ("g[i]**-1", 0, {"g[i]": (0,)}),
    ("tanh(1 / g[i])", 0, {"g[i]": (0,)}),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("text", "monotone", "kinks"), SHAPES, ids=[c[0] for c in SHAPES])
def test_shapes_are_seen(text: str, monotone: int, kinks: dict[str, tuple[float, ...]] | None) -> None:
    expr = parsed(text)
    _, facts = profile(expr)
    found = None if facts.kinks is None else {str(inner): thresholds for inner, thresholds in facts.kinks}
    assert (facts.monotone, found) == (monotone, kinks)
    assert violation(expr, facts) == ""


# -- mistakes on purpose: the hunter finds each of them ----------------------------------------------------------------


def _atom(name: str, **changes: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(ATOMS, name, replace(ATOMS[name], **changes))


def _rule(module: object, name: str, change: Callable[..., object]) -> Callable[[pytest.MonkeyPatch], None]:
    """A rule whose result is changed: change(result, *arguments)."""
    right = getattr(module, name)
    return lambda patch: patch.setattr(module, name, lambda *args: change(right(*args), *args))


def _without(field: str, value: object) -> Callable[..., object]:
    return lambda found, *_: None if found is None else rules.tidy(replace(found, **{field: value}))


MISTAKES = {
    "the modulus of a product is that of its first factor": (
        "g[i] * e",
        _rule(composition, "product", lambda found, a, b: replace(found, modulus=a.modulus)),
    ),
    "growth of a product is that of its larger factor": (
        "g[i] * relu(e)",
        _rule(composition, "product", lambda found, a, b: replace(found, growth=max(a.growth, b.growth))),
    ),
    "the modulus of a composition leaves the outer one out": (
        "(g[i] + e)**3",
        _rule(composition, "compose", lambda found, outer, inner, bound: replace(found, modulus=inner[0].modulus)),
    ),
    "the range of softplus starts at 0.1": ("softplus(g[i])", _atom("softplus", bounds=lambda: (0.1, math.inf))),
    "silu is bounded": ("silu(g[i])", _atom("silu", regularity=Regularity(0, 0, 1.1))),
    "x * sigmoid(x) is bounded": (
        "e * sigmoid(e)",
        _rule(relations, "behaviour", lambda found, *_: replace(found, growth=0.0)),
    ),
    "sqrt has a bounded slope": ("sqrt(abs(g[i]))", _atom("sqrt", local=lambda interval: Regularity(0.5, 0, 1.0))),
    "sin is even": ("sin(g[i])", _atom("sin", parity=1)),
    "a sum of odd and even is odd": ("g[i] + cos(g[i])", _rule(composition, "sum_parity", lambda *_: -1)),
    "a product has the parity of its first factor": (
        "g[i] * tanh(e)",
        _rule(composition, "product", lambda found, a, b: replace(found, parity=a.parity)),
    ),
    "gelu is increasing": ("gelu(g[i])", _atom("gelu", monotone=1)),
    "a product of increasing functions increases": (
        "tanh(g[i]) * e",
        _rule(rules, "product_trend", lambda _, a, b: (a.rises and b.rises, False)),
    ),
    "the log of a sum of exponentials is bounded": (
        "log(0.1 + 0.1*exp(g[i]))",
        _rule(relations, "value", _without("growth", 0.0)),
    ),
    "the log of a sum of exponentials is positive": (
        "log(0.1 + 0.1*exp(g[i]))",
        _rule(relations, "value", _without("low", 0.0)),
    ),
    "1/x falls across its pole": (
        "1 / g[i]",
        lambda patch: patch.setitem(
            composition.RULES, "divide", lambda *args: replace(composition.Composition._divide(*args), falls=True)
        ),
    ),
    "a power of -1 falls across its pole": (
        "g[i]**-1",
        lambda patch: patch.setitem(rules.LOCAL, "power", lambda interval, exponent: (False, True)),
    ),
    "1/x of a positive function moves as the function does": (
        "1 / (1 + relu(g[i]))",
        _rule(composition, "product", lambda found, *_: replace(found, rises=found.falls)),
    ),
    "abs increases everywhere": (
        "abs(g[i]) + e",
        lambda patch: patch.setitem(rules.LOCAL, "abs", lambda interval: (True, False)),
    ),
    "relu is smooth": ("relu(g[i] - 1)", _atom("relu", kinks=lambda: ())),
    "min has no kinks": ("min(g[i], e)", _rule(rules, "crossing", lambda *_: ())),
    "both branches of where always agree": (
        "where(g[i] < 0.5, tanh(g[i]), e)",
        lambda patch: patch.setattr(composition.Composition, "_glued", lambda *_: True),
    ),
    "joining branches forgets the second": (
        "where(i < 1, e, 0) + where(i < 1, g[i], 2)",
        _rule(composition, "join", lambda _, a, b: b),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_hunter_finds_seeded_mistakes(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, seed = MISTAKES[mistake]
    expr = parsed(text)
    assert violation(expr, profile(expr)[1]) == ""
    seed(monkeypatch)
    facts = profile(expr)[1]
    assert violation(expr, facts) != "", facts
