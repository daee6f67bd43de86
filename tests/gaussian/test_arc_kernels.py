"""Kernels at zero means against formulas in mpmath and quadrature; batches with symmetric halves."""

import importlib

import mpmath
import numpy as np
import pytest
from gaussian_functions import FUNCTIONS

from tensorprog.gaussian import Estimate, FunctionTerm, RealFunction, cross
from tensorprog.gaussian.kernels import elementary
from tensorprog.language.atoms import ATOMS
from tests.terms import from_terms

expectation = importlib.import_module("tensorprog.gaussian.expectation")
MIXED = (
    FunctionTerm(0.5, 0, "step", -2.0),
    FunctionTerm(-1.5, 1, "step", 3.0),
    FunctionTerm(0.25, 1),
    FunctionTerm(2.0, 0, "erf", -0.7),
    FunctionTerm(0.1, 0),
)
BELLS = FunctionTerm(0.5, 0, "gaussian", 30.0), FunctionTerm(-1.5, 0, "gaussian", -0.6)
ELEMENTARY = {
    "relu": FUNCTIONS["relu"],
    "abs": FUNCTIONS["abs"],
    "erf": FUNCTIONS["erf"],
    "sign": from_terms((FunctionTerm(2.0, 0, "step"), FunctionTerm(-1.0, 0)), parity=-1),
    "step": from_terms((FunctionTerm(1.0, 0, "step"),)),
    "sharp": from_terms((FunctionTerm(1.0, 0, "erf", 30.0),), parity=-1),
    "mixed": from_terms(MIXED),
    "gelu": FUNCTIONS["gelu"],
    "bell": from_terms((FunctionTerm(1.0, 0, "gaussian", 1.4),), parity=1),
    "bells": from_terms((*BELLS, MIXED[0], *MIXED[2:])),
    "ramps": from_terms((*MIXED, FunctionTerm(-0.5, 1, "erf", -3.0), FunctionTerm(0.2, 1, "erf", 0.4))),
}
RHO = np.array([0.0, 0.3, -0.8, 0.9999, 1 - 1e-9, 1e-9 - 1, 1.0, -1.0])


def exact(f, g, v, w, c):
    """The formulas with 50 digits: every function as k + l x + sum of a x sign(x + dx) + sum of b sign(x + dx')."""
    mpf, pi = mpmath.mpf, mpmath.pi
    f, g = elementary(f), elementary(g)
    v, w, c = (mpf(float(x)) for x in (v, w, c))
    c = max(-mpmath.sqrt(v * w), min(mpmath.sqrt(v * w), c))
    part = mpmath.sqrt(2 / pi)
    total = mpf(f.constant) * g.constant + mpf(f.linear) * g.linear * c
    total += sum(part * f.constant * b * w / mpmath.sqrt(w + k) for b, k in g.ramps)
    total += sum(part * g.constant * a * v / mpmath.sqrt(v + h) for a, h in f.ramps)
    for a, h in f.ramps:
        for b, k in g.ramps:
            p, q, det = h / (v + h), k / (w + k), mpmath.sqrt((v + h) * (w + k) - c**2)
            root = (v * w - c**2 * (1 - p - q)) / det if det else 0
            total += mpf(a) * b * 2 / pi * (c * mpmath.asin(c / mpmath.sqrt((v + h) * (w + k))) + root)
    total += sum(mpf(g.linear) * a * c * part / mpmath.sqrt(v + h) for a, h in f.sigmoids)
    total += sum(mpf(f.linear) * b * c * part / mpmath.sqrt(w + k) for b, k in g.sigmoids)
    for a, h in f.sigmoids:
        for b, k in g.sigmoids:
            total += mpf(a) * b * 2 / pi * mpmath.asin(c / mpmath.sqrt((v + h) * (w + k)))
    total += sum(f.constant * b * mpmath.sqrt(k / (w + k)) for b, k in g.bells)
    total += sum(g.constant * a * mpmath.sqrt(h / (v + h)) for a, h in f.bells)
    for a, h in f.bells:
        for b, k in g.bells:
            total += mpf(a) * b * mpmath.sqrt(h * mpf(k)) / mpmath.sqrt((v + h) * (w + k) - c**2)
    return total


CLOSED = [(f, g) for f in ELEMENTARY for g in ELEMENTARY if elementary(ELEMENTARY[f]).meets(elementary(ELEMENTARY[g]))]


