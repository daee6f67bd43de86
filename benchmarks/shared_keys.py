"""Keys shared by heads: scores are independent in the limit, and their squares are correlated like 1/n at width n.

    python benchmarks/shared_keys.py [--networks 400000] [--widths 64,256,1024]

In attention_mqa all heads share their keys.  Definition 1 (iv) gives scores of two heads the covariance 0, and Gaussian
scores are then independent.  At finite n they are uncorrelated, but given tokens and keys both are independent
N(0, S), S = |x_i|^2 |k_j|^2 / n^2, and |k_j|^2 is |x_j|^2 / n times a chi-square of n degrees of freedom.  Hence,
with G_i = |x_i|^2 / n,

    Cov(p_aij^2, p_bij^2) = Var(S) = (1 + 2/n) E[(G_i G_j)^2] - (E[G_i G_j])^2.

Tokens are x_i = clip(u_i, -C, C), their coordinates independent N(0, tau) before the clip given tau = |h|^2 / n, itself
a chi-square over n.  With m2 and m4 the moments of one coordinate at tau = 1 and m2' the derivative of m2 by tau, the
coefficient of 1/n is, for i != j,

    2 m2^4 + 2 m2^2 (m4 - m2^2) + 8 (m2 m2')^2.

Shown is n times the covariance for i != j, pooled over pairs of heads and of tokens, beside the exact value.
"""

from __future__ import annotations

import argparse
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import chi2, norm

import tensorprog as tp
from tensorprog.language.formats import quantity

C = 2.0
BATCH = 20_000


def moments(tau: float) -> tuple[float, float, float]:
    """m2, m4 and m2' of clip(u, -C, C), u ~ N(0, tau)."""
    r = C / np.sqrt(tau)
    inside, edge = 2 * norm.cdf(r) - 1, 2 * r * norm.pdf(r)
    m2 = tau * (inside - edge) + C**2 * (1 - inside)
    m4 = tau**2 * (3 * inside - (r**2 + 3) * edge) + C**4 * (1 - inside)
    return m2, m4, inside - edge


def coefficient() -> float:
    """Of 1/n in the covariance of the squares, i != j."""
    m2, m4, slope = moments(1.0)
    return float(2 * m2**4 + 2 * m2**2 * (m4 - m2**2) + 8 * (m2 * slope) ** 2)


def exact(n: int) -> tuple[float, float]:
    """E p^2 and the covariance of the squares at width n, i != j."""
    law = chi2(n, scale=1 / n)
    low, high = law.ppf([1e-14, 1 - 1e-14])

    def mean(order: int) -> float:
        """E (G_i G_j)^order; given tau the two are independent means over n coordinates."""

        def given(tau: float) -> float:
            m2, m4, _ = moments(tau)
            return float(law.pdf(tau) * (m2 if order == 1 else m2**2 + (m4 - m2**2) / n) ** 2)

        return float(quad(given, low, high, epsabs=1e-13, epsrel=1e-12)[0])

    first = mean(1)
    return first, (1 + 2 / n) * mean(2) - first**2


def measured(program: tp.Program, n: int, networks: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Covariances of scores, and of their squares, of two heads: means over pairs for each network."""
    mean_square, _ = exact(n)
    plain: list[NDArray[np.float64]] = []
    squares: list[NDArray[np.float64]] = []
    for batch in range(-(-networks // BATCH)):
        p = program.run(n, BATCH, seed=1000 * n + batch)["p"]
        p = p[:, :, ~np.eye(p.shape[-1], dtype=bool)]
        pairs = np.array(list(combinations(range(p.shape[1]), 2)))
        for values, result in ((p, plain), (p**2 - mean_square, squares)):
            result.append((values[:, pairs[:, 0]] * values[:, pairs[:, 1]]).mean(axis=(1, 2)))
    return np.concatenate(plain), np.concatenate(squares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=400_000)
    parser.add_argument("--widths", default="64,256,1024")
    arguments = parser.parse_args()
    program = tp.load("attention_mqa", C=C)
    cov = np.asarray(program.limit().cov("p"))
    heads = np.eye(cov.shape[0], dtype=bool)
    between, within = (np.moveaxis(cov, 3, 1)[mask] for mask in (~heads, heads))
    expected = moments(1.0)[0] ** 2 * np.einsum("ik,jl->ijkl", *[np.eye(cov.shape[1])] * 2)
    print(
        f"limit: largest covariance between heads {np.abs(between).max():g}; within a head it differs from "
        f"E[x_i x_k] E[x_j x_l] by {np.abs(within - expected).max():.1e}\n"
    )
    print("| n | networks | covariance of scores | z | n Cov of squares | exact | z |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for n in map(int, arguments.widths.split(",")):
        plain, squares = measured(program, n, arguments.networks)
        (score, score_se), (square, square_se) = (
            (float(part.mean()), float(part.std()) / np.sqrt(len(part))) for part in (plain, squares)
        )
        true = exact(n)[1]
        print(
            f"| {n} | {len(plain):,} | {quantity(score, score_se)} | {abs(score) / score_se:.1f} | "
            f"{quantity(n * square, n * square_se)} | {n * true:.4f} | {abs(square - true) / square_se:.1f} |",
            flush=True,
        )
    print(f"\nas n -> infinity: {coefficient():.4f}")


if __name__ == "__main__":
    main()
