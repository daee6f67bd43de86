"""Limits of the shipped programs against closed forms written out here, and relations between programs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

import tensorprog as tp
from tensorprog.shipped import shipped_programs
from tests.limit.oracles import arccos_kernel
from tests.programs import sentences

Array = NDArray[np.float64]

PROGRAMS = shipped_programs()
REAL = os.environ.get("TENSORPROG_GLOVE", "")  # a folder with vectors.npy: 16 real token vectors of the same sentences


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


# -- networks


def test_resnet() -> None:
    state = toeplitz(0.7, 4)
    for _ in range(8):
        state = state + 2 * arccos_kernel(state + 0.1) / 8
    holds(tp.load("resnet").limit(), "f", state)


def test_layernorm_mlp() -> None:
    inner = 2 * toeplitz(0.7, 4) + 0.1
    moment = arccos_kernel(inner)
    mean = np.sqrt(np.diag(inner) / (2 * np.pi))
    scale = np.sqrt(np.diag(moment) - mean**2 + 1e-5)
    normal = (moment - np.outer(mean, mean)) / np.outer(scale, scale)
    holds(tp.load("layernorm_mlp").limit(), "f", arccos_kernel(2 * normal + 0.1))


def test_batchnorm_mlp() -> None:
    """Layer by layer from draws, for want of a closed form: 2 million for each layer."""
    law = tp.load("batchnorm_mlp").limit()
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
    holds(tp.load("cnn").limit(), "f", np.einsum("ickc->ik", moment) / 8)


def test_cnn_pool() -> None:
    positions = np.where(np.eye(8) == 1, 1, 0.5)
    moment = convolutional(np.einsum("ik,cd->ickd", IMAGES, positions), wrap=True)
    holds(tp.load("cnn_pool").limit(), "f", moment.mean(axis=(1, 3)))


# -- sentences


@pytest.mark.slow
@pytest.mark.parametrize("name", sentences.CLOSED)
def test_closed_forms_on_two_sentences(name: str, vectors: Array, tmp_path: Path) -> None:
    law = on(vectors, name, tmp_path).limit()
    holds(law, law.outputs[0], sentences.CLOSED[name](sentences.gram(vectors)))


def test_one_layer_of_the_transformer(vectors: Array, tmp_path: Path) -> None:
    law = on(vectors, "transformer_yang", tmp_path, L=1).limit()
    holds(law, "out", sentences.transformer_yang(sentences.gram(vectors), layers=1))


@pytest.mark.parametrize("name", [*sentences.CLOSED, "gru", "lstm"])
def test_sentences_of_other_lengths(name: str, tmp_path: Path) -> None:
    """Lengths are constants, and the data have one row for each token."""

    def lengths(tokens: int) -> dict[str, int]:
        return {"m": tokens} if name == "mlp_bias" else {"S": 2, "T": tokens}

    tokens = np.load(PROGRAMS["rnn"].parent / "data" / "tokens.npy")[[0, 1, 7, 8, 9]]
    program = on(tokens, name, tmp_path, **lengths(5))
    assert program.check().grade in ("theorem", "extension")
    if name in sentences.CLOSED:
        law = program.limit()
        holds(law, law.outputs[0], sentences.CLOSED[name](sentences.gram(tokens), first=2))
    with pytest.raises(tp.ProgramError, match=r"not \(6, d\)"):
        tp.load(tmp_path / f"{name}.yaml", **lengths(6))


# -- attention


def clipped(rho: float, c: float = 2.0) -> float:
    """E clip(u) clip(v) for unit normals of correlation rho: its derivative in rho is P(|u| < c, |v| < c) (Price)."""

    def inside(r: float) -> float:
        law = stats.multivariate_normal([0, 0], [[1, r], [r, 1]])
        return law.cdf([c, c]) - 2 * law.cdf([c, -c]) + law.cdf([-c, -c])  # type: ignore[no-any-return]

    return (
        integrate.quad(inside, 0, rho, epsabs=1e-9)[0]
        if rho < 1
        else (integrate.quad(lambda x: min(x * x, c * c) * stats.norm.pdf(x), -12, 12, points=[-c, c])[0])
    )


def test_scores_on_the_scale_one_over_n_make_attention_uniform() -> None:
    tokens = np.vectorize(clipped)(toeplitz(0.5, 4))
    holds(tp.load("attention_1n").limit(), "y", np.full((4, 4), tokens.mean()), most=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("attention_mqa", "attention_gqa"),  # fresh W^O for each head leave nothing of the sharing
        ("attention_lowrank", "attention"),  # the ratio of widths leaves the limit
    ],
)
def test_programs_of_one_limit(name: str, other: str) -> None:
    first, second = (tp.load(program).limit() for program in (name, other))
    (ours, ours_error), (theirs, theirs_error) = (covariance(law, "y") for law in (first, second))
    assert ours_error + theirs_error < 5e-4
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ours_error + theirs_error)
    (kurtosis, error), (expected, slack) = (law.kurtosis("y[0]", with_error=True) for law in (first, second))
    assert abs(kurtosis - expected) <= error + slack


def test_keys_shared_by_heads_leave_the_scores_of_heads_independent() -> None:
    p = np.asarray(tp.load("attention_mqa").limit().cov("p"))
    heads = p.transpose(0, 3, 1, 2, 4, 5)
    assert np.all(heads[~np.eye(4, dtype=bool)] == 0)
    assert np.all(np.einsum("aaijij->aij", heads) > 0)


@pytest.mark.slow
def test_equal_tokens_with_equal_pasts_have_equal_outputs() -> None:
    """Both sentences of attention_masked begin with the same word."""
    y, error = covariance(tp.load("attention_masked").limit(), "y")
    assert abs(y[0, 0] - y[0, 3]) <= 2 * error
    assert abs(y[0, 0] - y[3, 3]) <= 2 * error


@pytest.mark.slow
def test_infinitely_many_heads_are_the_limit_of_many() -> None:
    few, many = (tp.load("attention_infinite_heads", H=heads).limit() for heads in (16, 64))
    infinite = many.infinite_heads("a")
    assert infinite.kurtosis("y[0]") == 3
    np.testing.assert_allclose(np.asarray(infinite.cov("y")), np.asarray(many.cov("y")), atol=1e-4)
    (first, error), (second, slack) = (law.kurtosis("y[0]", with_error=True) for law in (few, many))
    assert abs(16 * (first - 3) - 64 * (second - 3)) <= 16 * error + 64 * slack


def test_names_of_indices_are_nothing_but_names(tmp_path: Path) -> None:
    text = PROGRAMS["attention_correlated"].read_text(encoding="utf-8")
    renamed = text
    for old, new in (("i", "r"), ("j", "r2"), ("a", "rank")):
        renamed = re.sub(rf"(?<=[\[,( {{]){old}(?=[\],:_) ])", new, renamed)
    assert "p[rank,r,r2]" in renamed
    (tmp_path / "renamed.yaml").write_text(renamed, encoding="utf-8")
    first, second = (tp.load(file).limit() for file in ("attention_correlated", tmp_path / "renamed.yaml"))
    np.testing.assert_array_equal(first.sample(50, seed=1)["y"], second.sample(50, seed=1)["y"])
    np.testing.assert_array_equal(np.asarray(first.cov("y")), np.asarray(second.cov("y")))
