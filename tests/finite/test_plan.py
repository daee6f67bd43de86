"""Plans: what is drawn, in which representation, and that nothing else is."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite import block, normals
from tensorprog.finite.plan import METHODS, make_job, plan
from tensorprog.finite.vectors import Form, demand, form_of
from tensorprog.language.ir import Dot
from tests.finite.agreement_programs import CASES
from tests.reading import Netsor, loads


def planned(netsor: Netsor, width: int, method: str = "collapsed", coordinates: int = 1) -> Any:
    scores = [s.target.name for s in netsor.body if isinstance(s, Dot)]
    return plan(netsor, width, coordinates, (*netsor.outputs, *scores), method)


@pytest.mark.parametrize(("s", "h", "n"), [(4, 2, 1024), (3, 5, 7), (16, 12, 64)])
def test_attention_draws_its_inputs_and_few_numbers_beside_them(s: int, h: int, n: int) -> None:
    found = planned(tp.load("attention", s=s, H=h, C=2).netsor, n)
    triangle = s * (s - 1) // 2
    # inputs in all coordinates; of each head a triangle for q and one for v, k along the directions of q, and o[0]
    assert found.normals == s * n + h * (2 * triangle + s * s + s)
    assert found.chi_squares == 1 + 2 * h * s
    assert found.full == {"u", "x"}


@pytest.mark.parametrize("s", [4, 9])
def test_frames_hold_no_more_directions_than_the_width_has(s: int) -> None:
    found = planned(tp.load("attention", s=s).netsor, 3)
    assert found.lengths["q"] == found.lengths["v"] == 3
    for recipe in found.recipes.values():
        assert recipe.known + recipe.opened <= recipe.length


SHARED = """
program: shared
constants: {{s: 3, H: 4, G: 2}}
indices: {{i: s, j: s, a: H, g: G}}
initial:
  x[i]: {{mean: 0, cov: 1}}
weights: {weights}
body:
{body}
outputs: [p]
"""


def shared(weights: str, *body: str) -> Netsor:
    return loads(SHARED.format(weights=weights, body="\n".join(f"  - {line}" for line in body)))


def test_keys_shared_by_heads_come_first_and_heads_stay_apart() -> None:
    netsor = shared(
        '{"WQ[a]": 1, "WK": 1}',
        "q[a,i] = MatMul(WQ[a], x[i])",
        "k[j] = MatMul(WK, x[j])",
        "p[a,i,j] = Dot(q[a,i], k[j])",
    )
    found = planned(netsor, 64)
    # x: a triangle; k: a triangle; q: along the three directions of k, opening none
    assert found.normals == 3 + 3 + 4 * 3 * 3
    assert found.chi_squares == 3 + 3
    assert found.lengths["q"] == found.lengths["k"] == 3


def test_grouped_queries_have_one_frame_for_each_group() -> None:
    netsor = shared(
        '{"WQ[g,a]": 1, "WK[g]": 1}',
        "q[g,a,i] = MatMul(WQ[g,a], x[i])",
        "k[g,j] = MatMul(WK[g], x[j])",
        "p[g,a,i,j] = Dot(q[g,a,i], k[g,j])",
    )
    found = planned(netsor, 64)
    assert found.normals == 3 + 2 * 3 + 2 * 4 * 3 * 3
    assert found.lengths["q"] == 3


def test_combinations_of_framed_vectors_are_framed() -> None:
    netsor = shared(
        '{"WQ": 1, "WK": 1, "WV": 1, "WR": 1}',
        "q[i] = MatMul(WQ, x[i])",
        "k[j] = MatMul(WK, x[j])",
        "p[i,j] = Dot(q[i], k[j])",
        "v[j] = MatMul(WV, x[j])",
        "z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))",
        "r[i] = MatMul(WR, z[i])",
        "t[i,j] = Dot(r[i], r[j])",
    )
    found = planned(netsor, 1024)
    assert not found.full
    assert found.normals == 4 * 3 + 9
    assert "inner products (3 directions)" in str(found)


def test_what_nobody_reads_is_not_drawn() -> None:
    netsor = shared(
        '{"WQ": 1, "WK": 1, "WV": 1}',
        "q[i] = MatMul(WQ, x[i])",
        "k[j] = MatMul(WK, x[j])",
        "p[i,j] = Dot(q[i], k[j])",
        "v[j] = MatMul(WV, x[j])",
        "z[i] = Nonlin(relu(v[i]))",
    )
    for method in METHODS:
        found = planned(netsor, 16, method)
        assert "v" not in found.lengths and "not needed" in str(found)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_counts_what_is_drawn(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {"normals": 0, "chis": 0}
    normal, chi = normals.standard_normal, normals.chi

    def counted_normal(generator: np.random.Generator, out: Any) -> None:
        drawn["normals"] += out.size
        normal(generator, out)

    def counted_chi(generator: np.random.Generator, degrees: Any, size: int) -> Any:
        drawn["chis"] += len(degrees) * size
        return chi(generator, degrees, size)

    for module in (normals, block):
        monkeypatch.setattr(module, "standard_normal", counted_normal)
    monkeypatch.setattr(normals, "chi", counted_chi)
    for name, case in CASES.items():
        job = make_job(case.netsor, case.width, 0, method, case.coordinates, case.keep)
        drawn |= {"normals": 0, "chis": 0}
        block.draw_blocks(job, [0])
        expected = {"normals": job.plan.normals * job.block, "chis": job.plan.chi_squares * job.block}
        assert drawn == expected, name


def test_the_size_of_a_plan_does_not_depend_on_the_sizes_of_families() -> None:
    small = planned(tp.load("attention", C=2).netsor, 16)
    large = planned(tp.load("attention", s=1024, H=96, C=2).netsor, 12288)
    assert len(small.recipes) == len(large.recipes)
    assert len(small.ops) == len(large.ops)
    assert len(str(large).splitlines()) == len(str(small).splitlines())


@pytest.mark.parametrize(
    ("name", "sizes", "refused"),
    [
        ("attention_tied", {"H": 10**6}, ""),
        ("deep_attention", {"s": 10**4}, ""),
        ("resnet", {"T": 10**6}, "steps one after the other"),
    ],
)
def test_plans_of_large_sizes_come_at_once_or_are_refused(name: str, sizes: dict[str, float], refused: str) -> None:
    began = time.process_time()
    with pytest.raises(tp.ProgramError, match=refused) if refused else nullcontext():
        tp.load(name, **sizes).plan(64)
    if sizes.get("s"):
        with pytest.raises(tp.MemoryLimitError):
            tp.load(name, **sizes).run(16, 2)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2*x + tanh(p)*y", Form.LINEAR),
        ("x/sqrt(p**2 + 1) - 0", Form.LINEAR),
        ("where(i <= j, x, 0)", Form.LINEAR),
        ("sum[i](softmax[i](p)*x)", Form.LINEAR),
        ("x + p", Form.AFFINE),
        ("tanh(p) + 1", Form.CONSTANT),
        ("0*p", Form.ZERO),
        ("x*y", Form.NONLINEAR),
        ("relu(x)", Form.NONLINEAR),
        ("p/x", Form.NONLINEAR),
        ("max[i](x)", Form.NONLINEAR),
        ("where(x <= 0, x, 0)", Form.NONLINEAR),
    ],
)
def test_forms_of_expressions(text: str, form: Form) -> None:
    indices = "[i,j]" if text.startswith("where(i") else ""
    netsor = loads(f"""
