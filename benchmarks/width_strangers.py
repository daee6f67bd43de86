"""Programs unlike the shipped ones, and the same networks once more: dense matrices in plain numpy.

A function `dense` gives the vectors that the readout V multiplies.  Given these, outputs y = V z are Gaussian with
covariance z.z'/n, so that their moments are averages of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf

Array = np.ndarray[Any, Any]
__all__ = ["STRANGERS", "Stranger", "Weights"]


class Weights:
    """Random matrices and Gaussian inputs of some networks of width n."""

    def __init__(self, rng: np.random.Generator, count: int, n: int) -> None:
        self.rng, self.count, self.n = rng, count, n

    def matrix(self, variance: float = 1.0, out: int = 0, into: int = 0) -> Array:
        """Entries N(0, variance / number of inputs).

        Shapes    (networks, out, into)
        """
        into = into or self.n
        found = self.rng.standard_normal((self.count, out or self.n, into), dtype=np.float32)
        found *= np.float32((variance / into) ** 0.5)
        return found

    def inputs(self, cov: Array) -> Array:
        """Vectors whose coordinates are N(0, cov).

        Shapes    (networks, n, vectors)
        """
        normals = self.rng.standard_normal((self.count, self.n, len(cov)), dtype=np.float32)
        return np.asarray(normals @ np.linalg.cholesky(cov).T.astype(np.float32))


@dataclass(frozen=True)
class Stranger:
    """A program, the vectors that its readout multiplies, one for each of `members`, and what is compared."""

    name: str
    text: str
    dense: Callable[[Weights], Array]  # of refused programs never called
    asked: tuple[tuple[str, ...], ...] = (("variance", "y[0]"), ("kurtosis", "y[0]"))
    members: tuple[str, ...] = ("y[0]", "y[1]", "y[2]", "y[3]")
    refused: bool = False


PAIR = (("variance", "y[0]"), ("kurtosis", "y[0]"), ("covariance", "y[0]", "y[1]"))


def toeplitz(size: int, rho: float) -> Array:
    """rho**|i - j|."""
    place = np.arange(size)
    return np.asarray(rho ** abs(place[:, None] - place))


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, 0)


def softmax(p: Array) -> Array:
    """Over the last axis."""
    e = np.exp(p - p.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def scores(q: Array, k: Array) -> Array:
    """n**-0.5 q.k."""
    return np.asarray(np.swapaxes(q, 1, 2) @ k / q.shape[1] ** 0.5)


def attended(v: Array, a: Array) -> Array:
    """sum_j a_ij v_j."""
    return np.asarray(v @ np.swapaxes(a, 1, 2))


def text(name: str, inputs: str, weights: str, body: str, more: str = "") -> str:
    """A program with the readout V."""
    lines = "\n".join(f"  - {line.strip()}" for line in body.strip().splitlines())
    return f"program: {name}\n{more}initial:\n  {inputs}\nweights: {{{weights}, V: 1}}\nbody:\n{lines}\noutputs: [y]\n"


TOKENS = 'x[i]: {mean: 0, cov: "0.5**abs(i - i_)"}'
THREE = "indices: {i: 3, j: 3}\n"


def _two_functions(w: Weights) -> Array:
    x, b = w.inputs(toeplitz(2, 0.5)), w.inputs(np.eye(2))
    x = np.tanh(w.matrix(2) @ x + b[:, :, :1] * 0.1**0.5)
    return np.logaddexp(np.float32(0), w.matrix(1.5) @ x + b[:, :, 1:] * 0.2**0.5)


def _residual(w: Weights) -> Array:
    x = w.inputs(toeplitz(3, 0.5))
    a = softmax(scores(w.matrix() @ x, w.matrix() @ x))
    return relu(x + 0.7 * attended(w.matrix() @ x, a))


def _unequal(w: Weights) -> Array:
    x = np.clip(w.inputs(toeplitz(3, 0.5)), -2, 2)
    z = np.zeros_like(x)
    for a in range(3):
        z = z + attended(w.matrix() @ x, softmax(scores(w.matrix(1 + a) @ x, w.matrix() @ x))) / (1 + a)
    return z


def _masked(w: Weights) -> Array:
    x = relu(w.matrix(2) @ w.inputs(toeplitz(4, 0.5)))
    p = scores(w.matrix(4) @ x, w.matrix(2) @ x)
    p = np.where(np.tril(np.ones((4, 4), bool)), p, -np.inf)
    return w.matrix() @ attended(w.matrix() @ x, softmax(p))


def _average_scores(w: Weights) -> Array:
    x = erf(w.matrix(2) @ w.inputs(toeplitz(3, 0.5)))
    return attended(x, softmax(4 * np.swapaxes(x, 1, 2) @ x / w.n))


def _convolution(w: Weights) -> Array:
    x = w.inputs(toeplitz(4, 0.5))
    for _ in range(2):
        x = x + relu(sum(w.matrix(2 / 3) @ np.roll(x, -d, axis=2) for d in (-1, 0, 1)))
    return x


def _recurrence(w: Weights) -> Array:
    x, matrix = w.inputs(toeplitz(3, 0.5)), w.matrix(1.5)
    h = np.zeros_like(x[..., :1])
    states = []
    for t in range(3):
        h = erf(matrix @ h + x[..., t : t + 1])
        states.append(h)
    return np.concatenate(states[-2:], axis=-1)


def _narrow(w: Weights) -> Array:
    x, half = w.inputs(toeplitz(2, 0.5)), w.n // 2
    return w.matrix(2, w.n, half) @ relu(w.matrix(2, half, w.n) @ x)


def _fixed(w: Weights) -> Array:
    x = w.inputs(toeplitz(2, 0.5))
    return relu(w.matrix(2, w.n, 3) @ relu(w.matrix(2, 3, w.n) @ x))


def _pooled(w: Weights) -> Array:
    x = w.inputs(toeplitz(3, 0.5))
    z = x + attended(w.matrix() @ x, softmax(scores(w.matrix() @ x, w.matrix(2) @ x)))
    return relu(w.matrix(2) @ z.mean(axis=2, keepdims=True))


def _normed(w: Weights) -> Array:
    x = w.inputs(toeplitz(2, 0.5))
    for _ in range(2):
        x = x + relu(w.matrix(2) @ (x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + np.float32(0.1))))
    return x


def _gated(w: Weights) -> Array:
    x, matrix = w.inputs(toeplitz(2, 0.5)), w.matrix()
    u = matrix @ x
    return x + relu(u) + matrix @ relu(u) * (w.matrix() @ x)


def _kinked(w: Weights) -> Array:
    x = w.inputs(toeplitz(3, 0.5))
    return attended(w.matrix() @ x, relu(scores(w.matrix(2) @ x, w.matrix() @ x)) / 3)


def _one_key(w: Weights) -> Array:
    x = w.inputs(toeplitz(3, 0.5))
    key, value, z = w.matrix() @ x, w.matrix() @ x, np.zeros_like(x)
    for _ in range(2):
        z = z + attended(value, softmax(scores(w.matrix(3) @ x, key)))
    return w.matrix() @ z


def _none(w: Weights) -> Array:
    raise AssertionError("refused")


HEADS = "indices: {i: 3, j: 3, a: %d}\n"
STRANGERS = (
    Stranger("two functions", text("two_functions", 'x[i]: {mean: 0, cov: "0.5**abs(i - i_)"}\n  b: {mean: 0, cov: 0.1}'
        "\n  c: {mean: 0, cov: 0.2}", "W: 2, U: 1.5", """
        g[i] = MatMul(W, x[i])
        h[i] = Nonlin(tanh(g[i] + b))
        e[i] = MatMul(U, h[i])
        z[i] = Nonlin(softplus(e[i] + c))
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\n"), _two_functions, PAIR),
    Stranger("residual, relu of attention", text("residual_scores", TOKENS, "WQ: 1, WK: 1, WV: 1", """
        q[i] = MatMul(WQ, x[i])
        k[j] = MatMul(WK, x[j])
        p[i,j] = Dot(q[i], k[j])
        v[j] = MatMul(WV, x[j])
        z[i] = Nonlin(relu(x[i] + 0.7*sum[j](softmax[j](p[i,j])*v[j])))
        y[i] = MatMul(V, z[i])""", THREE), _residual, PAIR),
    Stranger("three heads of unequal scales", text("unequal", TOKENS, '"WQ[a]": 1 + a, "WK[a]": 1, "WV[a]": 1', """
        c[i] = Nonlin(clip(x[i], -2, 2))
        q[a,i] = MatMul(WQ[a], c[i])
        k[a,j] = MatMul(WK[a], c[j])
        p[a,i,j] = Dot(q[a,i], k[a,j])
        v[a,j] = MatMul(WV[a], c[j])
        z[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j])*v[a,j]/(1 + a)))
        y[i] = MatMul(V, z[i])""", HEADS % 3), _unequal, PAIR),
    Stranger("causal mask behind relu", text("causal", TOKENS, "W: 2, WQ: 4, WK: 2, WV: 1, WO: 1", """
        g[i] = MatMul(W, x[i])
        h[i] = Nonlin(relu(g[i]))
        q[i] = MatMul(WQ, h[i])
        k[j] = MatMul(WK, h[j])
        p[i,j] = Dot(q[i], k[j])
        v[j] = MatMul(WV, h[j])
        s[i] = Nonlin(sum[j](softmax[j](where(j <= i, p[i,j], -inf))*v[j]))
        z[i] = MatMul(WO, s[i])
        y[i] = MatMul(V, z[i])""", "indices: {i: 4, j: 4}\n"), _masked,
        (("variance", "y[3]"), ("kurtosis", "y[3]"), ("covariance", "y[0]", "y[3]"))),
    Stranger("1/n scores, no keys", text("averages", TOKENS, "W: 2", """
        g[i] = MatMul(W, x[i])
        h[i] = Nonlin(erf(g[i]))
        p[i,j] = Dot(h[i], h[j], scale=1/n)
        z[i] = Nonlin(sum[j](softmax[j](4*p[i,j])*h[j]))
        y[i] = MatMul(V, z[i])""", THREE), _average_scores, PAIR),
    Stranger("residual convolution", text("convolution",
        'x[c]: {mean: 0, cov: "0.5**abs(c - c_)"}',
        '"F[d]": 2/3, "G[d]": 2/3', """
        f[c,d] = MatMul(F[d], x[c + d])
        h[c] = Nonlin(x[c] + relu(sum[d](f[c,d])))
        g[c,d] = MatMul(G[d], h[c + d])
        z[c] = Nonlin(h[c] + relu(sum[d](g[c,d])))
        y[c] = MatMul(V, z[c])""", "indices: {c: {size: 4, boundary: wrap}, d: -1..1}\n"), _convolution, PAIR),
    Stranger("recurrence with shared weights", text("recurrence", 'x[t]: {mean: 0, cov: "0.5**abs(t - t_)"}',
        "W: 1.5", """
        h[0] = Nonlin(0)
        u[t] = MatMul(W, h[t - 1])
        h[t] = Nonlin(erf(u[t] + x[t]))
        y[t] = MatMul(V, h[t])""", "indices: {t: 1..3}\n"), _recurrence,
        (("variance", "y[2]"), ("kurtosis", "y[2]"), ("covariance", "y[2]", "y[3]")), ("y[2]", "y[3]")),
    Stranger("bottleneck of width n/2", text("bottleneck", TOKENS, 'A: {variance: 2, shape: [d, n]}, '
        "B: {variance: 2, shape: [n, d]}", """
        g[i] = MatMul(A, x[i])
        h[i] = Nonlin(relu(g[i]))
        z[i] = MatMul(B, h[i])
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\nwidths: {d: n/2}\n"), _narrow, PAIR),
    Stranger("bottleneck of width 3", text("fixed", TOKENS, 'A: {variance: 2, shape: [d, n]}, '
        "B: {variance: 2, shape: [n, d]}", """
        g[i] = MatMul(A, x[i])
        h[i] = Nonlin(relu(g[i]))
        e[i] = MatMul(B, h[i])
        z[i] = Nonlin(relu(e[i]))
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\nfixed_widths: {d: 3}\n"), _fixed, PAIR),
    Stranger("attention, mean pooling, relu", text("pooled", TOKENS, "WQ: 1, WK: 2, WV: 1, W: 2", """
        q[i] = MatMul(WQ, x[i])
        k[j] = MatMul(WK, x[j])
        p[i,j] = Dot(q[i], k[j])
        v[j] = MatMul(WV, x[j])
        s[i] = Nonlin(x[i] + sum[j](softmax[j](p[i,j])*v[j]))
        m = Nonlin(mean[i](s[i]))
        g = MatMul(W, m)
        z = Nonlin(relu(g))
        y = MatMul(V, z)""", THREE), _pooled,
        (("variance", "y"), ("kurtosis", "y")), ("y",)),
    Stranger("normalised residual branches", text("normed", TOKENS, "W: 2, U: 2", """
        m[i] = Dot(x[i], x[i], scale=1/n)
        r[i] = Nonlin(x[i]/sqrt(m[i] + 0.1))
        g[i] = MatMul(W, r[i])
        h[i] = Nonlin(x[i] + relu(g[i]))
        w[i] = Dot(h[i], h[i], scale=1/n)
        t[i] = Nonlin(h[i]/sqrt(w[i] + 0.1))
        e[i] = MatMul(U, t[i])
        z[i] = Nonlin(h[i] + relu(e[i]))
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\n"), _normed, PAIR),
    Stranger("gates, a weight read twice", text("gates", TOKENS, "W: 1, U: 1", """
        g[i] = MatMul(W, x[i])
        h[i] = Nonlin(relu(g[i]))
        e[i] = MatMul(W, h[i])
        f[i] = MatMul(U, x[i])
        z[i] = Nonlin(x[i] + h[i] + e[i]*f[i])
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\n"), _gated, PAIR),
    Stranger("relu of scores", text("kinks", TOKENS, "WQ: 2, WK: 1, WV: 1", """
        q[i] = MatMul(WQ, x[i])
        k[j] = MatMul(WK, x[j])
        p[i,j] = Dot(q[i], k[j])
        v[j] = MatMul(WV, x[j])
        z[i] = Nonlin(sum[j](relu(p[i,j])*v[j])/3)
        y[i] = MatMul(V, z[i])""", THREE), _kinked, PAIR),
    Stranger("two heads with one key", text("one_key", TOKENS, '"WQ[a]": 3, WK: 1, WV: 1, WO: 1', """
        q[a,i] = MatMul(WQ[a], x[i])
        k[j] = MatMul(WK, x[j])
        p[a,i,j] = Dot(q[a,i], k[j])
        v[j] = MatMul(WV, x[j])
        s[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j])*v[j]))
        z[i] = MatMul(WO, s[i])
        y[i] = MatMul(V, z[i])""", HEADS % 2), _one_key, PAIR),
    Stranger("transposed weight", text("transposed", TOKENS, "W: 2", """
        g[i] = MatMul(W, x[i])
        h[i] = Nonlin(relu(g[i]))
        z[i] = MatMul(W.T, h[i])
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\n"), _none, refused=True),
    Stranger("coordinate table", text("table", TOKENS + "\n  t: {grid: true}", "W: 1", """
        f = Nonlin(cos(3*t))
        h[i] = Nonlin(f*x[i])
        g[i] = MatMul(W, h[i])
        z[i] = Nonlin(tanh(g[i]))
        y[i] = MatMul(V, z[i])""", "indices: {i: 2}\n"), _none, refused=True),
    Stranger("scores of functions", text("functions", TOKENS, "WQ: 1, WK: 1, WV: 1", """
        q[i] = MatMul(WQ, x[i])
        k[j] = MatMul(WK, x[j])
        a[i] = Nonlin(tanh(q[i]))
        p[i,j] = Dot(a[i], k[j])
        v[j] = MatMul(WV, x[j])
        z[i] = Nonlin(sum[j](softmax[j](p[i,j])*v[j]))
        y[i] = MatMul(V, z[i])""", THREE), _none, refused=True),
    Stranger("keys are queries", text("tied", TOKENS, "WQ: 1, WV: 1", """
        q[i] = MatMul(WQ, x[i])
        p[i,j] = Dot(q[i], q[j])
        v[j] = MatMul(WV, x[j])
        z[i] = Nonlin(sum[j](softmax[j](p[i,j])*v[j]))
        y[i] = MatMul(V, z[i])""", THREE), _none, refused=True),
)  # fmt: skip
