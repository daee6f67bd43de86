"""Each rewrite is exact at finite n: one network of the program as written, and the same one rewritten."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from networks import check_same
from rewrite_programs import INPUT, KEPT, ONE_HEAD, REWRITTEN, Case

from tensorprog import ProgramError
from tensorprog.check.graph import Structure
from tensorprog.check.rewrites import REWRITES, Rewrite, Rewritten, editor, linear, normalize, written_out
from tensorprog.check.rewrites.editor import Editor
from tensorprog.language import initials
from tensorprog.language.expr import Call, Expr, Number, Variable, slots_of
from tensorprog.language.ir import Initial, Nonlin, Statement
from tests.reading import Netsor, dump, judge, loads

STEPS = {step.__name__: step for step in REWRITES}
CASES = {case.name: case for case in REWRITTEN}
PROGRAMS = {case.name: case for case in (*REWRITTEN, *KEPT)}


@cache
def whole(name: str, rewrite: Callable[[Netsor], Rewritten]) -> Rewritten:
    """A case, rewritten once for all tests."""
    return rewrite(PROGRAMS[name].load())


def one(step: Callable[[Editor], Iterator[Rewrite]], netsor: Netsor) -> Rewritten:
    """One step alone, once, as far as it goes."""
    changes = Editor(netsor, [str(s.target) for s in netsor.body])
    done: list[Rewrite] = []
    with suppress(editor.Stuck):
        done += step(changes)
    changed, origin = changes.result()
    return Rewritten(changed, tuple(done), origin, changes.initials)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", CASES)
def test_the_whole_pipeline(name: str) -> None:
    netsor = CASES[name].load()
    definitions = whole(name, normalize).netsor
    for rewritten in (whole(name, normalize), normalize(netsor, expanded=False), whole(name, written_out)):
        check_same(rewritten, netsor, definitions)
        written = {str(s.target) for s in netsor.body}
        written |= {str(Variable(v.name, slots_of(v.indices))) for v in netsor.initial}
        assert set(rewritten.origin) <= written
    kinds = {step.kind for step in whole(name, normalize).steps}
    assert kinds == set(CASES[name].kinds.split())
    assert "move" not in kinds or not Structure(definitions).behind_scores


@pytest.mark.parametrize("between", ["z{}[i]", "2 * z{}[i]", "sum[j](c[j] * z{}[j])"])
def test_weights_in_a_row_behind_attention_make_one_matmul_each(between: str) -> None:
    rows = range(1, 7)
    body = "".join(
        f"z{k}[i] = MatMul(A{k}, y{k - 1}[i])\ny{k}[i] = Nonlin({between.replace('{}', str(k))})\n" for k in rows
    )
    attention = ONE_HEAD + "v[j] = MatMul(WV[0], x[j])\ny0[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))\n"
    case = Case(
        "a row",
        attention + body,
        "move",
        weights=" & ".join(f"A{k}: 1" for k in rows),
        outputs="y6",
    )
    netsor = case.load()
    rewritten = normalize(netsor)
    check_same(rewritten, netsor)
    assert not Structure(rewritten.netsor).behind_scores
    assert len(rewritten.netsor.body) == len(netsor.body) + len(rows)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", STEPS)
def test_one_step_alone(step: str, name: str) -> None:
    netsor = CASES[name].load()
    rewritten = one(STEPS[step], netsor)
    check_same(rewritten, netsor)
    assert rewritten.steps or rewritten.netsor == netsor


@pytest.mark.parametrize("case", KEPT, ids=[case.name for case in KEPT])
def test_what_stays_as_it_is(case: Case) -> None:
    netsor = case.load()
    rewritten = normalize(netsor)
    assert rewritten.netsor is netsor
    assert not rewritten.steps
    assert not rewritten.initials
    assert rewritten.origin == tuple(str(s.target) for s in netsor.body)
    check_same(written_out(netsor), netsor)


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", KEPT, ids=[case.name for case in KEPT])
@pytest.mark.parametrize("step", STEPS)
def test_one_step_on_what_stays(step: str, case: Case) -> None:
    netsor = case.load()
    check_same(one(STEPS[step], netsor), netsor)


@pytest.mark.turns(3)
@pytest.mark.parametrize("rewrite", [normalize, written_out])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rewriting_again_changes_nothing(name: str, rewrite: Callable[[Netsor], Rewritten]) -> None:
    once = whole(name, rewrite).netsor
    again = rewrite(once)
    assert again.netsor == once
    assert not again.steps
    assert loads(dump(once)) == once  # a file like any other


def test_declarations_without_use_are_not_left_behind() -> None:
    for case in REWRITTEN:
        known = {problem.message for problem in case.load().warnings}
        for problem in whole(case.name, normalize).netsor.warnings:
            assert problem.message in known or "is neither used" in problem.message, (case.name, problem.message)


def test_statements_come_from_what_they_are_made_of() -> None:
    rewritten = normalize(CASES["weights after softmax"].load())
    origin = {str(s.target): name for s, name in zip(rewritten.netsor.body, rewritten.origin, strict=True)}
    assert origin["w_v[a,j]"] == origin["w[a,i]"] == "w[a,i]"
    (step,) = rewritten.steps
    assert (step.kind, step.where, step.standing) == ("move", "w[a,i]", "exact at every n")
    assert str(step) == (
        "move: w[a,i] = MatMul(WO[a], z[a,i]) becomes w[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * w_v[a,j])) "
        "(exact at every n)"
    )


def test_each_nonlin_is_written_out_once_however_long_the_chain() -> None:
    chain = "".join(f"z{k}[i] = Nonlin(tanh(z{k - 1}[i]) + {k} * z{k - 1}[0])\n" for k in range(1, 5))
    body = ONE_HEAD + "z0[i] = Nonlin(p[i,0] * x[i])\n" + chain + "y[i] = Nonlin(z4[i])"
    found = written_out(Case("chain", body).load())
    inlined = [step.where for step in found.steps if step.kind == "inline"]
    assert len(inlined) == len(set(inlined))
    assert [str(s.target) for s in found.netsor.body if isinstance(s, Nonlin)][-1] == "y[i]"


def test_recurrences_are_not_unrolled() -> None:
    body = (
        "f[i] = Nonlin(x[i] / 2)\nz[0,i] = Nonlin(x[i])\nz[t,i] = Nonlin(tanh(z[t - 1,i]) + p[i,0] * f[i])\n"
        "y[i] = Nonlin(z[50,i] + f[i])"
    )
    program = Case("layers", ONE_HEAD + body, indices="t: 1..50").load()
    found = written_out(program)
    assert "z[50,i]" in str(found.netsor.body[-1])
    assert len(dump(found.netsor)) < 2 * len(dump(program))
    check_same(found, program)


CHAIN = "z0[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))\n"


def behind(layers: int, layer: str) -> Netsor:
    """A network of weights behind attention, without any nonlinearity."""
    lines = [
        f"m{k}[i] = MatMul(D{k}, z{k - 1}[i])\nz{k}[i] = Nonlin({layer.format(k=k, before=k - 1)})\n"
        for k in range(1, layers + 1)
    ]
    weights = " & ".join(f"D{k}: 1" for k in range(1, layers + 1))
    return Case("behind", ONE_HEAD + CHAIN + "".join(lines) + f"y[i] = Nonlin(z{layers}[i])", weights=weights).load()


def test_names_do_not_double_with_every_layer() -> None:
    found = normalize(behind(12, "m{k}[i] / 2")).netsor
    assert len(found.body) < 120
    assert max(len(s.target.name) for s in found.body) < 60
    assert not Structure(found).behind_scores


@pytest.mark.turns(3)
def test_a_program_that_grows_too_long_stays_as_it_is() -> None:
    program = behind(10, "z{before}[i] + m{k}[i]")  # 2^10 products of weights
    assert normalize(program).netsor is program
    factors = " * ".join(f"(p[i,{k % 3}] * x[{k % 3}] + u[{(k + 1) % 3}])" for k in range(30))
    product = Case("product", ONE_HEAD + f"z[i] = Nonlin({factors})\ny[i] = MatMul(WO[0], z[i])").load()
    assert normalize(product).netsor is product


@pytest.mark.turns(3)
def test_scores_along_a_long_recurrence_are_followed_so_far() -> None:
    body = ONE_HEAD + "f[l,i] = MatMul(D[l], x[i])\nt[0,i] = Nonlin(q[i])\nt[l,i] = Nonlin(t[l - 1,i] + f[l,i])\n"
    body += "a1[i,j] = Dot(t[{last},i], g[j])\ny[i] = Nonlin(a1[i,0] * x[i])"
    short, long = (
        Case("t", body.format(last=last), indices=f"l: 1..{last}", weights="D[l]: 1").load() for last in (5, 120)
    )
    check_same(normalize(short), short)
    assert normalize(short).complete
    assert not normalize(long).complete


@pytest.mark.turns(3)
def test_programs_written_out_fit_a_file() -> None:
    lines = [f"m{k} = MatMul(D{k}, z{k - 1})\nz{k} = Nonlin(tanh(m{k}) + z{k - 1})\n" for k in range(1, 600)]
    weights = " & ".join(f"D{k}: 1" for k in range(1, 600))
    program = Case("deep", "z0 = Nonlin(tanh(h))\n" + "".join(lines) + "y = Nonlin(z599)", weights=weights).load()
    found = written_out(program).netsor
    assert loads(dump(found)) == found


def test_written_out_weights_are_not_transposed_for_what_was_dropped() -> None:
    found = written_out(Case("t", INPUT + "y[i] = MatMul(U.T, x[i])\nq[i] = MatMul(U, x[i])").load())
    assert [step.kind for step in found.steps] == ["unused", "turn"]
    assert str(found.netsor.body[-1]) == "y[i] = MatMul(U_T, x[i])"


def test_what_constants_put_out_of_use_hides_no_unused_statement() -> None:
    body = ONE_HEAD + "t[0] = Nonlin(p[0,0] * x[0])\nf = Nonlin(x[1])\nt[r] = Nonlin(f + x[r])\n"
    program = Case("t", body + "y[i] = Nonlin(none * t[0] + p[i,0] * x[i])", constants="none: 0").load()
    rewritten = normalize(program)
    assert {str(s.target) for s in program.body} - set(rewritten.origin) <= {"t[0]", "t[r]"}
    idle = {finding.where for finding in judge(program).findings if finding.rule == "unused statements"}
    assert {"f", "t[r]"} <= idle


def test_a_softmax_of_indices_read_elsewhere_is_judged() -> None:
    body = ONE_HEAD + "t[i] = Nonlin(softmax[i](i + 1) * x[i])\ny[i] = Nonlin(sum[k](tanh(p[i,k]) * t[k]))"
    assert judge(Case("t", body).load()).grade == "theorem"


def test_what_cannot_be_read_beyond_a_boundary_stays() -> None:
    circle = "u[o] = MatMul(W2[o], h)\ng[o] = MatMul(U, u[o])\n{definition}\np[o] = Dot(f[o + 1], g[o])\n"
    circle += "y[o] = Nonlin(p[o] * u[o])"
    for rule, definition in (
        ("wrap", "f[o] = Nonlin(u[o] * (o + 1))"),
        ("wrap", "f[o] = Nonlin(u[o] + v3[o])"),
        ("wrap", "f[o] = Nonlin(softmax[o](u[o]) * 2)"),
        ("zero", "f[o] = Nonlin(u[o] / (o - 3))"),
        ("zero", "f[o] = Nonlin(u[o] + v3[o])"),
        ("zero", "f[o] = Nonlin(u[o] * l3[o])"),
    ):
        program = Case(
            "t",
            circle.format(definition=definition),
            indices=f"o: {{size: 3, boundary: {rule}}}",
            weights="W2[o]: 1",
            constants="l3[i]: [1, 2, 3]",
            initial="h: {mean: 0, cov: 1} & v3[i]: {mean: 0, cov: 1}",
        ).load()
        assert normalize(program).netsor is program, definition
        check_same(written_out(program), program)


# -- the tests see mistakes -------------------------------------------------------------------------------------------


def broken_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sum one term is lost."""
    arguments = linear.linear_arguments

    def lost(node: Call, vector: Callable[[Expr], bool]) -> tuple[int, ...]:
        return arguments(node, vector)[:1]

    monkeypatch.setattr(linear, "linear_arguments", lost)


