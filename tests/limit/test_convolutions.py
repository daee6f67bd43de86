"""Convolutions: reads beyond a zero or circular boundary, families read at several offsets, pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads
from tests.stated import STATED

from . import oracles

P = 7
CNN = """
program: cnn
constants: {P: 7}
indices: {c: {size: P, boundary: BOUNDARY}, d: "-1..1", b: 2}
initial:
  "x[b,c]": {mean: 0, cov: "0.6**abs(c - c_) * 0.5**abs(b - b_)"}
weights: {"W1[d]": 1.5, "W2[d]": 0.7, V: 1.3}
body:
  - f[b,c,d] = MatMul(W1[d], x[b,c+d])
  - u[b,c] = Nonlin(relu(sum[d](f[b,c,d]) / sqrt(3)))
  - g[b,c,d] = MatMul(W2[d], u[b,c+d])
  - v[b,c] = Nonlin(erf(sum[d](g[b,c,d])))
  - p[b] = Nonlin(mean[c](v[b,c]))
  - y[b] = MatMul(V, p[b])
outputs: [y]
"""


def _shifted(k: NDArray[np.float64], boundary: str) -> NDArray[np.float64]:
    """sum over d of k(c + d, c' + d), k over (b, c, b', c')."""
    total = np.zeros_like(k)
    for d in (-1, 0, 1):
        for c in range(P):
            for e in range(P):
                i, j = c + d, e + d
                if boundary == "wrap":
                    i, j = i % P, j % P
                if 0 <= i < P and 0 <= j < P:
                    total[:, c, :, e] += k[:, i, :, j]
    return total


def _kernel(function, k: NDArray[np.float64]) -> NDArray[np.float64]:  # type: ignore[no-untyped-def]
    return function(k.reshape(2 * P, 2 * P)).reshape(k.shape)  # type: ignore[no-any-return]


@pytest.mark.parametrize("boundary", ["zero", "wrap"])
@pytest.mark.parametrize("apart", [0.6, 0.0])
def test_a_network_of_two_layers_with_pooling(boundary: str, apart: float) -> None:
    """Of places that depend on each other, and of independent ones."""
    text = CNN if apart else CNN.replace("0.6**abs(c - c_) * ", "")
    law = Law(loads(text.replace("BOUNDARY", boundary)))
    c, b = np.arange(P), np.arange(2)
    k = apart ** abs(c[:, None, None] - c) * 0.5 ** abs(b[:, None, None, None] - b[:, None])
    one = _kernel(oracles.arccos_kernel, 1.5 * _shifted(k, boundary) / 3)
    two = _kernel(oracles.arcsine_kernel, 0.7 * _shifted(one, boundary))
    np.testing.assert_allclose(np.asarray(law.second_moment("u")), one, atol=1e-12)
    np.testing.assert_allclose(np.asarray(law.second_moment("v")), two, atol=1e-12)
    expected = 1.3 * two.mean(axis=(1, 3))
    found = law.cov("y")
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
    assert found.error < 1e-10
    # second moments do not depend on which output of which offset is asked for
    outer = np.asarray(law.cov("g"))
    assert np.all(outer[:, :, 0, :, :, 1] == 0)


@pytest.mark.parametrize("boundary", ["zero", "wrap"])
def test_draws_have_the_covariances(boundary: str) -> None:
    law = Law(loads(CNN.replace("BOUNDARY", boundary)))
    draws = law.sample(40_000, seed=3, keep=("u", "f", "v"))
    for name in ("u", "v"):
        drawn = draws[name].reshape(len(draws[name]), -1)
        expected = np.asarray(law.second_moment(name)).reshape(drawn.shape[1], -1)
        products = np.einsum("ni,nj->nij", drawn, drawn)
        z = (products.mean(axis=0) - expected) / (products.std(axis=0) / np.sqrt(len(drawn)) + 1e-300)
        assert np.abs(z).max() < 5
    f = draws["f"]
    np.testing.assert_allclose(draws["u"], np.maximum(f.sum(axis=-1) / np.sqrt(3), 0), atol=1e-12)


def test_reads_beyond_a_boundary_in_one_function() -> None:
    """tanh of three neighbours is a function of one Gaussian variable, with what lies outside left out or wrapped."""
    text = """
program: neighbours
indices: {c: {size: 4, boundary: BOUNDARY}}
initial: {"x[c]": {mean: 0.5, cov: 1}}
body:
  - u[c] = Nonlin(erf(x[c-1] + x[c] + x[c+1]))
  - w[c] = Nonlin(u[c+1] + 2)
outputs: [w]
"""
    for boundary in ("zero", "wrap"):
        law = Law(loads(text.replace("BOUNDARY", boundary)))
        inside = np.array(
            [[abs(i - j) <= 1 or (boundary == "wrap" and abs(i - j) == 3) for j in range(4)] for i in range(4)],
            dtype=float,
        )
        cov, mean = inside @ inside.T, 0.5 * inside.sum(axis=1)
        nodes, weights = np.polynomial.hermite_e.hermegauss(120)
        from scipy.special import erf

        expected = np.array(
            [
                (weights * erf(m + np.sqrt(v) * nodes)).sum() / weights.sum()
                for m, v in zip(mean, np.diag(cov), strict=True)
            ]
        )
        np.testing.assert_allclose(law.mean("u"), expected, atol=1e-10)
        moved = np.roll(expected, -1) if boundary == "wrap" else np.append(expected[1:], 0)
        np.testing.assert_allclose(law.mean("w"), moved + 2, atol=1e-10)


@pytest.mark.slow
def test_scores_of_neighbours() -> None:
    """Attention to the two neighbours on a circle: scores are those of a program that writes the neighbours out."""
    text = """
program: local
indices: {c: {size: 4, boundary: wrap}, d: "-1..1"}
initial: {"x[c]": {mean: 0, cov: "0.5**abs(c - c_)"}}
weights: {Q: 1, K: 1, V: 1}
body:
  - q[c] = MatMul(Q, x[c])
  - k[c] = MatMul(K, x[c])
  - p[c,d] = Dot(q[c], k[c+d])
  - o[c] = MatMul(V, x[c])
  - y[c] = Nonlin(sum[d](softmax[d](p[c,d]) * o[c+d]))
outputs: [y]
"""
    law = Law(loads(text), accuracy=0.01)
    k = 0.5 ** np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    at = (np.arange(4)[:, None] + np.array([-1, 0, 1])) % 4
    expected = np.einsum("ac,aicj->aicj", k, k[at][:, :, at])
    np.testing.assert_allclose(np.asarray(law.cov("p")), expected, atol=1e-12)
    draws = law.sample(40_000, seed=0)["y"]
    value, error = law.cov("y", with_error=True)
    products = np.einsum("ni,nj->nij", draws, draws)
    spread = products.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(products.mean(axis=0) - value) <= 5 * np.hypot(spread, error / STATED))


