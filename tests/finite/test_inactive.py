"""Functions that never act: what plans leave out, and that the bounds they state are true and worth stating."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite.inactive import without_inactive
from tests.reading import Netsor, loads

TEXT = """
program: few
constants: {{s: 3, H: 2, C: 100, one: 1}}
indices: {{i: s, j: s, a: H}}
initial:
  h[i]: {{mean: {mean}, cov: "{cov}"}}
  g: {{mean: 0, cov: 1}}
weights: {{W: {variance}, "V[i]": 1, Q: 1}}
body:
  - u[i] = MatMul(W, h[i])
  - w[i] = MatMul(V[i], g)
{body}
  - q[i] = MatMul(Q, x[i])
  - p[i,j] = Dot(q[i], q[j])
outputs: [p]
"""


def few(*body: str, mean: str = "0", cov: str = "1", variance: str = "1") -> tp.Program:
    lines = "\n".join(f"  - {line}" for line in body)
    return tp.Program.from_netsor(loads(TEXT.format(body=lines, mean=mean, cov=cov, variance=variance)))


def left_out(program: tp.Program, width: int = 64, **options: Any) -> dict[str, str]:
    """What is drawn, by what was written."""
    found = program.plan(width, **options).to_json().get("left_out", [])
    return {entry["written"]: entry["drawn"] for entry in found}


def drawn(expr: str) -> str:
    """What is drawn in the place of an expression, itself if nothing is left out."""
    written = f"x[i] = Nonlin({expr})"
    return left_out(few(written)).get(written, written).removeprefix("x[i] = Nonlin(").removesuffix(")")


@pytest.mark.parametrize(("expr", "expected"), [
    ("clip(u[i], -C, C)", "u[i]"),
    ("clip(u[i], -C, C) + clip(w[i], -C, 2 * C)", "u[i] + w[i]"),
    ("clip(u[i], -5, C)", "clip(u[i], -5, C)"),
    ("clip(u[i], 5, 5 + C)", "clip(u[i], 5, 5 + C)"),
    ("min(max(u[i], -C), C)", "u[i]"),
    ("max(-C, u[i])", "u[i]"),
    ("max(C, u[i])", "C, width=n"),  # a constant vector
    ("relu(u[i] + C)", "u[i] + C"),
    ("leaky_relu(u[i] + C, 0.01)", "u[i] + C"),
    ("abs(u[i] + C)", "u[i] + C"),
    ("relu(u[i])", "relu(u[i])"),
    ("where(u[i] < C, u[i], w[i])", "u[i]"),
    ("where(u[i] > C, w[i], 2 * u[i])", "2 * u[i]"),
    ("where(abs(u[i]) <= C, u[i], 0)", "u[i]"),
    ("where((u[i] < C) & (w[i] > -C), u[i], 0)", "u[i]"),
    ("where((u[i] > C) | (w[i] > 0), w[i], u[i])", "where((u[i] > C) | (w[i] > 0), w[i], u[i])"),
    ("where(u[i] == 3 * C, w[i], u[i])", "u[i]"),
    ("u[i] * where(w[i] > -C, one, 2)", "u[i]"),
    ("u[i] * sign(w[i] + C)", "u[i]"),
    ("u[i] * step(w[i] - C) + w[i]", "w[i]"),
    ("u[i] + relu(w[i] - C)", "u[i]"),
    ("clip(tanh(u[i]), -1, 1)", "clip(tanh(u[i]), -1, 1)"),  # tanh needs all coordinates as well
    ("clip(u[i] - u[i] + tanh(u[i]), -C, C)", "clip(u[i] - u[i] + tanh(u[i]), -C, C)"),
])  # fmt: skip
def test_what_never_acts_is_left_out(expr: str, expected: str) -> None:
    assert drawn(expr) == expected


def test_a_branch_that_is_never_taken_is_not_drawn() -> None:
    program = few("c[i] = Nonlin(tanh(w[i]))", "x[i] = Nonlin(where(one == 1, u[i], c[i]))")
    plan = program.plan(64)
    assert left_out(program) == {"x[i] = Nonlin(where(one == 1, u[i], c[i]))": "x[i] = Nonlin(u[i])"}
    assert plan.to_json()["log10_total_variation"] is None
    assert "which is the same" in str(plan)
    assert {row.line.partition(" ")[0]: row.representation for row in plan.rows}["c[i]"] == "not needed"


CLIP = "x[i] = Nonlin(clip(u[i], -C, C))"


@pytest.mark.parametrize("options", [{"mean": "60"}, {"mean": "-60"}, {"cov": "100"}, {"variance": "100"},
                                     {"cov": "where(i == 2, 100, 1)"}])  # fmt: skip
def test_large_vectors_keep_their_clips(options: dict[str, str]) -> None:
    assert left_out(few(CLIP))
    assert not left_out(few(CLIP, **options))


def test_clips_stay_where_nothing_is_known_of_a_vector() -> None:
    """A weight that made something upstream, a square, and a width at which a Gram matrix may be anything."""
    assert not left_out(few("c[i] = MatMul(W, u[i])", "x[i] = Nonlin(clip(c[i], -C, C))"), 256)
    assert left_out(few("c[i] = MatMul(V[i], u[i])", "x[i] = Nonlin(clip(c[i], -C, C))"), 256)
    assert not left_out(few("c[i] = Nonlin(u[i]**2)", "x[i] = Nonlin(clip(c[i], -C, C))"))
    assert not left_out(few(CLIP), 3)
    assert not left_out(few(CLIP), exact=True)
    assert not left_out(few(CLIP), method="lazy")  # it would draw all coordinates all the same


def test_a_weight_of_each_layer_is_new_in_its_layer() -> None:
    text = """
