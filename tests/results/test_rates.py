"""The fitted rate on synthetic repeats of known law: z-scores, coverage, goodness of fit, and what is left out."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.results.rates import Rate, fit

WIDTH = [16, 32, 64, 128, 256]
REPEATS = 10


def _repeats(
    rng: np.random.Generator,
    exponent: float,
    relative: float,
    stated: float = 1.0,
    bend: float = 0.0,
    width: list[int] = WIDTH,
) -> tuple[np.ndarray, np.ndarray]:
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


def test_a_bent_curve_is_no_power() -> None:
    found = fit(WIDTH, *_repeats(np.random.default_rng(3), -2.0, 0.01, bend=0.1))
    assert found.p < 1e-6
    assert "<1e-" in str(found)


def test_exact_powers_are_found_exactly() -> None:
    values, _ = _repeats(np.random.default_rng(0), -1.5, 0.0)
    found = fit(WIDTH, values, values * 1e-6)
    assert found.exponent == pytest.approx(-1.5, abs=1e-9)
    assert found.coefficient == pytest.approx(3.0, rel=1e-8)


def test_two_widths_and_one_repeat_are_enough() -> None:
    found = fit([16, 64], [[0.4], [0.1]], [[0.01], [0.004]])
    assert found.exponent == pytest.approx(-1.0, abs=1e-3)
    assert found.exponent_se == pytest.approx(math.hypot(0.025, 0.04) / math.log(4), rel=1e-9)
    assert math.isnan(found.p)


@pytest.mark.parametrize("relative", [0.1, 0.2, 0.3])
def test_large_errors_do_not_bias_the_exponent(relative: float) -> None:
    rng = np.random.default_rng(5)
    n = np.array(WIDTH, dtype=float)
    truth = 3.0 * n**-2.0
    error = relative * math.sqrt(REPEATS) * truth[:, None] * np.ones(REPEATS)  # of the mean: relative
    fits = []
    for _ in range(1000):
        with suppress(tp.ProgramError):  # rarely, fewer than two widths stand out
            fits.append(fit(WIDTH, truth[:, None] + error * rng.standard_normal(error.shape), error))
    assert len(fits) > 800
    z = np.array([(found.exponent + 2.0) / found.exponent_se for found in fits])
    assert abs(z.mean()) < 4 / math.sqrt(len(z))
    assert abs((np.abs(z) < 1.96).mean() - 0.95) < 4 * math.sqrt(0.05 * 0.95 / len(z))
    assert all(found.used == tuple(WIDTH) for found in fits)  # none is left out because it came out low


def test_as_many_means_as_numbers_stand_out() -> None:
    assert fit([16, 64], [[0.4], [0.1]], [[0.01], [0.0332]]).used == (16, 64)
    with pytest.raises(tp.ProgramError, match="fewer than two widths have a distance that stands out"):
        fit([16, 64], [[0.4], [0.1]], [[0.01], [0.0334]])
    found = fit([16, 64, 256], [[0.4], [0.1], [-0.02]], [[0.01], [0.01], [0.05]])
    assert (found.used, found.left_out) == ((16, 64, 256), ())  # all are fitted, or those above would be chosen ones
    with pytest.raises(tp.ProgramError, match="fewer than two widths have a distance to the limit"):
        fit([16, 64], np.full((2, 3), np.nan), np.full((2, 3), np.nan))
