"""Random programs through all interpreters: what did not agree, and how many programs each comparison was made for.

python benchmarks/battery.py --programs 1000 --samples 4000
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.battery.agreement import Found, examine
from tests.battery.generator import write


def one(seed: int, samples: int) -> Found | str:
    """What was found for one program, or how it failed."""
    warnings.simplefilter("error")
    try:
        return examine(seed, samples)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--samples", type=int, default=4000, help="networks of each width and method")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.programs)
    started, compared, grades, features = time.perf_counter(), Counter[str](), Counter[str](), Counter[str]()
    worst: dict[str, float] = {}
    faulty = 0
    with ProcessPoolExecutor(options.workers) as pool:
        for seed, found in zip(seeds, pool.map(one, seeds, [options.samples] * len(seeds)), strict=True):
            if isinstance(found, str) or found.faults:
                faulty += 1
                text = found if isinstance(found, str) else "; ".join(found.faults)
                print(f"seed {seed}: {text} ({', '.join(write(seed).features)})", flush=True)
            if isinstance(found, Found):
                grades[found.grade] += 1
                features.update(found.features)
                for what, value in (found.z | found.ratio).items():
                    compared[what] += 1
                    worst[what] = max(worst.get(what, 0.0), value)
    print(f"{len(seeds)} programs in {time.perf_counter() - started:.0f} s: {faulty} with a fault")
    print("grades: " + ", ".join(f"{name} {count}" for name, count in grades.most_common()))
    print("features: " + ", ".join(f"{name} {count}" for name, count in features.most_common()))
    for what, count in compared.items():
        print(f"{what}: {count} programs, worst {worst[what]:.2f}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
