"""Cells of many steps, which are averaged over points of lattices, beside a simulation of their limit."""

import weakref

import numpy as np

from tensorprog import Law, Program
from tests.reading import loads

STEPS = 24

LSTM = """
program: cells
constants: {T: 24}
indices: {t: 1..T}
initial:
  xi[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  xf[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  xg[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  xo[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  bf: {mean: 1, cov: 0.1}
weights: {Ui: 1, Uf: 1, Ug: 2, Uo: 1, V: 1}
body:
  - c[0] = Nonlin(0)
  - h[0] = Nonlin(0)
  - i[t] = MatMul(Ui, h[t - 1])
  - f[t] = MatMul(Uf, h[t - 1])
  - g[t] = MatMul(Ug, h[t - 1])
  - o[t] = MatMul(Uo, h[t - 1])
  - c[t] = Nonlin(sigmoid(f[t] + xf[t] + bf) * c[t - 1] + sigmoid(i[t] + xi[t]) * tanh(g[t] + xg[t]))
  - h[t] = Nonlin(sigmoid(o[t] + xo[t]) * tanh(c[t]))
  - y[t] = MatMul(V, h[t])
outputs: [y]
"""


def simulated(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """E[h h'] and E[xg h'] of the cell above, by random normals of one replicate.

    Of a sum s of independent Gaussian vectors, E[x h'] = cov(x, s) cov(s)^-1 E[s h'].
    """
    rng = np.random.default_rng(seed)
    normals = rng.standard_normal((4, STEPS, points), dtype=np.float32)
    steps = np.arange(STEPS)
    tokens, found = 0.5 ** abs(steps[:, None] - steps), np.zeros((STEPS, STEPS))
    h, c = np.zeros((STEPS, points), np.float32), np.zeros(points, np.float32)
    sums = np.zeros_like(h)
    for t in range(STEPS):
        gates = []
        for gate, (weight, bias) in enumerate(((1, 0), (1, 0.1), (2, 0), (1, 0))):
            cov = tokens[: t + 1, : t + 1] + bias
            cov[1:, 1:] += weight * found[:t, :t]
            gates.append(np.linalg.cholesky(cov)[t].astype(np.float32) @ normals[gate, : t + 1])
        i, f, g, o = gates
        sums[t] = g
        c = c / (1 + np.exp(-1 - f)) + np.tanh(g) / (1 + np.exp(-i))
        h[t] = np.tanh(c) / (1 + np.exp(-o))
        found[: t + 1, t] = found[t, : t + 1] = h[: t + 1] @ h[t] / points
    cov = tokens.copy()
    cov[1:, 1:] += 2 * found[:-1, :-1]
    return found, tokens @ np.linalg.solve(cov, sums @ h.T / points)


def test_a_long_cell_agrees_with_a_simulation():
    law = Law(loads(LSTM), max_memory=1 << 28)
    found = [map(np.asarray, law.cov(*names, with_error=True)) for names in (("y",), ("xg", "h"))]
    others = [np.stack(each) for each in zip(*(simulated(1 << 15, seed) for seed in range(8)), strict=True)]
    for (value, error), other in zip(found, others, strict=True):
        value, error = value[:, -STEPS:], error[:, -STEPS:]  # without h[0] = 0
        assert 0 < 2 * error.min() < error.max() < 0.05 * value.max()
        off = value - other.mean(axis=0)
        assert np.all(abs(off) < 1.5 * error + 6 * other.std(axis=0, ddof=1).max() / 8**0.5)
        assert abs(np.trace(off)) < 0.01 * np.trace(value)


def test_what_a_cell_takes_is_free_with_its_law():
    law = Law(loads(LSTM), max_memory=1 << 24)
    law.cov("y")
    points = weakref.ref(law.recursion.points)
    del law
    assert points() is None


GRU = """
program: cells
constants: {T: 5}
indices: {t: 1..T}
initial: {x: {mean: 0, cov: 1}}
weights: {Uz: 1, Ur: 2, Uh: 1}
body:
  - h[0] = Nonlin(0)
  - gz[t] = MatMul(Uz, h[t - 1])
  - gr[t] = MatMul(Ur, h[t - 1])
  - r[t] = Nonlin(sigmoid(gr[t]) * h[t - 1])
  - gh[t] = MatMul(Uh, r[t])
  - h[t] = Nonlin((1 - sigmoid(gz[t])) * h[t - 1] + sigmoid(gz[t]) * tanh(gh[t] + x))
  - e[t] = Nonlin(tanh(gr[t]))
  - f[t] = Nonlin(tanh(gr[t]) * h[t])
  - g[t] = Nonlin(tanh(gr[t] + gz[t]) * h[t])
outputs: [e, f, g]
"""


def test_gates_that_are_independent_of_what_a_cell_carries():
    """The reset gate of a GRU has exact expectations, and points where a function reads it with what is carried."""
    program = Program.from_netsor(loads(GRU))
    law = program.limit()
    e, f, g, h = (np.diagonal(np.asarray(law.cov(name, with_error=True)), 0, 1, 2)[:, -5:] for name in "efgh")
    assert np.all(abs(f[0] - e[0] * h[0]) <= f[1] + e[1] + h[1])
    assert 0 < f[1].max() < g[1].max() < 2e-3 and e[1].max() < 1e-3
    found = np.square(np.asarray(program.run(256, 4000, seed=1)["g"])).reshape(4000, -1)
    assert np.all(abs(found.mean(axis=0) - g[0]) <= g[1] + 6 * found.std(axis=0) / 4000**0.5 + 0.01 * g[0])
