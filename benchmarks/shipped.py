"""Finite widths beside the limit, for every shipped program that has one: covariances and kurtosis of the outputs.

    python benchmarks/shipped.py [--networks 20000] [--coordinates 16] [NAME ..]

Estimates are pooled over coordinates.  With the limit known, the estimates at n = 256 and n = 1024 determine b in
limit + b/n, for each number; that predicts the estimate at n = 4096.  z is a difference in standard errors, those of
the prediction and the error of the limit included: at 4096, and of the two estimates from the fit (one degree of
freedom).  Shown is the largest of all entries of the covariance of the outputs, and of the kurtosis of each output.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.comparison import quantity
from tensorprog.shipped import shipped_programs

Array = NDArray[np.float64]
FITTED, PREDICTED = (256, 1024), 4096
HEADER = """\
| program | outputs | kurtosis | n = 256 | n = 1024 | n = 4096 | se cov | z fit | z 4096 | z fit | z 4096 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def estimates(program: tp.Program, output: str, width: int, networks: int, coordinates: int) -> tuple[Array, Array]:
    """Covariances (upper triangle) and kurtosis of outputs of mean zero, with standard errors by the delta method."""
    drawn = program.run(width, networks, seed=width, coordinates=coordinates)[output]
    values = np.asarray(drawn, dtype=float).reshape(networks, coordinates, -1)
    second = np.einsum("nci,ncj->nij", values, values) / coordinates
    fourth = (values**4).mean(axis=1)
    outputs = fourth.shape[1]
    square = np.einsum("nii->ni", second)
    kurtosis = fourth.mean(axis=0) / square.mean(axis=0) ** 2
    # what one network adds to the estimates
    cov = second[:, *np.triu_indices(outputs)]
    of_kurtosis = fourth / square.mean(axis=0) ** 2 - 2 * kurtosis * square / square.mean(axis=0)
    error = np.concatenate([cov.std(axis=0), of_kurtosis.std(axis=0)]) / np.sqrt(networks)
    return np.concatenate([cov.mean(axis=0), kurtosis]), error


def known(law: tp.Law, output: str) -> tuple[Array, Array, int]:
    """The same numbers of the limit, with their errors, and how many of them are covariances."""
    cov, cov_error = (np.asarray(part) for part in law.cov(output, with_error=True))
    outputs = round(np.sqrt(cov.size))
    upper = np.triu_indices(outputs)
    parts = [np.broadcast_to(part, cov.shape).reshape(outputs, outputs)[upper] for part in (cov, cov_error)]
    kurtosis = [np.ravel(part) for part in law.kurtosis(output, with_error=True)]
    value, error = (np.concatenate(pair) for pair in zip(parts, kurtosis, strict=True))
    return value, error, len(upper[0])


def row(name: str, networks: int, coordinates: int) -> str:
    """One line of the table."""
    program = tp.load(name)
    law = program.limit()
    output = law.outputs[0]
    limit, limit_error, entries = known(law, output)
    assert np.all(np.abs(np.ravel(law.mean(output))) < 1e-9), "the moments here are about zero"
    found = {n: estimates(program, output, n, networks, coordinates) for n in (*FITTED, PREDICTED)}
    noise = {n: np.hypot(error, limit_error) for n, (_, error) in found.items()}
    precision = sum(1 / (n * noise[n]) ** 2 for n in FITTED)
    slope = sum((found[n][0] - limit) / (n * noise[n] ** 2) for n in FITTED) / precision
    fit = np.sqrt(sum(((found[n][0] - limit - slope / n) / noise[n]) ** 2 for n in FITTED))
    predicted = limit + slope / PREDICTED
    z = np.abs(found[PREDICTED][0] - predicted) / np.hypot(noise[PREDICTED], 1 / np.sqrt(precision) / PREDICTED)
    relative = (found[PREDICTED][1][:entries] / np.abs(limit[:entries]).max()).max()
    kurtosis = [quantity(value[-1], error[-1]) for value, error in found.values()]
    worst = [part.max() for part in (fit[:entries], z[:entries], fit[entries:], z[entries:])]
    cells = [name, len(limit) - entries, f"{limit[-1]:.4f}", *kurtosis, f"{relative:.2%}", *(f"{x:.1f}" for x in worst)]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--networks", type=int, default=20_000)
    parser.add_argument("--coordinates", type=int, default=16)
    arguments = parser.parse_args()
    start = time.perf_counter()
    print(HEADER)
    refused: dict[str, list[str]] = {}
    for name in arguments.names or shipped_programs():
        try:
            print(row(name, arguments.networks, arguments.coordinates), flush=True)
        except (tp.OutsideError, tp.NotCompiledError) as error:
            refused.setdefault("outside" if isinstance(error, tp.OutsideError) else "not compiled", []).append(name)
    for reason, names in refused.items():
        print(f"\n{reason}: {', '.join(names)}")
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