@pytest.mark.parametrize(("f", "g"), CLOSED)
def test_kernels_are_exact_to_rounding(f, g):
    v = np.array([1.0, 1.7, 1e-6, 1e6])[:, None, None]
    w = np.array([1.0, 0.6, 1e4])[:, None]
    c = RHO * np.sqrt(v * w)
    found = cross(ELEMENTARY[f], ELEMENTARY[g], 0, 0, v, w, c)
    norm = [
        np.sqrt(cross(ELEMENTARY[h], ELEMENTARY[h], 0, 0, u, u, u).value)
        * np.sqrt(1 + u / min((k for _, k in elementary(ELEMENTARY[h]).bells), default=np.inf))  # bells much wider
        for h, u in ((f, v), (g, w))
    ]
    with mpmath.workdps(50):
        for index in np.ndindex(c.shape):
            truth = exact(ELEMENTARY[f], ELEMENTARY[g], v[index[0], 0, 0], w[index[1], 0], c[index])
            distance = float(abs(found.value[index] - truth))
            assert distance <= found.error[index], (index, distance)
            assert distance <= 1e-13 * norm[0][index[0], 0, 0] * norm[1][index[1], 0], index


@pytest.mark.parametrize("f", ELEMENTARY)
def test_kernels_meet_quadrature(f):
    """The other rungs, at variances that no kernel takes for zero means: a mean of 1e-300 changes nothing."""
    v, w, c = 1.3, 0.4, np.array([0.0, 0.3, -0.5, 0.7])
    for g in ELEMENTARY.values():
        first = cross(ELEMENTARY[f], g, 0.0, 0.0, v, w, c)
        second = cross(ELEMENTARY[f], g, 1e-300, 0.0, v, w, c)
        assert np.all(np.abs(first.value - second.value) <= first.error + second.error)


def test_zero_variance_means_the_value_at_zero():
    for f in (ELEMENTARY[name] for name in ELEMENTARY if name != "sign"):
        found = cross(f, ELEMENTARY["step"], 0, 0, [0.0, 0.0], [1.0, 0.0], 0.0)
        at_zero = f.call(np.zeros((1, 1)))[0, 0]
        np.testing.assert_allclose(found.value, [at_zero / 2, 0.0], atol=1e-15)


@pytest.mark.parametrize("slack", [1e-6, np.inf])
def test_impossible_covariances(slack):
    call = lambda c: cross(ELEMENTARY["relu"], ELEMENTARY["relu"], 0, 0, 1.0, 1.0, c, slack=slack)  # noqa: E731
    with pytest.raises(ValueError, match="finite"):
        call(np.nan)
    if np.isfinite(slack):
        with pytest.raises(ValueError, match="semidefinite"):
            call(1.1)
    else:
        assert call(1.1).value == pytest.approx(0.5 / 2 + 1.1 / 4)


def gram(count, seed=0):
    x = np.random.default_rng(seed).standard_normal((count, 5))
    return x @ x.T / 5 + 0.1


@pytest.mark.parametrize("f", ["relu", "clip", "mixed", "tanh"])
def test_pieces_and_halves_change_nothing(f, monkeypatch):
    function = ELEMENTARY.get(f) or FUNCTIONS[f]
    c = gram(23)
    v = np.diag(c)
    args = (function, function, 0, 0, v[:, None], v, c)
    whole = cross(*args)
    monkeypatch.setattr(expectation, "PAIRS", 50)
    monkeypatch.setattr(expectation, "LAWS", 50)
    tiled, half = cross(*args), cross(*args, pairs=1)
    assert np.array_equal(half.value, half.value.T)
    for found in (tiled, half):
        assert np.all(np.abs(found.value - whole.value) <= 4e-16 * np.sqrt(np.outer(v, v)) + whole.error / 4)


def test_halves_are_taken_only_of_symmetric_arguments():
    c = gram(9)
    v = np.diag(c)
    relu = ELEMENTARY["relu"]
    skew = c + 0.01 * np.triu(np.ones((9, 9)), 1)
    for cov, var in ((skew, v), (c, 2 * v)):
        found = cross(relu, relu, 0, 0, v[:, None], var, cov, pairs=1)
        assert np.array_equal(found.value, cross(relu, relu, 0, 0, v[:, None], var, cov).value)


def test_pairs_of_several_indices():
    c = gram(12).reshape(3, 4, 3, 4) * np.ones((2, 1, 1, 1, 1))
    v = np.diag(gram(12)).reshape(3, 4)
    clip = FUNCTIONS["clip"]
    whole = cross(clip, clip, 0, 0, v[:, :, None, None], v, c)
    half = cross(clip, clip, 0, 0, v[:, :, None, None], v, c, pairs=2)
    np.testing.assert_allclose(half.value, whole.value, rtol=0, atol=1e-15)
    assert np.array_equal(half.value, half.value.transpose(0, 3, 4, 1, 2))
    inexact = cross(clip, clip, 0, 0, v[:, :, None, None], v, Estimate(c, 1e-14 * np.ones_like(c)), pairs=2)
    assert np.all(inexact.error > half.error)


