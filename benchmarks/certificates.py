"""Random expressions against their certificates: an optimiser hunts for numbers that refute what is certified.

python benchmarks/certificates.py --expressions 10000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "assumptions")]

from calculus_expressions import KINDS, profile  # noqa: E402
from calculus_hunter import violation  # noqa: E402

from tensorprog.language.errors import ProgramError  # noqa: E402
from tensorprog.language.expr import Expr  # noqa: E402


@dataclass
class Tally:
    """Expressions of one kind: how many were hunted and certified, and which certificates fell."""

    hunted: int = 0
    certified: int = 0
    bounded: int = 0
    refuted: list[str] = field(default_factory=list)


def hunt(strategy: st.SearchStrategy[Expr], examples: int, number: int) -> Tally:
    """Draw expressions and look for numbers that refute what is certified of them."""
    tally = Tally()

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(expr: Expr) -> None:
        try:
            _, facts = profile(expr)
        except ProgramError:  # such as the root of a negative number
            return
        tally.hunted += 1
        tally.certified += facts.pseudo_lipschitz
        tally.bounded += facts.bounded
        wrong = violation(expr, facts)
        if wrong:
            tally.refuted.append(f"{expr}: {wrong}")

    each()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expressions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started, tallies = time.perf_counter(), list[Tally]()
    print(f"{'kind':20} {'hunted':>8} {'pseudo-Lipschitz':>17} {'bounded':>8}  refuted")
    for kind, strategy in KINDS.items():
        tally = hunt(strategy, -(-options.expressions // len(KINDS)), options.seed)
        print(f"{kind:20} {tally.hunted:8} {tally.certified:17} {tally.bounded:8}  {len(tally.refuted)}", flush=True)
        for text in tally.refuted:
            print(f"    {text}")
        tallies.append(tally)
    refuted = sum(len(tally.refuted) for tally in tallies)
    print(
        f"{sum(t.hunted for t in tallies)} expressions, {sum(t.certified for t in tallies)} certified "
        f"pseudo-Lipschitz, {refuted} certificates refuted, {time.perf_counter() - started:.0f} s"
    )
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
