"""Rewrites of random programs are exact at finite n, and rewriting happens often enough for that to mean something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from networks import check_same
from wide_programs import program

from tensorprog.check.rewrites import normalize, written_out
from tests.reading import dump, loads


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


@pytest.mark.slow
def test_wide_random_programs_keep_their_values() -> None:
    """The numbers of these programs are fixed, so that every kind of rewriting is known to be among them."""
    seen = check_wide(range(30))
    assert {"constants", "biases", "expand", "move", "inline"} <= set(seen), seen


@pytest.mark.slow
def test_many_wide_random_programs_keep_their_values() -> None:
    assert check_wide(range(1000, 1040))["move"]
