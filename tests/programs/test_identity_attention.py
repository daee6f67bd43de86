"""Attention without its softmax, y_i = sum_j p_ij o_j: all second moments are known, in the limit and at every width.

Scores and values are independent given the tokens, so that E[y_a y_c | tokens] = s G_ac sum_ef G_ef^2, where G is the
Gram matrix of the tokens over n and s the product of the four variances.  In the limit G is K; for Gaussian tokens at
width n, E[G_ac G_ef G_ef] is a sum over the pairings of six vectors, each 1/n^3 times n to the number of its cycles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tests.reading import loads

Array = NDArray[np.float64]
TEXT = """
program: identity_attention
constants: {{Q: {Q}, K: {K}, V: {V}, O: {O}}}
indices: {{i: {s}, j: {s}}}
initial:
  x[i]: {{mean: 0, gram: {gram}}}
weights: {{WQ: Q, WK: K, WV: V, WO: O}}
body:
  - q[i]   = MatMul(WQ, x[i])
  - k[j]   = MatMul(WK, x[j])
  - v[j]   = MatMul(WV, x[j])
  - o[j]   = MatMul(WO, v[j])
  - p[i,j] = Dot(q[i], k[j])
  - y[i]   = Nonlin(sum[j](p[i,j] * o[j]))
outputs: [y]
"""


def problem(seed: int, s: int) -> tuple[tp.Program, Array, float]:
    """A program with random covariance of tokens and random variances; the covariance; the product of the variances."""
    generator = np.random.default_rng(seed)
    factor = generator.standard_normal((s, max(1, s - seed % 2)))  # singular for odd seeds
    gram = np.round(factor @ factor.T, 12)
    variances = dict(zip("QKVO", generator.uniform(0.3, 2, 4), strict=True))
    text = TEXT.format(s=s, gram=gram.tolist(), **variances)
    return tp.Program.from_netsor(loads(text)), gram, float(np.prod(list(variances.values())))


@pytest.mark.parametrize("seed", range(6))
def test_the_limit(seed: int) -> None:
    program, gram, scale = problem(seed, s=2 + seed % 3)
    assert program.check().grade == "remark"
    law = program.limit()
    found, error = law.cov("y", with_error=True)
    expected = scale * gram * np.sum(gram**2)
    assert np.max(error) < 1e-3 * np.abs(expected).max()
    np.testing.assert_array_less(np.abs(found - expected), np.asarray(error) + 1e-13 * np.abs(expected).max())


def pairings(items: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """All ways to take the items in pairs."""
    if not items:
        yield ()
    for other in items[1:]:
        rest = tuple(item for item in items[1:] if item != other)
        for pairs in pairings(rest):
            yield ((items[0], other), *pairs)


def cycles(pairs: tuple[tuple[int, int], ...]) -> int:
    """Cycles of the graph in which 0-1, 2-3, 4-5 are joined too: the sums over coordinates that remain."""
    left, partner = set(range(6)), {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    count = 0
    while left:
        count += 1
        start = at = min(left)
        while True:
            left -= {at, at ^ 1}
            at = partner[at ^ 1]
            if at == start:
                break
    return count


def at_width(gram: Array, n: int) -> Array:
    """E[G_ac sum_ef G_ef^2] for the Gram matrix over n of Gaussian tokens."""
    total = np.zeros_like(gram)
    for pairs in pairings(tuple(range(6))):
        letters = ["".join("acefef"[place] for place in pair) for pair in pairs]
        total += np.einsum(f"{','.join(letters)}->ac", gram, gram, gram) * n ** (cycles(pairs) - 3.0)
    return total


def test_pairings_by_drawing_gram_matrices() -> None:
    _, gram, _ = problem(2, 3)
    tokens = np.random.default_rng(3).multivariate_normal(np.zeros(3), gram, (200_000, 5))
    drawn = np.swapaxes(tokens, 1, 2) @ tokens / 5
    values = drawn * (drawn**2).sum(axis=(1, 2))[:, None, None]
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.abs((values.mean(axis=0) - at_width(gram, 5)) / error).max() < 4.9
    np.testing.assert_allclose(at_width(gram, 10**9), gram * np.sum(gram**2), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 16, 64, 1024])
def test_finite_widths(n: int) -> None:
    program, gram, scale = problem(2, 4)
    networks, coordinates = 100_000, min(n, 16)
    y = program.run(n, networks, seed=n, coordinates=coordinates)["y"]
    products = np.einsum("nci,ncj->nij", y, y) / coordinates
    error = products.std(axis=0) / np.sqrt(networks)
    assert np.abs((products.mean(axis=0) - scale * at_width(gram, n)) / error).max() < 4.9
