"""The first order in 1/n beside networks.

    python benchmarks/width.py [PROGRAM VARIABLE] ...       variance and kurtosis, and what remains after a/n
    python benchmarks/width.py --rates                      the power of n with which the rest falls, fitted
    python benchmarks/width.py --precise                    a of the program attention, in some minutes
    python benchmarks/width.py --strangers [--networks 1]   programs unlike the shipped ones, with z-scores

Moments of networks come from their conditional laws.  Strangers are compared with dense matrices in plain numpy: there
a and the next coefficient are fitted to three widths, of the kurtosis in its logarithm, which is nearer to a/n; z is
the difference of the two a over its standard error.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
from width_strangers import STRANGERS, Stranger, Weights

import tensorprog as tp
from tensorprog.language.formats import quantity as shown
from tensorprog.language.reading import loads

Array = np.ndarray[Any, Any]
DRAWS, NETWORKS, WIDTHS = 1 << 13, 40_000, (8, 16, 64, 256)
PROGRAMS = (
    ("attention", "y[0]"), ("attention_relu", "y[0]"), ("attention_lowrank", "y[0]"), ("attention_1n", "y[0]"),
    ("cnn", "f[0]"), ("resnet", "f[0]"), ("layernorm_mlp", "f[0]"),
)  # fmt: skip
FITTED = (("attention", "y[0]"), ("attention_relu", "y[0]"), ("attention_lowrank", "y[0]"))
FITTED_WIDTHS, FITTED_NETWORKS = (8, 12, 16, 24, 32), 100_000
DENSE = {24: 64_000, 48: 24_000, 96: 8_000}  # networks of each width
GROUPS, BOUND = 32, 4.073  # of networks; the error of a is that many standard errors
RELU = """
program: relu_mlp
initial: {x: {mean: 0, cov: 1}}
weights: {W: 2, U: 2, V: 1}
body:
  - g = MatMul(W, x)
  - h = Nonlin(relu(g))
  - e = MatMul(U, h)
  - z = Nonlin(relu(e))
  - y = MatMul(V, z)