def broken_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """New families are read with their indices in another order."""
    add = Editor.add

    def turned(self: Editor, position: int, statement: Statement, origin: str = "") -> Variable:
        made = add(self, position, statement, origin)
        return Variable(made.name, made.slots[::-1])

    monkeypatch.setattr(Editor, "add", turned)


def broken_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound indices keep their names."""
    monkeypatch.setattr(Editor, "copy_index", lambda self, name: name)


def broken_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A softmax follows any renaming."""
    monkeypatch.setattr(editor, "_renamable", lambda node, name, values, alike: values[name].bare is not None)


def broken_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transpose keeps the variance of the matrix."""
    monkeypatch.setattr(
        sys.modules[STEPS["turn"].__module__],
        "transposed_weight",
        lambda netsor, weight, name: replace(weight, name=name, shape=weight.shape[::-1]),
    )


def broken_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor of a covariance is transposed."""

    def transposed(netsor: Netsor, initial: Initial) -> Any:
        law = initials.initial_law(netsor, initial)
        return SimpleNamespace(
            mean=law.mean,
            independent=law.independent,
            joint=law.joint,
            blocks=law.blocks,
            factor=np.ascontiguousarray(law.factor.swapaxes(-1, -2)),
        )

    monkeypatch.setattr(sys.modules[STEPS["biases"].__module__], "initial_law", transposed)


def broken_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant in a combination stands for itself instead of times the vector 1."""
    mapped = linear.mapped

    def lost(expr: Expr, leaf: Any, *others: Any) -> Expr:
        return mapped(expr, lambda part: part if part == Number(1) else leaf(part), *others)

    monkeypatch.setattr(linear, "mapped", lost)


def broken_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements that reach no output are dropped one by one."""
    monkeypatch.setattr(
        sys.modules[STEPS["unused"].__module__], "_used", lambda netsor, more: Structure(netsor).relevant
    )


BROKEN = (
    broken_terms,
    broken_slots,
    broken_names,
    broken_softmax,
    broken_variance,
    broken_factor,
    broken_constants,
    broken_families,
)


@pytest.mark.turns(4)
@pytest.mark.parametrize("broken", BROKEN, ids=[broken.__name__ for broken in BROKEN])
def test_broken_rewrites_are_found(broken: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [case.load() for case in PROGRAMS.values()]
    broken(monkeypatch)

    def found(netsor: Netsor) -> bool:
        try:
            check_same(written_out(netsor), netsor, normalize(netsor).netsor)
        except (AssertionError, ProgramError):
            return True
        return False

    assert any(map(found, programs))
