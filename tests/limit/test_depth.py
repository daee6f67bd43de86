"""Deep programs with scores: their numbers are those of a direct recursion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp

LAYER = """
  - m{t}[i] = Dot(x{s}[i], x{s}[i], scale=1/n)
  - c{t}[i] = Nonlin(x{s}[i] / sqrt(m{t}[i] + 1e-9))
  - q{t}[i] = MatMul(WQ{t}, c{t}[i])
  - k{t}[j] = MatMul(WK{t}, c{t}[j])
  - p{t}[i,j] = Dot(q{t}[i], k{t}[j])
  - o{t}[j] = MatMul(WO{t}, c{t}[j])
  - z{t}[i] = Nonlin(x{s}[i] + sum[j](softmax[j](p{t}[i,j]) * o{t}[j]))
  - u{t}[i] = MatMul(W{t}, z{t}[i])
  - r{t}[i] = Nonlin(relu(u{t}[i]))
  - g{t}[i] = MatMul(V{t}, r{t}[i])
  - x{t}[i] = Nonlin(z{t}[i] + g{t}[i])
"""
HEAD = """program: stack
constants: {{s: 3, L: {depth}}}
indices: {{i: s, j: s{index}}}
initial:
  h[i]: {{mean: 0, cov: "where(i == i_, 1, 0.3)"}}
weights:
  {weights}
outputs: [y]
body:
"""
NAMES = ("WQ", "WK", "WO", "W", "V")


def by_hand(depth: int) -> str:
    weights = "\n  ".join(f"{name}{t}: 1" for t in range(1, depth + 1) for name in NAMES)
    layers = "".join(LAYER.format(t=t, s=t - 1) for t in range(1, depth + 1))
    start = "  - x0[i] = Nonlin(h[i])"
    return HEAD.format(depth=depth, index="", weights=weights) + start + layers + f"  - y[i] = Nonlin(x{depth}[i])\n"


def by_index(depth: int) -> str:
    weights = "\n  ".join(f"{name}[t]: 1" for name in NAMES)
    layer = LAYER.replace("{s}[", "[t-1,").replace("{t}[", "[t,").replace("{t}", "[t]")
    head = HEAD.format(depth=depth, index=", t: 1..L", weights=weights)
    return head + "  - x[0,i] = Nonlin(h[i])" + layer + "  - y[i] = Nonlin(x[L,i])\n"


def grams(depth: int, draws: int, seed: int, tied: bool = False) -> np.ndarray:
    """Gram matrices of the output, layer by layer in plain numpy; `tied`: with the weights WO of the first layer."""
    random = np.random.default_rng(seed)
    K = np.broadcast_to(0.3 + 0.7 * np.eye(3), (draws, 3, 3))
    first = None
    for _ in range(depth):
        d = np.sqrt(np.einsum("nii->ni", K))
        X = K / (d[:, :, None] * d[:, None, :])
        root = np.linalg.cholesky(X + 1e-12 * np.eye(3))
        p = root @ random.standard_normal((draws, 3, 3)) @ np.swapaxes(root, 1, 2)
        a = np.exp(p)
        a /= a.sum(axis=-1, keepdims=True)
        before, K = K, K + a @ X @ np.swapaxes(a, 1, 2)
        if tied and first is not None:
            known, then, start = first  # E[o o'] of the two layers: what layer 1 adds has weights of its own
            cross = known @ (start / (then[:, :, None] * d[:, None, :])) @ np.swapaxes(a, 1, 2)
            K = K + cross + np.swapaxes(cross, 1, 2)
        first = first or (a, d, before)
        d = np.sqrt(np.einsum("nii->ni", K))
        D = d[:, :, None] * d[:, None, :]
        c = np.clip(K / D, -1, 1)
        K = K + D * (np.sqrt(1 - c**2) + (np.pi - np.arccos(c)) * c) / (2 * np.pi)
    return K


def moments(text: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Second moments of y from draws of the limit, with their standard errors."""
    path.write_text(text)
    y = np.asarray(tp.load(str(path)).limit().sample(20_000, seed=1)["y"])
    products = y[:, :, None] * y[:, None, :]
    return products.mean(axis=0), products.std(axis=0) / np.sqrt(len(y))


@pytest.mark.parametrize(("text", "depth", "tied"), [(by_hand, 3, False), (by_index, 4, False), (by_hand, 2, True)])
def test_a_stack_has_the_moments_of_the_chain_of_its_gram_matrices(text, depth, tied, tmp_path):
    """Weights that two layers share tie what these add to the residual stream."""
    written = text(depth)
    if tied:
        written = written.replace("  WO2: 1\n", "").replace("MatMul(WO2", "MatMul(WO1")
    found, error = moments(written, tmp_path / "stack.yaml")
    expected = grams(depth, 40_000, 1, tied)
    assert np.all(np.abs(found - expected.mean(axis=0)) < 4.5 * error)
    if tied:
        assert np.all(np.abs(found - grams(depth, 40_000, 1).mean(axis=0)) > 6 * error)


def test_many_layers_behind_scores_have_a_profile() -> None:
    profile = tp.depth(tp.load("deep_attention", L=70, s=2, H=1), "x", draws=16)
    assert np.isfinite(profile["variance"]).all() and not np.isnan(profile["kurtosis_error"]).any()
    growth = profile["variance"].values[1:] / profile["variance"].values[:-1]
    assert np.all((growth > 3) & (growth < 4.01))  # attention adds as much as is there, and relu as much again
    entropy, error = (profile[f"attention_entropy{end}"].values[20:] for end in ("", "_error"))
    assert np.all(entropy <= error)  # 0 with 90 digits, where tokens agree to 1e-21: in the numbers here they are equal


def test_tokens_that_are_one_have_uniform_attention(tmp_path: Path) -> None:
    text = (Path(tp.__file__).parents[1] / "programs" / "deep_attention.yaml").read_text()
    (tmp_path / "one.yaml").write_text(text.replace("0.5**", "1.0**"))
    profile = tp.depth(tp.load(tmp_path / "one.yaml", L=24, s=3), "x", draws=16)
    assert np.allclose(profile["attention_entropy"][1:], np.log(3)), profile["attention_entropy"]
    assert np.all(profile["attention_entropy_error"][1:] < 1e-6)


def test_scores_of_functions_are_drawn_in_every_layer(tmp_path: Path) -> None:
    text = (
        by_index(3).replace("Dot(q[t,i],", "Dot(f[t,i],").replace("  - p[", "  - f[t,i] = Nonlin(relu(q[t,i]))\n  - p[")
    )
    (tmp_path / "stack.yaml").write_text(text)
    scores = tp.load(tmp_path / "stack.yaml", L=2).limit().sample(20_000, seed=0)["p"]
    assert np.all(np.abs(scores.var(axis=0) - 0.5) < 0.025)  # E relu(q)**2 = 1/2, E k**2 = 1
