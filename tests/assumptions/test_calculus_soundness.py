"""No certified range, growth or modulus is ever violated: random expressions against an attack by sampling."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tensorprog.arrays import BATCH, Open
from tensorprog.calculus import Calculus, Profile
from tensorprog.errors import ProgramError
from tensorprog.evaluate import Scope, evaluate
from tensorprog.expr import Affine, Call, Expr, Number, Reduction, Variable
from tensorprog.ir import Nonlin
from tensorprog.parse import Names, parse_expression
from tensorprog.yaml_io import loads

PROGRAM = """
program: random
constants: {{C: 2}}
indices: {{i: 2, j: 3}}
initial:
  e: {{mean: 0, cov: 1}}
weights:
  W[i]: 1
  V[j]: 1
body:
  - g[i] = MatMul(W[i], e)
  - v[j] = MatMul(V[j], e)
  - p[i,j] = Dot(g[i], v[j])
  - y[i] = Nonlin({})
outputs: [y]
"""
BASE = loads(PROGRAM.format("g[i]"))
G, E = Variable("g", (Affine((("i", 1),)),)), Variable("e")
P = Variable("p", (Affine((("i", 1),)), Affine((("j", 1),))))
V = Variable("v", (Affine((("j", 1),)),))
SMOOTH = [
    "tanh",
    "sigmoid",
    "erf",
    "gelu",
    "silu",
    "softplus",
    "selu",
    "sin",
    "cos",
    "exp",
    "gaussian",
    "abs",
    "relu",
    "sign",
    "step",
    "sqrt",
    "log",
    "negative",
]
NUMBERS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.0, 3.0]).map(Number)


def _extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def pair(name: str) -> st.SearchStrategy[Expr]:
        return st.tuples(inner, inner).map(lambda args: Call(name, args))

    return st.one_of(
        st.tuples(st.sampled_from(SMOOTH), inner).map(lambda t: Call(t[0], (t[1],))),
        *(pair(name) for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum")),
        st.tuples(inner, st.sampled_from([2, 3, -1, 0.5, 1.5])).map(lambda t: Call("power", (t[0], Number(t[1])))),
        inner.map(lambda x: Call("clip", (x, Number(-1.0), Number(2.0)))),
        inner.map(lambda x: Call("leaky_relu", (x, Number(0.1)))),
        st.tuples(inner, NUMBERS, inner, inner).map(lambda t: Call("where", (Call("less", (t[0], t[1])), t[2], t[3]))),
        # forms with a relation between the parts
        inner.map(lambda x: Call("divide", (x, Call("add", (Number(1), Call("power", (x, Number(2)))))))),
        inner.map(lambda x: Call("multiply", (x, Call("sigmoid", (x,))))),
        inner.map(
            lambda x: Call("divide", (Number(1), Call("add", (Number(1), Call("exp", (Call("negative", (x,)),))))))
        ),
    )


def expressions(leaves: list[Expr], size: int) -> st.SearchStrategy[Expr]:
    return st.recursive(st.one_of(st.sampled_from(leaves), NUMBERS), _extend, max_leaves=size)


def _reduced(t: tuple[str, Expr, Expr]) -> Expr:
    name, weight, value = t
    if name == "softmax":
        return Reduction("sum", ("j",), Call("multiply", (Reduction("softmax", ("j",), weight), value)))
    return Reduction(name, ("j",), Call("multiply", (weight, value)))


REDUCED = st.tuples(
    st.sampled_from(["sum", "mean", "max", "logsumexp", "softmax"]), expressions([P, V], 3), expressions([P, V, G], 3)
).map(_reduced)
EXPRESSIONS = st.one_of(
    expressions([G], 6),
    expressions([G, E], 6),
    st.builds(
        lambda a, b, name: Call(name, (a, b)),
        REDUCED,
        expressions([G, E], 3),
        st.sampled_from(["add", "multiply", "divide"]),
    ),
    REDUCED.map(lambda r: Call("tanh", (r,))),
)


def values(expr: Expr, at: np.ndarray) -> np.ndarray:
    """Values at points of R^10: g[0], e, p[0,0..2], v[0..2]."""

    def variable(reference: Variable, _: object) -> Open:
        if reference.name == "g":
            return Open((BATCH, "i"), at[:, :1])
        if reference.name == "e":
            return Open((BATCH,), at[:, 1])
        if reference.name == "p":
            return Open((BATCH, "i", "j"), at[:, None, 2:5])
        return Open((BATCH, "j"), at[:, 5:8])

    result = evaluate(expr, Scope(BASE, BASE.ranges | {"i": (0, 1)}, variable))
    data = np.asarray(result.data, dtype=float)
    return np.broadcast_to(data.reshape(data.shape[0] if BATCH in result.axes else 1, -1)[:, 0], at.shape[:1])


@functools.lru_cache
def clouds() -> dict[float, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for radius in (0.0, 1e-3, 1.0, 5.0, 1e2, 1e3, 1e6):
        directions = rng.normal(size=(150, 8))
        directions[:60] *= rng.integers(0, 2, size=(60, 8))  # faces, where some arguments are 0
        directions[60:90] = np.sign(directions[60:90])
        found[radius] = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-9) * radius
    return found


def profile(expr: Expr) -> tuple[Calculus, Profile]:
    body = (*BASE.body[:3], Nonlin(Variable("y", G.slots), expr))
    netsor = type(BASE)(BASE.name, BASE.constants, BASE.indices, BASE.initial, BASE.weights, body, ("y",))
    calculus = Calculus(netsor)
    return calculus, calculus.statement(3)


def _valid(expr: Expr) -> tuple[Calculus, Profile]:
    try:
        return profile(expr)
    except ProgramError:  # e.g. the root of a negative number
        assume(False)
        raise


def violation(expr: Expr, f: Profile) -> str:
    """What sampling finds against the certified facts; '' for nothing."""
    ratios: dict[float, float] = {}
    slopes: dict[float, float] = {}
    rng = np.random.default_rng(1)
    for radius, x in clouds().items():
        v = values(expr, x)
        if f.partial is None and np.isnan(v).any() and radius <= 5:
            return f"not a number at radius {radius}"
        good = np.isfinite(v)
        slack = 1e-9 * (1 + np.abs(v[good]))
        if f.partial is None and ((v[good] < f.low - slack) | (v[good] > f.high + slack)).any():
            return f"range: {v[good].min()}, {v[good].max()} at radius {radius}"
        if f.partial is None and f.growth < math.inf and f.growth * math.log10(radius + 1) < 200:
            if radius <= 5 and not good.all():
                return f"growth: infinite at radius {radius}"
            if good.any():
                ratios[radius] = np.abs(v[good]).max() / (1 + radius**f.growth)
        if f.pseudo_lipschitz and f.modulus * math.log10(radius + 1) < 200 and radius <= 1e3:
            for h in (1e-2, 1e-4, 1e-6):
                step = rng.normal(size=x.shape) * h
                w = values(expr, x + step)
                change = np.abs(w - v) - 1e-11 * (np.abs(v) + np.abs(w)) * (1 + radius)
                slope = np.nanmax(change / np.linalg.norm(step, axis=1)) / (1 + radius**f.modulus)
                slopes[radius] = max(slopes.get(radius, 0.0), float(slope))
                if radius <= 5 and h == 1e-6 and slope > 1e4 and slope > 1e3 * slopes[radius] / 2 + 1e4:
                    return f"jump: slope {slope} at radius {radius}"
    inner = max((r for radius, r in ratios.items() if radius <= 1e3), default=0.0)
    if ratios.get(1e6, 0.0) > 20 * inner + 1e-6:
        return f"growth: {ratios}"
    inner = max((r for radius, r in slopes.items() if radius <= 1e2), default=0.0)
    if slopes.get(1e3, 0.0) > 20 * inner + 1e-3:
        return f"modulus: {slopes}"
    return ""


@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(EXPRESSIONS)
def test_certified_facts_survive_sampling(expr: Expr) -> None:
    _, facts = _valid(expr)
    with np.errstate(all="ignore"):
        assert violation(expr, facts) == "", (str(expr), facts)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(EXPRESSIONS)
def test_what_is_certified_has_no_witness_against_it(expr: Expr) -> None:
    calculus, facts = _valid(expr)
    for name, certified in (
        ("bounded", facts.bounded),
        ("pseudo-Lipschitz", facts.pseudo_lipschitz),
        ("controlled", facts.controlled),
    ):
        if certified:
            assert calculus.witness(name, 3) is None, (str(expr), name, facts)


NAMES = Names({"C": 2}, frozenset({"i", "j"}))
CERTIFIED = [  # expression, range, growth, modulus
    ("clip(g[i], -C, C)", (-2, 2), 0, 0),
    ("g[i] / (1 + g[i]**2)", (-0.5, 0.5), 0, 0),
    ("g[i]**2 / (1 + g[i]**2)", (0, 1), 0, 0),
    ("g[i]**3 / (1 + g[i]**2)", (-math.inf, math.inf), 1, 0),
    ("g[i]**2 - 2*g[i] + 2", (1, math.inf), 2, 1),
    ("1 / (g[i]**2 - 2*g[i] + 2)", (0, 1), 0, 0),
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
]


@pytest.mark.parametrize(("text", "interval", "growth", "modulus"), CERTIFIED, ids=[c[0] for c in CERTIFIED])
def test_relations_are_seen(text: str, interval: tuple[float, float], growth: float, modulus: float) -> None:
    expr = parse_expression(text, NAMES)
    _, facts = profile(expr)
    np.testing.assert_allclose(facts.interval, interval, atol=1e-7)
    assert (facts.growth, facts.modulus) == (growth, modulus)
    assert facts.partial is None
    with np.errstate(all="ignore"):
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
    calculus, _ = profile(parse_expression(text, NAMES))
    fact = calculus.fact(name, 3)
    assert fact.verdict.value == "fails"
    assert fact.witness


UNDECIDED = [("g[i] * gaussian(e) * exp(e)", "pseudo-Lipschitz"), ("g[i] - g[i] * e / e", "pseudo-Lipschitz")]


@pytest.mark.parametrize(("text", "name"), UNDECIDED, ids=[c[0] for c in UNDECIDED])
def test_what_the_rules_do_not_decide_is_not_claimed(text: str, name: str) -> None:
    calculus, _ = profile(parse_expression(text, NAMES))
    assert calculus.fact(name, 3).verdict.value in ("unknown", "fails")
