"""Rewrites of random programs are exact at finite n, and rewriting happens often enough for that to mean something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from networks import check_same
from random_rewrites import programs
from wide_programs import program

from tensorprog.check.graph import Structure
from tensorprog.check.rewrites import normalize, written_out
from tests.reading import dump, loads
from tests.rotation import examples


@settings(max_examples=30)
@given(programs())
def test_random_programs_keep_their_values(text: str) -> None:
    netsor = loads(text)
    rewritten, final = normalize(netsor), written_out(netsor)
    check_same(rewritten, netsor)
    check_same(final, netsor, rewritten.netsor)
    assert normalize(rewritten.netsor).netsor == rewritten.netsor
    assert loads(dump(final.netsor)) == final.netsor
    assert not Structure(rewritten.netsor).behind_scores or "move" not in {step.kind for step in rewritten.steps}


def check_wide(seeds: Iterable[int]) -> Counter[str]:
    """Rewrites of wide programs keep values, outputs and names, and what they make is a file that says the same."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        netsor = loads(program(seed))
        rewritten, final = normalize(netsor), written_out(netsor)
        with np.errstate(all="ignore"):
            check_same(rewritten, netsor)
            check_same(normalize(netsor, expanded=False), netsor)
            check_same(final, netsor, rewritten.netsor)
        assert rewritten.netsor.outputs == final.netsor.outputs == netsor.outputs
        assert normalize(rewritten.netsor).netsor == rewritten.netsor
        for made in (rewritten, final):
            assert loads(dump(made.netsor)) == made.netsor
            assert len(made.origin) == len(made.netsor.body)
        seen.update({step.kind for step in final.steps})
    return seen


@pytest.mark.turns(6)
def test_wide_random_programs_keep_their_values() -> None:
    """The numbers of these programs are fixed, so that every kind of rewriting is known to be among them."""
    seen = check_wide(range(30))
    assert {"constants", "turn", "biases", "expand", "move", "inline", "unused"} <= set(seen), seen


@pytest.mark.slow
@pytest.mark.turns(1)
def test_many_wide_random_programs_keep_their_values() -> None:
    assert check_wide([1000 + k for k in examples(12, 42)])["move"]
