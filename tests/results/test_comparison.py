"""`compare` on laws with known numbers, and how comparisons show themselves."""

import json
import math

import pytest

import tensorprog as tp
from tensorprog import ProgramError, compare
from tests.results.fakes import MixtureLaw, draw, netsor


def test_samples_of_the_law_itself_are_not_told_from_it():
    program = netsor(3)
    law = MixtureLaw(program, (0.5, 2.0))
    table = compare(draw(program, 20_000, law.variances, seed=1), law)
    assert [row.variable for row in table.rows] == ["y[0]", "y[1]", "y[2]"]
    for row in table.rows:
        assert abs(row.z_mean) < 4
        assert abs(row.z_variance) < 4
        assert abs(row.z_kurtosis) < 4
        assert row.ks_p > 1e-3
        assert row.kl < row.kl_floor + 5 * row.kl_se
        assert row.limit_kurtosis == pytest.approx(3 * 2.125 / 1.5625)
        assert row.kl_method == "kde"


def test_a_wrong_law_is_found_out():
    program = netsor(1)
    gaussian = MixtureLaw(program, (1.25,))
    row = compare(draw(program, 20_000, (0.5, 2.0), seed=1), gaussian)["y[0]"]
    assert row.z_kurtosis > 10
    assert abs(row.z_variance) < 4
    assert row.ks_p < 1e-9
    assert row.kl > 10 * row.kl_floor


def test_coordinates_are_pooled_and_counted_honestly():
    program = netsor(1)
    law = MixtureLaw(program, (0.1, 4.0))
    few = compare(draw(program, 4000, law.variances, seed=2), law)["y[0]"]
    many = compare(draw(program, 4000, law.variances, seed=2, coordinates=50), law)["y[0]"]
    assert few.samples == many.samples == 4000
    assert few.kurtosis_se > many.kurtosis_se > few.kurtosis_se / 10
    assert abs(many.z_kurtosis) < 4
    assert many.ks_p > 1e-3


def test_without_a_density_both_are_smoothed():
    program = netsor(1)
    law = MixtureLaw(program, (0.5, 2.0), has_density=False)
    row = compare(draw(program, 10_000, law.variances, seed=3), law)["y[0]"]
    assert row.kl_method == "kde of both"
    assert row.kl < 3 * row.kl_floor
    assert row.ks_p > 1e-3


def test_samples_against_samples_and_against_nothing():
    program = netsor(2)
    one, two = (draw(program, 5000, (1.0,), seed=seed) for seed in (1, 2))
    assert compare(one, two).reference == "samples"
    assert all(row.ks_p > 1e-3 for row in compare(one, two).rows)
    assert compare(one, one)["y[0]"].ks == 0
    alone = compare(one, None)
    assert math.isnan(alone["y[0]"].kl)
    assert alone["y[0]"].variance == pytest.approx(1, abs=0.1)


def test_variables_are_chosen_by_name():
    program = netsor(3)
    samples, law = draw(program, 500, (1.0,)), MixtureLaw(program)
    assert [row.variable for row in compare(samples, law, "y[1]").rows] == ["y[1]"]
    assert len(compare(samples, law, ["y"]).rows) == 3
    for wrong in ("z", "y[3]", "y[0,1]", "y[a]", "y[-1]"):
        with pytest.raises(ProgramError):
            compare(samples, law, wrong)
    with pytest.raises(ProgramError, match="did you mean"):
        compare(samples, law)["y[9]"]


def test_variables_that_are_no_outputs_are_compared_with_draws_of_their_own():
    program = tp.load("attention", s=2, H=1)
    law = program.limit()
    samples = program.run(width=64, samples=2000, keep=["x"])
    bounded, score = compare(samples, law, ["x[0]", "p[0,0,1]"]).rows
    assert bounded.kl_method == "kde of both"
    assert all(math.isfinite(row.ks + row.kl) for row in (bounded, score))
    assert abs(bounded.z_variance) < 4
    with pytest.raises(ProgramError, match="u was not kept"):
        compare(samples, law, "u[0]")


def test_constant_outputs_and_single_networks_give_no_distances():
    program = netsor(1)
    row = compare(draw(program, 50, (0.0,)), MixtureLaw(program, (0.0,)))["y[0]"]
    assert row.variance == 0
    assert math.isnan(row.kurtosis)
    assert math.isnan(row.ks)
    single = compare(draw(program, 1, (1.0,)), MixtureLaw(program))["y[0]"]
    assert math.isnan(single.mean_se)
    json.dumps(single.to_json(), allow_nan=False)
