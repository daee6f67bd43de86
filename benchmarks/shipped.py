"""Wide networks beside the limit, for every shipped program that has one: covariances and kurtosis of the outputs.

    python benchmarks/shipped.py [--networks 20000] [--coordinates 16] [NAME ..]

Estimates at n = 256 and n = 1024 are pooled over coordinates; their fit m + b/n gives m, which is held against the
limit.  z is the largest difference in standard errors, over the entries of the covariance of all outputs or over the
kurtosis of each, and the numbers in brackets say how many there are and how large the largest standard error is.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.shipped import shipped_programs

Array = NDArray[np.float64]
WIDTHS = (256, 1024)
HEADER = """| program | outputs | variance of the first | kurtosis | at n = 256 | z of covariances | z of kurtosis | s |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def moments(values: Array) -> Array:
    """Second and fourth moments of one network's outputs, averaged over coordinates: (networks, numbers)."""
    second = np.einsum("nci,ncj->nij", values, values) / values.shape[1]
    rows, columns = np.triu_indices(values.shape[2])
    return np.concatenate([second[:, rows, columns], (values**4).mean(axis=1)], axis=1)


def extrapolated(program: tp.Program, output: str, arguments: argparse.Namespace) -> tuple[Array, Array, Array]:
    """Covariances and kurtosis at the first width, and of the fit m + b/n, with its standard errors."""
    weights = {WIDTHS[0]: -WIDTHS[0], WIDTHS[1]: WIDTHS[1]}
    total = WIDTHS[1] - WIDTHS[0]
    value, variance, first = 0.0, 0.0, None
    for width, weight in weights.items():
        drawn = program.run(width, arguments.networks, seed=width, coordinates=arguments.coordinates)[output]
        sample = moments(np.asarray(drawn, dtype=float).reshape(arguments.networks, arguments.coordinates, -1))
        numbers, errors = transformed(sample)
        first = numbers if first is None else first
        value, variance = value + weight / total * numbers, variance + (weight / total * errors) ** 2
    assert first is not None
    return first, value, np.sqrt(variance)


def transformed(sample: Array) -> tuple[Array, Array]:
    """Covariances and kurtosis of a sample of moments, with standard errors by the delta method."""
    outputs = int(np.sqrt(2 * sample.shape[1] + 9 / 4) - 3 / 2)
    entries = sample.shape[1] - outputs
    mean = sample.mean(axis=0)
    diagonal = np.flatnonzero(np.equal(*np.triu_indices(outputs)))
    second, fourth = mean[diagonal], mean[entries:]
    kurtosis = fourth / second**2
    deviations = sample - mean
    of_kurtosis = deviations[:, entries:] / second**2 - 2 * kurtosis / second * deviations[:, diagonal]
    influence = np.concatenate([deviations[:, :entries], of_kurtosis], axis=1)
    return np.concatenate([mean[:entries], kurtosis]), influence.std(axis=0) / np.sqrt(len(sample))


def row(name: str, arguments: argparse.Namespace) -> str:
    program = tp.load(name)
    start = time.perf_counter()
    law = program.limit()
    output = law.outputs[0]
    assert np.all(np.asarray(law.mean(output)) == 0), name
    cov, cov_error = (np.asarray(part) for part in law.cov(output, with_error=True))
    outputs = int(np.sqrt(cov.size))
    upper = np.triu_indices(outputs)
    kurtosis, kurtosis_error = (np.ravel(part) for part in law.kurtosis(output, with_error=True))
    limit = np.concatenate([cov.reshape(outputs, outputs)[upper], kurtosis])
    error = np.concatenate([np.broadcast_to(cov_error, cov.shape).reshape(outputs, outputs)[upper], kurtosis_error])
    first, value, noise = extrapolated(program, output, arguments)
    z = np.abs(value - limit) / np.hypot(noise, error)
    entries = len(upper[0])
    relative = (noise[:entries] / np.abs(limit[:entries]).max()).max()
    seconds = time.perf_counter() - start
    return (f"| {name} | {outputs} | {limit[0]:.5f} | {kurtosis[-1]:.4f} | {first[-1]:.3f} "
            f"| {z[:entries].max():.1f} ({entries}, {relative:.2%}) | {z[entries:].max():.1f} ({outputs}, "
            f"{noise[entries:].max():.3f}) | {seconds:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--networks", type=int, default=20_000)
    parser.add_argument("--coordinates", type=int, default=16)
    arguments = parser.parse_args()
    print(HEADER)
    for name in arguments.names or shipped_programs():
        try:
            print(row(name, arguments), flush=True)
        except (tp.OutsideError, tp.NotCompiledError) as error:
            print(f"| {name} | {type(error).__name__} |", flush=True)


if __name__ == "__main__":
    main()