def clip(lo, hi):
    terms = tuple(FunctionTerm(*term) for term in ATOMS["clip"].terms(lo, hi) if np.any(term[0]))
    return RealFunction(lambda x: np.clip(x, lo, hi), np.array([lo, hi]), terms=terms)


def conditional_clip(lo, hi, mu, sd):
    """E clip(mu + sd Z): lo + (Y - lo)_+ - (Y - hi)_+, without what is infinite."""
    hinge = lambda a: (mu - a) * mpmath.ncdf((mu - a) / sd) + sd * mpmath.npdf((mu - a) / sd)  # noqa: E731
    if not sd:
        return min(max(mu, mpmath.mpf(lo)), mpmath.mpf(hi))
    low = mu if np.isinf(lo) else lo + hinge(mpmath.mpf(lo))
    return low - (0 if np.isinf(hi) else hinge(mpmath.mpf(hi)))


def integral(first, second, mu, sd, rho):
    """E clip(X) clip(Y) as an integral over X of clip(X) E[clip(Y) | X], split at kinks and where Y | X crosses one."""
    s = mpmath.sqrt(1 - rho**2)
    inner = lambda z: conditional_clip(*second, mu[1] + sd[1] * rho * z, sd[1] * s)  # noqa: E731
    outer = lambda z: min(max(mu[0] + sd[0] * z, mpmath.mpf(first[0])), mpmath.mpf(first[1]))  # noqa: E731
    points = {mpmath.mpf(-14), mpmath.mpf(0), mpmath.mpf(14)}
    points |= {(b - mu[0]) / sd[0] for b in first if sd[0] and np.isfinite(b)}
    crossings = [(b - mu[1]) / (sd[1] * rho) for b in second if sd[1] * rho and np.isfinite(b)]
    points |= {c + k * s for c in crossings for k in (-30, -8, -3, 0, 3, 8, 30)}
    inside = sorted(point for point in points if abs(point) <= 14)
    return mpmath.quad(lambda z: outer(z) * inner(z) * mpmath.npdf(z), inside)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_bounds_and_laws(seed):
    """Infinite bounds, variances of zero, correlations of +-1 and next to it."""
    rng = np.random.default_rng(seed)
    bounds = [-np.inf, np.inf, 0.0, -1.0, 1.0, 2.5, -0.3, 1e-3, 100.0]
    for _ in range(12):
        first, second = (np.sort(rng.choice(bounds, 2, replace=False)).tolist() for _ in range(2))
        mu, var = rng.choice([0.0, 0.0, 0.3, -2.0], 2), rng.choice([0.0, 1.0, 1.7, 1e-4, 9.0], 2)
        rho = rng.choice([0.0, 0.5, -0.8, 1.0, -1.0, 0.99999, 1 - 1e-10, 1e-9 - 1]) if var.all() else 0.0
        cov = rho * np.sqrt(var.prod())
        found = cross(clip(*first), clip(*second), *mu, *var, cov)
        with mpmath.workdps(20):
            sd = [mpmath.sqrt(mpmath.mpf(v)) for v in var]
            correlation = max(-1, min(1, mpmath.mpf(cov) / (sd[0] * sd[1]))) if var.all() else mpmath.mpf(0)
            truth = integral(first, second, [mpmath.mpf(m) for m in mu], sd, correlation)
        assert abs(found.value - float(truth)) <= found.error + 1e-20 + 1e-16 * abs(truth), (first, second, mu, cov)
        assert found.error <= 1e-11 * (1 + abs(float(truth)))


def test_homogeneous_functions_need_the_correlation_alone() -> None:
    square = RealFunction(lambda x: np.maximum(x, 0.0) ** 2, np.zeros(1), terms=(FunctionTerm(1, 2, "step"),))
    v, w = np.array([0.3, 1.7, 2.0, 1e-3]), np.array([0.5, 1.7, 2.0, 4e5])
    cov = np.array([0.2, 1.7, -1.9, 3.0])
    rho = cov / np.sqrt(v * w)
    angle = np.arccos(np.clip(rho, -1, 1))
    exact = v * w / (2 * np.pi) * (3 * np.sin(angle) * rho + (np.pi - angle) * (1 + 2 * rho**2))
    found = cross(square, square, 0, 0, v, w, cov)
    assert np.all(np.abs(found.value - exact) <= found.error + 1e-14 * v * w)
    assert np.all(found.error <= 1e-12 * v * w)
