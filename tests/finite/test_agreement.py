"""dense and lazy agree in law, at widths small enough that a wrong conditional law would show."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorprog.finite.lazy import Lazy
from tensorprog.finite.run import run
from tensorprog.ir import Netsor
from tensorprog.yaml_io import loads

THRESHOLD = 4.9  # a two-sided normal exceeds it once in a million

ATTENTION = """
program: attention
constants: {s: 4, H: 2, C: 1}
indices: {i: s, j: s, a: H}
initial:
  h: {mean: 0, cov: 1}
weights:
  W[i]: 1
  WQ[a]: 1
  WK[a]: 1
  WV[a]: 1
  WO[a]: 1
body:
  - u[i] = MatMul(W[i], h)
  - x[i] = Nonlin(clip(u[i], -C, C))
  - q[a,i] = MatMul(WQ[a], x[i])
  - k[a,j] = MatMul(WK[a], x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - v[a,j] = MatMul(WV[a], x[j])
  - o[a,j] = MatMul(WO[a], v[a,j])
  - y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * o[a,j]) / sqrt(H))
outputs: [y]
"""

# one weight on vectors that depend on its own earlier outputs, through a sum, a product and a nonlinearity
REUSE = """
program: reuse
initial:
  h: {mean: 0.5, cov: 1}
weights:
  W: 1.5
  V: 1
body:
  - a = MatMul(W, h)
  - b = MatMul(W, a)
  - c = Nonlin(relu(b) + 0.5*a - h)
  - d = MatMul(W, c)
  - e = MatMul(V, d)
  - p = Dot(a, d, scale=1/n)
  - f = MatMul(W, e)
  - y0 = Nonlin(f + b)
  - y1 = Nonlin(tanh(d) * p)
outputs: [y0, y1]
"""

# repeated and linearly dependent inputs, in one family and across statements
DEPENDENT = """
program: dependent
indices: {i: 3}
initial:
  h: {mean: 0, cov: 1}
  g: {mean: 0, cov: 2}
weights:
  W: 1
body:
  - x[0] = Nonlin(h + 0)
  - x[1] = Nonlin(h + 0)
  - x[2] = Nonlin(h - 2*g)
  - u[i] = MatMul(W, x[i])
  - z = Nonlin(x[2] + 3*x[0])
  - w = MatMul(W, z)
  - y0 = Nonlin(w * u[0])
  - y1 = Nonlin(sum[i](u[i]) + abs(w))
outputs: [y0, y1, u, w]
"""

RECURRENT = """
program: rnn
constants: {T: 3}
indices: {t: 1..T}
initial:
  e[t]: {mean: 0, cov: 0.5**abs(t - t_)}
weights:
  W: 1.2
body:
  - s[0] = Nonlin(0.3)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(tanh(u[t] + e[t]))
  - y0 = Nonlin(u[3])
  - y1 = Nonlin(u[2] * s[1])
outputs: [y0, y1]
"""

PROGRAMS = {"attention": ATTENTION, "reuse": REUSE, "dependent": DEPENDENT, "recurrent": RECURRENT}


def statistics(netsor: Netsor, method: str, samples: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and standard errors of y0**2, y0**4, y0 y1 and (y0 y1)**2."""
    drawn = run(netsor, 8, samples, method=method, seed=seed)
    if "y" in drawn:
        y0, y1 = drawn["y"][:, 0], drawn["y"][:, 1]
    else:
        y0, y1 = drawn["y0"], drawn["y1"]
    values = np.stack([y0**2, y0**4, y0 * y1, (y0 * y1) ** 2])
    return values.mean(axis=1), values.std(axis=1) / np.sqrt(samples)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_dense_and_lazy_have_one_law(name: str) -> None:
    netsor = loads(PROGRAMS[name])
    dense, dense_error = statistics(netsor, "dense", 1_000_000, 1)
    lazy, lazy_error = statistics(netsor, "lazy", 1_000_000, 2)
    z = (dense - lazy) / np.hypot(dense_error, lazy_error)
    assert np.all(np.abs(z) < THRESHOLD), z
    assert np.all(dense_error[:1] < 0.01 * np.abs(dense[:1]))


def test_reused_weights_know_their_history() -> None:
    """E |W x|**2 |W W x|**2 / n**2 at n = 4: independent rows given the Gram matrix would give 1.12, not 1.87."""
    netsor = loads("""
program: twice
initial:
  x: {mean: 1, cov: 0}
weights:
  W: 1
body:
  - u1 = MatMul(W, x)
  - u2 = MatMul(W, u1)
  - a = Dot(u1, u1, scale=1/n)
  - b = Dot(u2, u2, scale=1/n)
  - y = Nonlin(a * b)
outputs: [y]
""")
    # With |x|**2 = n, A = |u1|**2 ~ chi2(n) and z = (x.u1)**2 / n ~ chi2(1), a component of A: given u1,
    # u2 = u1 (x.u1) / n + N(0, (A - z) / n), so E A |u2|**2 = E A**2 z / n + E A**2 - E A z, where
    # E A**2 = n (n + 2), E A z = n + 2 and E A**2 z = E A**3 / n = (n + 2) (n + 4): (12 + 24 - 6) / 16 = 1.875
    for method in ("dense", "lazy"):
        y = run(netsor, 4, 200_000, method=method, seed=5)["y"]
        error = y.std() / np.sqrt(y.size)
        assert abs(y.mean() - 1.875) < THRESHOLD * error, (method, y.mean(), error)
        assert error < 0.05


def test_dependent_inputs_give_dependent_products_exactly() -> None:
    netsor = loads(DEPENDENT)
    for method in ("dense", "lazy"):
        drawn = run(netsor, 8, 2000, method=method, seed=3)
        u, w = drawn["u"], drawn["w"]
        np.testing.assert_allclose(u[:, 0], u[:, 1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(w, u[:, 2] + 3 * u[:, 0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["reuse", "dependent"])
def test_the_comparison_has_power(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lazy engine that forgets the history of its weights is found out."""
    netsor = loads(PROGRAMS[name])
    dense, dense_error = statistics(netsor, "dense", 100_000, 1)
    monkeypatch.setattr(Lazy, "_find", lambda *_: None)
    lazy, lazy_error = statistics(netsor, "lazy", 100_000, 2)
    assert np.abs((dense - lazy) / np.hypot(dense_error, lazy_error)).max() > 1.5 * THRESHOLD
