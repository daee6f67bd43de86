"""Theorem 1 itself: the law of (1/n) sum_a tanh(y_a)**2 over networks beside that of E[tanh(Z^y)**2 | p-ring].

    python benchmarks/theorem1.py [--networks 20000] [--widths 256,1024,4096,16384]

Means and standard deviations with standard errors, and the two-sample Kolmogorov-Smirnov distance with its p-value.
n(var - limit) tends to a number: what the law at width n lacks is of order 1/n.
"""

from __future__ import annotations

import argparse
import time

import tensorprog as tp
from tensorprog.language.formats import quantity
from tensorprog.results.distances import kolmogorov


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=20_000)
    parser.add_argument("--widths", default="256,1024,4096,16384")
    parser.add_argument("--psi", default="tanh(y[0])**2")
    arguments = parser.parse_args()
    program = tp.load("attention")
    law = program.limit()
    expectation, error = law.expectation(arguments.psi, with_error=True)
    print(f"psi = {arguments.psi}, attention.yaml: E psi = {expectation:.6f} +- {error:.1e}")
    limit = law.averages({"m": arguments.psi}, 100_000)["m"]
    print(
        f"{'n':>6} {'networks':>9} {'mean':>13} {'z':>6} {'sd':>13} {'n(var - limit)':>15} {'KS':>7} {'p':>8} {'s':>6}"
    )
    for width in map(int, arguments.widths.split(",")):
        start = time.perf_counter()
        net = program.run(width, arguments.networks, seed=1, averages={"m": arguments.psi})
        seconds = time.perf_counter() - start
        row = tp.compare(net, None).average("m")
        z = (row.mean - expectation) / (row.se**2 + error**2 / 9) ** 0.5
        excess, excess_se = width * (row.std**2 - limit.var()), width * 2 * row.std * row.std_se
        found = kolmogorov(net.averages["m"], limit, len(net.averages["m"]), len(limit))
        ks, p = found["ks"], found["ks_p"]
        print(
            f"{width:>6} {row.samples:>9} {quantity(row.mean, row.se):>13} {z:>6.2f} "
            f"{quantity(row.std, row.std_se):>13} {quantity(excess, excess_se):>15} "
            f"{ks:>7.4f} {p:>8.2g} {seconds:>6.1f}",
            flush=True,
        )
    spread = limit.std() / len(limit) ** 0.5
    print(f"{'limit':>6} {len(limit):>9} {quantity(limit.mean(), spread):>13} {'':>6} {limit.std():>13.5f}")


if __name__ == "__main__":
    main()
