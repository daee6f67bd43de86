"""Vectors that are drawn, passed through a function and multiplied a few networks at a time, and never kept."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite import job, normals
from tensorprog.finite.block import FEW_ROWS, inner_products
from tensorprog.finite.plan import Plan
from tests.reading import loads

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")

TEXT = """
program: streams
constants: {{s: 3, H: 2, "c[i]": "1 + i"}}
indices: {{i: s, j: s, a: H}}
initial: {{"h[i]": {{mean: 0, cov: "1 + i"}}, "g": {{mean: 0, cov: 1}}, "y[i,a]": {{mean: 0, cov: "0.5**abs(a - a_)"}}}}
weights: {{"W[i]": "1 + i / 2", "V[i]": 1, Q: 1, "R[a]": 1, "S[i]": 1}}
body:
{body}
outputs: [p]
"""
SCORES = ("q[i] = MatMul(Q, x[i])", "p[i,j] = Dot(q[i], q[j])")
STREAMED = {
    "own inputs": ("u[i] = MatMul(W[i], h[i])", "x[i] = Nonlin(tanh(u[i]) + c[i] * relu(-u[i]))", *SCORES),
    "one input": ("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(clip(u[i], -1, i))", *SCORES),
    "two functions": ("u[i] = MatMul(W[i], g)", "z[i] = Nonlin(where(u[i] > 0, u[i], u[i] / 3))",
                      "x[i] = Nonlin(z[i]**2 - abs(z[i]))", *SCORES),
    "its own weights": ("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(sin(u[i]))", "q[i] = MatMul(S[i], x[i])",
                        "p[i,j] = Dot(q[i], q[j])"),
    "heads": ("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(exp(-abs(u[i])))", "q[a,i] = MatMul(R[a], x[i])",
              "p[a,i,j] = Dot(q[a,i], q[a,j])"),
    "one weight": ("u[i] = MatMul(Q, h[i])", "x[i] = Nonlin(tanh(u[i]))", "q[a,i] = MatMul(R[a], x[i])",
                   "p[a,i,j] = Dot(q[a,i], q[a,j])"),
    "weights of the same inputs": ("u[i,a] = MatMul(R[a], h[i])", "x[i,a] = Nonlin(tanh(u[i,a]))",
                                   "q[i,a] = MatMul(Q, x[i,a])", "p[i,j] = Dot(q[i,0], q[j,1])"),
    "weights of unequal variance": ("u[j,i] = MatMul(W[i], h[j])", "x[j,i] = Nonlin(relu(u[j,i]))",
                                    "q[j,i] = MatMul(Q, x[j,i])", "p[i,j] = Dot(q[i,0], q[j,1])"),
    "weights of their own inputs": ("u[i,a] = MatMul(W[i], y[i,a])", "x[i,a] = Nonlin(tanh(u[i,a]))",
                                    "q[i,a] = MatMul(Q, x[i,a])", "p[i,j] = Dot(q[i,0], q[j,1])"),
    "no family": ("u = MatMul(Q, g)", "x = Nonlin(tanh(u))", "q[a] = MatMul(R[a], x)", "p[a] = Dot(q[a], q[a])"),
}  # fmt: skip
KEPT = {
    "read twice": ("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(tanh(u[i]))", "z[i] = Nonlin(u[i] + 1)",
                   "d[i] = Dot(z[i], x[i])", "q[i] = MatMul(Q, x[i])", "p[i,j] = Dot(q[i], q[j])"),
    "another member": ("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(tanh(u[s - 1 - i]))", *SCORES),
    "over members": ("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(u[i] * max[j](u[j]))", *SCORES),
    "with a score": ("d = Dot(g, g)", "u[i] = MatMul(W[i], g)", "x[i] = Nonlin(tanh(u[i] * d))", *SCORES),
}  # fmt: skip


def program(lines: tuple[str, ...]) -> tp.Program:
    return tp.Program.from_netsor(loads(TEXT.format(body="\n".join(f"  - {line}" for line in lines))))


def streamed(found: Plan) -> list[str]:
    return [op.reads[0] for op in found.ops if op.kind == "streamed"]


@pytest.fixture
def without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "_streamed", lambda self, ops: tuple(ops))


SETTINGS: dict[str, Any] = {"method": "collapsed", "seed": 3, "threads": 1}


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_streams_give_what_whole_vectors_give(name: str, dtype: str, request: pytest.FixtureRequest) -> None:
    source = program(STREAMED[name])
    n = 40
    assert len(streamed(source.plan(n, method="collapsed"))) == 1
    found = source.run(n, 300, dtype=dtype, **SETTINGS)
    request.getfixturevalue("without_streams")
    assert not streamed(source.plan(n, method="collapsed"))
    whole = source.run(n, 300, dtype=dtype, **SETTINGS)
    assert np.allclose(found["p"], whole["p"], rtol=0, atol=(1e-9 if dtype == "float64" else 2e-3) * found["p"].std())


@pytest.mark.parametrize("name", KEPT)
def test_vectors_that_are_needed_are_kept(name: str) -> None:
    assert not streamed(program(KEPT[name]).plan(40, method="collapsed"))


def test_reported_vectors_are_kept() -> None:
    source = program(STREAMED["heads"])
    assert streamed(source.plan(40, method="collapsed"))
    for name in ("u", "x"):
        assert not streamed(source.plan(40, method="collapsed", keep=[name]))


@pytest.mark.parametrize("bytes_", [1, 5000, 1 << 14, 1 << 30])
def test_numbers_do_not_depend_on_how_many_networks_a_piece_has(bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tp.load("attention", C=2)
    reference = source.run(48, 700, seed=9)
    monkeypatch.setattr(job, "TILE_BYTES", bytes_)
    for threads in (1, 2):
        drawn = source.run(48, 700, seed=9, threads=threads)
        assert all(np.array_equal(reference[name], drawn[name]) for name in reference)


@needs_numba
@pytest.mark.parametrize("function", ["clip(u[i], -2, 2)", "tanh(u[i])", "gelu(u[i])", "relu(u[i])"])
def test_numbers_do_not_depend_on_numba(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = program(("u[i] = MatMul(W[i], g)", f"x[i] = Nonlin({function})", *SCORES))
    monkeypatch.setattr(normals, "_kernels", None)
    reference = source.run(100, 500, **SETTINGS)
    monkeypatch.setattr(normals, "_kernels", normals._load())
    assert normals.engine() == "numba"
    assert np.array_equal(reference["p"], source.run(100, 500, **SETTINGS)["p"])


def test_a_stream_that_overflows_names_its_statement() -> None:
    source = program(("u[i] = MatMul(W[i], g)", "x[i] = Nonlin(exp(1000 * u[i]))", *SCORES))
    with pytest.raises(tp.ProgramError, match=r"x\[i\]"):
        source.run(20, 50)


@pytest.mark.parametrize("shape", [(1, 1, 5), (3, 2, 1), (4, 3, 7), (2, 2, FEW_ROWS, 64), (2, FEW_ROWS + 1, 40)])
def test_inner_products(shape: tuple[int, ...]) -> None:
    vectors = np.random.default_rng(0).standard_normal(shape)
    expected = np.einsum("...in,...jn->...ij", vectors, vectors)
    found = inner_products(vectors)
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-13 * shape[-1])
    assert np.array_equal(inner_products(vectors, np.empty_like(found)), found)