M, MANY, SIDE = 6, 18, 8  # as many as are computed tile by tile
IMAGES = """
program: images
constants: {m: 6, P: 8, Q: SIZE}
indices: {i: m, a: {size: P, boundary: RULE}, c: {size: P, boundary: RULE}, u: {size: Q, boundary: RULE},
          v: {size: Q, boundary: RULE}, d: "-1..1", e: "-1..1"}
initial: {"x[i,a,c]": SOURCE, b1: {cov: 0.1}}
weights: {"F1[d,e]": "0.3 + 0.1 * d * e + 0.05 * abs(d)", "F2[d,e]": 0.25, HEAD}
body:
  - g1[i,u,v,d,e] = MatMul(F1[d,e], x[i,STEP*u+d,STEP*v+e])
  - x1[i,u,v] = Nonlin(relu(sum[d,e](g1[i,u,v,d,e]) + b1))
  - g2[i,u,v,d,e] = MatMul(F2[d,e], x1[i,u+d,v+e])
  - x2[i,u,v] = Nonlin(relu(sum[d,e](g2[i,u,v,d,e])))
"""
FLAT = """
  - r[i,u,v] = MatMul(V[u,v], x2[i,u,v])
  - f[i] = Nonlin(sum[u,v](r[i,u,v]) / Q)
outputs: [f]
"""
POOL = """
  - h[i] = Nonlin(mean[u,v](x2[i,u,v]))
  - f[i] = MatMul(V, h[i])
outputs: [f]
"""