program: forms
indices: {{i: 2, j: 2}}
initial:
  x: {{mean: 0, cov: 1}}
  y: {{mean: 0, cov: 1}}
body:
  - p = Dot(x, y)
  - z{indices} = Nonlin({text})
outputs: [p]
""")
    assert form_of(netsor.body[1].expr, {"x", "y"}) is form  # type: ignore[union-attr]


def test_demand_names_groups() -> None:
    netsor = tp.load("attention").netsor
    found = demand(netsor, ("y", "p"))
    assert {frozenset(group) for group in found.groups} == {
        frozenset({"h"}), frozenset({"u", "x"}), frozenset({"q", "k"}), frozenset({"v"})
    }  # fmt: skip
    assert found.explicit == {"x"}
    assert found.seen == {"y", "o"}


CLIPPED = """
program: clipped
indices: {{i: 2, j: 2}}
initial:
  x[i]: {{mean: 0.5, cov: 1}}
weights: {{W: 2, Q: 1, K: 1, O: 1}}
body:
  - u[i] = MatMul(W, x[i])
  - z[i] = Nonlin({clip})
  - q[i] = MatMul(Q, z[i])
  - k[j] = MatMul({keys}, z[j])
  - p[i,j] = Dot(q[i], k[j])
  - y[i] = MatMul(O, z[i])
outputs: [y]
"""


@pytest.mark.parametrize(
    ("clip", "keys", "gone"),
    [
        ("clip(u[i], -100, 100)", "K", True),
        ("clip(u[i] - x[i]/2 + 1, -200, 300)", "K", False),
        ("clip(u[i], -20, 20)", "K", False),  # 16.7 standard deviations, and a length may be larger than its mean
        ("clip(u[i], 0, 100)", "K", False),
        ("clip(tanh(u[i]), -100, 100)", "K", False),  # what is left is no simpler
        ("clip(u[i], -100, 100)", "Q", True),
    ],
)
def test_clips_that_never_act_are_left_out(clip: str, keys: str, gone: bool) -> None:
    program = tp.Program.from_netsor(loads(CLIPPED.format(clip=clip, keys=keys)))
    for method in ("auto", "collapsed"):
        found = program.plan(64, method=method)
        assert bool(found.left_out) is gone
        assert ("never acts" in str(found)) is gone
    assert not program.plan(64, method="lazy").left_out and not program.plan(64, method="dense").left_out
    if gone:
        assert not program.plan(64).full


def test_clips_of_what_is_not_bounded_stay() -> None:
    """The input of a product that its own weight has made, and a recurrence that grows."""
    text = CLIPPED.format(clip="clip(u[i], -100, 100)", keys="K").replace("MatMul(W, x[i])", "MatMul(W, w[i])")
    reused = tp.Program.from_netsor(loads(text.replace("body:", "body:\n  - w[i] = MatMul(W, x[i])")))
    assert not reused.plan(64).left_out
    wide = text.replace("MatMul(W, w[i])", "MatMul(W, x[i])").replace("W: 2", "W: 2000")
    assert not tp.Program.from_netsor(loads(wide)).plan(64).left_out
