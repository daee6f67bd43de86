"""Averages over one score and several: spikes, steps, narrow noise, singular densities, by mpmath alone.

p is N(0, K**2), v is N(0, K) with K = E erf(u)**2; every reference integrates over a normal z with the places of
structure given by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

import tensorprog as tp
from tensorprog import Law, kl_gaussian
from tests.reading import loads

Function = Callable[[Any], Any]
K = mp.mpf(2) / mp.pi * mp.asin(mp.mpf(2) / 3)  # E erf(u)**2, u standard normal


@cache
def law(output: str, scores: str = "p", scale: float = 1.0) -> Law:
    lines = []
    for name in scores:
        lines += [f"  - q{name} = MatMul(Q{name}, x)", f"  - k{name} = MatMul(K{name}, x)",
                  f"  - {name} = Dot(q{name}, k{name})"]  # fmt: skip
    weights = "".join(f"  Q{name}: {scale}\n  K{name}: {scale}\n" for name in scores)
    return Law(loads(f"program: one\ninitial:\n  h: {{cov: 1}}\nweights:\n  W: 1\n  V: 1\n{weights}body:\n"
                     "  - u = MatMul(W, h)\n  - x = Nonlin(erf(u))\n  - v = MatMul(V, x)\n" + "\n".join(lines)
                     + f"\n  - y = Nonlin({output})\noutputs: [y]\n"))  # fmt: skip


@dataclass(frozen=True)
class Case:
    """y = g(p) v + m(p), and where on the line of p something happens."""

    output: str
    g: Function
    m: Function = lambda p: mp.mpf(0)
    places: Sequence[float] = ()
    smooth: bool = True  # then errors are not much too large
    scale: float = 1.0

    @property
    def deviation(self) -> Any:
        return K * mp.mpf(self.scale)

    def average(self, f: Function, more: Sequence[float] = ()) -> Any:
        """E f(p), over panels between all places and a few others."""
        reach = 14
        own = {mp.mpf(x) / self.deviation for x in (*self.places, *more)}
        marks = sorted({x for x in own if abs(x) < reach} | {mp.mpf(k) for k in range(-reach, reach + 1, 2)})
        return mp.quad(lambda z: f(self.deviation * z) * mp.npdf(z), marks)

    def moments(self) -> tuple[Any, Any]:
        """Variance and kurtosis."""
        centre = self.average(self.m)
        var = lambda p: self.g(p) ** 2 * K  # noqa: E731
        away = lambda p: (self.m(p) - centre) ** 2  # noqa: E731
        second = self.average(lambda p: var(p) + away(p))
        fourth = self.average(lambda p: 3 * var(p) ** 2 + 6 * var(p) * away(p) + (self.m(p) - centre) ** 4)
        return second, fourth / second**2


def near(place: float, *widths: float) -> list[float]:
    return sorted({place + sign * k * w for w in widths for k in (0, 1, 2, 4, 8, 12) for sign in (-1, 1)})


def spike(width: float) -> Case:
    return Case(f"(1 + 100*gaussian((p - 0.911)/{width}))*v",
                lambda p: 1 + 100 * mp.exp(-(((p - mp.mpf("0.911")) / mp.mpf(width)) ** 2)),
                places=near(0.911, width, 0.1), smooth=width > 1e-3)  # fmt: skip


def logistic(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


CASES = [
    spike(0.01),
    spike(1e-4),
    spike(1e-7),
    Case("(1 + 30*sigmoid(200*(p-2)))*v", lambda p: 1 + 30 * logistic(200 * (p - 2)), places=near(2, 0.01, 0.1)),
    Case("(1 + 1000*sigmoid(50*(p-3)))*v", lambda p: 1 + 1000 * logistic(50 * (p - 3)), places=near(3, 0.02, 0.1)),
    Case("where(p > 0.3, 1, 3)*v", lambda p: mp.mpf(1) if p > 0.3 else mp.mpf(3), places=[0.3]),
    Case(
        "where(p > 1.7, 100, 1)*v + relu(p + 0.1)",
        lambda p: mp.mpf(100) if p > 1.7 else mp.mpf(1),
        lambda p: max(p + mp.mpf("0.1"), 0),
        [-0.1, 1.7],
    ),
    Case("relu(p)*v", lambda p: max(p, 0), places=[0]),
    Case("max(p, 0.2)*v + min(p, 1)", lambda p: max(p, mp.mpf("0.2")), lambda p: min(p, 1), [0.2, 1]),
    Case("p**3*v", lambda p: p**3),
    Case("(p**2 - 0.1)*v + p**3", lambda p: p**2 - mp.mpf("0.1"), lambda p: p**3),
    Case("0.01*v + p", lambda p: mp.mpf("0.01"), lambda p: p),
    Case("p + v", lambda p: mp.mpf(1), lambda p: p, scale=40),
    Case("exp(3*p)*v", lambda p: mp.exp(3 * p)),
    Case("sqrt(abs(p))*v", lambda p: mp.sqrt(abs(p)), places=[0], smooth=False),
    Case("abs(tanh(5*p))*v + sin(4*p)", lambda p: abs(mp.tanh(5 * p)), lambda p: mp.sin(4 * p), near(0, 0.1)),
    Case("tanh(50*tanh(3*p - 1))*v", lambda p: mp.tanh(50 * mp.tanh(3 * p - 1)), places=near(1 / 3, 0.01, 0.1)),
    Case("sigmoid(40*(p-0.2))*v", lambda p: logistic(40 * (p - mp.mpf("0.2"))), places=near(0.2, 0.05)),
]


def held(found: tuple[float, float], truth: Any, smooth: bool) -> None:
    value, error = found
    size = max(abs(float(truth)), 1e-300)
    assert abs(value - float(truth)) <= error + 4e-16 * size, (value, float(truth), error)
    assert not smooth or error <= 1e-9 * size, (value, error)


QUICK = {1, 9, 11}
SHARED = [
    pytest.param(case, id=case.output, marks=() if k in QUICK else pytest.mark.slow) for k, case in enumerate(CASES)
]


@pytest.mark.parametrize("case", SHARED)
def test_moments_behind_one_score(case: Case) -> None:
    with mp.workdps(25):
        variance, kurtosis = case.moments()
    found = law(case.output, scale=case.scale)
    held(found.var("y", with_error=True), variance, case.smooth)
    held(found.kurtosis("y", with_error=True), kurtosis, case.smooth)
    value, error = found.cov("y", with_error=True)
    held((float(value), float(error)), variance, case.smooth)


DENSE = ["(1 + 100*gaussian((p - 0.911)/0.01))*v", "where(p > 0.3, 1, 3)*v", "max(p, 0.2)*v + min(p, 1)", "p**3*v",
         "0.01*v + p", "p + v", "sigmoid(40*(p-0.2))*v", "abs(tanh(5*p))*v + sin(4*p)"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.output in DENSE], ids=lambda case: case.output)
def test_densities_and_quantiles_behind_one_score(case: Case) -> None:
    found = law(case.output, scale=case.scale)
    sd = found.var("y") ** 0.5
    grid = sd * np.array([-2.5, -0.3, 1e-3, 0.7])
    density, wrong = found.density("y", grid, with_error=True)
    below, off = found.cdf("y", grid, with_error=True)
    with mp.workdps(15):
        for k, y in enumerate(grid):
            noise = float(K) ** 0.5 * float(abs(case.g(mp.mpf(y)))) + 1e-3
            more = near(float(y), noise) if "+" in case.output else [s * 10.0**-j for j in range(12) for s in (-1, 1)]
            normal = lambda p, y=y: mp.npdf(y, case.m(p), mp.sqrt(K) * max(abs(case.g(p)), mp.mpf(10) ** -300))  # noqa: E731
            held((density[k], wrong[k] + 1e-13), case.average(normal, more), smooth=False)
            tail = lambda p, y=y: mp.ncdf(y, case.m(p), mp.sqrt(K) * max(abs(case.g(p)), mp.mpf(10) ** -300))  # noqa: E731
            held((below[k], off[k] + 1e-13), case.average(tail, more), smooth=False)
    assert wrong.max() <= 1e-9 * density.max()
    levels = np.array([0.01, 0.4, 0.9])
    np.testing.assert_allclose(found.cdf("y", found.quantile("y", levels)), levels, atol=1e-12)


@pytest.mark.parametrize(("output", "infinite"), [("p*v", True), ("p**3*v", True), ("relu(p)*v", True),
                                                  ("sqrt(abs(p))*v", False), ("p*v + p", True)])  # fmt: skip
def test_densities_where_noise_vanishes(output: str, infinite: bool) -> None:
    """E 1 / sd(p) is infinite where the deviation vanishes like p or faster; for its root the density is a number."""
    value, error = law(output).density("y", 0.0, with_error=True)
    assert np.isinf(value) == infinite
    if not infinite:
        with mp.workdps(20):
            truth = (
                mp.sqrt(mp.mpf(1) / (2 * mp.pi * K))
                * 2
                * mp.quad(lambda t: 2 * mp.npdf(t**2) / mp.sqrt(K), [0, 1, 2, 4])
            )  # p = K t**2
        assert abs(float(value) - float(truth)) <= float(error) < 1e-6


@pytest.mark.parametrize("rate", [1.0, 1.5, 2.25])
def test_densities_where_noise_falls_off_at_infinity(rate: float) -> None:
    """E 1 / sd(p) is finite for sd = exp(-rate * p**2), though the deviation is 0 in floating point far out."""
    value, error = law(f"exp(-{rate}*p**2)*v").density("y", [0.0, 1e-3], with_error=True)
    first = 1 / mp.sqrt(1 - 2 * rate * K**2) / mp.sqrt(2 * mp.pi * K)
    assert np.isfinite(value).all()
    assert abs(float(value[0]) - float(first)) <= float(error[0])
    assert value[1] < float(first) and error[1] < 1e-12


def divergence(g: Function) -> float:
    """KL of g(p) v to the Gaussian of its variance, over the logarithm of |y|."""
    with mp.workdps(15):
        case = Case("", g)
        variance = case.moments()[0]
        z, w = np.polynomial.legendre.leggauss(24)
        close = {s * 10.0**k for k in np.arange(-16, 1, 0.125) for s in (-1, 1)}
        edges = np.array(sorted({*close, *range(-12, 13), 0.0}))
        half = np.diff(edges)[:, None] / 2
        points = ((edges[1:] + edges[:-1])[:, None] / 2 + half * z).ravel()
        chances = (half * w).ravel() * np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
        sd = np.array([float(abs(g(K * mp.mpf(x)))) for x in points]) * float(K) ** 0.5
        keep = (sd > 0) & (chances > 0)
        sd, chances = sd[keep], chances[keep]
        t = np.arange(-110.0, 7.0, 0.05)
        y = float(variance) ** 0.5 * np.exp(t)
        f = np.array([chances @ (np.exp(-0.5 * (one / sd) ** 2) / sd) / np.sqrt(2 * np.pi) for one in y])
        log = np.log(np.where(f > 0, f, 1.0)) + 0.5 * y**2 / float(variance) + 0.5 * np.log(2 * np.pi * float(variance))
        return float(2 * 0.05 * (f * log * y).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("output", "g"), [("p**3*v", lambda p: p**3), ("p*v", lambda p: p)])
def test_divergences_of_densities_with_a_singularity(output: str, g: Function) -> None:
    value, error = kl_gaussian(law(output), "y")
    assert abs(value - divergence(g)) <= error + 3e-9
    assert error < 1e-8


@pytest.mark.turns(4)
def test_divergences_that_are_known() -> None:
    for output, scale in (("0.01*v + p", 1.0), ("p + v", 40), ("1e-7*v + 2*p", 1.0)):
        value, error = kl_gaussian(law(output, scale=scale), "y")
        assert abs(value) <= error + 1e-15 and error < 1e-9
    assert kl_gaussian(law("relu(p)*v"), "y") == (np.inf, 0.0)
    value, error = kl_gaussian(law("sigmoid(40*(p-0.2))*v"), "y")
    assert np.isfinite(value) and 0 < error < 1e-8
    value, error = kl_gaussian(law("1e-9*v + p**3"), "y")  # the entropy of a cube; E log|z| = -(euler + log 2) / 2
    still = 0.5 * np.log(15) - np.log(3) + np.euler_gamma + np.log(2)  # noise moves a mass of about 1e-9**(1/3) from 0
    assert -error <= still - value <= error + 0.004 and error < 0.1


def test_densities_of_soft_gates_have_their_mass_far_out() -> None:
    """E[1 / sigmoid(steep (p - c))] = 1 + exp(steep c + steep**2 Var p / 2); deeper deviations underflow."""
    for steep, place in ((8, 0.2), (20, 0.2)):
        value, error = law(f"sigmoid({steep}*(p - {place}))*v").density("y", 0.0, with_error=True)
        truth = (1 + mp.exp(steep * mp.mpf(str(place)) + steep**2 * K**2 / 2)) / mp.sqrt(2 * mp.pi * K)
        assert abs(value - float(truth)) <= error <= 1e-11 * value
    deep = law("sigmoid(200*(p - 1.3))*v")
    assert np.isinf(deep.density("y", 0.0, with_error=True)[1])
    below, error = deep.cdf("y", 0.0, with_error=True)
    assert abs(below - 0.5) <= error < 0.5
    with pytest.raises(tp.NotCompiledError, match="below the smallest numbers"):
        kl_gaussian(deep, "y")


def test_values_that_draws_share_have_infinite_density() -> None:
    density, error = law("clip(p, 0, 1)").density("y", [0.0, 0.5, 1.0, 2.0], with_error=True)
    truth = float(mp.npdf(0.5, 0, K))
    assert np.isinf(density[[0, 2]]).all() and abs(density[1] - truth) <= error[1] < 0.05 and density[3] == 0


SEVERAL = {  # variance and kurtosis; s is the variance of one score, K of v
    "p**2*r*v": (lambda s: 3 * s**3 * K, 105.0),
    "p*r*v": (lambda s: s**2 * K, 27.0),
    "0.01*v + p + r": (lambda s: 2 * s + K / 10000, 3.0),
    "where(p > r, 1, 3)*v": (lambda s: 5 * K, 3 * 41.0 / 25),
    "relu(p - r)*v": (lambda s: s * K, 18.0),
}


@pytest.mark.parametrize("output", SEVERAL)
def test_moments_behind_two_scores(output: str) -> None:
    second, kurtosis = SEVERAL[output]
    found = law(output, "pr")
    variance, error = found.var("y", with_error=True)
    assert abs(variance - float(second(K**2))) <= error + 1e-15
    value, error = found.kurtosis("y", with_error=True)
    assert abs(value - kurtosis) <= error + 1e-15 and error < 0.1


def test_spikes_that_draws_may_miss_are_in_the_error() -> None:
    """1 + 1000 gaussian(1e5 (p + r - 2)): what no draw meets is as large as the range times the mass it can hide in."""
    found = law("(1 + 1000*gaussian(1e5*(p + r - 2)))*v", "pr")
    with mp.workdps(20):
        sd, width = mp.sqrt(2) * K, mp.mpf("1e-5")
        density = mp.npdf(2, 0, sd) * width * mp.sqrt(mp.pi)
        truth = K * (1 + 2000 * density + 10**6 * density / mp.sqrt(2))
    value, error = found.var("y", with_error=True)
    assert abs(value - float(truth)) <= error


def test_narrow_noise_behind_two_scores() -> None:
    found = law("0.01*v + p + r", "pr")
    variance = float(2 * K**2 + K / 10000)
    grid = np.array([0.0, 0.31, 1.7])
    density, error = found.density("y", grid, with_error=True)
    truth = np.exp(-0.5 * grid**2 / variance) / np.sqrt(2 * np.pi * variance)
    assert np.all(np.abs(density - truth) <= error) and error.max() < 0.02  # draws of narrow Gaussians
    value, error = kl_gaussian(found, "y")
    assert abs(value) <= error < 1e-3


@pytest.mark.slow
def test_noise_that_is_narrow_for_some_scores_only() -> None:
    """Draws miss most of it; the truth is the slope of the distribution function."""
    value, error = law("sigmoid(30*(p-r))*v + relu(p)", "pr").density("y", 0.3, with_error=True)
    deviation, step = float(K), 1e-3
    nodes, weights = np.polynomial.legendre.leggauss(20)

    def rule(marks: Any) -> tuple[Any, Any]:
        edges = np.unique(np.concatenate([np.linspace(-8, 8, 321), np.asarray(marks)]))
        half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        z = (middle[:, None] + half[:, None] * nodes).reshape(-1)
        return z, (half[:, None] * weights).reshape(-1) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

    def below(y: float) -> float:
        (p, first), (r, second) = rule([y / deviation]), rule([])
        noise = np.sqrt(deviation) / (1 + np.exp(-30 * deviation * (p[:, None] - r)))
        return float(first @ ndtr((y - np.maximum(deviation * p, 0))[:, None] / noise) @ second)

    truth = (below(0.3 + step) - below(0.3 - step)) / (2 * step)
    assert abs(truth - 0.4617) < 0.005
    assert abs(float(value) - truth) <= float(error)


@pytest.mark.parametrize(("output", "scores"), [("p**3*v", "p"), ("(1 + p**2)*v + r", "pr")])
def test_points_at_infinity_and_none_at_all(output: str, scores: str) -> None:
    found = law(output, scores)
    for method, truth in ((found.density, [0, 0, 0]), (found.cdf, [0, 1, 1])):
        value, error = method("y", [-np.inf, 1e300, np.inf], with_error=True)
        np.testing.assert_allclose(value, truth, atol=1e-12)
        assert (error < 1e-9).all()
        with pytest.raises(tp.ProgramError, match="nan"):
            method("y", [0.0, np.nan])


def test_softmax_by_hand_is_softmax() -> None:
    value, error = law("exp(p)/(exp(p) + exp(r))*v", "pr").var("y", with_error=True)
    with mp.workdps(20):
        truth = K * mp.quad(lambda z: logistic(mp.sqrt(2) * K * z) ** 2 * mp.npdf(z), [-10, -3, 0, 3, 10])
    assert abs(value - float(truth)) <= error < 1e-9


def test_comparisons_of_networks_that_agree(tmp_path: Any) -> None:
    path = tmp_path / "narrow.yaml"
    path.write_text("program: narrow\ninitial:\n  h: {cov: 1}\nweights: {W: 1, V: 1, Q: 1, K: 1}\nbody:\n"
                    "  - u = MatMul(W, h)\n  - x = Nonlin(erf(u))\n  - v = MatMul(V, x)\n  - q = MatMul(Q, x)\n"
                    "  - k = MatMul(K, x)\n  - p = Dot(q, k)\n  - y = Nonlin(0.01*v + p)\noutputs: [y]\n")  # fmt: skip
    program = tp.load(path)
    row = tp.compare(program.run(width=512, samples=4000, seed=3), program.limit())["y"]
    assert row.ks_p > 1e-3 and row.kl < 0.02


def test_the_error_of_expectations_holds_that_of_averages_given_scores() -> None:
    """Given p, y is N(0, K) whatever p: draws of p agree to the last digit, and what is left is the inner integral."""
    found = Law(
        loads("""
