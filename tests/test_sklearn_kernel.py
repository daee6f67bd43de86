"""Networks as kernels of scikit-learn: against formulas of Cho & Saul, numpy's linear algebra, and its interface."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

import tensorprog as tp

Array = NDArray[np.float64]
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((7, 3)), RNG.standard_normal((4, 3))


def relu_network(inputs: Any, w: float = 2.0, v: float = 1.0, output: str = "f") -> tp.Program:
    P = tp.Program("net", constants={"w": w, "v": v})
    i = P.index("i", len(inputs))
    u = P.initial("u[i]", data=inputs, variance=P.w)
    x = P.nonlin("x[i]", tp.relu(u[i]))
    P.outputs({"x": x, "f": P.matmul("f[i]", P.weight("V", variance=P.v), x[i])}[output])
    return P


def arc_cosine(A: Array, B: Array, w: float = 2.0, v: float = 1.0) -> Array:
    """Cho & Saul 2009: E relu(g) relu(h) = |g| |h| (sin t + (pi - t) cos t) / (2 pi)."""
    inner = w * A @ B.T / A.shape[1]
    sizes = np.sqrt(w / A.shape[1]) * np.linalg.norm(A, axis=1)[:, None]
    sizes = sizes * np.sqrt(w / A.shape[1]) * np.linalg.norm(B, axis=1)
    angle = np.arccos(np.clip(inner / sizes, -1, 1))
    return np.asarray(v * sizes * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi))


def kernel(**others: Any) -> Any:
    return tp.sklearn.ProgramKernel(relu_network, {"w": 2.0, "v": 1.0}, **others)


def test_values_are_those_of_the_formula() -> None:
    assert np.allclose(kernel()(X), arc_cosine(X, X), rtol=0, atol=1e-7)  # arccos near one
    assert np.allclose(kernel()(X, Y), arc_cosine(X, Y), rtol=0, atol=1e-12)
    assert np.allclose(kernel().diag(X), np.diagonal(kernel()(X)), rtol=0, atol=1e-14)
    assert kernel()(X[:1], Y[:1]).shape == (1, 1)
    many = RNG.standard_normal((300, 2))
    assert np.allclose(kernel().diag(many), (many**2).sum(axis=1) / 2, rtol=1e-13)


def test_gradients_of_hyperparameters() -> None:
    value, gradient = kernel(bounds={"w": (0.1, 10), "v": (0.1, 10)})(X, eval_gradient=True)
    # the kernel is proportional to v and, as relu is homogeneous, to w
    assert gradient.shape == (7, 7, 2)
    assert np.allclose(gradient, value[:, :, None], rtol=1e-7)


def test_it_clones_pickles_and_moves() -> None:
    first = kernel(bounds={"w": (0.1, 10)})
    assert first.theta == pytest.approx([np.log(2)])
    assert np.exp(first.bounds) == pytest.approx(np.array([[0.1, 10]]))
    moved = first.clone_with_theta(np.log([3.0]))
    assert moved.constants == {"w": pytest.approx(3.0), "v": 1.0} and first.constants == {"w": 2.0, "v": 1.0}
    assert clone(first) == first != moved
    assert np.array_equal(pickle.loads(pickle.dumps(first))(X), first(X))
    assert first.get_params()["bounds"] == {"w": (0.1, 10)}
    assert first.set_params(constants={"w": 1.0, "v": 1.0}).theta == pytest.approx([0.0])
    with pytest.raises(TypeError, match="widths"):
        first.set_params(widths=3)
    assert repr(moved) == "ProgramKernel(relu_network, w=3, v=1)"
    assert first.set_params(w=3.0).constants == {"w": 3.0, "v": 1.0}


def test_inputs_beyond_the_memory_are_taken_in_halves() -> None:
    many = RNG.standard_normal((600, 3))
    whole, parts = kernel(), kernel(max_memory="5MB")
    with pytest.raises(tp.MemoryLimitError):
        np.asarray(relu_network(many).limit(max_memory="5MB").cov("f"))
    assert np.allclose(parts(many), whole(many), rtol=0, atol=1e-12)
    assert np.allclose(parts(many, Y), whole(many, Y), rtol=0, atol=1e-12)


def test_inputs_are_arrays_of_any_shape() -> None:
    def flat(inputs: Array, w: float, v: float) -> tp.Program:
        return relu_network(inputs.reshape(len(inputs), -1), w, v)

    images = RNG.standard_normal((5, 2, 3))
    found = tp.sklearn.ProgramKernel(flat, {"w": 2.0, "v": 1.0})(images, images[:2])
    assert np.allclose(found, kernel()(images.reshape(5, -1), images[:2].reshape(2, -1)), rtol=0, atol=1e-12)


def test_it_composes() -> None:
    both = ConstantKernel(2.0, "fixed") * kernel(bounds={"w": (0.1, 10)}) + WhiteKernel(0.5)
    assert len(both.theta) == 2
    value, gradient = both(X, eval_gradient=True)
    assert np.allclose(value, 2 * arc_cosine(X, X) + 0.5 * np.eye(7), rtol=0, atol=1e-6)
    assert gradient.shape == (7, 7, 2)
    assert clone(both).clone_with_theta(np.log([4.0, 0.1])).theta == pytest.approx(np.log([4.0, 0.1]))


def test_a_gaussian_process_has_the_posterior_of_the_formula() -> None:
    targets = np.sin(X[:, 0])
    process = GaussianProcessRegressor(kernel(), alpha=0.1).fit(X, targets)
    mean, cov = process.predict(Y, return_cov=True)
    solved = np.linalg.solve(arc_cosine(X, X) + 0.1 * np.eye(7), np.column_stack([targets, arc_cosine(X, Y)]))
    assert np.allclose(mean, arc_cosine(Y, X) @ solved[:, 0], rtol=0, atol=1e-6)
    assert np.allclose(cov, arc_cosine(Y, Y) - arc_cosine(Y, X) @ solved[:, 1:], rtol=0, atol=1e-6)
    assert np.allclose(process.predict(Y, return_std=True)[1] ** 2, np.diagonal(cov), rtol=0, atol=1e-10)


def test_fitting_raises_the_likelihood_and_stays_within_bounds() -> None:
    inputs = RNG.standard_normal((30, 2))
    targets = 3.0 * np.abs(inputs[:, 0])
    still = GaussianProcessRegressor(kernel(), alpha=0.01).fit(inputs, targets)
    fitted = GaussianProcessRegressor(kernel(bounds={"v": (0.5, 20)}), alpha=0.01).fit(inputs, targets)
    assert fitted.log_marginal_likelihood_value_ > still.log_marginal_likelihood() + 0.1
    assert 0.5 <= fitted.kernel_.constants["v"] <= 20
    assert fitted.kernel.constants["v"] == 1.0


def batchnorm(inputs: Any) -> tp.Program:
    P = tp.Program("bn")
    i, j = P.index("i", len(inputs)), P.index("j", len(inputs))
    u = P.initial("u[i]", data=inputs, variance=1)
    x = P.nonlin("x[i]", tp.relu(u[i] - tp.mean[j](u[j])))
    P.outputs(P.matmul("f[i]", P.weight("V"), x[i]))
    return P


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (batchnorm, "depends on the other inputs"),
        (lambda inputs: relu_network(inputs, output="x"), "have mean zero"),
        (lambda inputs: relu_network(inputs[:2]), "one member for each of 7 inputs"),
        ("mlp", "must be a function"),
        (lambda inputs: relu_network(inputs).limit(), "returns a Program"),
    ],
)
def test_what_is_no_kernel_is_refused(program: Any, says: str) -> None:
    with pytest.raises(tp.ProgramError, match=says):
        tp.sklearn.ProgramKernel(program)(X)


def test_arguments_that_make_no_sense() -> None:
    for bounds in ({"b": (1, 2)}, {"w": (3, 4)}, {"w": (-1, 4)}):
        with pytest.raises(tp.ProgramError, match="must be a constant within its bounds"):
            _ = kernel(bounds=bounds).theta
    with pytest.raises(ValueError, match="rows of a matrix"):
        kernel()(X[:, 0])
    with pytest.raises(ValueError, match="only if Y is None"):
        kernel()(X, Y, eval_gradient=True)


def test_without_scikit_learn_the_command_that_installs_it_is_named() -> None:
    code = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "sklearn" else find(name, *more)
import tensorprog as tp
try:
    tp.sklearn
except tp.TensorprogError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scikit-learn is not installed" in done.stdout and "tensorprog[sklearn]" in done.stdout
