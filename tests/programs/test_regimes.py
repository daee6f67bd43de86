"""One text for several limits, as `--set` on the command line moves between them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from tensorprog.cli import main

Array = NDArray[np.float64]
REGIMES = "attention_regimes"


@dataclass(frozen=True)
class Limit:
    """What `tp limit` prints of y, with errors."""

    cov: Array
    error: float
    kurtosis: Array
    kurtosis_error: float

    def agrees(self, other: Limit) -> None:
        """Equal laws, as far as both are known."""
        np.testing.assert_allclose(self.cov, other.cov, rtol=0, atol=self.error + other.error)
        allowed = self.kurtosis_error + other.kurtosis_error
        np.testing.assert_allclose(self.kurtosis, other.kurtosis, rtol=0, atol=allowed)


@cache
def limit(program: str, *settings: str) -> Limit:
    """By the command line."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    result = CliRunner().invoke(main, ["limit", program, "--format", "json", *arguments])
    assert result.exit_code == 0, result.output
    law: dict[str, Any] = json.loads(result.output)["limit"]
    y = law["outputs"]["y"]
    return Limit(np.array(y["cov"]), law["error"], np.array(y["kurtosis"]), max(y["kurtosis_error"]))


def test_scores_on_the_scale_of_averages() -> None:
    last = limit(REGIMES, "mu=1")
    np.testing.assert_allclose(last.kurtosis, 3, rtol=0, atol=last.kurtosis_error)
    np.testing.assert_allclose(last.cov, limit("attention_1n").cov, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_scores_on_either_scale() -> None:
    first, mixed = (limit(REGIMES, f"mu={mu}") for mu in (0, 0.5))
    assert np.all((first.kurtosis > mixed.kurtosis) & (mixed.kurtosis > 3))
    first.agrees(limit("attention_correlated", "rho=0.5"))


@pytest.mark.slow
def test_the_rank_leaves_the_limit_as_it_is() -> None:
    limit(REGIMES).agrees(limit(REGIMES, "r=4"))


@pytest.mark.slow
def test_as_many_heads_as_one_likes() -> None:
    """Far beyond any number that could be run: the covariance stays, the kurtosis is 3 + c/H."""
    few, many = limit(REGIMES), limit(REGIMES, "H=100000")
    np.testing.assert_allclose(few.cov, many.cov, rtol=0, atol=few.error + many.error)
    excess = 2 * (few.kurtosis - 3) / 100_000
    np.testing.assert_allclose(many.kurtosis, 3 + excess, rtol=0, atol=many.kurtosis_error + 1e-12)
    assert many.kurtosis_error < 1e-7


@pytest.mark.slow
def test_heads_of_fixed_dimension_approach_those_of_growing_ones() -> None:
    """The dimension stays finite: what it leaves of the kurtosis is of order 1/D."""
    all_widths = limit("attention").kurtosis
    excess = [(limit("attention_fixed_head", f"D={d}").kurtosis - all_widths).mean() for d in (16, 64)]
    assert excess[0] > 2 * excess[1] > 0
