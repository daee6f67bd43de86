import subprocess
import sys

import numpy as np
import pytest
from gaussian_functions import FUNCTIONS, clip_terms
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorprog.gaussian import Estimate, FunctionTerm, RealFunction, cross, mean

TANH, RELU, GELU, CLIP = (FUNCTIONS[name] for name in ("tanh", "relu", "gelu", "clip"))
EVEN = RealFunction(lambda x: x * x / (1 + x * x), np.zeros(0), np.array([[0.0, 1.0]]), 1)


def test_odd_functions_of_centred_variables_have_exact_zeros():
    result = mean(TANH, [0.0, 0.0, 1.0], [1.0, 1e6, 1.0])
    assert result.value[0] == result.value[1] == result.error[0] == result.error[1] == 0.0
    assert result.value[2] > 0.3
    opposite = cross(TANH, EVEN, 0.0, 0.0, [1.0, 2.0], 1.0, [0.3, 1.0])
    assert np.all(opposite.value == 0)
    assert np.all(opposite.error == 0)
    # independent: the product of an exact zero and a number
    product = cross(TANH, RELU, 0.0, 0.5, 1.0, 2.0, 0.0)
    assert product.value == 0
    assert product.error == 0
    both = cross(CLIP, CLIP, 0.0, 0.0, 1.0, [1.0, 0.0], 0.0)
    assert np.all(both.value == 0)
    assert np.all(both.error == 0)


def test_independence_gives_products_and_no_variance_gives_values():
    product = cross(GELU, RELU, 0.3, -0.2, 1.5, 0.7, 0.0)
    assert product.value == pytest.approx(mean(GELU, 0.3, 1.5).value * mean(RELU, -0.2, 0.7).value, rel=1e-15)
    point = cross(GELU, TANH, 0.3, -0.2, 0.0, 0.0, 0.0)
    assert point.value == pytest.approx(GELU.call(np.array([0.3]))[0] * np.tanh(-0.2), rel=1e-15)


def test_a_wide_clip_loses_nothing():
    wide = FUNCTIONS["wideclip"]
    assert abs(cross(wide, wide, 0.0, 0.0, 1.0, 1.0, 1.0).value - 1) < 1e-14
    result = cross(wide, wide, 0.0, 0.0, 1.0, 1.0, 0.375)
    assert abs(result.value - 0.375) < 1e-15
    assert result.error < 1e-14
    assert abs(mean(wide, 0.7, 1.0).value - 0.7) < 1e-15