program: layers
constants: {{L: 3, C: 400}}
indices: {{t: 1..L}}
initial: {{h: {{mean: 0, cov: 1}}}}
weights: {{"{weight}": 1, V: 1}}
body:
  - x[0] = Nonlin(h)
  - u[t] = MatMul({weight}, x[t - 1])
  - x[t] = Nonlin(clip(u[t], -C, C))
  - q = MatMul(V, x[L])
outputs: [q]
"""
    own, shared = (tp.Program.from_netsor(loads(text.format(weight=weight))) for weight in ("W[t]", "W"))
    assert left_out(own) == {"x[t] = Nonlin(clip(u[t], -C, C))": "x[t] = Nonlin(u[t])"}
    assert not left_out(shared)


def beyond(n: int, scale: float, bound: float) -> Any:
    """P(|u| > bound) for u = N(0, 1) * sqrt(scale * chi-square(n) / n), by quadrature in mpmath."""
    mpmath.mp.dps = 30

    def density(t: Any) -> Any:
        log = (mpmath.mpf(n) / 2) * mpmath.log(mpmath.mpf(n) / 2 * t) - mpmath.mpf(n) / 2 * t - mpmath.loggamma(n / 2)
        return mpmath.exp(log) / t * mpmath.erfc(bound / mpmath.sqrt(2 * scale * t))

    peak = max((k / 20 for k in range(4, 2000)), key=lambda t: mpmath.log(density(mpmath.mpf(t))))
    edges = [mpmath.mpf(0.01), *(peak * f for f in (0.5, 0.7, 0.85, 1, 1.15, 1.4, 2, 4))]
    return mpmath.quad(density, sorted(edges))


@pytest.mark.parametrize(("n", "s", "clip", "scale"), [(16, 4, 100, 1.0), (64, 4, 100, 1.0), (256, 2, 100, 1.0),
                                                       (1024, 4, 100, 1.0), (256, 4, 60, 4.0)])  # fmt: skip
def test_the_bound_lies_above_the_exact_probability(n: int, s: int, clip: float, scale: float) -> None:
    """Of one coordinate, whose probability is at most that of any; of all of them it is not far above."""
    text = f"""
program: one
indices: {{i: {s}}}
initial: {{h: {{mean: 0, cov: {scale}}}}}
weights: {{"W[i]": 1, V: 1}}
body:
  - u[i] = MatMul(W[i], h)
  - x[i] = Nonlin(clip(u[i], -{clip}, {clip}))
  - y[i] = MatMul(V, x[i])
