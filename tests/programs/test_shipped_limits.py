"""Limits of the shipped programs against closed forms written out here, and relations between programs.

A limit that this version does not compile is refused, and its test skipped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

import tensorprog as tp
from tensorprog.shipped import shipped_programs
from tests.limit.oracles import arccos_kernel, arcsine_kernel

Array = NDArray[np.float64]

PROGRAMS = shipped_programs()
REAL = os.environ.get("TENSORPROG_GLOVE", "")  # a folder with vectors.npy: 16 real token vectors of the same sentences
SENTENCES = (slice(0, 7), slice(7, 16))


def limit(program: tp.Program) -> tp.Law:
    try:
        law = program.limit()
        law.cov(law.outputs[0])
    except tp.NotCompiledError as error:
        pytest.skip(str(error))
    return law


def holds(law: tp.Law, output: str, expected: Array, most: float = 1e-10) -> None:
    """The covariance of an output is that of the closed form, and its error is small and honest."""
    found, error = covariance(law, output)
    scale = np.abs(expected).max()
    assert error < most * scale
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=error + 1e-13 * scale)


def covariance(law: tp.Law, output: str) -> tuple[Array, float]:
    """The covariance of an output, and its largest error."""
    found, error = law.cov(output, with_error=True)
    return np.asarray(found), float(np.max(error))


def toeplitz(rho: float, size: int) -> Array:
    i = np.arange(size)
    return rho ** np.abs(i[:, None] - i)  # type: ignore[no-any-return]


@pytest.fixture(params=["own", "real"])
def vectors(request: pytest.FixtureRequest) -> Array:
    """16 token vectors: those that ship, and real ones where they are at hand."""
    if request.param == "own":
        return np.load(PROGRAMS["rnn"].parent / "data" / "tokens.npy")
    if not REAL:
        pytest.skip("TENSORPROG_GLOVE names no folder with vectors.npy")
    return np.load(Path(REAL) / "vectors.npy").astype(float)


def on(vectors: Array, name: str, folder: Path, **constants: Any) -> tp.Program:
    """A shipped program on other token vectors: a copy of it beside them."""
    shutil.copy(PROGRAMS[name], folder)
    (folder / "data").mkdir()
    np.save(folder / "data" / "tokens.npy", vectors)
    return tp.load(folder / f"{name}.yaml", **constants)


def gram(vectors: Array) -> Array:
    return vectors @ vectors.T / vectors.shape[1]  # type: ignore[no-any-return]


# -- networks


def test_mlp_bias(vectors: Array, tmp_path: Path) -> None:
    first = arcsine_kernel(2 * gram(vectors) + 0.1)
    holds(limit(on(vectors, "mlp_bias", tmp_path)), "f", arcsine_kernel(2 * first + 0.1))


def test_resnet() -> None:
    state = toeplitz(0.7, 4)
    for _ in range(8):
        state = state + 2 * arccos_kernel(state + 0.1) / 8
    holds(limit(tp.load("resnet")), "f", state)


def test_layernorm_mlp() -> None:
    inner = 2 * toeplitz(0.7, 4) + 0.1
    moment = arccos_kernel(inner)
    mean = np.sqrt(np.diag(inner) / (2 * np.pi))
    scale = np.sqrt(np.diag(moment) - mean**2 + 1e-5)
    normal = (moment - np.outer(mean, mean)) / np.outer(scale, scale)
    holds(limit(tp.load("layernorm_mlp")), "f", arccos_kernel(2 * normal + 0.1))


def test_batchnorm_mlp() -> None:
    """Layer by layer from draws, for want of a closed form: 2 million for each layer."""
    law = limit(tp.load("batchnorm_mlp"))
    generator = np.random.default_rng(5)
    moment = toeplitz(0.5, 4)
    for _ in range(2):
        u = np.sqrt(2) * generator.standard_normal((2_000_000, 4)) @ np.linalg.cholesky(moment).T
        centred = u - u.mean(axis=1, keepdims=True)
        h = np.maximum(centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5), 0)
        moment = h.T @ h / len(h)
    found, error = covariance(law, "f")
    # the standard error of a second moment near 1/2 is below 1e-3, and that of the first layer is not enlarged
    np.testing.assert_allclose(found, moment, rtol=0, atol=4.9e-3 + error)


def convolved(moment: Array, wrap: bool) -> Array:
    """Cov of sum_d F_d x[c+d], three taps of variance 2/3 each, and a bias; moments (m, P, m, P)."""
    m, size = moment.shape[:2]
    padded = np.pad(moment, ((0, 0), (1, 1), (0, 0), (1, 1)), mode="wrap" if wrap else "constant")
    taps = sum(padded[:, d : d + size, :, d : d + size] for d in range(3))
    return np.asarray(2 / 3 * taps + 0.1).reshape(m, size, m, size)


def convolutional(inputs: Array, wrap: bool) -> Array:
    """Second moments of the features of the last layer, (m, P, m, P)."""
    moment = inputs
    for _ in range(2):
        inner = convolved(moment, wrap)
        size = inner.shape[0] * inner.shape[1]
        moment = arccos_kernel(inner.reshape(size, size)).reshape(inner.shape)
    return moment


IMAGES = np.where(np.eye(2) == 1, 1, 0.5)


def test_cnn() -> None:
    moment = convolutional(np.einsum("ik,cd->ickd", IMAGES, toeplitz(0.5, 8)), wrap=False)
    holds(limit(tp.load("cnn")), "f", np.einsum("ickc->ik", moment) / 8)


def test_cnn_pool() -> None:
    positions = np.where(np.eye(8) == 1, 1, 0.5)
    moment = convolutional(np.einsum("ik,cd->ickd", IMAGES, positions), wrap=True)
    holds(limit(tp.load("cnn_pool")), "f", moment.mean(axis=(1, 3)))


# -- sentences


def recurrent(tokens: Array) -> Array:
    """Second moments of the states of an erf network on two sentences, all 16 x 16."""
    starts = [sentence.start for sentence in SENTENCES]
    states = np.zeros((16, 16))
    before = np.zeros((16, 16))  # moments of the states before each token, zero at the start of a sentence
    for _ in range(9):  # each pass fixes one more position of both sentences
        states = arcsine_kernel(before + tokens + 0.1)
        before[1:, 1:] = states[:-1, :-1]
        before[starts] = before[:, starts] = 0
    return states


def test_rnn(vectors: Array, tmp_path: Path) -> None:
    holds(limit(on(vectors, "rnn", tmp_path)), "f", recurrent(gram(vectors)))


def test_rnn_avgpool(vectors: Array, tmp_path: Path) -> None:
    states = recurrent(gram(vectors))
    pooled = np.array([[states[a, b].mean() for b in SENTENCES] for a in SENTENCES])
    holds(limit(on(vectors, "rnn_avgpool", tmp_path)), "f", pooled)


def causal(scores: Array) -> Array:
    """Softmax over the tokens of the same sentence up to each token."""
    weights = np.zeros_like(scores)
    for sentence in SENTENCES:
        for row in range(sentence.start, sentence.stop):
            part = np.exp(scores[row, sentence.start : row + 1])
            weights[row, sentence.start : row + 1] = part / part.sum()
    return weights


def correlation(moment: Array) -> Array:
    scale = np.sqrt(np.diag(moment))
    return moment / np.outer(scale, scale)  # type: ignore[no-any-return]


@pytest.mark.parametrize("layers", [1, 2])
def test_transformer_yang(vectors: Array, layers: int, tmp_path: Path) -> None:
    state = gram(vectors)
    for _ in range(layers):
        mixed = np.eye(16) + causal(state)
        attended = correlation(mixed @ state @ mixed.T)
        state = correlation(arccos_kernel(attended + 1) + 1 + attended)
    holds(limit(on(vectors, "transformer_yang", tmp_path, L=layers)), "out", state)


# -- attention


def clipped(rho: float, c: float = 2.0) -> float:
    """E clip(u) clip(v) for unit normals of correlation rho: its derivative in rho is P(|u| < c, |v| < c) (Price)."""
    def inside(r: float) -> float:
        law = stats.multivariate_normal([0, 0], [[1, r], [r, 1]])
        return law.cdf([c, c]) - 2 * law.cdf([c, -c]) + law.cdf([-c, -c])  # type: ignore[no-any-return]

    return integrate.quad(inside, 0, rho, epsabs=1e-9)[0] if rho < 1 else (
        integrate.quad(lambda x: min(x * x, c * c) * stats.norm.pdf(x), -12, 12, points=[-c, c])[0])


def test_scores_on_the_scale_one_over_n_make_attention_uniform() -> None:
    tokens = np.vectorize(clipped)(toeplitz(0.5, 4))
    holds(limit(tp.load("attention_1n")), "y", np.full((4, 4), tokens.mean()), most=1e-6)


@pytest.mark.parametrize(("name", "other"), [
    ("attention_mqa", "attention_gqa"),  # fresh W^O for each head leave nothing of the sharing
    ("attention_lowrank", "attention"),  # the ratio of widths leaves the limit
])
def test_programs_of_one_limit(name: str, other: str) -> None:
    first, second = (limit(tp.load(program)) for program in (name, other))
    (ours, ours_error), (theirs, theirs_error) = (covariance(law, "y") for law in (first, second))
    assert ours_error + theirs_error < 5e-4
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ours_error + theirs_error)
    (kurtosis, error), (expected, slack) = (law.kurtosis("y[0]", with_error=True) for law in (first, second))
    assert abs(kurtosis - expected) <= error + slack


def test_keys_shared_by_heads_leave_the_scores_of_heads_independent() -> None:
    p = np.asarray(limit(tp.load("attention_mqa")).cov("p"))
    heads = p.transpose(0, 3, 1, 2, 4, 5)
    assert np.all(heads[~np.eye(4, dtype=bool)] == 0)
    assert np.all(np.einsum("aaijij->aij", heads) > 0)


@pytest.mark.slow
def test_shared_keys_correlate_the_squares_of_scores_like_one_over_n() -> None:
    """Given tokens and keys the scores of two heads are independent normals of one variance, |x|^2 |k|^2 / n^2."""
    scaled, errors = [], []
    for width in (64, 256):
        p = tp.load("attention_mqa").run(width, 200_000, seed=width)["p"][:, :2, 0, 1]
        first, second = (p**2 - (p**2).mean(axis=0)).T
        products = first * second
        scaled.append(width * products.mean())
        errors.append(width * products.std() / np.sqrt(len(products)))
        assert abs(np.mean(p[:, 0] * p[:, 1])) < 4.9 * np.std(p[:, 0] * p[:, 1]) / np.sqrt(len(p))
    assert scaled[0] > 4.9 * errors[0]
    assert abs(scaled[0] - scaled[1]) < 4.9 * np.hypot(*errors)


@pytest.mark.slow
def test_equal_tokens_with_equal_pasts_have_equal_outputs() -> None:
    """Both sentences of attention_masked begin with the same word."""
    y, error = covariance(limit(tp.load("attention_masked")), "y")
    assert abs(y[0, 0] - y[0, 3]) <= 2 * error
    assert abs(y[0, 0] - y[3, 3]) <= 2 * error


@pytest.mark.slow
def test_infinitely_many_heads_are_the_limit_of_many() -> None:
    few, many = (limit(tp.load("attention_infinite_heads", H=heads)) for heads in (16, 64))
    infinite = many.infinite_heads("a")
    assert infinite.kurtosis("y[0]") == 3
    np.testing.assert_allclose(np.asarray(infinite.cov("y")), np.asarray(many.cov("y")), atol=1e-4)
    (first, error), (second, slack) = (law.kurtosis("y[0]", with_error=True) for law in (few, many))
    assert abs(16 * (first - 3) - 64 * (second - 3)) <= 16 * error + 64 * slack


def test_one_text_has_the_limits_of_several() -> None:
    regimes = {mu: limit(tp.load("attention_regimes", mu=mu)) for mu in (0, 0.5, 1)}
    kurtosis = {mu: law.kurtosis("y[0]") for mu, law in regimes.items()}
    assert kurtosis[0] > kurtosis[0.5] > kurtosis[1]
    assert abs(kurtosis[1] - 3) < 1e-9
    uniform = np.asarray(limit(tp.load("attention_1n")).cov("y"))
    np.testing.assert_allclose(np.asarray(regimes[1].cov("y")), uniform, atol=1e-9)