def _convolved(k: NDArray[np.float64], weight: NDArray[np.float64], step: int, boundary: str) -> NDArray[np.float64]:
    """sum over d, e of weight[d, e] k(step p + (d, e), step p' + (d, e)), k over (i, a, c, i', a', c')."""
    size = k.shape[1]
    edge = [(0, 0), (1, 1), (1, 1)] * 2
    wide = np.pad(k, edge, mode="wrap") if boundary == "wrap" else np.pad(k, edge)
    total: NDArray[np.float64] = np.zeros((len(k), size // step, size // step) * 2)
    for d in range(3):
        for e in range(3):
            a, c = (slice(s, s + size, step) for s in (d, e))
            total += weight[d, e] * wide[:, a, c, :, a, c]
    return total


@pytest.mark.parametrize(
    ("source", "head"),
    [("data", "flat"), ("data", "pool"), ("declared", "flat"), ("declared", "pool"), ("many", "flat")],
)
@pytest.mark.parametrize(
    ("boundary", "step"), [("zero", 1), ("zero", 2), pytest.param("wrap", 1, marks=pytest.mark.slow), ("wrap", 2)]
)
def test_images(boundary: str, step: int, head: str, source: str, tmp_path: Path) -> None:
    """Two layers on images: covariances of flattened and of pooled readouts, within their errors."""
    count = MANY if source == "many" else M
    if source != "declared":
        rows = np.random.default_rng(step).standard_normal((count * SIDE * SIDE, 3))
        rows[:5] = 0  # the first places of an image are black
        np.save(tmp_path / "images.npy", rows)
        k: NDArray[Any] = rows @ rows.T / 3
        written = "{data: images.npy}"
    else:
        line = 0.6 ** abs(np.subtract.outer(np.arange(SIDE), np.arange(SIDE)))
        k = np.kron(0.4 + 0.6 * np.eye(M), np.kron(line, line))
        written = '{cov: "where(i == i_, 1, 0.4) * 0.6**abs(a - a_) * 0.6**abs(c - c_)"}'
    text = IMAGES.replace("m: 6", f"m: {count}").replace("SIZE", str(SIDE // step))
    text = text.replace("STEP", str(step)).replace("RULE", boundary)
    text = text.replace("SOURCE", written).replace("HEAD", '"V[u,v]": 1' if head == "flat" else "V: 1")
    (tmp_path / "images.yaml").write_text(text + (FLAT if head == "flat" else POOL))
    law = tp.load(tmp_path / "images.yaml").limit()

    d = np.arange(-1, 2)
    first = 0.3 + 0.1 * np.multiply.outer(d, d) + 0.05 * abs(d)[:, None]
    full = _convolved(k.reshape((count, SIDE, SIDE) * 2), first, step, boundary) + 0.1
    for weight, own in ((np.full((3, 3), 0.25), 1), (None, 1)):
        flat = full.reshape(int(np.sqrt(full.size)), -1)
        full = oracles.arccos_kernel(flat).reshape(full.shape)
        full = full if weight is None else _convolved(full, weight, own, boundary)
    expected = np.einsum("iacjac->ij", full) / full.shape[1] ** 2 if head == "flat" else full.mean(axis=(1, 2, 4, 5))
    found = law.cov("f")
    assert np.all(np.abs(np.asarray(found) - expected) <= found.error + 1e-13 * np.max(expected))
    assert found.error < 1e-11 * np.max(expected)
    np.testing.assert_allclose(np.asarray(found), np.asarray(found).T, rtol=1e-14)


@pytest.mark.parametrize(("boundary", "step"), [("zero", 1), ("zero", 2), ("wrap", 2)])
def test_values_that_are_read_where_they_are_asked_for(
    boundary: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by products of matrices, which otherwise are taken of many images only."""
    monkeypatch.setattr("tensorprog.limit.moment.values.FEW", 0)
    for head, source in (("flat", "declared"), ("flat", "data"), ("pool", "declared")):
        test_images(boundary, step, head, source, tmp_path)


def test_covariances_of_images_at_other_places_are_not_made(tmp_path: Path) -> None:
    """Twenty images of 32 x 32, whose whole covariance has 4e8 numbers, like two of them."""
    rows = np.random.default_rng(0).standard_normal((20 * 32 * 32, 3))
    found = []
    for count in (2, 20):
        np.save(tmp_path / "images.npy", rows[: count * 32 * 32])
        text = IMAGES.replace("m: 6, P: 8", f"m: {count}, P: 32").replace("SIZE", "32").replace("STEP", "1")
        text = text.replace("RULE", "zero").replace("SOURCE", "{data: images.npy}").replace("HEAD", '"V[u,v]": 1')
        (tmp_path / "images.yaml").write_text(text + FLAT)
        found.append(tp.load(tmp_path / "images.yaml").limit().cov("f"))
    few, many = found
    assert np.all(np.abs(np.asarray(few) - np.asarray(many)[:2, :2]) <= few.error + many.error)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("function", "head"),
    [
        ("relu", "flat"),
        ("erf", "pool"),
        *(pytest.param(*case, marks=SLOW) for case in (("erf", "flat"), ("relu", "pool"))),
    ],
)
def test_errors_of_images_hold_in_extended_precision(function: str, head: str, tmp_path: Path) -> None:
    """Images of different norms: differences from arithmetic with 19 digits are within the errors."""
    count, side = (17, 8) if head == "flat" else (4, 8)  # so that there are many pairs
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((count * side * side, 3)) * np.repeat(rng.uniform(0.3, 3, count), side * side)[:, None]
    np.save(tmp_path / "images.npy", rows)
    text = IMAGES.replace("m: 6", f"m: {count}").replace("SIZE", str(side)).replace("STEP", "1").replace("RULE", "wrap")
    text = text.replace("SOURCE", "{data: images.npy}").replace("HEAD", '"V[u,v]": 1' if head == "flat" else "V: 1")
    (tmp_path / "images.yaml").write_text(text.replace("relu", function) + (FLAT if head == "flat" else POOL))
    found = tp.load(tmp_path / "images.yaml").limit().cov("f")

    exact = rows.astype(np.longdouble)
    full, d, pi = exact @ exact.T / 3, np.arange(-1, 2), 4 * np.arctan(np.longdouble(1))
    first = 0.3 + 0.1 * np.multiply.outer(d, d).astype(np.longdouble) + 0.05 * abs(d)[:, None]
    for weight, bias in ((first, 0.1), (np.full((3, 3), 0.25), 0)):
        shape = (count, side, side) * 2
        full = _convolved(full.reshape(shape), weight, 1, "wrap").reshape(len(rows), -1) + bias
        var = np.diag(full)
        same = np.eye(len(var), dtype=bool)
        if function == "erf":
            rest = np.multiply.outer(1 + 2 * var, 1 + 2 * var) - 4 * full * full
            full = 2 / pi * np.arctan2(2 * full, np.sqrt(np.where(same, 1 + 4 * var, rest)))
        else:
            s = np.sqrt(np.maximum(np.where(same, 0, np.multiply.outer(var, var) - full * full), 0))
            full = (s + full * (pi - np.arctan2(s, full))) / (2 * pi)
    full = full.reshape((count, side, side) * 2)
    expected = np.einsum("iacjac->ij", full) / side**2 if head == "flat" else full.mean(axis=(1, 2, 4, 5))
    off = np.abs(np.asarray(found) - expected)
    assert np.all(off <= found.error)
    assert found.error < 1e-12 * np.max(expected)
