"""Outputs given all but the weights used last: against the outputs themselves, redrawn matrices and known laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import tensorprog as tp
from tensorprog.results.conditional import with_conditional
from tests.reading import loads

HEAD = """
program: test
constants:
  s: 3
  H: 2
  c[i]: [0.5, 2, 1.5]
indices: {i: s, j: s, a: H, b: "0..3"}
initial:
  h[i]: {mean: 0.3, cov: 0.5**abs(i - i_)}
weights:
  WQ[a]: 1
  WK[a]: 1
  W: 2
  U: 1
  A[a]: 1 + a
  B[i]: 0.5 + i
  D[b]: 1
body:
  - x[i] = Nonlin(tanh(h[i]))
  - q[a,i] = MatMul(WQ[a], x[i])
  - k[a,j] = MatMul(WK[a], x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - g[i] = MatMul(W, x[i])
  - u[i] = MatMul(U, x[i])
  - o[a,i] = MatMul(A[a], x[i])
  - f[i] = MatMul(B[i], x[i])
  - d[a,i] = MatMul(D[a + i], x[i])
"""

LINES = {
    "a weight by itself": "y[i] = MatMul(W, u[i])",
    "cross terms of one weight": "y[i] = Nonlin(g[0] - 2 * g[i] + c[i] * g[2])",
    "a remainder": "y[i] = Nonlin(x[i]**2 + 1 + sum[a,j](softmax[j](p[a,i,j]) * o[a,j]))",
    "two weights, one of them used before": "y[i] = Nonlin(u[i] / 2 + g[i] * p[0,0,i])",
    "members by a free index": "y[i] = Nonlin(f[i] * sum[a](p[a,i,0]) + 3)",
    "members by the index of a softmax": "y[i] = Nonlin(sum[j](softmax[j](p[0,i,j]) * f[j]))",
    "members by a sum of indices": "y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * d[a,j]))",
    "means over members": "y[i] = Nonlin(mean[a,j](p[a,i,j] * o[a,j]))",
    "members in two sums": "y[i] = Nonlin(sum[a](o[a,i]) - sum[a](p[a,i,i] * o[a,0]))",
    "a member by itself and by an index": "y[i] = Nonlin(f[i] - f[0] * p[0,0,1])",
    "written in steps": "z[i] = Nonlin(sum[a](o[a,i]) + x[i])\n  - y[i] = Nonlin(where(i < 1, z[i], -z[i]) + g[i])",
}


def program(line: str, outputs: str = "y") -> tp.Program:
    return tp.Program.from_netsor(loads(f"{HEAD}  - {line}\noutputs: [{outputs}]\n"))


@pytest.mark.parametrize("method", ["dense", "collapsed"])
@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_outputs_are_gaussian_given_the_rest(line: str, method: str) -> None:
    check(program(line).run(width=5, samples=30_000, seed=3, method=method, conditional=True))


@pytest.mark.parametrize(
    "name",
    [
        "attention_gqa",
        "attention_lowrank",
        "attention_natural",
        "attention_relpos",
        "cnn",
        "attention_regimes",
        "cross_attention",
        "layernorm_mlp",
        "rnn",
        "resnet",
    ],
)
def test_shipped_programs_are_gaussian_given_the_rest(name: str) -> None:
    check(tp.load(name).run(width=16, samples=4000, conditional=True))


# ---- to rounding: the formula V = sum of sigma**2 |w|**2 / n by numpy, from the vectors of the same networks ---------

MORE = (
    HEAD.replace(
        "indices: {", 'indices: {e: "1..2", t: {size: s, boundary: zero}, r: {size: s, boundary: wrap}, '
    ).replace(
        "body:",
        """  Z: 1.5
  R: 0.5
body:""",
    )
    + """  - xt[t] = Nonlin(x[t])
  - gt[t] = MatMul(Z, xt[t])
  - zt[t] = Nonlin(2 * gt[t] + xt[t+1])
  - xr[r] = Nonlin(x[r])
  - gr[r] = MatMul(R, xr[r+1])
  - back[i] = MatMul(A[0].T, x[i])
  - l[a,i] = MatMul(D[a], x[i])
  - sums[0] = Nonlin(gt[0])
  - sums[e] = Nonlin(sums[e-1] / 2 + gt[e])
"""
)


@dataclass(frozen=True)
class Exact:
    """Statements that end in y, and from arrays by name the vectors w with the variances of their weights, and m.

    Shapes    vectors (networks, n, members)
    """

    lines: str
    parts: Callable[[dict[str, np.ndarray]], list[tuple[float, np.ndarray]]]
    mean: Callable[[dict[str, np.ndarray]], np.ndarray | float] = lambda v: 0.0


def softmax(p: np.ndarray) -> np.ndarray:
    return np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)


def later(x: np.ndarray) -> np.ndarray:
    """x[i + 1], 0 beyond."""
    return np.concatenate([x[..., 1:], 0 * x[..., :1]], axis=-1)


EXACT = {
    "one weight": Exact("y[i] = MatMul(W, u[i])", lambda v: [(2, v["u"])]),
    "signs": Exact("y[i] = Nonlin(g[0] - (x[i] - g[i]))", lambda v: [(2, v["x"][..., :1] + v["x"])], lambda v: -v["x"]),
    "only the second term of a difference": Exact(
        "y[i] = Nonlin(3 * g[0] - (x[i]**2 - (u[i] - g[i] / 2)))",
        lambda v: [(2, 3 * v["x"][..., :1] - v["x"] / 2), (1, v["x"])],
        lambda v: -(v["x"] ** 2),
    ),
    "cross terms": Exact(
        "y[i] = Nonlin(g[0] - 2 * g[i] + c[i] * g[2])",
        lambda v: [(2, v["x"][..., :1] - 2 * v["x"] + np.array([0.5, 2, 1.5]) * v["x"][..., 2:])],
    ),
    "heads": Exact(
        "y[i] = Nonlin(x[i]**2 + 1 + sum[a,j](softmax[j](p[a,i,j]) * o[a,j]))",
        lambda v: [(1 + a, np.einsum("zij,znj->zni", softmax(v["p"][:, a]), v["x"])) for a in range(2)],
        lambda v: v["x"] ** 2 + 1,
    ),
    "means over heads": Exact(
        "y[i] = Nonlin(mean[a,j](p[a,i,j] * o[a,j]))",
        lambda v: [(1 + a, np.einsum("zij,znj->zni", v["p"][:, a], v["x"]) / 6) for a in range(2)],
    ),
    "members by a free index": Exact(
        "y[i] = Nonlin(f[i] * sum[a](p[a,i,0]) + 3)",
        lambda v: [(np.array([0.5, 1.5, 2.5]), v["p"][..., 0].sum(axis=1)[:, None] * v["x"])],
        lambda v: 3.0,
    ),
    "members by the index of a softmax": Exact(
        "y[i] = Nonlin(sum[j](softmax[j](p[0,i,j]) * f[j]))",
        lambda v: [(0.5 + j, softmax(v["p"][:, 0])[:, None, :, j] * v["x"][..., j, None]) for j in range(3)],
    ),
    "members by a sum of indices": Exact(
        "y[i] = Nonlin(sum[a,j](p[a,i,j] * d[a,j]))",
        lambda v: [
            (1, sum(v["p"][:, None, a, :, b - a] * v["x"][..., b - a, None] for a in range(2) if 0 <= b - a < 3))
            for b in range(4)
        ],
    ),
    "members by an index of another range": Exact(
        "y[i] = Nonlin(sum[a](p[a,i,i] * l[a,i]))",
        lambda v: [(1, np.einsum("zii->zi", v["p"][:, a])[:, None] * v["x"]) for a in range(2)],
    ),
    "members in two sums": Exact(
        "y[i] = Nonlin(sum[a](o[a,i]) - sum[a](p[a,i,i] * o[a,0]))",
        lambda v: [(1 + a, v["x"] - np.einsum("zii->zi", v["p"][:, a])[:, None] * v["x"][..., :1]) for a in range(2)],
    ),
    "a vector beyond its boundary": Exact(
        "y[i] = Nonlin(gt[i+1] + g[i])", lambda v: [(2, v["x"])], lambda v: later(v["gt"])
    ),
    "a combination beyond its boundary": Exact(
        "y[i] = Nonlin(zt[i+1] + g[i])", lambda v: [(2, v["x"])], lambda v: later(v["zt"])
    ),
    "a combination within its boundary": Exact(
        "y[t] = Nonlin(zt[t] + g[t])", lambda v: [(2, v["x"]), (1.5, 2 * v["x"])], lambda v: later(v["x"])
    ),
    "a vector around a ring": Exact(
        "y[i] = Nonlin(gr[i] + g[i])", lambda v: [(0.5, np.roll(v["x"], -1, -1)), (2, v["x"])]
    ),
    "a weight that is transposed elsewhere": Exact(
        "y[i] = Nonlin(g[i] + back[i])", lambda v: [(2, v["x"])], lambda v: v["back"]
    ),
    "a weight on both sides": Exact(
        "y[i] = Nonlin(g[i] + o[0,i] + back[i])", lambda v: [(2, v["x"])], lambda v: v["back"] + v["o"][:, :, 0]
    ),
    "a recurrence": Exact("y[i] = Nonlin(sums[2] + g[i])", lambda v: [(2, v["x"])], lambda v: v["sums"][..., 2:]),
    "in steps": Exact(
        "z[i] = Nonlin(sum[a](o[a,i]) + x[i])\n  - y[i] = Nonlin(where(i < 1, z[i], -z[i]) + g[i])",
        lambda v: [(1, v["x"]), (2, v["x"]), (2, v["x"])],
        lambda v: v["x"] * np.array([1, -1, -1]),
    ),
}


@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT.keys())
def test_means_and_variances_are_their_formulas(case: Exact) -> None:
    keep = ["x", "u", "p", "o", "gt", "zt", "back", "sums"]
    found = tp.Program.from_netsor(loads(f"{MORE}  - {case.lines}\noutputs: [y]\n"))
    net = found.run(width=5, coordinates=5, samples=20, seed=7, method="dense", conditional=True, keep=keep)
    mean, variance = net.conditional["y"]
    arrays = {name: np.asarray(net[name]) for name in keep}
    exact = sum(sigma2 * (w**2).mean(axis=1, keepdims=True) for sigma2, w in case.parts(arrays))
    assert np.allclose(variance, np.broadcast_to(exact, variance.shape), rtol=1e-12, atol=1e-14)
    assert np.allclose(mean, np.broadcast_to(case.mean(arrays), mean.shape), rtol=1e-12, atol=1e-14)


def check(net: tp.Samples) -> None:
    """Moments of ((y - m) / sqrt(V), m, V) are those of a standard normal independent of (m, V)."""
    ((name, (mean, variance)),) = net.conditional.items()
    y = net[name]
    assert mean.shape == variance.shape == y.shape
    assert (y[variance == 0] == mean[variance == 0]).all()  # a layer of relus may be dead
    e = (y - mean) / np.sqrt(np.where(variance > 0, variance, 1))
    weight = variance / (variance + variance.mean(axis=0))  # bounded functions of V and m
    shift = np.tanh(mean)
    for value in (e, e**2 - 1, e**3, e**4 - 3, (e**2 - 1) * weight, e * weight, e * shift, (e**2 - 1) * shift):
        error = value.std(axis=0) / np.sqrt(len(value))
        assert (np.abs(value.mean(axis=0)) <= 5 * error).all()


def test_moments_are_those_of_redrawn_matrices() -> None:
    """With everything but WO fixed, the mean square of two draws' products is E V**2."""
    n, s, heads, networks = 4, 2, 2, 60_000
    rng = np.random.default_rng(0)

    def matrix(*lead: int) -> np.ndarray:
        return rng.standard_normal((networks, *lead, n, n)) / np.sqrt(n)

    h = rng.standard_normal((networks, n))
    x = np.clip(np.einsum("zinm,zm->zin", matrix(s), h), -1, 1)
    q, k, v = (np.einsum("zanm,zim->zain", matrix(heads), x) for _ in range(3))
    p = np.einsum("zain,zajn->zaij", q, k) / np.sqrt(n)
    a = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)
    redrawn = rng.standard_normal((2, networks, heads, n)) / np.sqrt(n * heads)  # one row of each WO
    once, again = np.einsum("zaij,zajn,rzan->rzi", a, v, redrawn)
    net = tp.load("attention", s=s, H=heads, C=1).run(width=n, samples=networks, conditional=True)
    mean, variance = net.conditional["y"]
    assert not mean.any()
    for ours, theirs in (
        (variance, once**2),
        (variance**2, once**2 * again**2),
        (variance[:, :1] * variance[:, 1:], once[:, :1] ** 2 * again[:, 1:] ** 2),
    ):
        error = np.hypot(ours.std(axis=0), theirs.std(axis=0)) / np.sqrt(networks)
        assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 5 * error).all()


