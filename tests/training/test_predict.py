"""Trained networks in the kernel regime: beside dense dynamics of parameters, neural-tangents, and real networks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

import tensorprog as tp

Array = NDArray[Any]
RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((9, 4))
TARGETS = np.sin(INPUTS[:5, 0])
TIMES = (0.0, 0.1, 1, 10, math.inf)


def network(inputs: Array, function: Any = tp.erf, layers: int = 2) -> tp.Program:
    P = tp.Program("net")
    i = P.index("i", len(inputs))
    u = P.initial("u0[i]", data=inputs, variance=1.5)
    for k in range(1, layers + 1):
        bias = P.initial(f"b{k}", cov=0.1)
        u = P.matmul(f"u{k}[i]", P.weight(f"W{k}", 1.5), P.nonlin(f"x{k}[i]", function(u[i] + bias))[i])
    P.outputs(u)
    return P


def trained(K: Array, theta: Array, rows: Array, y: Array, t: float, noise: float, own: bool) -> tuple[Array, Array]:
    """Mean and covariance of f = f0 + J w, J J' = theta, where w moves by descent on (f - y)**2/2 + noise w**2/2.

    The dynamics are those of the parameters w, dense; with `own`, targets have noise of their own in each network.
    """
    values, vectors = np.linalg.eigh(theta)
    J = vectors * np.sqrt(np.maximum(values, 0))
    T, count = J[rows], J.shape[1]
    step = -(T.T @ T + noise * np.eye(count))
    whole = np.block([[step, T.T], [np.zeros((len(rows), count + len(rows)))]])  # w and a constant force on it
    force = expm(whole * min(t, 1e9))[:count, count:]
    if t == math.inf:
        force = np.linalg.pinv(-step, rcond=1e-13) @ T.T
    S = np.eye(len(K))
    S[:, rows] -= J @ force
    spread = noise * J @ force @ force.T @ J.T if own else 0
    return J @ force @ y, S @ K @ S.T + spread


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("kernel", ["ntk", "nngp"])
def test_the_law_is_that_of_dense_dynamics(kernel: Any, noise: float) -> None:
    P, rows = network(INPUTS), np.array([4, 0, 7, 2, 3])
    K = np.asarray(P.limit().cov("u2"))
    theta = np.asarray(tp.ntk(P, "u2")) if kernel == "ntk" else K
    found = tp.predict(P, "u2", TARGETS, rows, kernel=kernel, noise=noise)
    assert found.test.tolist() == [1, 5, 6, 8] and found.grade == "theorem"
    for t in TIMES:
        mean, cov = trained(K, theta, rows, TARGETS, t, noise, kernel == "nngp")
        now = found.at(t)
        assert now.mean == pytest.approx(mean, abs=1e-10) and now.cov == pytest.approx(cov, abs=1e-10)
        assert now.mean_error.max() < 1e-8 and now.cov_error.max() < 1e-8
    if not noise:
        assert found.mean[rows] == pytest.approx(TARGETS, abs=1e-11) and found.std[rows] == pytest.approx(0, abs=1e-6)


# gradient_descent_mse_ensemble of neural-tangents 0.6.5: mean, standard deviation of the member 7, by kernel, t
PEER: dict[tuple[str, str, float], tuple[float, float]] = {
    ("relu", "nngp", 1): (-0.312925493481, 0.373374968606),
    ("relu", "ntk", 1): (-0.270502900878, 0.364887758967),
    ("relu", "nngp", math.inf): (-0.291824053016, 0.366294129066),
    ("relu", "ntk", math.inf): (-0.246975432185, 0.361935995660),
    ("erf", "nngp", 1): (-0.282746351941, 0.573454888600),
    ("erf", "ntk", 1): (-0.344612762278, 0.533892834545),
    ("erf", "nngp", math.inf): (-0.381871151599, 0.542259530272),
    ("erf", "ntk", math.inf): (-0.344441081137, 0.529426329218),
}


@pytest.mark.parametrize(("function", "kernel", "t"), PEER)
def test_numbers_of_neural_tangents(function: str, kernel: Any, t: float) -> None:
    everything = ["u0", "b1", "W1", "b2", "W2"] if kernel == "ntk" else None
    found = tp.predict(
        network(INPUTS, getattr(tp, function)), "u2", TARGETS, t=t, noise=0.1, kernel=kernel, parameters=everything
    )
    assert (found.mean[7], found.std[7]) == pytest.approx(PEER[function, kernel, t], abs=1e-9)


def test_networks_of_numpy_have_this_law() -> None:
    """One hidden layer, f = V tanh(u) / sqrt(n), descent in small steps on normals: both layers move."""
    networks, n, rate, steps, rng = 300, 200, 0.03, 40, np.random.default_rng(1)
    P = network(INPUTS, layers=0)
    x = P.nonlin("x[i]", "tanh(u0[i])")
    P.outputs(P.matmul("f[i]", P.weight("V", 2), "x[i]"))
    a, v = rng.standard_normal((networks, n, 4)), rng.standard_normal((networks, n))
    for step in range(steps + 1):
        x = np.tanh(np.einsum("mna,ia->mni", a, INPUTS) * (1.5 / 4) ** 0.5)
        f = np.einsum("mn,mni->mi", v, x) * (2 / n) ** 0.5
        if step == steps:
            break
        away = (f[:, :5] - TARGETS) * (2 / n) ** 0.5
        x = x[:, :, :5]
        inner = np.einsum("mi,mni,mn->mni", away, 1 - x**2, v) * (1.5 / 4) ** 0.5
        v -= rate * np.einsum("mi,mni->mn", away, x)
        a -= rate * np.einsum("mni,ia->mna", inner, INPUTS[:5])
    law = tp.predict(P, "f", TARGETS, t=rate * steps)
    error = np.sqrt(np.diag(law.cov) / networks)
    assert (np.abs(f.mean(axis=0) - law.mean) < 5 * error + 0.01).all()  # 0.01: steps and width
    ratio = f.var(axis=0, ddof=1) / np.diag(law.cov)
    assert (np.abs(ratio - 1) < 5 * (2 / networks) ** 0.5 + 0.05).all()


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("kernel", ["ntk", "nngp"])
def test_errors_bound_what_errors_of_kernels_do(kernel: Any, t: float) -> None:
    """Kernels moved by at most 1e-5 in every entry: nothing moves by more than is stated, nor by much less."""
    rng = np.random.default_rng(2)
    known = tp.predict(network(INPUTS), "u2", TARGETS, kernel=kernel, noise=0.05)._kernels
    stated = replace(known, covariance_error=1e-5, tangent_error=1e-5)
    mean, mean_error, cov, cov_error = stated.after(t)
    worst = [0.0, 0.0]
    for _ in range(50):
        off = np.sign(rng.standard_normal(cov.shape)) * 1e-5
        moved = known.covariance + (off + off.T) / 2
        other = moved if kernel == "nngp" else known.tangent + np.sign(rng.standard_normal(cov.shape)) * 1e-5
        again, _, cov_again, _ = replace(known, covariance=moved, tangent=(other + other.T) / 2).after(t)
        for k, (new, old, bound) in enumerate(((again, mean, mean_error), (cov_again, cov, cov_error))):
            worst[k] = max(worst[k], float((np.abs(new - old) / np.maximum(bound, 1e-300)).max()))
    assert max(worst) < 1 + 1e-9 and (t == 0 or worst[0] > 0.01) and worst[1] > 0.01


def test_several_columns_of_targets_and_masks() -> None:
    P = network(INPUTS)
    both = np.stack([TARGETS, TARGETS**2], axis=1)
    found = tp.predict(P, "u2", both, np.arange(9) < 5, t=2, kernel="nngp")
    assert found.mean.shape == found.mean_error.shape == (9, 2) and found.cov.shape == (9, 9)
    for k in (0, 1):
        alone = tp.predict(P, "u2", both[:, k], slice(0, 5), t=2, kernel="nngp")
        assert alone.mean == pytest.approx(found.mean[:, k], abs=1e-13)
    assert "after time 2 on 5 training rows" in str(found)


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("need as many targets", {"targets": TARGETS[:3], "train": slice(0, 5)}),
        ("does not name members", {"train": [0, 1, 2, 3, 9]}),
        ("stands twice", {"train": [0, 1, 2, 3, 3]}),
        ("not all finite", {"targets": [np.nan, 1], "train": [0, 1]}),
        ("t is a time", {"t": np.int64(-1)}),
        ("are no numbers", {"targets": ["a", "b"]}),
        ("noise is a variance", {"noise": -1}),
        ("kernel is 'ntk' or 'nngp'", {"kernel": "krr"}),
        ("is not a vector", {"name": "g"}),
        ("no weight or initial vector", {"parameters": ["W9"]}),
    ],
)
def test_what_is_refused(said: str, given: dict[str, Any]) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        tp.predict(network(INPUTS, layers=1), **({"name": "u1", "targets": TARGETS} | given))


def test_a_readout_is_one_coordinate_of_a_product() -> None:
    P = tp.load("sp_mlp")
    everything = ["h", "W", "v"]
    found = tp.predict(P, "f", [1, -1], t=np.float32(1), parameters=everything)
    R = tp.Program("product", constants={"rho": 0.5, "s": 3})
    R.index("i", "s"), R.initial("h[i]", cov="rho**abs(i - i_)"), R.nonlin("x[i]", "tanh(h[i])")
    R.matmul("g[i]", R.weight("W", 1.5), "x[i]"), R.nonlin("z[i]", "tanh(g[i])")
    R.outputs(R.matmul("f[i]", R.weight("v"), "z[i]"))
    again = tp.predict(R, "f", [1, -1], t=1, parameters=everything)
    assert (found.mean == again.mean).all() and (found.cov == again.cov).all()
    with pytest.raises(tp.ProgramError, match="f is no readout on the scale"):
        tp.predict(tp.load("mup_mlp"), "f", [1, -1])


def test_equal_training_rows_need_noise() -> None:
    inputs = INPUTS[[0, 0, 1, 2]]
    with pytest.raises(tp.ProgramError, match="singular within its error"):
        tp.predict(network(inputs), "u2", [1, 1, 0], kernel="nngp")
    assert tp.predict(network(inputs), "u2", [1, 1, 0], kernel="nngp", noise=0.1).mean_error.max() < 1e-9
    assert tp.predict(network(inputs), "u2", [1, 1, 0], kernel="nngp", t=5).mean_error.max() < 1e-9


def test_outputs_that_are_not_gaussian_are_refused() -> None:
    P = network(INPUTS, layers=1)
    P.outputs(P.nonlin("z[i]", "tanh(u1[i])"))
    for kernel in ("ntk", "nngp"):
        with pytest.raises(tp.NotCompiledError, match="z is not Gaussian in the limit"):
            tp.predict(P, "z", TARGETS, kernel=kernel)
        with pytest.raises(tp.NotCompiledError):
            tp.predict(tp.load("attention"), "y", [1.0], kernel=kernel)
