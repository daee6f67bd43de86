"""Laws of entries, beside scipy's."""

from __future__ import annotations

import pytest
from scipy.stats import truncnorm

from tensorprog.importing.laws import EntryLaw, normal_law, truncated_law, uniform_law, whole_law


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-2.0, 0.5), (0.3, 4.0), (-30.0, 1.0)])
def test_a_truncated_normal_has_the_moments_of_scipy(low: float, high: float) -> None:
    law = truncated_law(0.2, 0.7, low, high)
    other = truncnorm((low - 0.2) / 0.7, (high - 0.2) / 0.7, 0.2, 0.7)
    assert law.mean == pytest.approx(other.mean(), rel=1e-9)
    assert law.deviation == pytest.approx(other.std(), rel=1e-9)


def test_bounds_that_never_act_are_none() -> None:
    assert truncated_law(0.0, 0.02, -2.0, 2.0) == normal_law(0.0, 0.02)


def test_laws_are_moved() -> None:
    law = uniform_law(-1.0, 3.0).moved(-2.0, 1.0)
    assert (law.low, law.high, law.mean) == (-5.0, 3.0, -1.0)
    assert law.variance == pytest.approx(8**2 / 12)
    assert normal_law(0.0, 1.0).moved(0.0, 3.0) == normal_law(3.0, 0.0).moved() or not law.gaussian


def test_rows_of_one_law_have_one_law() -> None:
    one, other = normal_law(0.0, 1.0), EntryLaw("constant")
    assert whole_law(((0, 2, one), (2, 4, one))) == one
    assert whole_law(((0, 2, one), (2, 4, other))) is None
