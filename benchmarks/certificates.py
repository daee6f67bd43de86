"""Random expressions against their certificates: an optimiser hunts for numbers that refute what is certified.

    python benchmarks/certificates.py --expressions 10000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "assumptions")]

from calculus_expressions import KINDS, profile  # noqa: E402
from calculus_hunter import violation  # noqa: E402

from tensorprog.errors import ProgramError  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expressions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    each = -(-options.expressions // len(KINDS))
    false, hunted, certified = 0, 0, 0
    started = time.perf_counter()
    print(f"{'kind':20} {'hunted':>8} {'pseudo-Lipschitz':>17} {'bounded':>8}  refuted")
    for kind, strategy in KINDS.items():
        counts, found = [0, 0, 0], list[str]()

        @seed(options.seed)
        @settings(max_examples=each, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))
        @given(data=st.data())
        def hunt(data: st.DataObject, strategy: object = strategy, counts: list[int] = counts,
                 found: list[str] = found) -> None:
            expr = data.draw(strategy)  # type: ignore[arg-type]
            try:
                _, facts = profile(expr)
            except ProgramError:  # such as the root of a negative number
                return
            counts[0] += 1
            counts[1] += facts.pseudo_lipschitz
            counts[2] += facts.bounded
            wrong = violation(expr, facts)
            if wrong:
                found.append(f"{expr}: {wrong}")

        hunt()
        print(f"{kind:20} {counts[0]:8} {counts[1]:17} {counts[2]:8}  {len(found)}", flush=True)
        for text in found:
            print(f"    {text}")
        false, hunted, certified = false + len(found), hunted + counts[0], certified + counts[1]
    print(f"{hunted} expressions, {certified} certified pseudo-Lipschitz, {false} certificates refuted, "
          f"{time.perf_counter() - started:.0f} s")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
