"""Laws over draws where every number is known: vectors that meet a chi-square number, m[i] = |q[i]|**2 / d, d = 2."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorprog import Law
from tests.reading import loads
from tests.stated import STATED

Array = NDArray[np.float64]
TEXT = """
program: squares
fixed_widths: {d: 2}
indices: {i: "1..2", j: "1..2"}
initial:
  x[i]: {mean: 0, cov: "0.5**abs(i - i_) * i * i_"}
weights:
  WQ: {variance: 1, shape: [d, n]}
  WO: {variance: 1, shape: [n, d]}
body:
  - q[i]   = MatMul(WQ, x[i])
  - m[i]   = Dot(q[i], q[i], scale=1/n)
  - p[i,j] = Dot(q[i], q[j])
  - o[i]   = MatMul(WO, q[i])
  - y[i]   = Nonlin(o[i] + m[i])
  - z      = Nonlin(o[1] + relu(o[2]))
outputs: [y, z, m, p]
"""
C = np.array([[1.0, 1.0], [1.0, 4.0]])


def _known(found: tuple[Array, Array], exact: Array | float, most: float = 0.1) -> None:
    """Within five standard errors, in units of the stated error; and that error is small, but there is one."""
    value, error = (np.asarray(part) for part in found)
    scale = np.abs(exact).max()
    assert np.all(np.abs(value - exact) <= 5 / STATED * error), (value, error, exact)
    assert 0 < error.max() <= most * scale, (error, scale)


@pytest.fixture(scope="module")
def law() -> Law:
    return Law(loads(TEXT), accuracy=0.1)


def test_covariances_are_those_of_the_means_and_those_given_the_draws(law: Law) -> None:
    """Cov m_i m_j = 2 C_ij**2 / d, and y_i is N(m_i, m_i) given the draws."""
    squares = C**2
    for pair, exact in ((("y", "y"), C + squares), (("y", "m"), squares), (("m", "m"), squares)):
        _known(law.cov(*pair, with_error=True), exact)
    tied = np.einsum("ik,jl->ijkl", C, C) + np.einsum("il,jk->ijkl", C, C)
    _known(law.cov("p", with_error=True), tied)  # the same weight on both sides
    _known(law.expectation("y[1]*y[2]", with_error=True), C[0, 1] + squares[0, 1] + C[0, 0] * C[1, 1])


def test_moments_of_one_variable(law: Law) -> None:
    """m_2 / 4 is exponential; y_2 / 2 is e**(1/2) g + 2 e; a score on one weight is 2**(1/2) m."""
    _known(law.var("m[2]", with_error=True), 16)
    _known(law.kurtosis("m[2]", with_error=True), 9, most=0.2)
    _known(law.var("p[2,2]", with_error=True), 32)
    _known(law.var("y[2]", with_error=True), 20)
    # E (2 (e - 1) + e**(1/2) g)**4 = 16 * 9 + 6 * 4 * E (e - 1)**2 e + 3 E e**2, in units of 16
    _known(law.kurtosis("y[2]", with_error=True), (144 + 72 + 6) / 25, most=0.1)
    assert not law.is_linear("q")


def test_parts_that_share_a_weight_are_not_independent(law: Law) -> None:
    """E (o_1 + relu(o_2))**2 = C_11 + C_22 / 2 + C_12, and E relu(o_2) = E (m_2 / 2 pi)**(1/2)."""
    mean = 2 * math.gamma(1.5) / math.sqrt(2 * math.pi)
    _known(law.var("z", with_error=True), C[0, 0] + C[1, 1] / 2 + C[0, 1] - mean**2)


def test_joint_laws_are_averages_of_normal_laws(law: Law) -> None:
    q = np.random.default_rng(0).standard_normal((20_000, 2, 2)) @ np.linalg.cholesky(C).T
    gram = np.einsum("nci,ncj->nij", q, q) / 2
    points = np.array([[0.5, 1.0], [1.5, -0.5]])
    off = points[:, None] - np.diagonal(gram, axis1=1, axis2=2)
    inverse, root = np.linalg.inv(gram), np.sqrt(np.linalg.det(gram))
    each = np.exp(-np.einsum("pni,nij,pnj->pn", off, inverse, off) / 2) / (2 * math.pi * root)
    value, error = law.density(["y[1]", "y[2]"], points, with_error=True)
    spread = each.std(axis=1) / math.sqrt(each.shape[1])
    assert np.all(np.abs(value - each.mean(axis=1)) <= 5 * np.hypot(spread, np.asarray(error) / STATED))
