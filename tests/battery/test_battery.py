"""Random programs: all interpreters of one program agree, and so do two ways to write it.

`python benchmarks/battery.py --programs 1000` draws many more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from . import agreement
from .generator import write

PROGRAMS = 1025
FEATURES = (
    "zero boundary",
    "wrap boundary",
    "recurrence",
    "average",
    "1/n attention",
    "attention",
    "mask",
    "neighbours",
    "softmax",
    "layer behind scores",
    "nonlinear output",
)


@pytest.mark.parametrize("seed", range(4))
def test_a_program_is_the_same_in_both_front_ends_and_in_every_style(seed: int) -> None:
    first, second = write(seed), write(seed, seed + 1)
    P, Q = agreement.program(first.text), agreement.program(second.text)
    assert agreement.built(P.netsor) == P.netsor
    assert P.check().grade == Q.check().grade


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_interpreters_agree(seed: int) -> None:
    found = agreement.examine(seed, 2000)
    assert found.grade != "outside"
    assert not found.faults, "\n".join([*found.faults, write(seed).text])


def test_the_programs_cover_the_language() -> None:
    """So that a change of the generator cannot make the battery empty."""
    every = Counter(feature for seed in range(PROGRAMS) for feature in write(seed).features)
    assert all(every[feature] >= 20 for feature in FEATURES), every


def test_a_law_whose_characteristic_function_underflows() -> None:
    found = agreement.examine(191, 500)
    assert max(map(abs, found.z.values())) < 4.9
