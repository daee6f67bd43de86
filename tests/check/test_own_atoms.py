"""Functions that authors declare: names, the registry, what reports say, files, and their place in programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.language.atoms import ATOMS
from tensorprog.language.atoms.declared import Declaration, DeclaredFunction

INF = math.inf


def swoosh(x: Any) -> Any:
    return x * np.tanh(np.log1p(np.exp(x)))


def program(f: Callable[[Any], Any]) -> tp.Program:
    """Attention with inputs f(u)."""
    P = tp.Program("own", constants={"s": 2})
    i, j = P.index("i", "s"), P.index("j", "s")
    h = P.initial("h", mean=0, cov=1)
    W, WQ, WK, WV = P.weights("W[i]", "WQ", "WK", "WV")
    u = P.matmul("u[i]", W[i], h)
    x = P.nonlin("x[i]", f(u[i]))
    q, k, v = P.matmul("q[i]", WQ, x[i]), P.matmul("k[j]", WK, x[j]), P.matmul("v[j]", WV, x[j])
    p = P.dot("p[i,j]", q[i], k[j])
    y = P.nonlin("y[i]", tp.sum[j](tp.softmax[j](p[i, j]) * v[j]))
    P.outputs(y)
    return P


def declared() -> Any:
    return tp.atom("swoosh", swoosh, range=(-0.31, INF), lipschitz=1.1, kinks=())


def test_a_declared_function_stands_in_programs() -> None:
    f = declared()
    P = program(f)
    assert "Nonlin(swoosh(u[i]))" in P.to_yaml()
    assert tp.swoosh.__name__ == "swoosh"
    assert P.netsor.own == ("swoosh",)
    assert P.check().grade == "remark"


def test_reports_say_what_rests_on_a_declaration() -> None:
    (found,) = (f for f in program(declared()).check().findings if f.rule == "declared functions")
    assert found.verdict == "holds"
    assert "rests on what is declared of swoosh" in found.message
    assert "not proved" in found.message
    assert not [f for f in program(tp.tanh).check().findings if f.rule == "declared functions"]


def test_a_bounded_function_satisfies_the_theorem() -> None:
    f = tp.atom("mytanh", np.tanh, range=(-1, 1), lipschitz=1)
    assert program(f).check().grade == "theorem"


def test_what_is_not_declared_is_assumed() -> None:
    report = program(tp.atom("quiet", np.arctan)).check()
    assert (report.grade, [claim.name for claim in report.claims]) == ("extension", ["assumed"])
    assert any("quiet" in f.message and "tp.atom" in f.fix for f in report.findings)


def test_a_false_declaration_registers_nothing() -> None:
    with pytest.raises(tp.ProgramError, match=r"leaves the range") as caught:
        tp.atom("swoosh", swoosh, range=(-0.3, INF), growth=(1, 0.5))
    assert len(caught.value.problems) == 2
    assert "swoosh" not in ATOMS
    with pytest.raises(AttributeError):
        _ = tp.swoosh


@pytest.mark.parametrize("name", ["tanh", "add", "sum", "softmax", "where", "MatMul", "n", "pi", "max"])
def test_names_of_the_language_are_refused(name: str) -> None:
    before = dict(ATOMS)
    with pytest.raises(tp.ProgramError, match="a name of the language already"):
        tp.atom(name, np.sin)
    assert before == ATOMS


@pytest.mark.parametrize("name", ["x y", "lambda", "_f", "f_", "2f", 3, ""])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(tp.ProgramError, match=r"not a name|trailing underscore"):
        tp.atom(name, np.sin)


def test_the_same_declaration_again_is_accepted() -> None:
    first, again = declared(), declared()
    assert program(first) == program(again)
    tp.atom("swoosh", lambda x: x * np.tanh(np.log1p(np.exp(x))), lipschitz=1.1)  # written again, with other facts
    assert ATOMS["swoosh"].regularity.lipschitz == 1.1


def test_another_function_of_the_name_is_refused() -> None:
    declared()
    with pytest.raises(tp.ProgramError, match="declared already, as another function"):
        tp.atom("swoosh", lambda x: swoosh(x) * (1 + 1e-15))
    assert ATOMS["swoosh"].regularity.growth == 1


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"range": (1, -1)}, "lo <= hi"),
        ({"range": (0, math.nan)}, "lo <= hi"),
        ({"range": 3}, "lo <= hi"),
        ({"growth": -1}, "at least 0"),
        ({"growth": (-1, 2)}, "at least 0"),
        ({"modulus": "0"}, "at least 0"),
        ({"lipschitz": INF}, "at least 0"),
        ({"kinks": (0, INF)}, "finite numbers"),
        ({"kinks": 0}, "tuple"),
        ({"parity": 2}, "1, -1 or 0"),
        ({"monotone": True + 1}, "1, -1 or 0"),
        ({"sympy": "x"}, "must be a function"),
    ],
)
def test_declarations_without_sense_are_refused(facts: dict[str, Any], word: str) -> None:
    with pytest.raises(tp.ProgramError, match=word):
        tp.atom("f", np.tanh, **facts)


def test_what_follows_is_concluded() -> None:
    assert Declaration("f", np.tanh, range=(-1, 1)).regularity.growth == 0
    assert Declaration("f", np.sin, modulus=(1, 2)).regularity.growth == 3
    assert Declaration("f", np.sin, lipschitz=2).regularity.modulus == 0
    assert Declaration("f", np.sin).regularity.growth == INF


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "range": (np.tanh, {"range": (-1, 0.9)}, "leaves the range"),
    "growth": (lambda x: x**2, {"growth": (1, 1)}, "outgrows"),
    "constant of growth": (lambda x: 3 * x, {"growth": (2, 1)}, "outgrows"),
    "lipschitz": (lambda x: 2 * np.sin(x), {"lipschitz": 1}, "is steeper than 1"),
    "a jump": (np.sign, {"lipschitz": 5}, "is steeper"),
    "a root": (lambda x: np.sqrt(np.abs(x)), {"lipschitz": 1}, "is steeper"),
    "modulus": (lambda x: x**3, {"modulus": (3, 1)}, "is steeper"),
    "monotone": (np.sin, {"monotone": 1}, "not increasing"),
    "falling": (np.exp, {"monotone": -1}, "not decreasing"),
    "parity": (np.exp, {"parity": 1}, "is not even"),
    "odd": (lambda x: np.tanh(x) + 1e-3, {"parity": -1}, "is not odd"),
    "kinks": (lambda x: np.maximum(x - 0.3, 0), {"kinks": ()}, "a kink that is not declared"),
    "place of a kink": (lambda x: np.maximum(x - 0.3, 0), {"kinks": (0,)}, "a kink that is not declared"),
    "undefined": (np.log, {}, "is no real number"),
    "mixes": (lambda x: x - x.mean(), {}, "alone, but"),
    "sorts": (np.sort, {}, "alone, but"),
    "sum": (np.sum, {}, "gives"),
    "shape": (lambda x: x[:-1], {}, "of shape"),
    "integers": (lambda x: x.astype(int), {}, "gives int64"),
    "random": (lambda x: np.random.default_rng().normal(size=x.shape), {}, "not the same every time"),
    "raises": (math.tanh, {}, "cannot be computed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_false_claims_are_refuted_at_points(name: str) -> None:
    fn, facts, message = WRONG[name]
    with pytest.raises(tp.ProgramError, match=message):
        tp.atom("f", fn, **facts)
    assert "f" not in ATOMS


TRUE: list[tuple[Any, dict[str, Any]]] = [
    (np.tanh, {"range": (-1, 1), "lipschitz": 1, "monotone": 1, "parity": -1, "kinks": ()}),
    (np.sin, {"range": (-1, 1), "lipschitz": 1, "parity": -1, "kinks": ()}),
    (lambda x: x**2, {"growth": (1, 2), "modulus": (1, 1), "parity": 1, "kinks": ()}),
    (lambda x: x**3, {"modulus": (1.5, 2), "monotone": 1, "kinks": ()}),
    (lambda x: np.maximum(x, 0), {"lipschitz": 1, "kinks": (0,), "monotone": 1}),
    (lambda x: np.abs(x - 0.3), {"lipschitz": 1, "kinks": (0.3,)}),
    (lambda x: np.exp(np.minimum(x, 700)), {"monotone": 1, "range": (0, INF)}),
    (lambda x: np.tanh(50 * x), {"lipschitz": 50, "kinks": ()}),
    (lambda x: np.exp(-(x**2)), {"lipschitz": 1, "range": (0, 1), "parity": 1, "kinks": ()}),
    (lambda x: np.where(x > 0.3, 1.0, 0.0), {"growth": (1, 0), "kinks": (0.3,), "monotone": 1}),
]


@pytest.mark.parametrize(("fn", "facts"), TRUE)
def test_true_claims_are_believed(fn: Any, facts: dict[str, Any]) -> None:
    tp.atom("f", fn, **facts)


def test_a_function_of_masks_works_on_single_numbers() -> None:
    def halves(x: Any) -> Any:
        out = np.zeros_like(x)
        out[x > 0] = x[x > 0] / 2
        return out

    tp.atom("halves", halves, range=(0, INF), lipschitz=0.5, monotone=1, kinks=(0,))
    atom = ATOMS["halves"]
    assert float(atom.numpy(3.0)) == 1.5
    low, high = atom.range_on((-INF, 4.0))
    assert low == 0.0
    assert 2.0 <= high <= 2.0 + 1e-11  # rounded outward
    P = tp.Program("constant", constants={"c": 2})
    i = P.index("i", 3)
    c = P.constant("d[i]", tp.halves(i * 1.0))
    assert c is not None


def test_a_file_that_calls_an_unknown_function_says_how_to_declare_it() -> None:
    text = program(declared()).to_yaml()
    del ATOMS["swoosh"]
    from tensorprog.language.reading import loads

    with pytest.raises(tp.ProgramError, match="there is no function swoosh"):
        loads(text)  # which is known by its formula
    with pytest.raises(tp.ProgramError, match=r"there is no function wobble[^$]*tp\.atom declares one"):
        loads(text.replace("swoosh", "wobble"))
    declared()
    assert loads(text).own == ("swoosh",)


def test_names_of_programs_do_not_hide_declared_functions() -> None:
    declared()
    P = tp.Program("hidden")
    with pytest.raises(tp.ProgramError, match="swoosh is reserved"):
        P.initial("swoosh", mean=0, cov=1)


def test_saved_samples_tell_declared_functions_apart(tmp_path: Path) -> None:
    import json

    program(declared()).run(width=8, samples=10).save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as data:
        functions = json.loads(str(data["meta.json"]))["functions"]
    assert functions == {"swoosh": ATOMS["swoosh"].numpy.sketch}  # type: ignore[attr-defined]


def test_the_function_sees_one_dimensional_doubles_only() -> None:
    seen = set()

    def fn(x: Any) -> Any:
        seen.add((x.ndim, x.dtype))
        return np.tanh(x)

    function = DeclaredFunction(fn)
    for x in (np.float32(0.5), np.ones((2, 3), dtype=np.float32), np.ones((4, 3, 2)).T, 1, np.ones(0)):
        value = function(x)
        assert value.shape == np.shape(x)
        assert value.dtype == (np.asarray(x).dtype if np.asarray(x).dtype.kind == "f" else np.float64)
    assert seen == {(1, np.dtype(np.float64))}
