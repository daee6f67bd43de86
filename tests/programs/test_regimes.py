"""One text for several limits, as `--set` on the command line moves between them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp

Array = NDArray[np.float64]
REGIMES = "attention_regimes"


# settings; the program that says the same alone, and its settings
ALONE: tuple[tuple[dict[str, float], str, dict[str, float]], ...] = (
    ({}, "attention_correlated", {"rho": 0.5}),
    ({"rho": 0}, "attention", {"C": 2}),
    ({"H": 1, "C": 100}, "attention_correlated", {"rho": 0.5, "H": 1, "C": 100}),
    ({"mu": 1}, "attention_1n", {}),
    ({"r": 4, "rho": 0}, "attention_lowrank", {"r": 4, "C": 2}),
    ({"fix": 1, "D": 8, "rho": 0}, "attention_fixed_head", {"D": 8, "C": 2}),
    ({"fix": 1, "mu": 1, "r": 4, "rho": 0}, "attention_fixed_head", {"C": 2}),
)


def both(settings: dict[str, float], name: str, others: dict[str, float]) -> tuple[tp.Program, tp.Program]:
    """One text at some settings, and the program that says the same, with two tokens."""
    return tp.load(REGIMES, **{"s": 2, **settings}), tp.load(name, **{"s": 2, **others})


@pytest.mark.parametrize(("settings", "name", "others"), ALONE)
def test_grades_are_those_of_programs_that_say_the_same(
    settings: dict[str, float], name: str, others: dict[str, float]
) -> None:
    ours, theirs = (program.check() for program in both(settings, name, others))
    assert ours.grade == theirs.grade
    assert ours.source == theirs.source
    assert {(claim.name, claim.standing) for claim in ours.claims} == {(c.name, c.standing) for c in theirs.claims}


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "name", "others"), ALONE)
def test_limits_are_those_of_programs_that_say_the_same(
    settings: dict[str, float], name: str, others: dict[str, float]
) -> None:
    ours, theirs = (program.limit() for program in both(settings, name, others))
    assert len(ours.scores) == len(theirs.scores)
    for one, two in zip(ours.scores, theirs.scores, strict=True):
        np.testing.assert_allclose(ours.cov(one), theirs.cov(two), rtol=0, atol=ours.error + theirs.error + 1e-14)
    np.testing.assert_allclose(ours.cov("y"), theirs.cov("y"), rtol=0, atol=ours.error + theirs.error)
    (first, error), (second, slack) = (law.kurtosis("y[0]", with_error=True) for law in (ours, theirs))
    assert abs(first - second) <= error + slack + 1e-14


def test_grades_move_with_the_constants() -> None:
    grades = {"": "theorem", "r": "extension", "mu": "extension", "fix": "extension"}
    claims = {"": set(), "r": {"several widths"}, "mu": {"averages"}, "fix": {"fixed width"}}
    for name, grade in grades.items():
        report = tp.load(REGIMES, **({name: {"r": 2}.get(name, 1)} if name else {})).check()
        assert (report.grade, {claim.name for claim in report.claims}) == (grade, claims[name])


def test_infinitely_many_heads() -> None:
    laws = [program.limit().infinite_heads("a") for program in both({}, "attention_correlated", {"rho": 0.5})]
    np.testing.assert_allclose(laws[0].cov("y"), laws[1].cov("y"), rtol=0, atol=1e-12)


def test_what_constants_put_out_of_use_is_not_in_the_limit() -> None:
    law = tp.load(REGIMES, mu=1).limit()
    assert law.scores == ()
    assert set(law.sample(2, seed=0)) == {"y"}
    with pytest.raises(tp.ProgramError, match=r"^p reaches no output with these constants"):
        law.cov("p")
    text = tp.load(REGIMES).limit(symbolic=True)
    assert set(text.symbols) == {"C", "rho", "mu"}  # not the choice


def test_finite_networks_run_the_text_as_written() -> None:
    samples = tp.load(REGIMES, s=2, fix=1).run(width=8, samples=3, keep=("m",))
    assert {"y", "p", "ep", "m"} <= set(samples)


@pytest.mark.slow
def test_the_kurtosis_moves_with_the_scale_the_rank_and_the_heads() -> None:
    settings = ({}, {"mu": 0.5}, {"mu": 1}, {"r": 4}, {"H": 100_000})
    laws = [tp.load(REGIMES, s=2, **setting).limit() for setting in settings]
    (first, mixed, last, low_rank, many), errors = zip(
        *(law.kurtosis("y[0]", with_error=True) for law in laws), strict=True
    )
    assert first > mixed > 3 and last == pytest.approx(3, abs=errors[2])
    assert low_rank == pytest.approx(first, abs=errors[0] + errors[3])
    # far beyond any number that could be run: 3 + c/H
    assert many == pytest.approx(3 + 2 * (first - 3) / 100_000, abs=errors[4] + 1e-12) and errors[4] < 1e-7
