"""Reproducibility, memory, arguments and boundary cases of finite runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite import run as engine
from tensorprog.shipped import shipped_programs
from tests.reading import loads

ATTENTION = shipped_programs()["attention"]


@pytest.mark.parametrize("method", ["dense", "lazy"])
def test_one_seed_gives_the_same_numbers_whatever_runs_them(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tp.load(ATTENTION)
    reference = program.run(24, 3000, seed=7, method=method, threads=1)
    with ThreadPoolExecutor(3) as pool:
        others = [
            program.run(24, 3000, seed=7, method=method, threads=2),
            program.run(24, 3000, seed=7, method=method, max_memory="64MiB"),
            program.run(24, 3000, seed=7, method=method, executor=pool),
        ]
    monkeypatch.setattr(engine, "MAX_TASK", 1)  # one block at a time
    others.append(program.run(24, 3000, seed=7, method=method, threads=2))
    for other in others:
        for name in reference:
            assert np.array_equal(reference[name], other[name])
    shorter = program.run(24, 1001, seed=7, method=method)
    assert np.array_equal(shorter["y"], reference["y"][:1001])
    assert not np.array_equal(program.run(24, 1001, seed=8, method=method)["y"], shorter["y"])


def test_shapes_of_outputs_scores_and_kept_names() -> None:
    program = tp.load(ATTENTION, H=3)
    drawn = program.run(16, 10, coordinates=5, keep=["q", "x"])
    assert drawn["y"].shape == (10, 5, 4)
    assert drawn["q"].shape == (10, 5, 3, 4)
    assert drawn["p"].shape == (10, 3, 4, 4)
    assert drawn.scores == ("p",)
    with pytest.raises(tp.ProgramError, match="keep=\\('v',\\)"):
        drawn["v"]


def test_score_equals_the_inner_product_of_kept_operands() -> None:
    drawn = tp.load(ATTENTION).run(12, 20, coordinates=12, keep=["q", "k"])
    q, k = drawn["q"], drawn["k"]
    np.testing.assert_allclose(np.einsum("ncai,ncaj->naij", q, k) / np.sqrt(12), drawn["p"], rtol=1e-12, atol=1e-12)


def test_several_widths_and_constant_vectors() -> None:
    netsor = loads("""
program: low_rank
constants: {H: 2}
indices: {i: 2, a: H}
widths: {d: n/H}
initial:
  x[i]: {mean: 0, cov: 1}
weights:
  Q[a]:
    variance: 1
    shape: [d, n]
  B:
    variance: 2
    shape: [d, n]
  O[a]:
    variance: 1
    shape: [n, d]
body:
  - one = Nonlin(1)
  - b = MatMul(B, one)
  - q[a,i] = MatMul(Q[a], x[i])
  - z[a,i] = Nonlin(q[a,i] + b)
  - p[a,i] = Dot(z[a,i], z[a,i], scale=1/n)
  - o[a,i] = MatMul(O[a], z[a,i])
  - y[i] = Nonlin(sum[a](p[a,i] * o[a,i]))
outputs: [y, p]
""")
    for method in ("dense", "lazy"):
        drawn = engine.run(netsor, 64, 4000, method=method, seed=1)
        p = drawn["p"]
        assert abs(p.mean() - 3) < 5 * p.std() / np.sqrt(p.size / 2)  # E z**2 = 1 + 2: 1/d, not 1/n
    with pytest.raises(tp.ProgramError, match="whole number"):
        engine.run(netsor, 63, 1)


def test_width_one_and_single_sample() -> None:
    for method in ("dense", "lazy"):
        assert tp.load(ATTENTION).run(1, 1, method=method)["y"].shape == (1, 4)


def test_single_precision() -> None:
    drawn = tp.load(ATTENTION).run(32, 500, dtype="float32")
    assert drawn["y"].dtype == np.float32
    assert np.isfinite(drawn["y"]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width"),
        ({"width": 2.5}, "width"),
        ({"samples": 0}, "samples"),
        ({"seed": -1}, "seed"),
        ({"method": "exact"}, "method"),
        ({"coordinates": 99}, "coordinates"),
        ({"dtype": "int"}, "dtype"),
        ({"keep": ["nope"]}, "keep"),
        ({"max_memory": "much"}, "memory"),
        ({"threads": 0}, "threads"),
        ({"executor": map}, "executor"),
    ],
)
def test_bad_arguments_are_explained(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(tp.ProgramError, match=message):
        tp.load(ATTENTION).run(**({"width": 8, "samples": 4} | arguments))  # type: ignore[arg-type]


def test_memory_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(tp.MemoryLimitError, match="lazy"):
        tp.load(ATTENTION).run(20_000, 1, method="dense")
    with pytest.raises(tp.MemoryLimitError, match=r"results .*store="):
        tp.load(ATTENTION).run(8, 10**9)


def test_values_that_are_not_finite_are_reported() -> None:
    netsor = loads("program: p\ninitial:\n  x: {mean: 0, cov: 1}\nbody:\n  - y = Nonlin(log(x))\noutputs: [y]\n")
    with pytest.raises(tp.ProgramError, match="not finite"):
        engine.run(netsor, 4, 100)


def test_masked_softmax_ignores_the_future() -> None:
    netsor = loads("""
program: masked
indices: {i: 3, j: 3}
initial:
  x[i]: {mean: 0, cov: 1}
weights:
  Q: 1
  K: 1
body:
  - q[i] = MatMul(Q, x[i])
  - k[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - w[i,j] = Nonlin(softmax[j](where(j <= i, p[i,j], -inf)))
  - y[i] = Nonlin(sum[j](w[i,j] * x[j]))
outputs: [y, w]
""")
    w = engine.run(netsor, 8, 50)["w"]
    assert np.all(w[:, 0, 1:] == 0)
    np.testing.assert_allclose(w.sum(axis=-1), 1, rtol=1e-14)


def test_a_clip_overwrites_no_vector_that_others_read() -> None:
    """x has the array of u, which is read after x is clipped for the last time."""
    program = loads(
        "program: shared\ninitial: {h: {mean: 0, cov: 9}}\nweights: {W: 1}\nbody:\n"
        "  - u = MatMul(W, h)\n  - x = Nonlin(u)\n  - c = Nonlin(clip(x, -1, 1))\n  - y = Nonlin(c + 2 * u)\n"
        "outputs: [y]\n"
    )
    for method in ("lazy", "dense"):
        drawn = engine.run(program, 8, 64, method=method, coordinates=8, keep=["u", "c"])
        assert np.abs(drawn["u"]).max() > 1
        assert np.array_equal(drawn["c"], np.clip(drawn["u"], -1, 1))
        assert np.array_equal(drawn["y"], drawn["c"] + 2 * drawn["u"])
        alone = engine.run(program, 8, 64, method=method, coordinates=8)
        assert np.array_equal(alone["y"], drawn["y"])
