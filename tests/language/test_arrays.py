"""Open arrays, semidefinite factors and grouping against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from tensorprog import Program
from tensorprog.finite.run import run
from tensorprog.language.evaluate import BATCH, COORDINATE, Open, align, contract, gather, take, union
from tensorprog.language.expr import Affine
from tensorprog.language.linalg import pivoted_cholesky, psd_cholesky
from tests.reading import loads

GENERATOR = np.random.default_rng(0)


def test_union_keeps_batch_first_and_coordinate_last() -> None:
    assert union(("i", COORDINATE), (BATCH, "j")) == (BATCH, "i", "j", COORDINATE)


@pytest.mark.parametrize(
    ("first", "second", "over"),
    [
        ("#aij", "#aj@", "aj"),
        ("ij", "#j@", "j"),
        ("#ij", "", "j"),
        ("#i@", "#j@", "@"),
        ("#ai", "#aj", "a"),
        ("j", "i", "ij"),
    ],
)
def test_contract_is_einsum(first: str, second: str, over: str) -> None:
    sizes = {"#": 3, "a": 2, "i": 4, "j": 5, "@": 6}
    a = GENERATOR.standard_normal([sizes[n] for n in first])
    b = GENERATOR.standard_normal([sizes[n] for n in second])
    result = contract(Open(tuple(first), a), Open(tuple(second), b), list(over))
    letters = str.maketrans({"#": "x", "@": "y"})
    out = "".join(result.axes)
    expected = np.einsum(f"{first},{second}->{out}".translate(letters), a, b)
    np.testing.assert_allclose(result.data, expected, rtol=1e-13)


def test_take_reads_affine_slots_with_boundaries() -> None:
    array = np.arange(20.0).reshape(5, 4)
    ranges = {"i": (0, 4), "j": (0, 2)}
    plus = Affine((("i", 1), ("j", 1)))
    wrapped = take(array, (), (0, 0), (plus, Affine((("j", 1),), 1)), (), ranges, ("wrap", ""))
    expected = np.array([[array[(i + j) % 5, j + 1] for j in range(2)] for i in range(4)])
    np.testing.assert_array_equal(wrapped.data, expected)
    shifted = Affine((("i", 2),), -3)
    zero = take(array, (), (0, 0), (shifted, Affine((), 2)), (), ranges, ("zero", ""))
    np.testing.assert_array_equal(zero.data, [array[k, 2] if 0 <= k < 5 else 0 for k in (-3, -1, 1, 3)])
    view = take(array, (), (0, 0), (Affine((("i", 1),), 1), Affine((("j", 1),))), (), ranges)
    assert np.shares_memory(view.data, array)


def test_gather_reads_a_diagonal() -> None:
    array = GENERATOR.standard_normal((4, 4, 2))
    value = gather(Open(("i", "i_", "r"), array), {"i_": Affine((("i", 1),))}, {"i": (0, 4)}, {"i": 0, "i_": 0})
    assert set(value.axes) == {"i", "r"}
    np.testing.assert_array_equal(align(value, ("i", "r")), array[np.arange(4), np.arange(4)])


def test_semidefinite_cholesky_of_dependent_vectors() -> None:
    x = GENERATOR.standard_normal((7, 3, 10))
    fresh = GENERATOR.standard_normal((7, 2, 10))
    x = np.concatenate([x, x[:, :1], x[:, :1] - 2 * x[:, 1:2], np.zeros((7, 1, 10)), fresh], axis=1)
    gram = x @ x.swapaxes(-1, -2)
    factor, order = pivoted_cholesky(gram)
    np.testing.assert_allclose(factor @ factor.swapaxes(-1, -2), gram, atol=1e-12)
    assert not factor[..., 5:].any()  # rank 5: the other columns are exact zeros
    triangle = np.take_along_axis(factor, order[..., None], axis=-2)[:, :5, :5]
    assert not np.triu(triangle, 1).any()
    np.testing.assert_allclose(factor[:, 3], factor[:, 0], atol=1e-13)


@pytest.mark.parametrize(("size", "length"), [(32, 10), (64, 8), (64, 20), (256, 20)])
def test_semidefinite_cholesky_of_smooth_kernels(size: int, length: float) -> None:
    """Numerically singular without being dependent: rows as they come would leave errors of order 100."""
    place = np.arange(size)
    kernels = [
        np.exp(-(((place[:, None] - place) / length) ** 2)),
        1.0 / (1.0 + place[:, None] + place),
        np.vander(np.linspace(0, 1, size), 12) @ np.vander(np.linspace(0, 1, size), 12).T,
    ]
    for kernel in kernels:
        factor = psd_cholesky(kernel)
        assert np.abs(factor @ factor.T - kernel).max() <= 64 * size**1.5 * np.finfo(float).eps * kernel.max()


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_a_semidefinite_factor_does_not_depend_on_the_matrices_beside_it(size: int) -> None:
    """Definite, barely definite, singular and zero matrices, and some that are no numbers, in one array and alone."""
    x = GENERATOR.standard_normal((24, size, size + 3))
    x[3:6, -1] = x[3:6, 0]
    x[6:18, -1] = x[6:18, 0] + 10.0 ** -np.arange(12)[:, None] * x[6:18, -1]
    x[18, 0] = 0
    x[19] = 0
    gram = x @ x.swapaxes(-1, -2)
    gram[20, -1, -1] = np.nan
    gram[21, 0, 0] = np.inf
    together = psd_cholesky(gram)
    for k, matrix in enumerate(gram):
        assert np.array_equal(together[k], psd_cholesky(matrix), equal_nan=True)
    assert np.isnan(together[20:22]).all()
    fine = np.delete(np.arange(24), [20, 21])
    error = np.abs(together[fine] @ together[fine].swapaxes(-1, -2) - gram[fine])
    assert np.all(error <= 64 * size**1.5 * np.finfo(float).eps * gram[fine].max(axis=(1, 2), keepdims=True))
    for k in (0, 22, 23):
        assert not np.triu(together[k], 1).any()


def test_semidefinite_cholesky_measures_pivots_by_the_scale_given() -> None:
    x = GENERATOR.standard_normal((5, 2, 6))
    rounding = 1e-15 * GENERATOR.standard_normal((5, 2, 6))
    gram = rounding @ rounding.swapaxes(-1, -2)
    assert psd_cholesky(gram).any()
    assert not pivoted_cholesky(gram, np.einsum("bij,bij->bi", x, x))[0].any()


def test_semidefinite_cholesky_does_not_hide_overflow() -> None:
    factor = psd_cholesky(np.array([[[np.inf, 1], [1, 1]], [[4.0, 2], [2, 1]]]))
    assert np.isnan(factor[0]).all()
    np.testing.assert_allclose(factor[1] @ factor[1].T, [[4, 2], [2, 1]])


WEIGHTS_BY_SUM = """
program: toeplitz
indices: {i: 3, j: 3, k: 5}
initial:
  x[j]: {mean: 0, cov: 1}
