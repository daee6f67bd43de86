"""What functions on samples, laws and comparisons say to arguments of the wrong kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorprog as tp

PROGRAM = tp.load("attention", s=2, H=1)
LAW = PROGRAM.limit()
SAMPLES = PROGRAM.run(width=8, samples=50, conditional=True)
COMPARED = tp.compare(SAMPLES, LAW)
ARRAY = np.ones(3)
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: tp.kl(LAW, SAMPLES, "y[0]"), "kl takes samples first, then a law, not Law"),
    (lambda: tp.kl(ARRAY, LAW, "y[0]"), "kl takes samples first, then a law, not ndarray"),
    (lambda: tp.kl(SAMPLES, ARRAY, "y[0]"), "kl takes a law second, not ndarray"),
    (lambda: tp.kl(SAMPLES, LAW, 3), "named by text"),  # type: ignore[arg-type]
    (lambda: tp.kl(SAMPLES, LAW, "y"), r"y is a family: name a member, such as y\[0\]"),
    (lambda: tp.kl_gaussian(None, "y[0]"), "kl_gaussian takes a law or samples, not NoneType"),
    (lambda: tp.compare(LAW, SAMPLES), "compare takes samples first, then a law or other samples, not Law"),
    (lambda: tp.compare(SAMPLES, PROGRAM), "compare takes a law or samples second, not Program"),
    (lambda: tp.compare(SAMPLES, LAW, 3), "named by text"),  # type: ignore[arg-type]
    (lambda: COMPARED[3], "named by text"),  # type: ignore[index]
    (lambda: tp.plots.density(3, LAW, "y[0]"), "density takes samples first, one or several, not int"),
    (lambda: tp.plots.density([SAMPLES, LAW]), "density takes samples first, one or several, not Law"),
    (lambda: tp.plots.density(SAMPLES, SAMPLES), "density takes a law second, not Samples"),
    (lambda: tp.plots.density(SAMPLES, LAW, 3), "named by text"),  # type: ignore[arg-type]
    (lambda: tp.plots.convergence(SAMPLES), "convergence takes comparisons, one or several, not Samples"),
    (lambda: tp.plots.convergence("y[0]"), "convergence takes comparisons, one or several, not str"),
    (lambda: tp.plots.covariance(SAMPLES, "y"), "covariance takes a law, not Samples"),
    (lambda: tp.plots.covariance(LAW, 3), "named by text"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_arguments_of_the_wrong_kind_are_refused_in_words(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        call()


def test_one_comparison_is_enough_for_a_picture() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    one, several = tp.plots.convergence(COMPARED, "y[0]"), tp.plots.convergence([COMPARED], "y[0]")
    assert [len(ax.lines) for ax in one] == [len(ax.lines) for ax in several]
    plt.close("all")
