"""Shipped architectures against whole networks in plain numpy, in one table.

    python benchmarks/architectures.py [--networks 4000] [--width 32] [NAME ..]

The networks of tests/programs/dense.py hold all their matrices and share no code with the package.  At n = --width
their second moments, cross moments and fourth moments are compared with those of networks that the package draws; z is
the largest difference in its standard errors.  Then (4 m(4n) - m(n)) / 3, without a term in 1/n, is compared with the
second moments of the limit, in standard errors and the law's own; shown is the largest of them, relative to the moment.
Times are of the processor: of the limit, and of the networks in numpy.  It leaves with exit code 1 if a z is above 5.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from shipped import line

import tensorprog as tp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.programs.dense import NETWORKS, Array, moments

LARGEST_Z = 5
HEADER = ("program", "grade", "numbers", "z of networks", "n extrapolated", "largest error", "z of the limit",
          "s of the limit", "s of networks")


def largest(difference: Array, error: Array) -> float:
    """The largest difference in its errors; what is rounding counts as equal."""
    return float(np.max(np.where(np.abs(difference) < 1e-9, 0, np.abs(difference) / (error + 1e-300))))


def row(name: str, width: int, networks: int) -> tuple[list[str], float]:
    """One line of the table, and its largest z."""
    program, function = tp.load(name), NETWORKS[name]
    start = time.process_time()
    law = program.limit()
    found, uncertain = (np.atleast_2d(part) for part in law.cov(law.outputs[0], with_error=True))
    compiled = time.process_time() - start
    drawn = program.run(width, networks, seed=1, coordinates=width)
    ours, error = moments(np.asarray(drawn[drawn.outputs[0]]).reshape(networks, width, -1))
    start = time.process_time()
    theirs, slack = moments(function(width, networks, np.random.default_rng(2)))
    batches = [moments(function(4 * width, networks // 20, np.random.default_rng((3, part)))) for part in range(10)]
    wide = np.mean([value for value, _ in batches], axis=0)
    wide_error = np.sqrt(np.mean([se**2 for _, se in batches], axis=0) / len(batches))
    simulated = time.process_time() - start
    upper = np.triu_indices(len(found))
    size = len(upper[0])
    limit, spread = (4 * wide - theirs)[:size] / 3, np.hypot(4 * wide_error, slack)[:size] / 3
    first = largest(ours - theirs, np.hypot(error, slack))
    second = largest(limit - found[upper], np.hypot(spread, uncertain[upper]))
    relative = float(np.max(spread / np.sqrt(np.outer(np.diag(found), np.diag(found)))[upper]))
    return [name, program.check().grade, str(len(ours)), f"{first:.1f}", f"{width}, {4 * width}", f"{relative:.2%}",
            f"{second:.1f}", f"{compiled:.1f}", f"{simulated:.1f}"], max(first, second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(NETWORKS))
    parser.add_argument("--networks", type=int, default=4000)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()
    print(line(HEADER))
    print(line(["---"] * len(HEADER)))
    worst = 0.0
    for name in args.names or list(NETWORKS):
        cells, z = row(name, args.width, args.networks)
        worst = max(worst, z)
        print(line(cells), flush=True)
    raise SystemExit(worst > LARGEST_Z)


if __name__ == "__main__":
    main()
