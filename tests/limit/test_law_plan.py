"""Plans of laws: what is computed, how many numbers and how much memory, before anything is."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp
from tests.reading import loads

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
OUTSIDE = (
    "attention_reused_weight", "attention_same_bias", "attention_shared_layers", "attention_sign", "attention_tied",
    "autoencoder_tied",
)  # fmt: skip
COVERED = sorted(path.stem for path in PROGRAMS.glob("*.yaml") if path.stem not in OUTSIDE)
IMAGES = """
program: images
constants: {m: 2, P: SIZE}
indices: {i: m, a: {size: P, boundary: RULE}, c: {size: P, boundary: RULE}, d: "-1..1", e: "-1..1"}
initial: {"x[i,a,c]": {data: images.npy}, b1: {cov: 0.1}}
weights: {"F[d,e]": "2/9", HEAD}
body:
  - g[i,a,c,d,e] = MatMul(F[d,e], x[i,a+d,c+e])
  - u[i,a,c] = Nonlin(tanh(sum[d,e](g[i,a,c,d,e]) + b1))
"""
HEADS = {
    "flat": ("'V[a,c]': 1", "  - r[i,a,c] = MatMul(V[a,c], u[i,a,c])\n  - f[i] = Nonlin(sum[a,c](r[i,a,c]) / P)\n"),
    "pool": ("V: 1", "  - h[i] = Nonlin(mean[a,c](u[i,a,c]))\n  - f[i] = MatMul(V, h[i])\n"),
}


def images(folder: Path, size: int, boundary: str, head: str, function: str, max_memory: str = "1GiB") -> tp.Law:
    np.save(folder / "images.npy", np.random.default_rng(0).standard_normal((2 * size * size, 3)))
    weight, readout = HEADS[head]
    text = IMAGES.replace("SIZE", str(size)).replace("RULE", boundary).replace("HEAD", weight)
    (folder / "images.yaml").write_text(text.replace("tanh", function) + readout + "outputs: [f]\n")
    return tp.load(folder / "images.yaml").limit(max_memory=max_memory)


@pytest.mark.parametrize("name", COVERED)
def test_every_covariance_on_the_way_is_in_the_plan(name: str) -> None:
    law = tp.load(PROGRAMS / f"{name}.yaml").limit()
    plan = law.plan()
    assert not law.recursion._second and not law.recursion._partial  # nothing is computed
    assert plan.numbers == sum(row.numbers for row in plan.rows) and plan.fits
    assert json.loads(json.dumps(plan.to_json()))["numbers"] == plan.numbers
    assert str(plan).startswith(f"{law.netsor.name}, the covariance of {' and '.join(law.outputs)}: ")
    if plan.uncounted:
        return
    for output in law.outputs:
        law.cov(output)
    planned: dict[tuple[str, str], int] = {}
    for row in plan.rows:
        planned[row.families] = planned.get(row.families, 0) + row.numbers
    kept = [((*key,), moment) for key, moment in law.recursion._second.items()]
    kept += [((f, g), moment) for (f, g, base), known in law.recursion._partial.items() if not base
             for moment in known.values()]  # fmt: skip
    for (f, g), moment in kept:
        numbers = sum(term.value.estimate.value.size for term in moment.terms)
        assert numbers <= planned.get((f, g), 0) + planned.get((g, f), 0), (f, g)


def test_a_score_that_is_a_sum_of_scores() -> None:
    """Queries with biases, one of them at a position that is 0: the parts of the score are planned."""
    text = (PROGRAMS / "attention_same_bias.yaml").read_text().replace("a: H}", "a: {size: H, boundary: zero}}")
    law = tp.Law(loads(text.replace("q[a,i], k[a,j])", "q[a-1,i], k[a,j])")))
    plan = law.plan()
    assert plan.fits and len(plan.rows) > 3
    law.var("y[0]")


@pytest.mark.parametrize("head", ["flat", "pool"])
@pytest.mark.parametrize("boundary", ["zero", "wrap"])
@pytest.mark.parametrize(("function", "size"), [("relu", 20), ("erf", 16), ("tanh", 8), ("sin", 8)])
def test_memory_is_known_beforehand(boundary: str, head: str, function: str, size: int, tmp_path: Path) -> None:
    law = images(tmp_path, size, boundary, head, function)
    plan = law.plan()
    gc.collect()
    tracemalloc.start()
    law.cov("f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.25 * plan.memory + 2**21
    assert plan.memory < 4 * peak + 2**23


def test_what_does_not_fit_is_told_and_refused(tmp_path: Path) -> None:
    law = images(tmp_path, 96, "zero", "pool", "relu", "64MiB")
    plan = law.plan("f")
    assert not plan.fits and plan.memory > 2**26 and ", more than max_memory, 64 MiB" in str(plan)
    tracemalloc.start()
    with pytest.raises(tp.MemoryLimitError, match="more than max_memory, 64 MiB"):
        law.cov("f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26
    flat = images(tmp_path, 96, "zero", "flat", "relu", "64MiB")
    assert flat.plan().fits and np.all(np.isfinite(np.asarray(flat.cov("f"))))


def test_a_plan_says_at_which_positions(tmp_path: Path) -> None:
    rows = {(row.families[0], row.positions): row for row in images(tmp_path, 16, "wrap", "flat", "relu").plan().rows}
    assert rows["u", "a = a_, c = c_"].numbers == 2 * 2 * 16**2
    assert rows["u", "a = a_, c = c_"].method == "closed form"
    assert ("u", "all pairs") not in rows
    pooled = {(row.families[0], row.positions) for row in images(tmp_path, 16, "wrap", "pool", "relu").plan().rows}
    assert ("g", "all pairs") in pooled


@pytest.mark.parametrize("max_memory", ["1GiB", "8MiB"])
def test_behind_several_layers_the_memory_of_draws_is_planned(max_memory: str) -> None:
    """An upper bound: as many draws as fit are worked on together."""
    law = tp.load(PROGRAMS / "deep_attention.yaml", s=2, H=1, L=3).limit(max_memory=max_memory)
    plan = law.plan()
    assert plan.fits
    assert plan.memory > 0
    assert "draws at once" in str(plan)
    assert "without the time of averages over scores" in plan.title
    gc.collect()
    tracemalloc.start()
    try:
        law.cov("y")
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken <= 1.5 * plan.memory + 3e6  # and some for the objects of the program
    if max_memory == "8MiB":  # else fewer draws than are planned for may be enough
        assert plan.memory <= 8 * taken
