"""What the check gives a limit is compiled to finite numbers."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Law, NotCompiledError, Program
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.moment.compilable import bases_of
from tests.corpus import CASES
from tests.reading import judge, loads

ROUNDS = 12  # days in which every program of the corpus has its turn
LONG = ("tied embedding and unembedding of many words with an average",)  # a minute by itself
OVERFLOWS = ("exp of a power of 1.9",)  # a second moment that is finite, and larger than numbers are
GRADED = [name for name, case in CASES.items() if case.grade != "outside" and name not in (*LONG, *OVERFLOWS)]
TURN = [name for k, name in enumerate(GRADED) if k % ROUNDS == date.today().toordinal() % ROUNDS]


def _numbers(law: Law) -> list[np.ndarray]:
    """Draws of the outputs and second moments of them; behind layers of scores, given two draws of these."""
    recursion, found = law.recursion, []
    vectors = [name for name in law.outputs if recursion.netsor.families[name].kind == "vector"]
    if not recursion.layered:
        draws = law.sample(4)
        for name in law.outputs:
            found.append(draws[name])
            if name not in recursion.random:
                found += [recursion.mean(name).value.data, recursion.mean(name).error.data]
                moment = recursion.second(name, name) if name in vectors else None
                found += [] if moment is None else [np.array([moment.size, moment.error])]
        return found
    layers = Draws(recursion, law.outputs, bases_of(p for name in vectors for p in recursion.parts.last(name)))
    given = layers.at(np.random.default_rng(0).standard_normal((2, layers.dim)))
    for name in law.outputs:
        box = tuple((stop - 1, stop) for _, stop in recursion.netsor.families[name].ranges)
        if name in vectors and not recursion.is_finite(name):
            found += [given.means(name, box), given.variances(name, box)]
        else:
            found.append(layers.drawn(given, name).data)
    return found


def _compiled(netsor) -> None:
    law = Law(netsor, grade=judge(netsor).grade)
    assert all(np.isfinite(values).all() for values in _numbers(law))


@pytest.mark.slow
@pytest.mark.parametrize("name", TURN)
def test_graded_programs_are_compiled(name: str) -> None:
    _compiled(CASES[name].load())


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADED[:: len(GRADED) // 12])
def test_a_few_graded_programs_are_compiled(name: str) -> None:
    _compiled(CASES[name].load())


# -- programs read from stacks of statements -------------------------------------------------------------------------


def _stack(layers: int, tied: bool) -> str:
    """relu layers written out one by one; with the variance 2 each keeps E[x**2]."""
    weights = ["W" if tied else f"W{k}" for k in range(layers)]
    body = "".join(f"  - u{k}[i] = MatMul({w}, x{k}[i])\n  - x{k + 1}[i] = Nonlin(relu(u{k}[i]))\n"
                   for k, w in enumerate(weights))  # fmt: skip
    declared = "".join(f"  {w}: 2\n" for w in dict.fromkeys(weights))
    return ("program: stack\nindices: {i: 2}\ninitial:\n  h[i]: {cov: 0.5**abs(i - i_)}\nweights:\n"
            f"{declared}body:\n  - x0[i] = Nonlin(h[i])\n{body}outputs: [x{layers}]\n")  # fmt: skip


@pytest.mark.parametrize(("layers", "tied"), [(120, False), (25, True)])
def test_stacks_of_any_depth_are_computed_from_the_bottom(layers: int, tied: bool) -> None:
    """Against the arc-cosine recursion: the correlation of relu layers of two inputs."""
    moment = np.asarray(Law(loads(_stack(layers, tied))).second_moment(f"x{layers}"))
    c = 0.5
    for _ in range(layers):
        c = (np.sqrt(1 - c * c) + (np.pi - np.arccos(c)) * c) / np.pi
    np.testing.assert_allclose(moment, [[1, c], [c, 1]], rtol=1e-9)


# -- a residual stream that begins with a function -------------------------------------------------------------------

STREAM = """
program: stream
constants: {T: 2}
indices: {i: 2, t: 1..T}
initial:
  x[i]: {mean: 0, cov: 0.6**abs(i - i_)}
weights:
  W[t]: 1.5
body:
  - z[0,i] = Nonlin(tanh(x[i]))
  - r[t,i] = Nonlin(tanh(z[t-1,i] + 0.3))
  - u[t,i] = MatMul(W[t], r[t,i])
  - z[t,i] = Nonlin(z[t-1,i] + u[t,i])