def test_arc_cosine_and_arcsine_kernels():
    # Cho & Saul 2009, Williams 1998
    angle = np.linspace(0.01, np.pi - 0.01, 9)
    relu = cross(RELU, RELU, 0.0, 0.0, 2.0, 2.0, 2 * np.cos(angle))
    assert np.allclose(relu.value, (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi, rtol=0, atol=3e-15)
    erf = cross(FUNCTIONS["erf"], FUNCTIONS["erf"], 0.0, 0.0, 2.0, 3.0, 1.1)
    assert erf.value == pytest.approx(2 / np.pi * np.arcsin(2.2 / np.sqrt(5 * 7)), rel=1e-14)


@pytest.mark.parametrize("shapes", [((), ()), ((3,), ()), ((2, 1), (3,)), ((2, 1, 1), (1, 3, 4)), ((0,), ())])
def test_batches_of_every_shape_broadcast(shapes):
    rng = np.random.default_rng(0)
    mu, var = rng.normal(size=shapes[0]), rng.uniform(0.5, 2, size=shapes[1])
    batch = np.broadcast_shapes(*shapes)
    for f in (TANH, RELU, GELU):
        single = mean(f, mu, var)
        pair = cross(f, GELU, mu, 0.1, var, 1.0, 0.2)
        for result in (single, pair):
            assert isinstance(result, Estimate)
            assert result.value.shape == result.error.shape == batch
        if pair.value.size:
            index = np.unravel_index(pair.value.size - 1, batch)
            one = cross(f, GELU, np.broadcast_to(mu, batch)[index], 0.1, np.broadcast_to(var, batch)[index], 1.0, 0.2)
            assert abs(pair.value[index] - one.value) <= pair.error[index] + one.error


def test_parameter_arrays_vary_over_the_batch():
    width = np.array([[0.5], [3.0]])
    clips = RealFunction(
        lambda x: np.clip(x, -width[..., None], width[..., None]),
        np.stack([-width, width], -1),
        terms=clip_terms(width),
    )
    var = np.array([0.5, 1.0, 2.0])
    table = cross(clips, TANH, 0.1, 0.0, var, 1.0, 0.4)
    assert table.value.shape == (2, 3)
    for i, w in enumerate((0.5, 3.0)):
        one = RealFunction(lambda x, w=w: np.clip(x, -w, w), np.array([-w, w]), terms=clip_terms(w))
        row = cross(one, TANH, 0.1, 0.0, var, 1.0, 0.4)
        assert np.all(np.abs(row.value - table.value[i]) <= row.error + table.error[i])
    # parameters that only the call knows about
    slope = np.array([1.0, 2.0])[:, None]
    hidden = RealFunction(lambda x: np.tanh(slope * x), np.zeros(0), np.array([[0.0, 0.5]]))
    assert mean(hidden, 0.3, 1.0).value.shape == (2,)
    assert cross(hidden, hidden, 0.3, 0.1, 1.0, 1.0, 0.5).value.shape == (2,)


@pytest.mark.slow
def test_large_batches_run_in_blocks():
    mu = np.linspace(-2, 2, 5000).reshape(50, 100)
    many = mean(TANH, mu, 0.5)
    few = mean(TANH, mu[::7, ::9], 0.5)
    assert many.value.shape == (50, 100)
    assert np.allclose(many.value[::7, ::9], few.value, rtol=0, atol=1e-15)
    pairs = cross(TANH, CLIP, mu, 0.2, 0.5, 1.0, np.where(mu > 0, 0.3, 0.0))
    one = cross(TANH, CLIP, mu[40, 60], 0.2, 0.5, 1.0, 0.3)
    assert abs(pairs.value[40, 60] - one.value) <= 1e-15


def test_functions_compiled_for_a_batch_may_have_axes_of_length_one():
    # a width of shape (1, 1) varies over no batch axis, and calls answer with all batch axes
    width = np.ones((1, 1))
    boxed = RealFunction(
        lambda x: np.clip(x, -width[..., None], width[..., None]),
        np.stack([-width, width], -1),
        terms=clip_terms(width),
    )
    law = (0.1, 0.0, np.ones((3, 1)), [1.0, 2.0], 0.4)
    for f in (boxed, RealFunction(boxed.call, boxed.kinks)):
        assert np.allclose(cross(f, TANH, *law).value, cross(CLIP, TANH, *law).value, rtol=0, atol=1e-15)
        assert np.allclose(mean(f, 0.1, np.ones((3, 2))).value, mean(CLIP, 0.1, 1.0).value, rtol=0, atol=1e-15)


def test_hinges_far_from_a_wide_or_narrow_variable():
    # clip(x, -1, 1) at 1e4 deviations of width: nearly a sign, yet nothing cancels
    wide = cross(CLIP, CLIP, 0.0, 0.0, 1e8, 1e8, 0.3e8)
    assert abs(wide.value - 2 / np.pi * np.arcsin(0.3)) < 1e-4
    assert wide.error < 1e-13
    # far in the tail a relu keeps absolute smallness
    tail = cross(RELU, RELU, -30.0, -30.0, 1.0, 1.0, 0.5)
    assert 0 <= tail.value <= tail.error + 1e-100
    shifted = mean(RELU, 1e-3 - 1.0, 1e-6)
    assert shifted.value == 0


def test_missing_features_show_in_the_reported_error():
    bare = RealFunction(lambda x: np.tanh(40 * x - 13), np.zeros(0))
    told = RealFunction(lambda x: np.tanh(40 * x - 13), np.zeros(0), np.array([[13 / 40, 1 / 40]]))
    for rho in (0.4, 1.0):
        rough, fine = (cross(f, f, 0.0, 0.0, 1.0, 1.0, rho) for f in (bare, told))
        assert fine.error < 1e-12
        assert abs(rough.value - fine.value) <= rough.error + fine.error


def test_overflow_is_stated_and_nan_is_refused():
    exponential = RealFunction(np.exp, np.zeros(0), terms=(FunctionTerm(1.0, 0, "exp"),))
    assert mean(exponential, 0.0, 1e6).error == np.inf
    assert mean(exponential, 0.0, 4.0).value == pytest.approx(np.exp(2.0), rel=1e-14)
    bare = RealFunction(np.exp, np.zeros(0))
    assert cross(bare, bare, 0.0, 0.0, 4.0, 4.0, 3.0).value == pytest.approx(np.exp(7.0), rel=1e-11)
    with pytest.raises(FloatingPointError, match="returned nan"):
        mean(RealFunction(np.log, np.zeros(0)), 0.0, 1.0)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="semidefinite"):
        cross(TANH, TANH, 0.0, 0.0, 1.0, 1.0, 1.1)
    with pytest.raises(ValueError, match="negative"):
        mean(TANH, 0.0, -1.0)
    with pytest.raises(ValueError, match="finite"):
        mean(TANH, np.nan, 1.0)
    with pytest.raises(ValueError, match="cov must be 0"):
        cross(TANH, TANH, 0.0, 0.0, 0.0, 1.0, 0.5)


