"""Tries to falsify every fact of every atom by random and extreme arguments."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import scipy.special
import sympy as sp

from tensorprog.language.atoms import ATOMS, REDUCTIONS, Atom, Regularity
from tensorprog.language.evaluate import Open, Scope, evaluate
from tensorprog.language.parse import Names, parse_expression
from tensorprog.language.records import Draft

PARAMS = {
    "clip": [(-1.0, 2.0), (0.0, 0.5), (-100.0, 100.0), (0.0, math.inf), (2.0, 1.0)],
    "leaky_relu": [(0.01,), (0.0,), (-0.5,), (2.0,)],
    "elu": [(1.0,), (0.3,), (-0.4,), (2.5,)],
    "power": [(0,), (1,), (2,), (3,), (5,), (-1,), (-2,), (0.5,), (1.5,), (-0.5,)],
}
UNARY = [(atom, params) for atom in ATOMS.values() if atom.arity == 1 for params in PARAMS.get(atom.name, [()])]
BINARY = [atom for atom in ATOMS.values() if atom.arity == 2]
ENCLOSED = [atom for atom in BINARY if atom.image is not None]  # the range of a product follows in check.facts
EXTREME = np.array([0.0, 1e-300, 1e-12, 1e-6, 1e-3, 0.5, 1.0, 2.0, 10.0, 50.0, 500.0, 1e4])
IDS = [f"{atom.name}{params or ''}" for atom, params in UNARY]
each = pytest.mark.parametrize(("atom", "params"), UNARY, ids=IDS)
INF = math.inf


def intervals(atom: Atom, params: tuple[float, ...], count: int, seed: int) -> list[tuple[float, float]]:
    """Random and extreme intervals inside the domain."""
    rng = np.random.default_rng(seed)
    low, high = atom.domain
    if atom.name == "power" and params[0] != int(params[0]):
        low = 0.0
    ends = np.sort(rng.normal(size=(count, 2)) * rng.choice([0.1, 1, 10, 100], size=(count, 1)), axis=1)
    found = [(max(a, low), max(b, low)) for a, b in ends]
    found += [(low, high), (0.0, high), (1.0, high), (0.0, 0.0), (0.0, 1.0), (2.0, 2.0)]
    return found + ([(-INF, 0.0), (-INF, -1.0), (-3.0, 0.0), (-INF, 2.0)] if low < 0 else [])


def points(interval: tuple[float, float], seed: int) -> np.ndarray:
    """Points of an interval, its ends and extreme arguments."""
    low, high = interval
    rng = np.random.default_rng(seed)
    sample = np.concatenate(
        [
            EXTREME,
            -EXTREME,
            rng.normal(size=200) * 3,
            rng.uniform(max(low, -1e3), min(high, 1e3), 300) if max(low, -1e3) <= min(high, 1e3) else [],
            [x for x in interval if np.isfinite(x)],
        ]
    )
    return np.unique(sample[(sample >= low) & (sample <= high)])


def values(atom: Atom, x: np.ndarray, params: tuple[float, ...]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(atom.numpy(x, *params), dtype=float)


@each
def test_range_holds_on_every_interval(atom: Atom, params: tuple[float, ...]) -> None:
    for k, interval in enumerate(intervals(atom, params, 40, 1)):
        low, high = atom.range_on(interval, *params)
        x = points(interval, k)
        v = values(atom, x, params)
        bad = ~((v >= low - 1e-12 * (1 + abs(low))) & (v <= high + 1e-12 * (1 + abs(high))))
        if atom.name in ("power", "log"):  # poles lie outside every claim of a range of real numbers
            bad &= np.isfinite(v)
        assert not bad.any(), (interval, (low, high), x[bad][:3], v[bad][:3])


@each
def test_range_is_not_wasteful(atom: Atom, params: tuple[float, ...]) -> None:
    if atom.name in ("power", "sin", "cos"):  # the range of waves is that over all numbers
        return
    for k, interval in enumerate(intervals(atom, params, 40, 2)):
        if not all(map(np.isfinite, interval)):
            continue
        low, high = atom.range_on(interval, *params)
        v = values(atom, np.linspace(*interval, 4001), params)
        v = v[np.isfinite(v)]
        if not len(v):
            continue
        slack = 0.02 * (v.max() - v.min()) + 1e-6
        if np.isfinite([low, high]).all():
            assert v.min() - low < slack, k
            assert high - v.max() < slack, k


@each
def test_bounds_hold(atom: Atom, params: tuple[float, ...]) -> None:
    if atom.bounds is None:
        return
    low, high = atom.bounds(*params)
    v = values(atom, points(atom.domain, 0), params)
    assert (v >= low - 1e-15).all()
    assert (v <= high + 1e-15).all()


@each
def test_monotone_and_parity(atom: Atom, params: tuple[float, ...]) -> None:
    x = points(atom.domain, 5)
    x = x[x > 0] if atom.domain[0] == 0 else x
    v = values(atom, x, params)
    x, v = x[np.isfinite(v)], v[np.isfinite(v)]
    if atom.monotone:
        assert (np.diff(v) * atom.monotone >= -1e-12 * np.abs(v[1:])).all()
    if atom.parity:
        np.testing.assert_allclose(values(atom, -x, params), atom.parity * v, rtol=1e-13)


@each
def test_growth_modulus_and_slope_are_never_exceeded(atom: Atom, params: tuple[float, ...]) -> None:
    for k, interval in enumerate(intervals(atom, params, 30, 3)):
        regularity = atom.regularity_on(interval, *params)
        x = points(interval, k)
        v = values(atom, x, params)
        attack(regularity, x, v, not all(map(np.isfinite, interval)), (atom.name, params, interval))


def attack(regularity: Regularity, x: np.ndarray, v: np.ndarray, unbounded: bool, what: object) -> None:
    """Compare every pair of points; the constants may be any number, so only ratios that grow refute a power."""
    if np.isfinite(regularity.growth):
        assert np.isfinite(v).all(), what
        ratio = np.abs(v) / (1 + np.abs(x) ** regularity.growth)
        inner, outer = ratio[np.abs(x) <= 50], ratio[np.abs(x) > 50]
        if unbounded and len(inner) and len(outer):
            assert outer.max() <= 3 * inner.max() + 1e-9, what
    if np.isfinite(regularity.modulus) and len(x) > 1:
        dx, dv = np.abs(x[:, None] - x), np.abs(v[:, None] - v)
        power = np.abs(x) ** regularity.modulus
        far = dx > 1e-9 * (1 + np.abs(x))
        with np.errstate(invalid="ignore", over="ignore"):
            slope = np.where(far, dv / np.where(far, dx, 1.0), 0.0)
            ratio = slope / (1 + power[:, None] + power)
        near = np.maximum(np.abs(x)[:, None], np.abs(x)) <= 50
        if unbounded and near.any() and not near.all() and ratio[near].max() > 1e-9:
            assert ratio[~near].max() <= 3 * ratio[near].max() + 1e-9, what
        if np.isfinite(regularity.lipschitz):
            rounding = 1e-12 * (np.abs(v[:, None]) + np.abs(v)) / np.where(far, dx, 1.0)
            assert (slope <= regularity.lipschitz * (1 + 1e-9) + rounding + 1e-9).all(), what


@each
def test_lipschitz_constants_are_best(atom: Atom, params: tuple[float, ...]) -> None:
    regularity = atom.regularity
    if not np.isfinite(regularity.lipschitz):
        return
    x = np.linspace(-8, 8, 40_001)
    slope = np.abs(np.diff(values(atom, x, params))) / np.diff(x)
    assert slope.max() > 0.97 * regularity.lipschitz


@each
def test_pullbacks_and_kinks_against_finite_differences(atom: Atom, params: tuple[float, ...]) -> None:
    if not atom.pullback or atom.name in ("sign", "step") or params == (2.0, 1.0):  # programs have no clip(x, 2, 1)
        return
    x = np.random.default_rng(7).normal(size=400) * 2
    if atom.domain[0] == 0 or (atom.name == "power" and params[0] != int(params[0])):
        x = np.abs(x) + 0.05
    kinks = np.array([k for k in (atom.kinks(*params) if atom.kinks else ()) if np.isfinite(k)])
    x = x[np.abs(x[:, None] - kinks).min(axis=1, initial=INF) > 1e-2]
    numeric = (values(atom, x + 1e-5, params) - values(atom, x - 1e-5, params)) / 2e-5
    text = atom.pullback[0]
    for name, value in zip(atom.params, params, strict=True):
        text = re.sub(rf"\b{name}\b", "inf" if value == INF else f"({value!r})", text)
    expr = parse_expression(text.replace("step(x - inf)", "0"), Names())
    scope = Scope(Draft(""), {}, lambda v, _: Open(("@",), x if v.name == "x" else np.ones_like(x)))
    exact = np.broadcast_to(evaluate(expr, scope).data, x.shape)
    np.testing.assert_allclose(exact, numeric, rtol=2e-5, atol=1e-7)


@each
def test_sympy_agrees_with_numpy(atom: Atom, params: tuple[float, ...]) -> None:
    x = sp.Symbol("x", real=True)
    expression = atom.sympy(
        sp, x, *(sp.oo if p == INF else sp.nsimplify(p) if p == int(p) else sp.Float(p) for p in params)
    )
    rng = np.random.default_rng(11)
    for value in rng.normal(size=6) * 1.5:
        if atom.domain[0] == 0 or (atom.name == "power" and params[0] != int(params[0])):
            value = abs(value)
        exact = float(expression.subs(x, sp.Float(value, 30)).evalf(20))
        np.testing.assert_allclose(values(atom, np.array(value), params), exact, rtol=2e-12, atol=1e-14)


KINDS = {
    "one": np.ones_like,
    "step": lambda t: (t > 0).astype(float),
    "erf": scipy.special.erf,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "gaussian": lambda t: np.exp(-t * t / 2),
}


@each
def test_terms_reproduce_the_values(atom: Atom, params: tuple[float, ...]) -> None:
    if any(map(np.isinf, params)) or (params and atom.name == "clip" and params[0] > params[1]):
        return
    terms = atom.terms(*params) if atom.terms is not None else None
    if terms is None:
        return
    x = np.random.default_rng(3).normal(size=300) * 3
    total = sum(c * x**power * KINDS[kind](slope * x + offset) for c, power, kind, slope, offset in terms)
    np.testing.assert_allclose(total, values(atom, x, params), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("atom", ENCLOSED, ids=[atom.name for atom in ENCLOSED])
def test_image_of_binary_atoms(atom: Atom) -> None:
    rng = np.random.default_rng(13)
    assert atom.image is not None
    for _ in range(200):
        box = np.sort(rng.normal(size=(2, 2)) * rng.choice([0.1, 1, 10]), axis=1)
        low, high = atom.image(*(tuple(map(float, side)) for side in box))
        a, b = (rng.uniform(*side, 50) for side in box)
        with np.errstate(all="ignore"):
            v = np.asarray(atom.numpy(a, b), dtype=float)
        assert (v >= low - 1e-12 * abs(low)).all()
        assert (v <= high + 1e-12 * abs(high)).all()


@pytest.mark.parametrize("atom", BINARY, ids=[atom.name for atom in BINARY])
def test_sympy_of_binary_atoms(atom: Atom) -> None:
    for a, b in ((0.25, -1.5), (2.0, 0.5), (1.0, 1.0)):
        if atom.name.startswith("logical"):
            a, b = a > 0.5, b > 0
            exact = bool(atom.sympy(sp, sp.true if a else sp.false, sp.true if b else sp.false))
        else:
            value = atom.sympy(sp, sp.Rational(a), sp.Rational(b))
            exact = bool(value) if value in (sp.true, sp.false) else value
        np.testing.assert_allclose(float(atom.numpy(a, b)), float(exact), rtol=1e-12)


@pytest.mark.parametrize("reducer", REDUCTIONS.values(), ids=list(REDUCTIONS))
def test_reducers(reducer: object) -> None:
    rng = np.random.default_rng(17)
    x = rng.normal(size=(50, 3, 4)) * 10
    out = reducer.numpy(x.copy(), (1, 2))
    assert (out.shape == (50,)) == reducer.removes
    if reducer.bounds:
        assert (out >= reducer.bounds[0]).all()
        assert (out <= reducer.bounds[1]).all()
    # Lipschitz in the largest change of an entry, with constant 1 (the number of entries for a sum)
    y = x + rng.normal(size=x.shape) * 0.1
    change = np.abs(reducer.numpy(y.copy(), (1, 2)) - out).reshape(50, -1).max(axis=1)
    factor = {"sum": 12.0, "softmax": 0.5}.get(reducer.name, 1.0)
    assert (change <= factor * np.abs(y - x).reshape(50, -1).max(axis=1) * (1 + 1e-12)).all()