outputs: [y]
"""
    stated = tp.Program.from_netsor(loads(text)).plan(n).to_json()["log10_total_variation"]
    one = mpmath.log10(beyond(n, scale, clip))
    most = one + math.log10(n * s)
    assert one < most < stated < 0.45 * most  # a bound by two events of one probability, not by the likeliest pair


SIMULATED = {
    "product": ("x[i] = Nonlin(clip(u[i], -{C}, {C}))", 4.3),
    "mean": ("x[i] = Nonlin(clip(3 + h[i] + u[i], -{C}, {C}))", 7.5),
    "relu": ("x[i] = Nonlin(relu(u[i] + {C}))", 4.2),
    "chain": ("r[i] = Nonlin(2 * tanh(u[i]) + relu(w[i]))", "c[i] = MatMul(Q2, r[i])",
              "x[i] = Nonlin(clip(c[i], -{C}, {C}))", 9.0),
    "average": ("o[j] = MatMul(Q2, h[j])", "d[i,j] = Dot(u[i], u[j])",
                "z[i] = Nonlin(sum[a,j](softmax[j](d[i,j]) * o[j]) / H)", "c[i] = MatMul(Q3, z[i])",
                "x[i] = Nonlin(clip(c[i], -{C}, {C}))", 7.0),
    "divided": ("c[i] = Nonlin(u[i] / (2 + sigmoid(w[i])))", "x[i] = Nonlin(max(c[i], -{C}))", 2.3),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize("n", [8, 100])
def test_functions_act_no_more_often_than_the_bound_says(name: str, n: int) -> None:
    """Bounds that are not tiny: the share of networks, drawn as written, in which a function acts."""
    *body, scale = SIMULATED[name]
    assert isinstance(scale, float)
    networks, checked = 4000, 0
    for factor in (0.75, 1.0, 1.4, 2.5, 5.0):
        bound = factor * scale
        netsor = with_more_weights(*(str(line).format(C=f"{bound:.3f}") for line in body))
        widths = {"n": n}
        found = without_inactive(netsor, widths, netsor.outputs, least=math.log10(0.99))
        if found is None:
            continue
        checked += 1
        share = 10**found.log10_variation
        assert 0 < share <= 0.99
        both = both_programs(netsor, found.netsor)
        samples = tp.Program.from_netsor(both).run(
            n, networks, method="lazy", coordinates=n, keep=["x", "x2"], exact=True
        )
        acted = (samples["x"] != samples["x2"]).reshape(networks, -1).any(axis=1).mean()
        assert acted <= share + 3 * math.sqrt(share / networks)
    assert checked


def with_more_weights(*body: str) -> Netsor:
    text = TEXT.format(body="\n".join(f"  - {line}" for line in body), mean="0", cov="1", variance="1")
    return loads(text.replace("Q: 1}", "Q: 1, Q2: 1, Q3: 1}"))


def both_programs(written: Netsor, without: Netsor) -> Netsor:
    """One program that makes x as written, and x2 of the same vectors without the functions left out."""
    from dataclasses import replace

    position = next(k for k, s in enumerate(written.body) if s.target.name == "x")
    other = without.body[position]
    twin = replace(other, target=replace(other.target, name="x2"))
    return replace(written, body=(*written.body[: position + 1], twin, *written.body[position + 1 :]))


def test_samples_say_up_to_which_total_variation_they_hold(tmp_path: Path) -> None:
    program = tp.load("attention")
    one = program.plan(64).to_json()["log10_total_variation"]
    samples = program.run(64, 100)
    assert samples.log10_variation == pytest.approx(one + 2) and samples.log10_variation < -30
    assert f"up to a total variation of 1e{math.ceil(one + 2)}" in str(samples.blocks()[0])
    exact = program.run(64, 100, exact=True)
    assert exact.log10_variation == -math.inf
    assert not np.array_equal(samples["y"], exact["y"])
    program.run(64, 100, store=tmp_path / "one")
    with pytest.raises(tp.ProgramError, match="drawn as"):
        program.run(64, 100, store=tmp_path / "one", exact=True)


def test_the_work_of_attention_does_not_grow_with_its_width() -> None:
    small, large = (tp.load("attention").plan(n) for n in (64, 16384))
    assert (small.normals, small.chi_squares) == (large.normals, large.chi_squares)
    assert large.to_json()["log10_total_variation"] < small.to_json()["log10_total_variation"] < -45


def test_networks_without_their_clip_have_the_moments_of_those_with_it() -> None:
    program, networks = tp.load("attention"), 40_000
    without, written = (program.run(16, networks, seed=5, exact=exact) for exact in (False, True))
    for name in ("p", "y"):
        for power in (2, 4):
            a, b = (draws[name].reshape(networks, -1)[:, 0] ** power for draws in (without, written))
            z = (a.mean() - b.mean()) / math.hypot(a.std(), b.std()) * math.sqrt(networks)
            assert abs(z) < 4


def test_a_scalar_times_the_vector_of_ones_stays_a_vector() -> None:
    text = """
program: ones
widths: {d: n/2}
initial: {x: {cov: 1, width: d}}
weights:
  W: {variance: 1, shape: [d, d]}
body:
  - one = Nonlin(1, width=d)
  - g = MatMul(W, x)
  - p = Dot(g, g, scale=1/n)
  - q = Nonlin(sqrt(p) * one)
  - y = Nonlin(g / q)
outputs: [y]
"""
    program = tp.Program.from_netsor(loads(text))
    without, written = (program.run(64, 20, seed=1, exact=exact)["y"] for exact in (False, True))
    assert np.allclose(without, written)


def test_weights_of_variance_zero_leave_nothing_of_what_they_multiply() -> None:
    """Also where that has no bound: behind a recurrence of vectors that may be large."""
    P = tp.Program("zero", constants={"T": 3})
    t = P.index("t", "1..T")
    W, z = P.weight("W[t]", 0), P.nonlin("z[0]", P.initial("x"))
    r = P.nonlin("r[t]", tp.relu(z[t - 1]))
    u = P.matmul("u[t]", W[t], r[t])
    P.nonlin("z[t]", z[t - 1] + u[t] / tp.sqrt(3))
    P.outputs(P.matmul("f", P.weight("V"), z[3]))
    assert np.isfinite(np.asarray(P.run(8, 50, seed=1)["f"], float)).all()
