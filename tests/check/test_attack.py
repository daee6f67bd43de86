"""The search that attacks declarations: true facts pass, facts that are off by a step are refused with a witness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.special

from tensorprog.check.falsifier.claims import attack
from tensorprog.language.atoms import ATOMS, Atom
from tensorprog.language.atoms.declared import Declaration, DeclaredFunction

INF = math.inf
CHOSEN = {"clip": (-1.0, 2.0), "leaky_relu": (0.1,), "elu": (1.5,), "power": (3,)}
SHIPPED = [
    atom for atom in ATOMS.values() if atom.arity == 1 and atom.domain == (-INF, INF) and atom.name != "negative"
]


def finite(value: float) -> float | None:
    return value if value < INF else None


def facts(atom: Atom) -> Declaration:
    """A shipped atom as a function of an author who knows it well."""
    params = CHOSEN.get(atom.name, ())
    regularity = atom.regularity_on((-INF, INF), *params)
    derivative, monotone = atom.derivative, atom.monotone
    slope: Callable[[Any], Any] | None = None
    if derivative is not None:
        slope = lambda x: derivative(x, *params) * np.ones_like(x)  # noqa: E731
    return Declaration(
        name=f"my_{atom.name}",
        fn=lambda x: np.asarray(atom.numpy(x, *params), dtype=float),
        range=atom.bounds(*params) if atom.bounds else None,
        growth=finite(regularity.growth),
        modulus=finite(regularity.modulus),
        lipschitz=finite(regularity.lipschitz),
        derivative=slope,
        kinks=atom.kinks(*params) if atom.kinks else None,
        monotone=monotone,
        parity=atom.parity,
    )


DECLARED = [facts(atom) for atom in SHIPPED]
each = pytest.mark.parametrize("known", DECLARED, ids=[d.name for d in DECLARED])


def problems(declaration: Declaration) -> list[str]:
    """What the attack says against a declaration."""
    claims = declaration if declaration.lipschitz is None else replace(declaration, modulus=0)
    return [str(problem) for problem in attack(claims, DeclaredFunction(declaration.fn)).problems]


def refused(declaration: Declaration, word: str) -> None:
    found = problems(declaration)
    assert any(word in text for text in found), (word, found)
    assert all("try" in text for text in found)


@pytest.mark.turns(4)
@each
def test_true_facts_pass(known: Declaration) -> None:
    assert problems(known) == []


@pytest.mark.turns(8)
@each
def test_a_narrower_range_is_refused(known: Declaration) -> None:
    if known.range is None:
        return
    low, high = known.range
    x = np.linspace(-50, 50, 100_001)
    least, most = known.fn(x).min(), known.fn(x).max()
    step = 0.01 * (min(most, 1.0) - max(least, -1.0))
    if low > -INF:
        refused(replace(known, range=(least + step, high)), "does not stay above")
    if high < INF:
        refused(replace(known, range=(low, most - step)), "does not stay below")
    else:
        refused(replace(known, range=(low, 1e4), growth=None, modulus=None, lipschitz=None), "does not stay below")


@pytest.mark.turns(8)
@each
def test_less_growth_is_refused(known: Declaration) -> None:
    if not known.growth:
        return
    for growth in (known.growth - 0.5, known.growth - 1):
        refused(replace(known, growth=growth), "outgrows")
    right = replace(known, growth=known.growth + 1)
    assert problems(right) == []


@pytest.mark.turns(3)
@each
def test_less_modulus_is_refused(known: Declaration) -> None:
    if known.modulus:
        for modulus in (known.modulus - 0.5, known.modulus - 1):
            refused(replace(known, modulus=modulus), "outgrows")
    if known.modulus is None:
        refused(replace(known, modulus=3.0), "jumps" if known.name in ("my_step", "my_sign") else "outgrows")


@pytest.mark.turns(4)
@each
def test_a_smaller_lipschitz_constant_is_refused(known: Declaration) -> None:
    if known.lipschitz is not None:
        x = np.linspace(-6, 6, 120_001)
        best = float(np.abs(np.diff(known.fn(x)) / np.diff(x)).max())
        refused(replace(known, lipschitz=0.99 * best), "not Lipschitz")


@pytest.mark.turns(10)
@each
def test_wrong_symmetry_is_refused(known: Declaration) -> None:
    atom = ATOMS[known.name.removeprefix("my_")]
    for parity in {-1, 1} - {known.parity, -1 if atom.name == "power" else 0}:  # some are symmetric by their parameters
        refused(replace(known, parity=parity), "is not even" if parity > 0 else "is not odd")
    for monotone in {-1, 1} - {known.monotone, 1 if atom.params else 0}:
        refused(replace(known, monotone=monotone), "is not increasing" if monotone > 0 else "is not decreasing")


@pytest.mark.turns(4)
@each
def test_a_derivative_that_is_off_by_a_hundredth_somewhere_is_refused(known: Declaration) -> None:
    right = known.derivative
    if right is None:
        return
    steep = max((0.55, -0.75), key=lambda at: abs(float(right(np.array([at]))[0])))
    if not right(np.array([steep]))[0]:
        return

    def wrong(x: Any) -> Any:
        return np.where(np.abs(x - steep) < 0.02, 1.01, 1.0) * right(x)

    refused(replace(known, derivative=wrong), "derivative")


@pytest.mark.turns(3)
@each
def test_a_kink_left_out_is_refused(known: Declaration) -> None:
    if known.kinks and known.name != "my_power":
        for k in range(len(known.kinks)):
            refused(replace(known, kinks=known.kinks[:k] + known.kinks[k + 1 :]), "kink")


def _hat(x: Any) -> Any:
    return np.where(np.abs(x) < 1.3, x * x / 2, 1.3 * (np.abs(x) - 0.65))


def _spoils_long(x: Any) -> Any:
    value = np.tanh(x)
    if x.size > 1000:
        x[:] = 0
    return value


def _raises_far(x: Any) -> Any:
    if np.abs(x).max() > 1e200:
        raise ValueError("too large")
    return np.tanh(x)


KNOTS = np.arange(-8.0, 9.0)


TRUE: list[Declaration] = [
    Declaration("j0", scipy.special.j0, (-0.403, 1), lipschitz=0.582, kinks=(), parity=1),
    Declaration("sine_integral", lambda x: scipy.special.sici(x)[0], (-1.852, 1.852), lipschitz=1, kinks=(), parity=-1),
    Declaration("dawsn", scipy.special.dawsn, (-0.5411, 0.5411), lipschitz=1, kinks=(), parity=-1),
    Declaration(
        "fast_wave",
        lambda x: np.sin(1e3 * x),
        (-1, 1),
        lipschitz=1e3,
        kinks=(),
        derivative=lambda x: 1e3 * np.cos(1e3 * x),
    ),
    Declaration("faster_wave", lambda x: np.sin(2e4 * x), (-1, 1), kinks=()),
    Declaration(
        "smoothstep",
        lambda x: np.clip(x, 0, 1) ** 2 * (3 - 2 * np.clip(x, 0, 1)),
        (0, 1),
        lipschitz=1.5,
        kinks=(0, 1),
        monotone=1,
    ),
    Declaration(
        "smootherstep",
        lambda x: np.clip(x, 0, 1) ** 3 * (np.clip(x, 0, 1) * (6 * np.clip(x, 0, 1) - 15) + 10),
        (0, 1),
        lipschitz=1.875,
        kinks=(),
        monotone=1,
    ),
    Declaration("nearly_squared_relu", lambda x: x * x * scipy.special.expit(1e4 * x), modulus=1, kinks=()),
    Declaration(
        "spline", lambda x: scipy.interpolate.CubicSpline(KNOTS, np.tanh(KNOTS))(np.clip(x, -8, 8)), kinks=(-8, 8)
    ),
    Declaration("log_gamma", lambda x: scipy.special.gammaln(1 + np.abs(x)), growth=1.5, modulus=0.5, parity=1),
    Declaration("steep_power", lambda x: x**20, growth=20, modulus=19, parity=1, kinks=()),
    Declaration("one_dimension", lambda x: np.tanh(np.convolve(x, [1.0])), (-1, 1)),
    Declaration("softplus_overflows", lambda x: np.log(1 + np.exp(x)), (0, INF), 1, lipschitz=1, monotone=1, kinks=()),
    Declaration("softplus_lowered", lambda x: np.log1p(np.exp(x)) - 20, growth=1, modulus=0, kinks=()),
    Declaration("softplus_moved", lambda x: np.logaddexp(0, x - 20), growth=1, modulus=0, kinks=()),
    Declaration("far_step", lambda x: scipy.special.expit((x - 80) / 5), (0, 1), modulus=0, kinks=()),
    Declaration("farther_step", lambda x: np.tanh(x - 1000), (-1, 1), lipschitz=1, kinks=()),
    Declaration("steep", lambda x: np.tanh(1e5 * x), (-1, 1), lipschitz=1e5, parity=-1, monotone=1, kinks=()),
    Declaration("steeper", lambda x: np.tanh(1e11 * x), (-1, 1), modulus=0, parity=-1, monotone=1),
    Declaration("steep_sign", lambda x: x / (1e-11 + np.abs(x)), (-1, 1), modulus=0, parity=-1, monotone=1),
    Declaration("root_of_corner", lambda x: np.sqrt(1e-11 + np.maximum(x, 0) - np.maximum(0.5 * x, 0)), modulus=0),
    Declaration("root_of_corner", lambda x: np.sqrt(1e-24 + np.maximum(x, 0) - np.maximum(0.5 * x, 0)), modulus=0),
    Declaration("rounded_root", lambda x: np.sqrt(1e-13 + np.abs(x)), (0, INF), growth=0.5, modulus=0, parity=1),
    Declaration("rounded_root", lambda x: np.sqrt(1e-11 + np.abs(x - 0.3)), modulus=0),
    Declaration("raised_root", lambda x: 5 + np.sqrt(1e-13 + np.abs(x)), modulus=0),
    Declaration("rounded_entropy", lambda x: x * np.log(1e-20 + np.abs(x)), growth=1.5, modulus=0.5, parity=-1),
    Declaration("wave", lambda x: x * np.sin(x), growth=1, modulus=1, parity=1, kinks=()),
    Declaration("chirp", lambda x: np.sin(x * x), (-1, 1), modulus=1, parity=1, kinks=()),
    Declaration("fast_chirp", lambda x: np.cos(x**3), (-1, 1), modulus=2, parity=1, kinks=()),
    Declaration("cancels", lambda x: np.sin(x + 1e6), (-1, 1), lipschitz=1, derivative=lambda x: np.cos(x + 1e6)),
    Declaration("huber", _hat, (0, INF), lipschitz=1.3, kinks=(-1.3, 1.3), parity=1),
    Declaration("cube", lambda x: x**3, growth=3, modulus=2, parity=-1, monotone=1, kinks=()),
    Declaration("softsign", lambda x: x / (1 + np.abs(x)), (-1, 1), lipschitz=1, parity=-1, monotone=1, kinks=(0.0,)),
    Declaration("slow", lambda x: x * (1 - 1 / np.log(np.abs(x) + np.e)), growth=1),
    Declaration("root", lambda x: x / np.sqrt(1 + np.abs(x)), growth=0.5, modulus=0, parity=-1, monotone=1),
    Declaration("tiny", lambda x: 1e-20 * np.tanh(x), (-1e-20, 1e-20), lipschitz=1e-20, parity=-1, kinks=()),
    Declaration("huge", lambda x: 1e20 * (np.tanh(x) + 1), (0, 2e20), lipschitz=1e20, monotone=1, kinks=()),
    Declaration("rounds", lambda x: np.round(4 * x) / 4, growth=1, parity=-1, monotone=1),
    Declaration("silent", np.cbrt, growth=1 / 3, parity=-1, monotone=1, kinks=(0.0,)),
    Declaration("exponential", lambda x: np.exp(x * x / 4), (1, INF), parity=1, kinks=()),
]
FALSE: list[tuple[Declaration, str]] = [
    (Declaration("logarithm", lambda x: np.log1p(np.abs(x)), growth=0), "outgrows"),
    (Declaration("x_log_x", lambda x: x * np.log1p(np.abs(x)), growth=1), "outgrows"),
    (Declaration("x_log_x", lambda x: x * np.log1p(np.abs(x)), modulus=0), "outgrows"),
    (Declaration("naive", lambda x: np.log(1 + np.exp(x)), growth=0.5), "outgrows"),
    (Declaration("chirp", lambda x: np.sin(x * x), (-1, 1), modulus=0), "outgrows"),
    (Declaration("one_side", lambda x: np.where(x < -3, x * x - 9, 0.0), growth=1), "outgrows"),
    (Declaration("root", lambda x: np.sqrt(np.abs(x - 1 / 3)), modulus=1), "slopes"),
    (Declaration("raised_root", lambda x: 5 + np.sqrt(np.abs(x)), modulus=1), "slopes"),
    (Declaration("entropy", lambda x: np.where(x == 0, 0.0, x * np.log(np.abs(x) + 1e-308)), modulus=1), "slopes"),
    (Declaration("third", np.cbrt, modulus=0), "slopes"),
    (Declaration("root_of_corner", lambda x: np.sqrt(np.maximum(x, 0) - np.maximum(0.5 * x, 0)), modulus=0), "slopes"),
    (Declaration("small_root", lambda x: np.tanh(x) + 1e-3 * np.sqrt(np.abs(x - 1)), modulus=0), "slopes"),
    (Declaration("nearly_abs", lambda x: np.abs(x - 2.1) ** 0.9, modulus=0), "slopes"),
    (Declaration("root_of_log", lambda x: x * np.sqrt(-np.log(np.clip(np.abs(x), 1e-308, 0.5))), modulus=0), "slopes"),
    (Declaration("arcsine", lambda x: np.arcsin(np.clip(x, -1, 1)), modulus=0), "slopes"),
    (Declaration("jump", lambda x: np.tanh(x) + (x > 0.123) * 1e-3, modulus=0), "jumps"),
    (Declaration("rounds", lambda x: np.round(4 * x) / 4, modulus=0, kinks=()), "jumps"),
    (Declaration("kink", lambda x: np.tanh(x) + 0.01 * np.abs(x - 0.777), kinks=()), "kink at 0.777"),
    (Declaration("far_kink", lambda x: np.clip(x, -117.3, 117.3), kinks=(-117.3,)), "kink at 117.3"),
    (Declaration("inverse", lambda x: 1 / x), "no real number"),
    (Declaration("pole", lambda x: 1 / (x - math.pi)), "pole"),
    (Declaration("tangent", np.tan), "has a pole at"),
    (Declaration("log", np.log), "no real number"),
    (Declaration("not_stable", lambda x: np.exp(20 * x) / (1 + np.exp(20 * x))), "no real number"),
    (Declaration("sums", lambda x: x / np.abs(x).sum()), "inside an array"),
    (Declaration("random", lambda x: x + np.random.default_rng().normal(size=x.shape)), "not the same every time"),
    (Declaration("whole", lambda x: x > 0), "bool of shape"),
    (Declaration("number", lambda x: float(np.sum(x))), "gives float"),
    (Declaration("raises", lambda x: math.tanh(x)), "TypeError"),
    (Declaration("spoils", lambda x: np.multiply(x, 2, out=x)), "changes the array"),
    (Declaration("small_jump", lambda x: np.tanh(x) + (x > 0.7123) * 1e-6, modulus=0), "jumps"),
    (Declaration("kink_far_out", lambda x: np.maximum(x - 4321.7, 0), kinks=()), "kink at 4321.7"),
    (Declaration("kink_farther_out", lambda x: np.maximum(x - 123456.7, 0), kinks=()), "kink at 123456.7"),
    (Declaration("narrow", lambda x: np.maximum(1 - np.abs(x - 0.12345678) / 5e-5, 0), (0, 0.5)), "stay below 0.5"),
    (Declaration("narrow", lambda x: np.maximum(1 - np.abs(x - 0.12345678) / 5e-5, 0), kinks=()), "kink at 0.123"),
    (Declaration("dip", lambda x: x - 1e-4 * np.exp(-(((x - 2.2) / 1e-5) ** 2)), monotone=1), "not increasing"),
    (Declaration("third", lambda x: np.where(x == 1 / 3, np.nan, x)), "(0.3333333333333333) = nan"),
    (Declaration("at_kink", lambda x: np.where(x == 0.7123456, np.inf, x), kinks=(0.7123456,)), "no real number"),
    (Declaration("exp", lambda x: np.exp(np.minimum(x, 1e4)), growth=400), "from there to 709"),
    (Declaration("steep", lambda x: np.tanh(1e5 * x), lipschitz=2e4), "lipschitz=100000"),
    (Declaration("late", lambda x: np.sin(x * np.clip(np.abs(x) - 250, 1, 300)), lipschitz=9), "Lipschitz"),
    (Declaration("slope", np.tanh, derivative=lambda x: 1 - np.tanh(x) ** 2 + (np.abs(x - 0.5) < 1e-3)), "is wrong"),
    (Declaration("far", np.tanh, derivative=lambda x: 1 - np.tanh(x) ** 2 + (np.abs(x - 30.1) < 0.01)), "is wrong"),
    (Declaration("single", lambda x: np.tanh(x.astype(np.float32)), (-1, 1)), "gives float32"),
    (Declaration("size", lambda x: np.tanh(x) * (1.0 if x.size < 200_000 else 0.5), (-1, 1)), "more than its argument"),
    (Declaration("spoils_long", _spoils_long, (-1, 1)), "changes the array"),
    (Declaration("raises_far", _raises_far, (-1, 1)), "ValueError"),
    (Declaration("just", lambda x: np.tanh(x) * (1 + 1e-12), (-1, 1)), "stay above -1: just(-1000) = -1.000000000001"),
    (Declaration("formula", np.tanh, sympy=lambda x: x), "another function"),
    (Declaration("no_formula", np.tanh, sympy=lambda x: x.nothing), "AttributeError"),
]


@pytest.mark.turns(8)
@pytest.mark.parametrize("declaration", TRUE, ids=lambda d: d.name)
def test_awkward_truths_pass(declaration: Declaration) -> None:
    assert problems(declaration) == []


@pytest.mark.turns(4)
@pytest.mark.parametrize(("declaration", "word"), FALSE, ids=lambda d: d.name if isinstance(d, Declaration) else "")
def test_falsehoods_are_refused(declaration: Declaration, word: str) -> None:
    refused(declaration, word)


def test_witnesses_can_be_checked_by_hand() -> None:
    def fn(x: Any) -> Any:
        return x * np.tanh(np.log1p(np.exp(x)))

    (text,) = problems(Declaration("mish", fn, growth=0.5))
    ratios = [x / (1 + math.sqrt(x)) for x in (10, 100, 1000)]
    assert text.split(" is ")[1].startswith(", ".join(f"{r:.3g}" for r in ratios))
    assert "growth=1" in text
    (text,) = problems(Declaration("mish", fn, range=(-0.3, INF)))
    assert "mish(-1.2) = -0.308835796" in text
    assert "range=(-0.309, inf)" in text


def _square(x: Any) -> Any:
    return x**3 + x


PROPOSED: list[tuple[Callable[[Any], Any], dict[str, Any]]] = [
    (np.arcsinh, {"growth": 0}),
    (_square, {"growth": 1}),
    (_square, {"modulus": 1}),
    (np.sin, {"range": (-0.5, 1)}),
    (np.cosh, {"range": (2, INF)}),
    (np.abs, {"kinks": ()}),
    (np.sin, {"lipschitz": 0.5}),
    (np.sin, {"parity": 1}),
    (np.negative, {"monotone": 1}),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("fn", "given"), PROPOSED)
def test_what_is_proposed_instead_is_accepted(fn: Callable[[Any], Any], given: dict[str, Any]) -> None:
    (problem,) = attack(Declaration("f", fn, **given), DeclaredFunction(fn)).problems
    name, value = problem.fix.split("=")
    assert problems(Declaration("f", fn, **{name: eval(value, {"inf": INF})})) == []