outputs: [y]
"""


def show(name: str, variable: str) -> None:
    """One program."""
    program = tp.load(name)
    law = program.limit()
    limit = law.kurtosis(variable)
    a, error = law.correction("kurtosis", variable, draws=DRAWS)
    print(f"{name}: kurtosis of {variable} = {limit:.5f} + a/n, a = {a:.4g} +- {error:.2g}", flush=True)
    for width in WIDTHS:
        found, se = networks(program, law, variable, width, NETWORKS)
        left, wrong = abs(found - limit - a / width), math.hypot(se, error / BOUND / width)
        print(
            f"  n = {width:5d}  networks {found:.4f} +- {se:.4f}"
            f"  limit + a/n {limit + a / width:.4f}  rest {left:.4f} +- {wrong:.4f}",
            flush=True,
        )


def networks(program: tp.Program, law: tp.Law, variable: str, width: int, count: int) -> tuple[float, float]:
    """The kurtosis of networks, and its standard error."""
    samples = program.run(width=width, samples=count, conditional=True)
    row = tp.compare(samples, law, variable)[variable]
    return float(row.kurtosis), float(row.kurtosis_se)


# -- the rate ----------------------------------------------------------------------------------------------------------


def rates() -> None:
    """The power of n with which kurtosis - limit - a/n falls, also of a network known exactly."""
    print("kurtosis - limit - a/n = b n**p exp(c/n), fitted; standard errors in brackets")
    law = tp.Program.from_netsor(loads(RELU)).limit()
    exact = np.array([3 * (1 + 2 / n) * (1 + 5 / n) ** 2 for n in FITTED_WIDTHS])
    a, error = law.correction("kurtosis", "y", draws=1 << 18)
    known = exact - 3 - a / np.array(FITTED_WIDTHS)  # to be fitted to a thousandth
    rate("relu MLP, networks exactly", a, error, known, 1e-3 * known)
    for name, variable in FITTED:
        program = tp.load(name)
        law = program.limit()
        limit = law.kurtosis(variable)
        a, error = law.correction("kurtosis", variable, draws=1 << 17)
        rows = [networks(program, law, variable, width, FITTED_NETWORKS) for width in FITTED_WIDTHS]
        found, se = np.array(rows).T
        rate(name, a, error, found - limit - a / np.array(FITTED_WIDTHS), se)


def rate(name: str, a: float, error: float, rest: Array, se: Array) -> None:
    """One row: least squares of the logarithms, with the errors of networks and of a."""
    n = np.array(FITTED_WIDTHS, dtype=float)
    noise = np.diag(se**2) + (error / BOUND) ** 2 / np.outer(n, n)
    whitened = np.linalg.inv(np.linalg.cholesky(noise / np.outer(rest, rest)))
    design = np.stack([np.ones_like(n), np.log(n), 1 / n], axis=1)
    coefficients, cov = solved(whitened @ design, whitened @ np.log(np.abs(rest)))
    ends = [f"{shown(rest[k], noise[k, k] ** 0.5)} at n = {n[k]:.0f}" for k in (0, -1)]
    print(
        f"  {name:27s} a = {shown(a, error / BOUND):>11s}  rest {ends[0]:>20s}, {ends[1]:>21s}"
        f"  power {shown(coefficients[1], cov[1, 1] ** 0.5)}",
        flush=True,
    )


def solved(design: Array, values: Array) -> tuple[Array, Array]:
    """Least squares of values with unit errors, and the covariance of the solution."""
    cov = np.linalg.inv(design.T @ design)
    return cov @ design.T @ values, cov


def precise() -> None:
    """How long a takes to be as precise as a program in numpy made for this one network has it."""
    law = tp.load("attention").limit()
    for quantity, known, se, accuracy in (("variance", 0.753, 0.002, 0.0082), ("kurtosis", 26.82, 0.05, 0.0076)):
        start = time.process_time()
        a, error = law.correction(quantity, "y[0]", accuracy=accuracy)
        z, spent = (a - known) / math.hypot(error / BOUND, se), time.process_time() - start
        print(
            f"  {quantity:9s} a = {shown(a, error / BOUND)}, bound {error:.2g}; known {shown(known, se)};"
            f" z = {z:+.1f}; {spent:.0f} s",
            flush=True,
        )


# -- strangers ---------------------------------------------------------------------------------------------------------


def strangers(scale: float) -> None:
    """All programs, a row for each quantity, and refusals with their reasons."""
    scores = []
    for number, stranger in enumerate(STRANGERS):
        program = tp.Program.from_netsor(loads(stranger.text))
        if stranger.refused:
            try:
                program.limit().correction(*stranger.asked[0], draws=64)
                print(f"{stranger.name}: NOT REFUSED", flush=True)
            except tp.TensorprogError as error:
                print(f"{stranger.name}: refused; {reason(error)}", flush=True)
            continue
        start = time.process_time()
        grams = {n: dense(stranger, number, n, scale) for n in DENSE}
        spent = time.process_time() - start
        law = program.limit()
        print(f"{stranger.name} (networks {spent:.0f} s)", flush=True)
        scores += [one(stranger, law, asked, grams) for asked in stranger.asked]
    worst = max(map(abs, scores))
    print(f"{len(scores)} quantities: sum of z**2 {sum(z * z for z in scores):.1f}, largest |z| {worst:.1f}")


def reason(error: Exception) -> str:
    """The line that says why."""
    lines = str(error).splitlines()
    return next((line.split("why", 1)[1].strip() for line in lines if line.strip().startswith("why")), lines[0])


def dense(stranger: Stranger, seed: int, n: int, scale: float) -> Array:
    """Covariances of outputs given all but the readout.

    Shapes    (networks, vectors, vectors)
    """
    count, block = int(DENSE[n] * scale) // GROUPS * GROUPS, max(1, (1 << 21) // n**2)
    found, rng = [], np.random.default_rng([seed, n])
    for start in range(0, count, block):
        z = stranger.dense(Weights(rng, min(block, count - start), n)).astype(float)
        found.append(np.swapaxes(z, 1, 2) @ z / z.shape[1])
    return np.concatenate(found)


def one(stranger: Stranger, law: tp.Law, asked: tuple[str, ...], grams: dict[int, Array]) -> float:
    """One quantity: z of its first order."""
    quantity, *names = asked
    places = [stranger.members.index(name) for name in names]
    known = law.kurtosis(names[0]) if quantity == "kurtosis" else law.cov(names[0], names[-1])
    limit = float(np.asarray(known).squeeze())
    a, error = law.correction(quantity, *names, draws=1 << 14)
    rows = np.array([measured(quantity, gram[:, places[0], places[-1]]) for gram in grams.values()])
    n = np.array(list(grams), dtype=float)
    design = np.stack([1 / n, 1 / n**2], axis=1) / rows[:, 1:]
    (fitted, following), cov = solved(design, (rows[:, 0] - limit) / rows[:, 1])
    if quantity == "kurtosis":
        found, cov = solved(design * rows[:, :1], np.log(rows[:, 0] / limit) * rows[:, 0] / rows[:, 1])
        fitted, following, cov = limit * found[0], limit * (found[1] + found[0] ** 2 / 2), limit**2 * cov
    z = (fitted - a) / math.hypot(cov[0, 0] ** 0.5, error / BOUND)
    print(
        f"  {quantity + ' of ' + ', '.join(names):24s} a = {shown(a, error / BOUND):>12s}"
        f"  networks {shown(fitted, cov[0, 0] ** 0.5):>12s}  z = {z:+.1f}"
        f"   next {shown(following, cov[1, 1] ** 0.5)}",
        flush=True,
    )
    return z


def measured(quantity: str, values: Array) -> tuple[float, float]:
    """A moment of outputs and its standard error, from conditional covariances of one member or of two."""

    def of(first: Array, second: Array) -> Array:
        return 3 * second / first**2 if quantity == "kurtosis" else first

    groups = values.reshape(GROUPS, -1)
    first, second = groups.mean(axis=1), (groups**2).mean(axis=1)
    left = of(*((part.sum() - part) / (GROUPS - 1) for part in (first, second)))
    whole = float(of(first.mean(), second.mean()))
    return GROUPS * whole - (GROUPS - 1) * float(left.mean()), float(left.std() * (GROUPS - 1) ** 0.5)


def main() -> None:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("asked", nargs="*", metavar="PROGRAM VARIABLE")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--precise", action="store_true")
    parser.add_argument("--strangers", action="store_true")
    parser.add_argument("--networks", type=float, default=1, help="multiple of the number of dense networks")
    asked = parser.parse_args()
    if asked.strangers:
        strangers(asked.networks)
    if asked.rates:
        rates()
    if asked.precise:
        precise()
    if not (asked.strangers or asked.rates or asked.precise):
        for name, variable in list(zip(asked.asked[::2], asked.asked[1::2], strict=True)) or PROGRAMS:
            show(name, variable)


if __name__ == "__main__":
    main()
