"""Gram matrices whose numbers were rounded: taken, with a warning and an error that covers what was lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp

VECTORS = np.random.default_rng(0).normal(size=(12, 5))  # more vectors than dimensions: the Gram matrix is singular
GRAM = VECTORS @ VECTORS.T / 5
TEXT = """
program: rounded
indices: {{i: 12}}
initial:
  x[i]: {{{}}}
weights: {{W: 1, V: 1}}
body:
  - u[i] = MatMul(W, x[i])
  - h[i] = Nonlin(relu(u[i]))
  - y[i] = MatMul(V, h[i])
outputs: [y]
"""


def program(folder: Path, source: str) -> tp.Program:
    (folder / "p.yaml").write_text(TEXT.format(source))
    return tp.load(folder / "p.yaml")


def _single() -> np.ndarray:
    return VECTORS.astype(np.float32) @ VECTORS.T.astype(np.float32) / np.float32(5)


@pytest.mark.parametrize(
    ("gram", "eps"),
    [
        (GRAM, 0.0),
        (GRAM.astype(np.float32), 2.0**-23),
        (_single(), 2.0**-23),  # every operation in single precision
        (GRAM.astype(np.float16), 2.0**-10),
    ],
)
def test_a_rounded_gram_matrix_agrees_with_its_vectors(tmp_path: Path, gram: np.ndarray, eps: float) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    np.save(tmp_path / "g.npy", gram)
    given, exact = program(tmp_path, "gram: g.npy"), program(tmp_path, "data: x.npy").limit().cov("y")
    law = given.limit()
    found = law.cov("y")
    off = np.abs(np.asarray(found) - np.asarray(exact)).max()
    assert off <= found.error + exact.error
    assert found.error <= 12 * eps * np.linalg.eigvalsh(GRAM)[-1] + 1e-13
    draws = law.sample(20_000)["y"]  # an indefinite matrix would have a factor that is far off
    assert np.abs(np.cov(draws.T) - np.asarray(found)).max() < 6 * np.asarray(found).max() / 20_000**0.5


@pytest.mark.parametrize("low", [-0.3, -1e-3])
def test_what_rounding_does_not_explain_is_refused(tmp_path: Path, low: float) -> None:
    values, vectors = np.linalg.eigh(GRAM)
    np.save(tmp_path / "g.npy", (vectors * np.where(values < 1e-9, low, values) @ vectors.T).astype(np.float32))
    with pytest.raises(tp.ProgramError, match=r"not positive semidefinite(.*\n)+.*more digits"):
        program(tmp_path, "gram: g.npy")
