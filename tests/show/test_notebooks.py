"""What notebooks show: well-formed, escaped, in the colours of their surroundings, and at no cost."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.language.formats import quantity
from tensorprog.limit.draw.draws import Draws
from tensorprog.results.rates import fit

EVIL = "<script>alert(1)</script>"


def read(shown: Any) -> str:
    """The text of a display that is well-formed and brings neither scripts nor a ground of its own."""
    text = shown._repr_html_()
    root = ElementTree.fromstring(text.replace("<br>", "<br/>"))
    assert not {"script", "style", "link", "img"} & {node.tag.rpartition("}")[2] for node in root.iter()}
    for style in (node.get("style", "") for node in root.iter()):
        assert not re.search(r"(?<![-\w])color:(?!inherit)", style)
        assert not re.search(r"background:#(fff|000)", style)
    return " ".join(" ".join(root.itertext()).split())


@pytest.fixture(scope="module")
def attention() -> tp.Program:
    return tp.load("attention", s=2, H=1)


def test_programs_show_text_and_graph(attention: tp.Program) -> None:
    shown = read(attention)
    assert "Multi-head attention" in shown and "softmax[j](p[a,i,j])" in shown
    page = ElementTree.fromstring(attention._repr_html_())
    assert next(page.iter("{http://www.w3.org/2000/svg}svg"), None) is not None
    (text,) = page.iter("pre")  # a notebook's own style sheet may show it in another typeface
    assert "font-family:monospace" in text.get("style", "")
    assert "".join(text.itertext()) == str(attention).rstrip()


def test_programs_that_no_file_could_hold_are_shown() -> None:
    program = tp.Program("large")
    i = program.index("i", 400)
    h = program.initial("h[i]", mean=0, cov=np.eye(400) + 1)
    program.outputs(program.nonlin("y[i]", tp.tanh(h[i])))
    for shown in (str(program), read(program)):
        assert "y[i] = Nonlin(tanh(h[i]))" in shown
        assert "a table of shape (400, 400) is too large for a program file" in shown


def test_a_law_shows_what_it_knows(attention: tp.Program) -> None:
    law = attention.limit()
    before = read(law)
    assert "theorem" in before and "Gaussian given p" in before and "As n goes to infinity, the scores p" in before
    assert "What is left out takes a computation" in before and "covariance of y" not in before
    matrix, error = law.cov("y", with_error=True)
    variance = law.var("y")
    law.kurtosis("y[1]")
    after = read(law)
    assert "covariance of y" in after and f"{matrix[0, 1]:.6g}" in after and error.max() < 1e-3
    assert f"{variance[0]:.4f}" in after


def test_a_law_computes_nothing_long_to_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    law = tp.load("rnn").limit()
    monkeypatch.setattr(law.recursion, "centred", lambda *_: pytest.fail("computed a covariance"))
    assert "f 16 Gaussian" in read(law)


def test_laws_without_scores_show_their_covariance_at_once() -> None:
    law = tp.load("mlp").limit()
    shown = read(law)
    value = np.asarray(law.cov("f"))
    assert f"{value[0, 1]:.6g}" in shown and "left out" not in shown
    assert "rgba(0,114,178" in law._repr_html_()


def test_large_families_are_summed_up(attention: tp.Program) -> None:
    law = tp.load("attention", s=256, H=32).limit()
    assert "2,097,152" in read(law)
    assert len(law._repr_html_()) < 10_000


def test_formulas_are_shown_as_mathematics(attention: tp.Program) -> None:
    law = attention.limit(symbolic=True)
    assert law._repr_html_().count("<math") > 10
    assert "Definition 1 (iv), score" in read(law)
    assert law._repr_latex_().startswith(r"\[") and law.cov("x")._repr_latex_().startswith(r"\[")


def test_samples_show_shapes_and_first_numbers(attention: tp.Program) -> None:
    net = attention.run(8, 400, keep=("q",), averages={"m": "tanh(y[0])**2"})
    shown = read(net)
    assert "400 networks at n = 8" in shown and "(400, 1, 2, 2)" in shown and "average" in shown
    mean, se = net["y"][:, 1].mean(), net["y"][:, 1].std(ddof=1) / 20
    assert quantity(mean, se) in shown
    assert "kept, a vector" in shown
    assert "(3, 5, 2)" in read(attention.run(8, 3, coordinates=5))


def test_samples_of_the_limit_are_not_drawn_for_a_display(
    attention: tp.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = attention.limit().sample(50)
    monkeypatch.setattr(Draws, "__getitem__", lambda *_: pytest.fail("drawn"))
    assert "draws of the limit" in read(draws)


def test_plans_and_comparisons(attention: tp.Program) -> None:
    shown = read(attention.plan(64))
    assert "normals" in shown and "p[a,i,j] = Dot(q[a,i], k[a,j])" in shown
    net = attention.run(8, 100)
    assert "against" not in read(tp.compare(net, None))
    assert "against other samples" in read(tp.compare(net, attention.run(8, 100, seed=1)))


def test_what_a_prompt_shows_is_what_is_printed(attention: tp.Program) -> None:
    compared = tp.compare(attention.run(8, 100), None)
    assert repr(compared) == str(compared) and "Row(" not in repr(compared)
    found = fit([16, 64, 256], [[0.1], [0.01], [0.001]], [[0.001], [0.0001], [0.00001]])
    assert repr(found) == str(found) == read(found)


def test_displays_escape_titles() -> None:
    program = tp.Program("plain", title=EVIL, reference=EVIL)
    h = program.initial("h", mean=0, cov=1)
    (weight,) = program.weights("W")
    program.outputs(program.matmul("y", weight, h))
    for shown in (program, program.limit(), program.limit(symbolic=True)):
        assert EVIL in read(shown) and EVIL not in shown._repr_html_()  # type: ignore[operator]


def test_plots_are_at_hand() -> None:
    from tensorprog.show import plots

    assert tp.plots is plots
