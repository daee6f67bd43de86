"""`compare` on laws with known numbers, and how comparisons show themselves."""

import dataclasses
import json
import math

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import ProgramError, compare
from tensorprog.blocks.text import aligned
from tensorprog.language.formats import chance, label, members, quantity, split
from tensorprog.results.reference import Reference
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
        assert row.w1 < 4 * row.w1_floor
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


def test_two_percent_of_variance_is_seen_by_its_z_score():
    program = netsor(1)
    law = MixtureLaw(program, (1.0,))
    row = compare(draw(program, 100_000, (1.02,), seed=4), law)["y[0]"]
    assert row.z_variance > 3
    assert row.variance == pytest.approx(1.02, abs=4 * row.variance_se)
    assert row.variance_se == pytest.approx(1.02 * math.sqrt(2 / 100_000), rel=0.03)


def test_coordinates_are_pooled_and_counted_honestly():
    program = netsor(1)
    law = MixtureLaw(program, (0.1, 4.0))
    few = compare(draw(program, 4000, law.variances, seed=2), law)["y[0]"]
    many = compare(draw(program, 4000, law.variances, seed=2, coordinates=50), law)["y[0]"]
    assert few.effective == few.samples == many.samples == 4000
    assert 4000 <= many.effective < 40_000  # the variance is drawn once per network
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


def test_atoms_are_compared_by_draws():
    class Rectified(MixtureLaw):
        def sample(self, size, seed=0, keep=()):
            found = draw(self.netsor, size, self.variances, seed=seed, width=None)
            return dataclasses.replace(found, arrays={"y": np.maximum(found["y"], 0)})

    program = netsor(1)
    run = draw(program, 10_000, (1.0,), seed=8)
    row = compare(dataclasses.replace(run, arrays={"y": np.maximum(run["y"], 0)}), Rectified(program))["y[0]"]
    assert row.ks < 0.03
    assert row.kl_method == "kde of both"


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


@pytest.mark.turns(3)
def test_variables_that_are_no_outputs_are_compared_with_draws_of_their_own():
    program = tp.load("attention", s=2, H=1)
    law = program.limit()
    samples = program.run(width=64, samples=2000, keep=["x"])
    bounded, score = compare(samples, law, ["x[0]", "p[0,0,1]"]).rows
    assert bounded.kl_method == "kde of both"
    assert all(math.isfinite(row.ks + row.w1 + row.kl) for row in (bounded, score))
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


def test_how_a_comparison_shows_itself():
    program = netsor(2)
    table = compare(draw(program, 500, (1.0,)), MixtureLaw(program))
    text = str(table)
    assert "mixture at n = 16 against its limit" in text
    assert len({len(line) for line in text.splitlines()[1:3]}) <= 2
    data = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert data["rows"][1]["variable"] == "y[1]"
    with pytest.raises(AttributeError):
        table.rows = ()
    evil = dataclasses.replace(table, program="<script>")
    assert "<script>" not in evil._repr_html_()
    assert "&lt;script&gt;" in evil._repr_html_()


def test_the_law_is_asked_once():
    class Counting(MixtureLaw):
        calls = 0

        def density(self, *args, **options):
            type(self).calls += 1
            return super().density(*args, **options)

    program = netsor(2)
    reference = Reference(Counting(program, (1.0,)))
    compare(draw(program, 2000, (1.0,), seed=0), reference)
    asked = Counting.calls
    for seed in range(1, 4):
        compare(draw(program, 2000, (1.0,), seed=seed), reference)
    assert asked and Counting.calls == asked


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (3.57149, 0.0123, "3.571(12)"),
        (0.43898, 0.0039, "0.4390(39)"),
        (-12.0, 3.0, "-12.0(30)"),
        (0.000412, 0.00011, "4.1(11)e-4"),
        (1234.5, 120.0, "1234(120)"),
        (0.9999, 0.0996, "1.00(10)"),
        (2.0, 0.0, "2"),
        (float("nan"), 1.0, "-"),
        (0.25, float("nan"), "0.25"),
        (0.0, 0.001, "0.0000(10)"),
        (2.5e8, 1.0e6, "2.500(10)e8"),
    ],
)
def test_numbers_with_errors(value, error, text):
    assert quantity(value, error) == text


def test_p_values_and_tables():
    assert [chance(p) for p in (1.0, 0.0312, 0.00071, 1e-12, float("nan"))] == ["1.00", "0.03", "0.0007", "<1e-9", "-"]
    assert aligned(["a", "b"], [["x", "1"], ["yy", "22"]]) == "a    b\nx    1\nyy  22"


def test_members_and_labels():
    program = netsor(4)
    assert members(program, "y", 2) == [(0,), (1,)]
    assert label("y", (3,)) == "y[3]"
    assert label("m", ()) == "m"
    assert split(program, "y[ 2 ]") == ("y", 2)
    assert np.prod(program.families["y"].shape) == 4


def test_a_covariance_has_the_better_known_variances():
    law = tp.load("attention", s=3, H=1).limit()
    reference = Reference(law)
    matrix, errors = reference.covariance("y")
    variance, error = reference.moments("y")["variance"]
    assert (matrix.diagonal() == variance).all() and (errors.diagonal() == error).all()
    other, wrong = law.cov("y", with_error=True)
    assert (errors <= np.asarray(wrong).reshape(3, 3)).all() and errors[0, 1] > error[0]
    assert (np.abs(matrix - np.asarray(other).reshape(3, 3)) <= errors + np.asarray(wrong).reshape(3, 3)).all()
