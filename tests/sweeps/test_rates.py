"""The fitted rate on synthetic repeats of known law: z-scores, coverage, goodness of fit, and what is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.rates import Rate, fit

WIDTH = [16, 32, 64, 128, 256]
REPEATS = 10


def _repeats(rng: np.random.Generator, exponent: float, relative: float, stated: float = 1.0, bend: float = 0.0,
             width: list[int] = WIDTH) -> tuple[np.ndarray, np.ndarray]:
    """Distances 3 n**exponent with noise growing from `relative`, and the errors stated for them."""
    n = np.array(width, dtype=float)
    truth = 3.0 * n**exponent * np.exp(bend * np.log(n / n[0]) ** 2)
    error = truth * relative * (n / n[0]) ** 0.5
    values = truth[:, None] + error[:, None] * rng.standard_normal((len(n), REPEATS))
    return values, np.repeat(error[:, None] * stated, REPEATS, axis=1)


def _fits(stated: float, count: int = 600) -> list[Rate]:
    rng = np.random.default_rng(1)
    return [fit(WIDTH, *_repeats(rng, -2.0, 0.05, stated)) for _ in range(count)]


def test_exponents_have_the_error_stated() -> None:
    fits = _fits(stated=1.0)
    z = np.array([(found.exponent + 2.0) / found.exponent_se for found in fits])
    assert abs(z.mean()) < 4 / math.sqrt(len(z))
    assert abs(z.std() - 1) < 4 / math.sqrt(2 * len(z)) + 0.05  # the scale never falls below the errors stated
    inside = (np.abs(z) < 1.96).mean()
    assert inside > 0.95 - 4 * math.sqrt(0.05 * 0.95 / len(z))
    p = np.array([found.p for found in fits])
    assert abs(p.mean() - 0.5) < 4 / math.sqrt(12 * len(p)) + 0.03
    assert {found.degrees for found in fits} == {3}
    scatter = np.array([found.scatter for found in fits])
    assert abs((scatter**2).mean() - 1) < 4 * math.sqrt(2 / 45 / len(scatter))


def test_the_scatter_of_repeats_makes_good_errors_stated_too_small() -> None:
    fits = _fits(stated=0.3)
    z = np.array([(found.exponent + 2.0) / found.exponent_se for found in fits])
    assert (np.abs(z) < 1.96).mean() > 0.93
    assert all(2.0 < found.scatter < 5.0 for found in fits)


def test_an_error_that_all_repeats_share_is_kept() -> None:
    values, errors = _repeats(np.random.default_rng(2), -1.0, 1e-9)
    found = fit(WIDTH, values, values * 0.1 + 0 * errors)
    assert found.scatter < 1e-6
    assert found.exponent_se == pytest.approx(
        0.1 / math.sqrt(REPEATS) / np.sqrt(((np.log(WIDTH) - np.log(WIDTH).mean()) ** 2).sum()), rel=1e-6)


def test_a_bent_curve_is_no_power() -> None:
    found = fit(WIDTH, *_repeats(np.random.default_rng(3), -2.0, 0.01, bend=0.1))
    assert found.p < 1e-6
    assert "<1e-" in str(found)


def test_the_exponent_for_large_widths_is_seen_behind_a_correction() -> None:
    rng = np.random.default_rng(4)
    n = np.array(WIDTH, dtype=float)
    factor = np.exp(-10 / n)[:, None]
    fits = [fit(WIDTH, values * factor, errors * factor, corrected=True)
            for values, errors in (_repeats(rng, -2.0, 0.03) for _ in range(300))]
    for name, truth in (("exponent", -2.0), ("correction", -10.0)):
        z = np.array([(getattr(found, name) - truth) / getattr(found, f"{name}_se") for found in fits])
        assert abs(z.mean()) < 4 / math.sqrt(len(z))
        assert abs(z.std() - 1) < 4 / math.sqrt(2 * len(z)) + 0.05
    assert {found.degrees for found in fits} == {2}
    assert "exp(-" in str(fits[0])
    plain = fit(WIDTH, *(array * factor for array in _repeats(rng, -2.0, 0.03)))
    assert plain.p < 1e-6
    with pytest.raises(tp.ProgramError, match="fewer than three"):
        fit([16, 64], [[0.4], [0.1]], [[0.01], [0.001]], corrected=True)


def test_exact_powers_are_found_exactly() -> None:
    values, _ = _repeats(np.random.default_rng(0), -1.5, 0.0)
    found = fit(WIDTH, values, values * 1e-6)
    assert found.exponent == pytest.approx(-1.5, abs=1e-9)
    assert found.coefficient == pytest.approx(3.0, rel=1e-8)


def test_two_widths_and_one_repeat_are_enough() -> None:
    found = fit([16, 64], [[0.4], [0.1]], [[0.01], [0.004]])
    assert found.exponent == pytest.approx(-1.0, abs=1e-3)
    assert found.exponent_se == pytest.approx(math.hypot(0.025, 0.04) / math.log(4), rel=1e-9)
    assert math.isnan(found.scatter)
    assert math.isnan(found.p)
    assert found.to_json()["p"] is None


def test_widths_within_noise_are_left_out() -> None:
    values = np.array([[0.4], [0.1], [0.02], [0.001]])
    found = fit([16, 64, 256, 1024], values, values * 0.01, [[0.01]] * 4)
    assert found.used == (16, 64)
    assert found.left_out == (256, 1024)
    assert "within noise: n = 256, 1024" in str(found)
    with pytest.raises(tp.ProgramError, match="no rate"):
        fit([16, 64], [[0.4], [0.1]], [[0.01], [0.2]])
    with pytest.raises(tp.ProgramError, match="no rate"):
        fit([16, 64], np.full((2, 3), np.nan), np.full((2, 3), np.nan))