outputs: [z]
"""


@pytest.mark.slow
def test_residual_streams_that_begin_with_a_function() -> None:
    """By the trapezoidal rule over x and the Gaussian sum of u, a layer after the other.

    Its error is exp(-2 pi d / h) for functions analytic up to the distance d: 1e-9 and less here.
    """
    nodes = np.arange(-8, 8, 0.35)
    weights = np.exp(-(nodes**2) / 2)
    weights = weights / weights.sum()
    points = np.stack(np.meshgrid(*[nodes] * 4, indexing="ij")).reshape(4, -1)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * 4, indexing="ij")).reshape(4, -1), axis=0)
    keep = mass > 1e-13
    points, mass = points[:, keep], mass[keep] / mass[keep].sum()
    x = np.tanh(np.linalg.cholesky([[1, 0.6], [0.6, 1]]) @ points[:2])
    total, found = np.zeros((2, 2)), []
    for _ in range(2):
        s = np.linalg.cholesky(total) @ points[2:] if total.any() else np.zeros_like(points[2:])
        found.append((x * mass) @ x.T + total)
        r = np.tanh(x + s + 0.3)
        total = total + 1.5 * (r * mass) @ r.T
    found.append((x * mass) @ x.T + total)
    value, error = Law(loads(STREAM)).cov("z", with_error=True)
    value, error = np.asarray(value), np.asarray(error)
    for t, expected in enumerate(found):
        assert np.all(np.abs(value[t, :, t, :] - expected) <= error[t, :, t, :] + 1e-6)
        assert np.max(error[t, :, t, :]) < 1e-2


AROUND = """
program: around
indices: {i: 3, w: {size: 3, boundary: wrap}, k: 3}
initial: {"h[i]": {cov: 0.5**abs(i - i_)}}
weights: {V: 1, "U[w]": 1}
body:
  - u[i] = MatMul(V, h[i])
  - g[w] = MatMul(U[w], u[w])
  - p[k] = Dot(g[k+2], g[k])
  - y[k] = Nonlin(p[k]*u[0])
outputs: [y]
"""


def test_scores_read_weights_beyond_a_boundary_where_these_end_with_their_vectors() -> None:
    assert np.allclose(Law(loads(AROUND)).cov("p"), np.eye(3), atol=1e-9)
    apart = AROUND.replace("k: 3}", "k: 3, e: 3}").replace('"U[w]"', '"U[e]"')
    with pytest.raises(NotCompiledError, match=r"g is read beyond its boundary by a score, and U\[w\] depends on w"):
        Law(loads(apart))


# -- lags that are ranges --------------------------------------------------------------------------------------------

HISTORY = """
program: history
constants: {T: 4}
indices:
  t: {size: T, boundary: zero}
  d: 1..T
initial:
  b[t]: {mean: 0, cov: 1}
weights: {V: 0.8}
body:
  - v[t] = MatMul(V, h[t-1])
  - h[t] = Nonlin(tanh(b[t] + sum[d](2**(-d) * v[t-d+1])))
outputs: [h]
"""


def test_what_lags_by_at_least_one_is_a_recurrence() -> None:
    """Networks by hand, and the limit within what their widths differ by."""
    program = Program.from_netsor(loads(HISTORY))
    assert program.check().grade == "theorem"
    value = program.limit().cov("h")
    width, count, rng = 300, 200, np.random.default_rng(5)
    moments = np.zeros((count, 4, 4))
    for k in range(count):
        matrix = rng.standard_normal((width, width)) * np.sqrt(0.8 / width)
        b, h, v = rng.standard_normal((4, width)), np.zeros((4, width)), np.zeros((4, width))
        for t in range(4):
            v[t] = matrix @ h[t - 1] if t else 0
            h[t] = np.tanh(b[t] + sum(2.0**-d * v[t - d + 1] for d in range(1, t + 2)))
        moments[k] = h @ h.T / width
    z = (moments.mean(axis=0) - np.asarray(value)) / (moments.std(axis=0) / np.sqrt(count) + 1 / width / 20)
    assert np.abs(z).max() < 4.5
    nets = program.run(width=300, samples=2000, seed=3)["h"]
    z = ((nets**2).mean(axis=0) - np.diag(np.asarray(value))) / ((nets**2).std(axis=0) / np.sqrt(2000))
    assert np.abs(z).max() < 4


def test_attention_over_the_history_of_a_recurrence() -> None:
    text = HISTORY.replace("{V: 0.8}", "{V: 0.8, Q: 1, K: 1}").replace("  - h[t]", """  - q[t] = MatMul(Q, tanhb[t])
  - k[t] = MatMul(K, tanhb[t])
  - p[t,d] = Dot(q[t], k[t-d+1])
  - h[t]""").replace("2**(-d)", "softmax[d](where(d <= t + 1, p[t,d], -inf))")  # fmt: skip
    text = text.replace("  - v[t]", "  - tanhb[t] = Nonlin(tanh(b[t]))\n  - v[t]")
    text = text.replace("{T: 4}", "{T: 2}")
    program = Program.from_netsor(loads(text))
    assert program.check().grade == "extension"
    assert program.run(width=16, samples=10, seed=1)["h"].shape == (10, 2)
    _compiled(program.netsor)


def test_what_may_read_ahead_is_circular() -> None:
    with pytest.raises(tp.ProgramError, match="circular"):
        loads(HISTORY.replace("d: 1..T", "d: 0..T"))
    with pytest.raises(tp.ProgramError, match="circular"):
        loads(HISTORY.replace("boundary: zero", "boundary: wrap"))
