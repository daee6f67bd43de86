"""What is carried along layers that scores stand between: residual streams behind norms and functions, and cells."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads
from tests.stated import STATED

Array = NDArray[np.float64]

NORMED = """
program: normed
constants: {s: 3, H: 2, L: 3}
indices: {i: s, j: s, a: H, l: 1..L}
initial:
  e[i]: {mean: 0, cov: "where(i == i_, 1, 0.3)"}
weights: {"Q[l,a]": 1, "K[l,a]": 1, "V[l,a]": 1, "W[l]": 2, "U[l]": 1}
body:
  - x[0,i]     = Nonlin(e[i])
  - q[l,a,i]   = MatMul(Q[l,a], x[l-1,i])
  - k[l,a,i]   = MatMul(K[l,a], x[l-1,i])
  - v[l,a,i]   = MatMul(V[l,a], x[l-1,i])
  - p[l,a,i,j] = Dot(q[l,a,i], k[l,a,j])
  - r[l,i]     = Nonlin(x[l-1,i] + sum[a,j](softmax[j](p[l,a,i,j]) * v[l,a,j]) / sqrt(H))
  - m[l,i]     = Dot(r[l,i], r[l,i], scale=1/n)
  - z[l,i]     = Nonlin(r[l,i] / sqrt(m[l,i] + 1e-9))
  - f[l,i]     = MatMul(W[l], z[l,i])
  - g[l,i]     = Nonlin(relu(f[l,i]))
  - h[l,i]     = MatMul(U[l], g[l,i])
  - b[l,i]     = Nonlin(z[l,i] + h[l,i])
  - c[l,i]     = Dot(b[l,i], b[l,i], scale=1/n)
  - x[l,i]     = Nonlin(b[l,i] / sqrt(c[l,i] + 1e-9))
  - y[i]       = Nonlin(x[L,i])
outputs: [y]
"""
BENT = (
    re.sub(r"  - m\[.*  - x\[l,i\] [^\n]*", "  - x[l,i]     = Nonlin(tanh(r[l,i]))", NORMED, flags=re.S)
    .replace(', "W[l]": 2, "U[l]": 1', "")
    .replace("L: 3", "L: 2")
)
CELL = """
program: cell
indices: {t: "1..2"}
initial:
  x: {mean: 0, cov: 1}
weights:
  Q: 1
  K: 1
  W[t]: 1
body:
  - q = MatMul(Q, x)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - c[0] = Nonlin(x)
  - g[t] = MatMul(W[t], c[t - 1])
  - c[t] = Nonlin(sigmoid(p) * tanh(g[t]) * c[t - 1])