def test_rounding_beyond_correlation_one_counts_as_one():
    v = 1.7
    above = cross(RELU, RELU, 0.0, 0.0, v, v, np.nextafter(v, 2))
    assert above.value == pytest.approx(v / 2, rel=1e-14)


NAMES = ["relu", "clip", "abs", "gelu", "erf", "step", "tanh", "elu", "silu", "gelu_tanh"]


@settings(max_examples=40)
@given(
    f=st.sampled_from(NAMES),
    g=st.sampled_from(NAMES),
    mu=st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    log_sd=st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
    rho=st.floats(-1, 1),
)
def test_the_ladder_and_plain_quadrature_agree_within_their_errors(f, g, mu, log_sd, rho):
    from dataclasses import replace

    f, g = FUNCTIONS[f], FUNCTIONS[g]
    sd = [10.0**k for k in log_sd]
    law = (mu[0], mu[1], sd[0] ** 2, sd[1] ** 2, 0.9999999999 * rho * sd[0] * sd[1])
    ladder = cross(f, g, *law)
    numeric = cross(replace(f, terms=None), replace(g, terms=None), *law)
    assert np.isfinite(ladder.value)
    assert abs(ladder.value - numeric.value) <= ladder.error + numeric.error
    # Cauchy-Schwarz
    squares = cross(f, f, mu[0], mu[0], *[sd[0] ** 2] * 3), cross(g, g, mu[1], mu[1], *[sd[1] ** 2] * 3)
    norm = np.sqrt(np.prod([s.value + s.error for s in squares]))
    assert abs(ladder.value) <= norm * (1 + 1e-12)
    assert ladder.error <= 1e-10 * norm + 1e-300


def test_importing_the_package_leaves_scipy_stats_alone():
    code = "import sys, tensorprog.gaussian; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["tanh", "relu", "elu"])
def test_equal_laws_give_a_result_for_each(name):
    f, ones = FUNCTIONS[name], np.ones(5)
    assert mean(f, 0.2 * ones, 1.3 * ones).value.shape == (5,)
    assert cross(f, f, 0.0, 0.0, ones[:, None], np.ones(3), 0.5).value.shape == (5, 3)
    assert cross(f, f, 0.1 * ones, 0.0, ones, 1.0, 0.5).error.shape == (5,)
