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


def logistic(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


CASES = [
    Case("where(p > 0.3, 1, 3)*v", lambda p: mp.mpf(1) if p > 0.3 else mp.mpf(3), places=[0.3]),
    Case("max(p, 0.2)*v + min(p, 1)", lambda p: max(p, mp.mpf("0.2")), lambda p: min(p, 1), [0.2, 1]),
    Case("(p**2 - 0.1)*v + p", lambda p: p**2 - mp.mpf("0.1"), lambda p: p),
    Case("0.01*v + p", lambda p: mp.mpf("0.01"), lambda p: p),
    Case("sqrt(abs(p))*v", lambda p: mp.sqrt(abs(p)), places=[0]),
    Case("tanh(50*tanh(3*p - 1))*v", lambda p: mp.tanh(50 * mp.tanh(3 * p - 1)), places=near(1 / 3, 0.01, 0.1)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.output)
def test_moments_behind_one_score(case: Case) -> None:
    with mp.workdps(25):
        variance, kurtosis = map(float, case.moments())
    found = law(case.output)
    for exact, (value, error) in (
        (variance, found.var("y", with_error=True)),
        (variance, found.cov("y", with_error=True)),
        (kurtosis, found.kurtosis("y", with_error=True)),
    ):
        assert abs(value - exact) <= error + 1e-15
        assert error <= 1e-2 * exact


def test_values_that_draws_share_have_no_density() -> None:
    with pytest.raises(tp.NotCompiledError, match="positive probability"):
        law("clip(p, 0, 1)").density("y", [0.0, 0.5, 1.0, 2.0])


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
    assert abs(value - kurtosis) <= error + 1e-15 and error < 0.1 * kurtosis


@pytest.mark.slow
def test_narrow_noise_behind_two_scores() -> None:
    found = law("0.01*v + p + r", "pr")
    variance = float(2 * K**2 + K / 10000)
    grid = np.array([0.0, 0.31, 1.7])
    density, error = found.density("y", grid, with_error=True)
    truth = np.exp(-0.5 * grid**2 / variance) / np.sqrt(2 * np.pi * variance)
    assert np.all(np.abs(density - truth) <= error) and error.max() < 0.02  # draws of narrow Gaussians
    value, error = kl_gaussian(found, "y")
    assert abs(value) <= error < 1e-3


@pytest.mark.parametrize(("output", "scores"), [("p**3*v", "p"), ("(1 + p**2)*v + r", "pr")])
def test_points_at_infinity_and_none_at_all(output: str, scores: str) -> None:
    found = law(output, scores)
    for method, truth in ((found.density, [0, 0, 0]), (found.cdf, [0, 1, 1])):
        value, error = method("y", [-np.inf, 1e300, np.inf], with_error=True)
        np.testing.assert_allclose(value, truth, atol=1e-12)
        assert (error < 1e-5).all()
        with pytest.raises(tp.ProgramError, match="nan"):
            method("y", [0.0, np.nan])


def test_softmax_by_hand_is_softmax() -> None:
    value, error = law("exp(p)/(exp(p) + exp(r))*v", "pr").var("y", with_error=True)
    with mp.workdps(20):
        truth = K * mp.quad(lambda z: logistic(mp.sqrt(2) * K * z) ** 2 * mp.npdf(z), [-10, -3, 0, 3, 10])
    assert abs(value - float(truth)) <= error < 1e-4