outputs: [c]
"""


def _law(text: str, **constants: float) -> Law:
    return Law(loads(text, constants))


def _spelled(text: str, layers: int) -> str:
    """The program with one statement for each layer, and families of their own: x_2[i] in place of x[l,i]."""
    head, body = text.split("body:\n")
    lines, tail = body.split("outputs:")[0].splitlines(), body.split("outputs:")[1]
    repeated = [line for line in lines if re.search(r"\bl\b", line)]
    written = [lines[0]]
    for layer in range(1, layers + 1):
        for line in repeated:
            written.append(re.sub(r"\bl\b", str(layer), line.replace("l-1", str(layer - 1))))
    written.append(lines[-1].replace("L,", f"{layers},"))
    families = re.sub(r"\b([a-z])\[(\d),", r"\1_\2[", "\n".join(written))
    return f"{head}body:\n{families}\noutputs:{tail}"


def _agree(first: tuple[Array, Array], second: tuple[Array, Array]) -> None:
    """Two numbers with their errors."""
    assert np.all(np.abs(np.asarray(first[0]) - second[0]) <= np.asarray(first[1]) + second[1])


@pytest.mark.slow
@pytest.mark.parametrize(("text", "layers", "read"), [(NORMED, 3, range(1, 4)), (BENT, 2, ())])
def test_layers_with_an_index_have_the_law_of_layers_written_one_by_one(
    text: str, layers: int, read: Sequence[int]
) -> None:
    indexed, apart = _law(text), _law(_spelled(text, layers))
    _agree(indexed.cov("y", with_error=True), apart.cov("y", with_error=True))
    _agree(indexed.kurtosis("y[0]", with_error=True), apart.kurtosis("y[0]", with_error=True))
    for one, two in product(read, repeat=2):
        value, error = indexed.cov("x", with_error=True)
        known = apart.cov(f"x_{one}", f"x_{two}", with_error=True)
        _agree((value[one, :, two], error[one, :, two]), known)


def _dense(n: int, count: int, normed: bool, layers: int) -> Array:
    """Mean products of tokens of dense networks of width n: three tokens, two heads."""
    rng, factor = np.random.default_rng(7), np.linalg.cholesky(np.where(np.eye(3) > 0, 1, 0.3))
    found = np.empty((count, 3, 3))

    def weights(*vectors: Array) -> Array:
        return vectors[0] @ rng.standard_normal((n, n)) / math.sqrt(n)

    for number in range(count):
        x = factor @ rng.standard_normal((3, n))
        for _ in range(layers):
            r = x
            for _ in range(2):
                p = np.exp(weights(x) @ weights(x).T / math.sqrt(n))
                r = r + p / p.sum(axis=1, keepdims=True) @ weights(x) / math.sqrt(2)
            if normed:
                z = r / np.sqrt(np.mean(r**2, axis=1, keepdims=True))
                b = z + weights(np.maximum(math.sqrt(2) * weights(z), 0))
                x = b / np.sqrt(np.mean(b**2, axis=1, keepdims=True))
            else:
                x = np.tanh(r)
        found[number] = x @ x.T / n
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("text", "layers"), [(NORMED, 3), (BENT, 2)])
def test_dense_networks_come_to_the_law(text: str, layers: int) -> None:
    """Two widths, extrapolated to infinite width by 2 x(2n) - x(n)."""
    narrow, wide = (_dense(n, count, text is NORMED, layers) for n, count in ((32, 4000), (64, 2000)))
    off = [each[:, 0, 1] + each[:, 0, 2] + each[:, 1, 2] for each in (narrow, wide)]
    value = (2 * off[1].mean() - off[0].mean()) / 3
    error = math.hypot(2 * off[1].std() / math.sqrt(2000), off[0].std() / math.sqrt(4000)) / 3
    cov, stated = _law(text).cov("y", with_error=True)
    known = (cov[0, 1] + cov[0, 2] + cov[1, 2]) / 3
    assert abs(value - known) < STATED * error + stated.max() and error < 0.01 * known


@pytest.mark.slow
def test_a_cell_behind_a_score_has_its_law() -> None:
    """Given p, c[t] has the variance s**2 E tanh(g)**2 Var c[t - 1] with s = sigmoid(p); sums over Hermite points."""
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    first = 1 / (1 + np.exp(-points)) ** 2 * (weights * np.tanh(points) ** 2).sum()
    inner = np.tanh(np.sqrt(first)[:, None] * points) ** 2 @ weights
    known = [1.0, (weights * first).sum(), (weights * first / (1 + np.exp(-points)) ** 2 * inner).sum()]
    value, error = _law(CELL).cov("c", with_error=True)
    assert np.all(np.abs(np.diagonal(value) - known) <= np.diagonal(error) + 1e-12)
    assert np.all(np.diagonal(error) < 0.01 * np.array(known))


@pytest.mark.slow
def test_what_is_carried_otherwise_is_refused_in_words() -> None:
    beside = CELL.replace("sigmoid(p) * tanh(g[t]) * c[t - 1]", "sigmoid(g[t]) * c[t - 1]")
    beside = beside.replace("  Q: 1", "  U: 1\n  Q: 1")
    beside = beside.replace("outputs: [c]", "  - z = Nonlin(relu(p * x) + c[2])\n  - u = MatMul(U, z)\noutputs: [u]")
    with pytest.raises(tp.NotCompiledError, match="carried along a recurrence"):
        _law(beside).cov("u")
    with pytest.raises(tp.NotCompiledError, match="nests more than 150 functions"):
        _law(BENT, L=300).cov("y")
    with pytest.raises(tp.NotCompiledError, match="nests more than 150 functions"):
        _law(NORMED, L=40).cov("y")