weights:
  W[k]: 1
  D[i,j]: 2
body:
  - t[i,j] = MatMul(W[i+j], x[j])
  - d[i] = MatMul(D[i,i], x[i])
  - y[i] = Nonlin(sum[j](t[i,j]) + d[i])
outputs: [y, t]
"""


def test_weights_at_sums_of_indices_have_the_right_law_in_both_engines_and_the_limit() -> None:
    from tensorprog.law import Law

    netsor = loads(WEIGHTS_BY_SUM)
    expected = np.asarray(Law(netsor).cov("t")).reshape(9, 9)
    members = [(i, j) for i in range(3) for j in range(3)]
    brute = [[float(i + j == k + m and j == m) for k, m in members] for i, j in members]
    np.testing.assert_allclose(expected, brute, atol=1e-13)
    for method in ("dense", "lazy"):
        drawn = run(netsor, 8, 60_000, method=method, seed=1)
        t = drawn["t"].reshape(-1, 9)
        products = t[:, :, None] * t[:, None, :]
        z = (products.mean(axis=0) - expected) / (products.std(axis=0) / np.sqrt(len(t)))
        assert np.abs(z).max() < 5
    draws = Law(netsor).sample(60_000, seed=2)["t"].reshape(-1, 9)
    products = draws[:, :, None] * draws[:, None, :]
    z = (products.mean(axis=0) - expected) / (products.std(axis=0) / np.sqrt(len(draws)))
    assert np.abs(z).max() < 5


def test_a_covariance_may_be_a_table_over_an_index_and_its_second_copy() -> None:
    text = """
program: table
constants:
  K[i,j]: [[2, 1], [1, 3]]
indices: {i: 2, j: 2}
initial:
  x[i]: {cov: "K[i,i_]"}
weights: {W: 1}
body:
  - y[i] = MatMul(W, x[i])
outputs: [y]
"""
    draws = run(loads(text), width=16, samples=4000, seed=1)["y"]
    assert np.allclose(np.cov(draws.T), [[2, 1], [1, 3]], atol=0.3)
    law = Program.from_netsor(loads(text)).limit()
    assert [law.var("y[0]"), law.var("y[1]")] == [2, 3]
