"""False growth, moduli and jumps are refused however they are hidden; true ones pass however they look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

from tensorprog.check.falsifier.claims import attack
from tensorprog.check.falsifier.line import Line, rising
from tensorprog.language.atoms.declared import Declaration, DeclaredFunction


def log1(x: Any) -> Any:
    return np.log1p(np.abs(x))


def naive(x: Any, steep: float = 1.0) -> Any:
    """A softplus that overflows."""
    return np.log(1 + np.exp(steep * x)) / steep


def wave(x: Any) -> Any:
    return x * np.sin(x)


FALSE: list[tuple[str, Any, dict[str, Any]]] = [
    # exponentials, which start below any power and overflow
    ("exp(x/10)", lambda x: np.exp(0.1 * x), {"growth": 4}),
    ("exp(x/10)", lambda x: np.exp(0.1 * x), {"growth": 3}),
    ("exp(x/10)", lambda x: np.exp(0.1 * x), {"modulus": 3}),
    ("exp", np.exp, {"growth": 20}),
    ("exp", np.exp, {"growth": 140}),
    ("exp(x/100)", lambda x: np.exp(0.01 * x), {"growth": 1}),
    ("exp(x/100)", lambda x: np.exp(0.01 * x), {"modulus": 2}),
    ("exp(-x/50)", lambda x: np.exp(-x / 50), {"growth": 6}),
    ("exp(x/10**6)", lambda x: np.exp(1e-6 * x), {"modulus": 1}),
    ("exp(x**2/100)", lambda x: np.exp(x * x / 100), {"growth": 10}),
    ("exp(log**2)", lambda x: np.exp(log1(x) ** 2 / 10), {"growth": 5}),
    ("sinh(x/10)", lambda x: np.sinh(0.1 * x), {"growth": 5}),
    ("cosh", np.cosh, {"modulus": 50}),
    ("late exp", lambda x: np.where(x > 100, np.exp(0.01 * x) - np.e, 0.0), {"growth": 1}),
    # powers and logarithms, hidden by waves, by what happens near 0, or by distance
    ("x sin(x)", wave, {"modulus": 0}),
    ("x sin(x)", wave, {"modulus": 0.5}),
    ("x sin(x)", wave, {"lipschitz": 1000.0, "modulus": 0}),
    ("x sin(x)", wave, {"modulus": 0.5, "derivative": lambda x: np.sin(x) + x * np.cos(x)}),
    ("x sin(3x)", lambda x: x * np.sin(3 * x), {"modulus": 0}),
    ("x cos(x)", lambda x: x * np.cos(x), {"modulus": 0}),
    ("x**2 sin(x)", lambda x: x**2 * np.sin(x), {"modulus": 1}),
    ("x**2 sin(x)", lambda x: x**2 * np.sin(x), {"modulus": 1.5}),
    ("|x|**1.1 sin(x)", lambda x: np.abs(x) ** 1.1 * np.sin(x), {"modulus": 1}),
    ("x sin(x**2)", lambda x: x * np.sin(x * x), {"modulus": 1}),
    ("cos(x**3)", lambda x: np.cos(x**3), {"modulus": 1.5}),
    ("cos(x**4)", lambda x: np.cos(x**4), {"modulus": 2}),
    ("sin(exp)", lambda x: np.sin(np.exp(x)), {"modulus": 3}),
    ("log cos", lambda x: log1(x) * np.cos(x), {"growth": 0}),
    ("log cos", lambda x: log1(x) * np.cos(x), {"modulus": 0}),
    ("x log sin", lambda x: x * log1(x) * np.sin(x), {"growth": 1}),
    ("x log sin", lambda x: x * log1(x) * np.sin(x), {"modulus": 1}),
    ("|x|**1.1", lambda x: np.abs(x) ** 1.1, {"growth": 1}),
    ("root of log", lambda x: np.sqrt(log1(x)), {"growth": 0}),
    ("hidden square", lambda x: 1e6 * np.exp(-x * x) + x * x, {"growth": 1}),
    ("hidden square", lambda x: 1e6 * np.exp(-x * x) + x * x, {"modulus": 0}),
    ("late square", lambda x: np.maximum(x - 1e6, 0.0) ** 2, {"growth": 1}),
    ("cube, overflows", lambda x: naive(x) ** 3, {"growth": 2}),
    # jumps
    ("step at 10**6", lambda x: np.where(x > 1e6, 1.0, 0.0), {"modulus": 0}),
    ("step at 10**7", lambda x: np.tanh(x) + (x > 1e7), {"modulus": 0}),
    ("jump at -3*10**5", lambda x: np.where(x < -3e5, x, 0.0) + np.tanh(x), {"modulus": 0}),
    ("jump at 10**8", lambda x: x + 1e3 * (x > 1.1e8), {"modulus": 2}),
    ("jump at 10**20", lambda x: np.where(x > 1e20, x, 0.0), {"modulus": 0}),
    ("steps at powers", lambda x: np.floor(np.log2(1 + np.abs(x))), {"modulus": 0}),
]
TRUE: list[tuple[str, Any, dict[str, Any]]] = [
    ("x sin(x)", wave, {"growth": 1, "modulus": 1}),
    ("x**2 sin(x)", lambda x: x**2 * np.sin(x), {"growth": 2, "modulus": 2}),
    ("beats", lambda x: x * np.sin(x) * np.sin(1.01 * x), {"growth": 1, "modulus": 1}),
    ("late wave", lambda x: np.maximum(x - 3000, 0.0) * np.sin(x), {"growth": 1, "modulus": 1}),
    ("x + sin(x**2)", lambda x: x + np.sin(x * x), {"growth": 1, "modulus": 1}),
    ("x sin(log)", lambda x: x * np.sin(log1(x)), {"growth": 1, "modulus": 0}),
    ("x (2 + sin(log))", lambda x: x * (2 + np.sin(log1(x))), {"growth": 1, "modulus": 0}),
    ("x**2 cos(log)", lambda x: x * x * np.cos(log1(x)), {"growth": 2, "modulus": 1}),
    ("steep softplus", lambda x: naive(x, 5.0), {"growth": 1, "modulus": 0}),
    ("moved softplus", lambda x: naive(x - 1.2, 6.0), {"growth": 1, "modulus": 0}),
    ("far softplus", lambda x: naive(x - 60), {"growth": 1, "modulus": 0}),
    ("farther softplus", lambda x: naive(x - 700), {"growth": 1, "modulus": 0}),
    ("far sigmoid", lambda x: np.exp(x - 600) / (1 + np.exp(x - 600)), {"growth": 0, "modulus": 0}),
    ("steep sigmoid", lambda x: np.exp(3 * (x - 200)) / (1 + np.exp(3 * (x - 200))), {"growth": 1}),
    ("tanh, 10**9", lambda x: np.tanh(x - 1e9), {"range": (-1, 1), "lipschitz": 1.0, "modulus": 0}),
    ("tanh, 10**17", lambda x: np.tanh(x - 1e17), {"growth": 0, "modulus": 0}),
    ("steep tanh", lambda x: np.tanh(1e8 * (x - 5)), {"growth": 0, "modulus": 0}),
    ("x**20", lambda x: x**20, {"growth": 20, "modulus": 19}),
    ("(10 + x)**100", lambda x: (10 + x) ** 100, {"growth": 100, "modulus": 99}),
    ("(200 + x)**30", lambda x: (200 + x) ** 30, {"growth": 30, "modulus": 29}),
    ("x**5 - 10**4 x**3", lambda x: x**5 - 1e4 * x**3, {"growth": 5, "modulus": 4}),
    ("late square", lambda x: np.maximum(x - 1e6, 0.0) ** 2, {"growth": 2, "modulus": 1}),
    ("far clip", lambda x: np.clip(x, -1e6, 1e6), {"growth": 0, "modulus": 0}),
    ("settles late", lambda x: 1e-5 * x * x / (1 + 1e-5 * np.abs(x)), {"growth": 1, "modulus": 0}),
    ("log cosh", lambda x: np.log(np.cosh(x)), {"growth": 1, "modulus": 0}),
    ("x erf(x)", lambda x: x * scipy.special.erf(x), {"growth": 1, "modulus": 0}),
    ("Bessel", scipy.special.j0, {"growth": 0, "lipschitz": 0.6, "modulus": 0}),
    ("sinc", np.sinc, {"growth": 0, "lipschitz": 2.0, "modulus": 0}),
    ("packet", lambda x: np.exp(-x * x / 2) * np.sin(40 * x), {"growth": 0, "modulus": 0}),
    ("overflows", lambda x: (10 + x) ** 100, {"kinks": ()}),
    ("hyperbola", lambda x: np.sqrt(1 + x * x), {"growth": 1, "modulus": 0}),
]


def refusals(fn: Any, facts: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in attack(Declaration("f", fn, **facts), DeclaredFunction(fn)).problems]


@pytest.mark.turns(8)
@pytest.mark.parametrize(("name", "fn", "facts"), FALSE, ids=[f"{name}-{[*facts]}" for name, _, facts in FALSE])
def test_false_growth_is_refused(name: str, fn: Any, facts: dict[str, Any]) -> None:
    found = refusals(fn, facts)
    assert any("outgrows" in text or "jumps" in text for text in found), found


@pytest.mark.turns(4)
@pytest.mark.parametrize(("name", "fn", "facts"), TRUE, ids=[name for name, _, _ in TRUE])
def test_true_growth_passes(name: str, fn: Any, facts: dict[str, Any]) -> None:
    assert refusals(fn, facts) == []


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("end", [1e3, 1e8, 1e40, 1e300])
def test_powers_and_logarithms_rise_and_what_settles_does_not(power: float, end: float) -> None:
    x = np.geomspace(1e-3, end, 4000)
    phases = np.abs(np.sin(1.0 + 7919.0 * np.arange(len(x))))  # waves that the points do not resolve
    with np.errstate(over="ignore", under="ignore"):
        for factor in (np.ones_like(x), phases):
            size = factor * x**power
            assert rising(x, size, power) is None
            assert rising(x, size / (1 + 50 / x), power) is None
            assert rising(x, size * x**0.3, power) is not None
            assert (rising(x, size * np.log1p(x), power) is not None) == (end > 1e4)


def test_features_are_where_a_function_bends_sharply() -> None:
    with np.errstate(all="ignore"):
        for steep, centre in ((30.0, 1.7), (300.0, 0.0), (1e5, -0.6)):
            found = np.array(Line(lambda x, k=steep, c=centre: np.tanh(k * (x - c))).features)  # type: ignore[misc]
            assert 1 <= len(found) <= 2
            assert np.abs(found[:, 0] - centre).max() * steep < 1.0
            assert 0.3 < (found[:, 1] * steep).min() <= (found[:, 1] * steep).max() < 1.0
        for smooth in (np.tanh, np.sin, np.abs, lambda x: np.sin(40 * x), lambda x: np.where(x > 0.5, 1.0, 0.0)):
            assert Line(smooth).features == []
