"""Precise Kullback-Leibler divergences of attention beside the estimator of the paper's scripts.

    python benchmarks/kl.py [--networks 400000] [--largest 4096]

First KL(limit || Gaussian of equal variance), then KL(finite width || limit) at n = 16, 32, .. with the rate in n.  The
paper's estimator is the Gaussian KDE of both samples, 50,000 against 50,000, on 500 points over the pooled range with
floor 1e-12; its noise floor is the mean over independent pairs of samples of one law.  The four tokens of attention
have one law, so their conditional variances are used together.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import tensorprog as tp
from tensorprog.results.distances import kernel_kl
from tensorprog.results.divergence import GaussianDraws, kl_to_law

DRAWS, PAIRS, CHUNK = 50_000, 20, 50_000
PROGRAMS = (("attention", 1), ("attention", 2), ("attention_relu", 2))


def paper(x: np.ndarray, y: np.ndarray) -> float:
    """The paper's estimator of KL(x || y), on the pooled range."""
    return kernel_kl(x, y, min(x.min(), y.min()), max(x.max(), y.max()))


def pairs(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the paper's estimator over pairs of samples, row against row."""
    found = [paper(x, y) for x, y in zip(first, second, strict=True)]
    return float(np.mean(found)), float(np.std(found, ddof=1))


def to_gaussian() -> None:
    """KL(limit || Gaussian)."""
    print("KL(limit || Gaussian)         precise (error)        paper's, mean (sd)   its floor, mean (sd)", flush=True)
    for name, heads in PROGRAMS:
        law = tp.load(name, H=heads).limit()
        value, error = tp.kl_gaussian(law, "y[0]")
        draws = np.stack([law.sample(DRAWS, seed=seed)["y"][:, 0] for seed in range(2 * PAIRS)]).reshape(2, PAIRS, -1)
        deviation = math.sqrt(law.var("y[0]"))
        gaussian = deviation * np.random.default_rng(1).standard_normal((PAIRS, DRAWS))
        shown, floor = pairs(draws[0], gaussian), pairs(draws[0], draws[1])
        print(
            f"{name:15} H = {heads}   {value:20.6e} ({error:.0e})   {shown[0]:.2e} ({shown[1]:.0e})   "
            f"{floor[0]:.2e} ({floor[1]:.0e})",
            flush=True,
        )


def drawn(program: tp.Program, width: int, networks: int) -> tuple[GaussianDraws, np.ndarray]:
    """Conditional variances of all tokens, and outputs of the first 50,000 networks."""
    variances, outputs = [], []
    for seed in range(-(-networks // CHUNK)):
        net = program.run(width=width, samples=min(CHUNK, networks - seed * CHUNK), seed=seed, conditional=True)
        variances.append(net.conditional["y"][1].copy())
        outputs.append(net["y"][:, 0].copy())
    var = np.concatenate(variances)
    return GaussianDraws(np.zeros_like(var), var), np.concatenate(outputs)[:DRAWS]


def fit(widths: np.ndarray, values: np.ndarray, errors: np.ndarray, terms: int) -> tuple[float, float, float]:
    """Exponent r of values = A n**-r exp(B / n + C / n**2 + ..), its standard error, and chi-square of the fit."""
    scale = values / errors
    columns = [np.ones(len(widths)), -np.log(widths), *(widths ** -float(k) for k in range(1, terms + 1))]
    design = np.stack(columns, axis=1) * scale[:, None]
    covariance = np.linalg.inv(design.T @ design)
    found = covariance @ design.T @ (np.log(values) * scale)
    chi_square = float(((np.log(values) * scale - design @ found) ** 2).sum())
    return float(found[1]), float(math.sqrt(covariance[1, 1])), chi_square


def to_limit(heads: int, networks: int, largest: int) -> None:
    """KL(finite || limit) and its rate in n."""
    program = tp.load("attention", H=heads)
    law = program.limit()
    curve = law.averaged("y[0]")
    limit = np.asarray(law.sample(DRAWS, seed=2)["y"])[:, 0]
    print(
        f"\nKL(finite || limit), attention, H = {heads}, {networks:,} networks\n"
        "     n   precise          error     local exponent   paper's, one pair",
        flush=True,
    )
    widths = np.array([2**k for k in range(4, int(math.log2(largest)) + 1)])
    found: list[tuple[float, float]] = []
    for width in widths.tolist():
        draws, outputs = drawn(program, width, networks)
        value, error = kl_to_law(draws, curve)
        local = ""
        if found:
            before, its = found[-1]
            slope = math.log2(before / value) if value > 0 else math.nan
            local = f"{slope:.3f} ({math.hypot(error / value, its / before) / math.log(2):.3f})"
        found.append((value, error))
        print(f"{width:6}   {value:.4e}   {error:9.1e}     {local:14}   {paper(outputs, limit):.1e}", flush=True)
    values, errors = np.array(found).T
    for least, terms in ((256, 0), (64, 1), (32, 2)):
        used = (widths >= least) & (values > 2 * errors)
        freedom = int(used.sum()) - 2 - terms
        if freedom > 0:
            rate, error, chi_square = fit(widths[used], values[used], errors[used], terms)
            print(
                f"A n**-r exp(polynomial of degree {terms} in 1/n) over n >= {least}: r = {rate:.4f} ({error:.4f}), "
                f"chi-square {chi_square:.1f} of {freedom}",
                flush=True,
            )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", type=int, default=400_000)
    parser.add_argument("--largest", type=int, default=4096)
    options = parser.parse_args()
    to_gaussian()
    for heads in (1, 2):
        to_limit(heads, options.networks, options.largest)


if __name__ == "__main__":
    main()
