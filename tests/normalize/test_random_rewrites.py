"""Rewrites of random programs are exact at finite n, and rewriting happens often enough for that to mean something."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from networks import check_same
from random_rewrites import programs

from tensorprog.graph import Structure
from tensorprog.normalize import normalize, written_out
from tensorprog.yaml_io import dump, loads

EXAMPLES = 300


def test_random_programs_keep_their_values() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(programs())
    def each(text: str) -> None:
        netsor = loads(text)
        seen["programs"] += 1
        rewritten, final = normalize(netsor), written_out(netsor)
        check_same(rewritten, netsor)
        check_same(final, netsor, rewritten.netsor)
        assert normalize(rewritten.netsor).netsor == rewritten.netsor
        assert loads(dump(final.netsor)) == final.netsor
        assert not Structure(rewritten.netsor).behind_scores or "move" not in {step.kind for step in rewritten.steps}
        seen.update({step.kind for step in final.steps})

    each()
    assert seen["programs"] >= EXAMPLES / 2
    for kind in ("constants", "turn", "biases", "expand", "move", "inline", "unused"):
        assert seen[kind] >= 0.1 * seen["programs"], seen