program: turned
indices: {l: 2}
initial: {h: {cov: 1}}
weights: {A: 1, Q: 1, K: 1, "V[l]": 1}
body:
  - u = MatMul(A, h)
  - x = Nonlin(erf(u))
  - q = MatMul(Q, x)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - v[l] = MatMul(V[l], x)
  - y = Nonlin(cos(p) * v[0] + sin(p) * v[1])
outputs: [y]
""")
    )
    value, error = found.expectation("tanh(3*y)**2", with_error=True)
    with mp.workdps(25):
        truth = mp.quad(lambda z: mp.tanh(3 * mp.sqrt(K) * z) ** 2 * mp.npdf(z), mp.linspace(-12, 12, 25))
    inner = found.given({"p": 0.3}).expectation("tanh(3*y)**2", with_error=True)[1]
    assert abs(value - float(truth)) <= error + 1e-16
    assert 0 < inner <= error < 1e-13


@pytest.mark.parametrize("noise", [1e-4, 1e-7, 1e-10])
def test_means_that_turn_back_between_nodes_are_seen(noise: float) -> None:
    """Near its least value (p - 0.3)**2 moves little: nodes on both sides are many deviations of the noise away."""
    found, y = law(f"{noise}*v + (p - 0.3)**2"), np.array([1e-3, 1e-2])
    y = np.array([1e-6, 1e-5, 1e-4, *y]) if noise < 1e-9 else y
    (density, wrong), (below, off) = (method("y", y, with_error=True) for method in (found.density, found.cdf))
    ends = (0.3 + np.multiply.outer([1, -1], np.sqrt(y))) / float(K)
    first = np.exp(-0.5 * ends**2).sum(axis=0) / np.sqrt(2 * np.pi) / float(K) / (2 * np.sqrt(y))
    near = (noise / y) ** 2  # what noise does to both
    assert np.all(np.abs(density - first) <= wrong + near * first)
    assert np.all(np.abs(below - (ndtr(ends[0]) - ndtr(ends[1]))) <= off + near)
    assert np.all(wrong <= 1e-4 * first)
