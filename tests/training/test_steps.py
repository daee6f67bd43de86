"""Gradient descent as a program: networks beside numpy's own descent on matrices, and limits beside known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import tensorprog as tp

GRAM = np.array([[1.0, 0.3, 0.5], [0.3, 1.0, -0.2], [0.5, -0.2, 1.0]])
TARGETS, SHARE = np.array([1.0, -1.0, 0.0]), np.array([1.0, 1.0, 0.0])  # the third input is not learned


def network(activation: Any = tp.tanh, hidden: int = 1, widths: bool = False) -> tp.Program:
    """f[i] = v . z[i] / n behind some hidden layers, the loss the mean of (f - y)**2 / 2 over two of three inputs."""
    P = tp.Program("net", widths={"d": "2*n"} if widths else {})
    i = P.index("i", 3)
    x = P.nonlin("x[i]", activation(P.initial("h[i]", cov=GRAM)[i]))
    y, share = P.constant("y[i]", TARGETS), P.constant("share[i]", SHARE)
    for k in range(hidden):
        sides = ((("d", "n"), ("n", "d"))[k % 2],) if widths else ()
        W = P.weight(f"W{k}", 1.5, **({"shape": sides[0]} if sides else {}))
        x = P.nonlin(f"z{k}[i]", activation(P.matmul(f"g{k}[i]", W, x[i])[i]))
    v = P.initial("v", cov=1, width="d" if widths and hidden % 2 else "n")
    f = P.dot("f[i]", v, x[i], scale="1/n")
    P.nonlin("L", tp.sum[i](share[i] * (f[i] - y[i]) ** 2) / 4)
    P.outputs(f, P["L"])
    return P


def by_numpy(rng: np.random.Generator, n: int, networks: int, steps: int, momentum: float) -> np.ndarray:
    """The same descent on matrices of n x n and n x 2n, gradients by hand; f of all inputs after the last step."""
    found = []
    for _ in range(networks):
        h = np.linalg.cholesky(GRAM) @ rng.standard_normal((3, n))
        W0, W1 = rng.standard_normal((2 * n, n)) * (1.5 / n) ** 0.5, rng.standard_normal((n, 2 * n)) * (0.75 / n) ** 0.5
        v = rng.standard_normal(n)
        speed = [0.0, 0.0, 0.0, 0.0]
        for step in range(steps + 1):
            x = np.tanh(h)
            z0 = np.tanh(x @ W0.T)
            z1 = np.tanh(z0 @ W1.T)
            f = z1 @ v / n
            if step == steps:
                break
            df = SHARE * (f - TARGETS) / 2
            dg1 = df[:, None] * v / n * (1 - z1**2)
            dg0 = dg1 @ W1 * (1 - z0**2)
            dh = dg0 @ W0 * (1 - x**2)
            moves = [n * GRAM @ dh, 2 * dg0.T @ x, 0.5 * dg1.T @ z0, df @ z1]  # rates n, rows / columns, n
            speed = [momentum * old + new for old, new in zip(speed, moves, strict=True)]
            h, W0, W1, v = (p - s for p, s in zip((h, W0, W1, v), speed, strict=True))
        found.append(f)
    return np.array(found)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_networks_have_the_law_of_descent_on_matrices(momentum: float) -> None:
    n, steps, count = 8, 2, 4000
    P = tp.gradient_descent(network(hidden=2, widths=True), "L", steps, momentum=momentum)
    ours = np.asarray(P.run(n, count, seed=1, keep=["f_2"])["f_2"])
    theirs = by_numpy(np.random.default_rng(2), n, count, steps, momentum)
    for one, two in zip(ours.T, theirs.T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > 1e-6
    one, two = (np.einsum("ma,mb->mab", f, f).reshape(count, -1) for f in (ours, theirs))
    assert (np.abs(one.mean(0) - two.mean(0)) < 4.9 * np.sqrt((one.var(0) + two.var(0)) / count)).all()


def test_a_readout_of_another_width_moves_by_that_width() -> None:
    """f = v . z / n with v of width 2n: one step, by numpy on matrices."""
    n, count, rng = 8, 4000, np.random.default_rng(5)
    P = tp.gradient_descent(network(hidden=1, widths=True), "L", 1)
    ours = np.asarray(P.run(n, count, seed=1, keep=["f_1"])["f_1"])
    found = []
    for _ in range(count):
        h = np.linalg.cholesky(GRAM) @ rng.standard_normal((3, n))
        W, v = rng.standard_normal((2 * n, n)) * (1.5 / n) ** 0.5, rng.standard_normal(2 * n)
        x = np.tanh(h)
        z = np.tanh(x @ W.T)
        df = SHARE * (z @ v / (2 * n) - TARGETS) / 2  # a Dot on the scale 1/n has the width of its operands
        dg = df[:, None] * v / (2 * n) * (1 - z**2)
        h, W, v = h - n * GRAM @ (dg @ W * (1 - x**2)), W - 2 * dg.T @ x, v - df @ z
        found.append(np.tanh(np.tanh(h) @ W.T) @ v / (2 * n))
    for one, two in zip(ours.T, np.array(found).T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > 1e-6


def test_two_hidden_layers_after_four_steps() -> None:
    """Values from quasi-random coordinates with gradients written by hand, standard errors 6e-5 to 1.1e-4."""
    law = tp.gradient_descent(network(), "L", 4).limit()
    values, errors = law.mean("f_4", with_error=True)
    for value, error, expected in zip(values, errors, (0.87925, -0.87923, 0.73587), strict=True):
        assert abs(value - expected) < error + 5e-4 and error < 1e-3


def test_one_hidden_layer_needs_no_transposes() -> None:
    P = tp.Program("net", constants={"rho": 0.3})
    i = P.index("i", 2)
    h, v, y = P.initial("h[i]", cov="where(i == i_, 1, rho)"), P.initial("v"), P.constant("y[i]", [1, -1])
    x = P.nonlin("x[i]", tp.tanh(h[i]))
    f = P.dot("f[i]", v, x[i], scale="1/n")
    P.outputs(P.nonlin("L", tp.sum[i]((f[i] - y[i]) ** 2) / 4))
    law = tp.gradient_descent(P, "L", 2).limit()
    for name, expected in (("f_1", 0.302515), ("f_2", 0.528359)):
        value, error = law.mean(name, with_error=True)
        assert abs(value[0] - expected) < error[0] + 1e-4


@pytest.mark.slow
def test_relu_is_right_from_the_second_step_on() -> None:
    P = tp.gradient_descent(network(tp.relu), "L", 2)
    assert P.check().grade == "extension"
    values, errors = P.limit().mean("f_2", with_error=True)
    drawn = np.asarray(P.run(4096, 60, seed=3, keep=["f_2"])["f_2"])
    spread = drawn.std(axis=0) / 60**0.5
    assert (np.abs(drawn.mean(axis=0) - values) < 4.9 * spread + errors + 2e-3).all()


def two_matrices(family: bool) -> tp.Program:
    """z reads two weights, of which one multiplies z again: as members of a family, or as weights of their own."""
    P = tp.Program("two")
    i, k = P.index("i", 2), P.index("k", 2)
    y = P.constant("y[i]", [1, -1])
    x = P.nonlin("x[i]", tp.tanh(P.initial("h[i]", cov="where(i == i_, 1, 0.3)")[i]))
    if family:
        W = P.weight("W[k]", P.constant("s[k]", [1.5, 0.7])[k])
        g = P.matmul("g[i,k]", W[k], x[i])
        g0, g1, last = g[i, 0], g[i, 1], W[1]
    else:
        last = P.weight("W1", 0.7)
        g0, g1 = P.matmul("g0[i]", P.weight("W0", 1.5), x[i])[i], P.matmul("g1[i]", last, x[i])[i]
    q = P.matmul("q[i]", last, P.nonlin("z[i]", tp.tanh(g0) * tp.tanh(g1 + 1))[i])
    f = P.dot("f[i]", P.initial("v"), P.nonlin("t[i]", tp.tanh(q[i]))[i], scale="1/n")
    P.outputs(f, P.nonlin("L", tp.sum[i]((f[i] - y[i]) ** 2) / 4))
    return tp.gradient_descent(P, "L", 2)


@pytest.mark.slow
def test_members_of_a_weight_that_make_unequal_numbers_of_products() -> None:
    laws = [two_matrices(family).limit() for family in (True, False)]
    for name in ("f_1", "f_2"):
        (one, off), (two, away) = (law.mean(name, with_error=True) for law in laws)
        assert (np.abs(one - two) <= off + away + 1e-6).all(), name
        assert np.abs(one).min() > 0.1


def test_layers_as_a_family_are_layers_one_by_one() -> None:
    """h[l,i] is an initial vector for l = 0, and a product from then on."""
    P = tp.Program("layers", constants={"L": 2})
    i, layer, y = P.index("i", 2), P.index("l", "1..L"), P.constant("y[i]", [1, -1])
    h, cov = P.family("h[l,i]"), "where(i == i_, 1, 0.3)"
    P.nonlin("h[0,i]", P.initial("first[i]", cov=cov)[i])
    x = P.nonlin("x[l,i]", tp.tanh(h[layer - 1, i]))
    P.matmul("h[l,i]", P.weight("W[l]", 1.5)[layer], x[layer, i])
    f = P.dot("f[i]", P.initial("v"), P.nonlin("z[i]", tp.tanh(P["h"][2, i]))[i], scale="1/n")
    P.outputs(f, P.nonlin("K", tp.sum[i]((f[i] - y[i]) ** 2) / 4))
    Q = tp.Program("written out")
    i, y = Q.index("i", 2), Q.constant("y[i]", [1, -1])
    x = Q.nonlin("x0[i]", tp.tanh(Q.initial("first[i]", cov=cov)[i]))
    for k in (1, 2):
        x = Q.nonlin(f"x{k}[i]", tp.tanh(Q.matmul(f"h{k}[i]", Q.weight(f"W{k}", 1.5), x[i])[i]))
    f = Q.dot("f[i]", Q.initial("v"), x[i], scale="1/n")
    Q.outputs(f, Q.nonlin("K", tp.sum[i]((f[i] - y[i]) ** 2) / 4))
    (one, off), (two, away) = (tp.gradient_descent(R, "K", 1).limit().mean("f_1", with_error=True) for R in (P, Q))
    assert (np.abs(one - two) <= off + away + 1e-6).all() and np.abs(one).min() > 0.1


def test_a_rate_of_zero_keeps_a_parameter() -> None:
    P = tp.gradient_descent(network(), "L", 1, rates={"W0": 0, "h": 0, "v": 0})
    law = P.limit()
    assert np.allclose(law.mean("f_1"), law.mean("f_0"))


@pytest.mark.parametrize(("loss", "rates", "said"), [
    ("f", {}, "without indices"),
    ("nothing", {}, "no scalar of the program"),
    ("L", {"V": 1.0}, "no weight or initial vector"),
])  # fmt: skip
def test_what_is_no_loss_and_no_parameter(loss: str, rates: dict[str, float], said: str) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        tp.gradient_descent(network(), loss, 1, rates=rates)