def test_two_matrices_have_a_chi_square_for_variance() -> None:
    text = """
program: linear
initial: {x: {mean: 1, cov: 0}}
weights: {W1: 1, W2: 4}
body:
  - u = MatMul(W1, x)
  - y = MatMul(W2, u)
outputs: [y]
"""
    net = tp.Program.from_netsor(loads(text)).run(width=6, samples=20_000, conditional=True, coordinates=3)
    mean, variance = net.conditional["y"]
    assert variance.shape == net["y"].shape == (20_000, 3)
    assert (variance == variance[:, :1]).all()  # one variance for all coordinates
    assert not mean.any()
    assert stats.kstest(6 * variance[:, 0] / 4, "chi2", args=(6,)).pvalue > 1e-5


@pytest.mark.parametrize(
    ("line", "outputs", "reason"),
    [
        ("y[i] = Nonlin(relu(g[i]))", "y", "no linear combination"),
        ("y[i] = Nonlin(g[i] * sum[a](p[a,i,i]) + relu(g[i]))", "y", "uses W as well"),
        ("y[i] = MatMul(W, g[i])", "y", "uses W as well"),
        ("y = Nonlin(sum[j](p[0,0,j]))", "y", "scalar"),
        ("y[i] = Nonlin(x[i] * g[i])", "y", "no linear combination"),
        ("y[0] = Nonlin(g[0])\n  - y[j] = Nonlin(y[j - 1] + g[j])", "y", ""),
        ("y[0] = Nonlin(x[0])\n  - m[j] = MatMul(W, y[j-1])\n  - y[j] = Nonlin(m[j] + x[j])", "m", "or a recurrence"),
    ],
)
def test_refusals_give_the_reason(line: str, outputs: str, reason: str) -> None:
    text = HEAD.replace("j: s", 'j: "1..2"') if "y[0]" in line else HEAD
    if "y[0]" in line:
        text = text.replace("k[a,j] = MatMul(WK[a], x[j])", "k[a,i] = MatMul(WK[a], x[i])")
    netsor = loads(f"{text}  - {line}\noutputs: [{outputs}]\n")
    with pytest.raises(tp.NotCompiledError, match=reason or "several definitions"):
        tp.Program.from_netsor(netsor).run(width=4, samples=2, conditional=True)


def test_outputs_with_a_law_stand_beside_those_without() -> None:
    found = program("y[i] = Nonlin(relu(g[i]))", "y, f")
    net = found.run(width=4, samples=10, conditional=True, averages={"m": "y[0]"})
    assert set(net.conditional) == {"f"}
    assert set(net) == {"y", "f", "p"}  # nothing of what was added
    assert net.averages["m"].shape == (10,)
    assert "y" not in with_conditional(found.netsor).variance


def test_names_that_are_not_the_programs_own_are_not_kept() -> None:
    found = program("y[i] = MatMul(W, u[i])")
    for name in ("variance_y", "w_y_W", "psi_m"):
        with pytest.raises(tp.ProgramError, match=f"keep: {name} is not a vector or scalar of the program"):
            found.run(width=4, samples=2, conditional=True, averages={"m": "tanh(y[0])"}, keep=[name])


def test_statements_do_not_depend_on_sizes() -> None:
    small, large = (with_conditional(tp.load("attention", s=s, H=h).netsor).netsor for s, h in ((4, 2), (512, 96)))
    assert len(small.body) == len(large.body)
