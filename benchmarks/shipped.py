"""Finite widths beside the limit, for every shipped program that has one: second moments and kurtosis of the outputs.

    python benchmarks/shipped.py [--quick] [--precision 1] [--out runs/shipped] [NAME ..]

For each number, law + b/n is fitted to the estimates at n = 256 and n = 1024, and predicts the one at n = 4096.
z is the difference in standard errors of (estimate - prediction): those of all three estimates, and the law's own,
which is common to the three.  The numbers are all second moments and cross moments of outputs, and their kurtosis.

Networks are drawn until standard errors are at most 0.5% of a second moment (of sqrt(K_ii K_jj) for a cross moment)
and 0.02 of a kurtosis, divided by --precision; --quick asks for a fifth of that.  Those of the law are to be as small.
What has been drawn is kept in the folder --out: the same command again goes on where it was stopped, and later only
compiles the limits.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.language.formats import quantity
from tensorprog.shipped import shipped_programs

Array = NDArray[np.float64]
FITTED, PREDICTED = (256, 1024), 4096
WIDTHS = (*FITTED, PREDICTED)
COORDINATES = 256  # of each network: they share its scores, so that more of them would not help for long
PILOT = 256  # networks from which the number needed is judged
DEMANDED = (0.005, 0.02)  # largest standard errors: relative, of second moments; of kurtosis
LARGEST_Z = 5
HEADER = (
    "program",
    "numbers",
    "kurtosis",
    *(f"n = {n}" for n in WIDTHS),
    "networks",
    "se moments",
    "se kurtosis",
    "z moments",
    "z kurtosis",
)


@dataclass(frozen=True)
class Moments:
    """Second moments (upper triangle, row by row) and kurtosis of m outputs of mean zero, with standard errors.

    Shapes    value and error (m (m + 1) / 2 + m,)
    """

    value: Array
    error: Array
    networks: int = 0

    @property
    def outputs(self) -> int:
        return (math.isqrt(9 + 8 * len(self.value)) - 3) // 2

    @property
    def relative(self) -> Array:
        """Standard errors of second moments in units of sqrt(K_ii K_jj), then those of the kurtosis."""
        rows, columns = np.triu_indices(self.outputs)
        variance = self.value[: len(rows)][rows == columns]
        scale = np.sqrt(variance[rows] * variance[columns])
        return np.concatenate([self.error[: len(rows)] / scale, self.error[len(rows) :]])


def parts(numbers: Array, outputs: int) -> tuple[Array, Array]:
    """The second moments, and the kurtosis."""
    return numbers[:-outputs], numbers[-outputs:]


def pooled(second: Array, fourth: Array) -> Moments:
    """From averages over the coordinates of each network; networks are independent, errors by the delta method.

    Shapes    second (networks, m, m), fourth (networks, m)
    """
    square = np.einsum("nii->ni", second)
    variance = square.mean(axis=0)
    kurtosis = fourth.mean(axis=0) / variance**2
    upper = second[:, *np.triu_indices(len(variance))]
    of_kurtosis = (fourth / variance - 2 * kurtosis * square) / variance
    error = np.concatenate([upper.std(axis=0), of_kurtosis.std(axis=0)]) / np.sqrt(len(second))
    return Moments(np.concatenate([upper.mean(axis=0), kurtosis]), error, len(second))


def estimated(program: tp.Program, width: int, networks: int) -> Moments:
    """Of the outputs at one width."""
    drawn = program.run(width, networks, seed=width, coordinates=COORDINATES, max_memory="4GiB")
    values = np.concatenate([drawn[name].reshape(networks, COORDINATES, -1) for name in drawn.outputs], axis=2)
    return pooled(np.einsum("nci,ncj->nij", values, values, optimize=True) / COORDINATES, (values**4).mean(axis=1))


def sufficient(program: tp.Program, width: int, demanded: tuple[float, float]) -> Moments:
    """As many networks as the standard errors demanded want."""
    networks = PILOT
    while True:
        found = estimated(program, width, networks)
        excess = max(
            part.max() / most for part, most in zip(parts(found.relative, found.outputs), demanded, strict=True)
        )
        if excess <= 1:
            return found
        networks = math.ceil(1.2 * excess**2 * networks)


def kept(folder: Path, program: tp.Program, width: int, demanded: tuple[float, float]) -> Moments:
    """Estimates from the folder if they are there and good enough, else drawn and kept."""
    path = folder / f"{program.name}_n{width}.json"
    settings = {"text": program.to_yaml(), "demanded": list(demanded), "coordinates": COORDINATES}
    if path.is_file():
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if known["settings"] == settings:
            return Moments(np.array(known["value"]), np.array(known["error"]), known["networks"])
    found = sufficient(program, width, demanded)
    entry = {
        "settings": settings,
        "value": found.value.tolist(),
        "error": found.error.tolist(),
        "networks": found.networks,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entry), encoding="utf-8")
    return found


def limiting(law: tp.Law) -> Moments:
    """The same numbers of the limit; its errors hold in 99.9 % of cases where they are statistical."""
    for name in law.outputs:
        mean, error = law.mean(name, with_error=True)
        assert np.all(np.abs(mean) <= 2 * np.asarray(error) + 1e-9), "the moments here are about zero"
    blocks = [[law.cov(a, b, with_error=True) for b in law.outputs] for a in law.outputs]
    kurtosis = [law.kurtosis(name, with_error=True) for name in law.outputs]
    numbers = []
    for which in range(2):
        square = np.block([[_matrix(block[which]) for block in row] for row in blocks])
        upper = square[np.triu_indices(len(square))]
        numbers.append(np.concatenate([upper, *(np.ravel(part[which]) for part in kurtosis)]))
    return Moments(numbers[0], numbers[1] / 3)


def _matrix(covariance: Any) -> Array:
    array = np.asarray(covariance)
    return array.reshape(math.prod(array.shape[: array.ndim // 2]), -1)


def scores(law: Moments, found: dict[int, Moments]) -> Array:
    """z of each number at n = 4096.

    With weights w_n that minimise the error of b = sum_n w_n n (x_n - law), sum_n w_n = 1, the difference
    x_4096 - law - b/4096 is linear in the independent x_256, x_1024, x_4096 and law: so is its variance.
    """
    value = np.stack([found[n].value - law.value for n in WIDTHS])
    error = np.stack([found[n].error for n in WIDTHS])
    width = np.array(FITTED)[:, None]
    weight = 1 / (width * error[:-1]) ** 2
    share = weight * width / weight.sum(axis=0) / PREDICTED  # of x_n - law in the prediction
    coefficients = np.concatenate([-share, np.ones_like(share[:1])])
    of_law = coefficients.sum(axis=0) * law.error
    z: Array = (coefficients * value).sum(axis=0) / np.sqrt(((coefficients * error) ** 2).sum(axis=0) + of_law**2)
    return z


@dataclass(frozen=True)
class Row:
    """One program: what its line of the table says, and whether all is as demanded."""

    cells: list[str]
    largest_z: float
    reached: bool


def line(cells: Sequence[str]) -> str:
    """One line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def row(name: str, folder: Path, demanded: tuple[float, float]) -> Row:
    """One line of the table; networks are drawn before the limit is compiled, and kept if it is refused."""
    program = tp.load(name)
    found = {n: kept(folder, program, n, demanded) for n in WIDTHS}
    law = limiting(program.limit())
    largest = ([part.max() for part in parts(each.relative, law.outputs)] for each in (*found.values(), law))
    errors = [max(part) for part in zip(*largest, strict=True)]
    z = [part.max() for part in parts(np.abs(scores(law, found)), law.outputs)]
    networks = "/".join(f"{found[n].networks:,}" for n in WIDTHS)
    kurtosis = [quantity(found[n].value[-1], found[n].error[-1]) for n in WIDTHS]
    cells = [
        name,
        str(len(law.value)),
        f"{law.value[-1]:.4f}",
        *kurtosis,
        networks,
        f"{errors[0]:.2%}",
        f"{errors[1]:.3f}",
        *(f"{part:.1f}" for part in z),
    ]
    return Row(cells, max(z), all(error <= most for error, most in zip(errors, demanded, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="errors five times as large")
    parser.add_argument("--precision", type=float, default=1, help="divides the errors demanded")
    parser.add_argument("--out", type=Path, default=Path("runs/shipped"), metavar="DIR")
    arguments = parser.parse_args()
    demanded = tuple(error / arguments.precision * (5 if arguments.quick else 1) for error in DEMANDED)
    start = time.perf_counter()
    print(line(HEADER))
    print(line(["---"] * len(HEADER)))
    rows: list[Row] = []
    left: dict[str, list[str]] = {"outside": [], "not compiled": []}
    for name in arguments.names or shipped_programs():
        if tp.load(name).check().grade == "outside":
            left["outside"].append(name)
            continue
        try:
            rows.append(row(name, arguments.out, demanded))
            print(line(rows[-1].cells), flush=True)
        except tp.NotCompiledError:
            left["not compiled"].append(name)
    for reason, names in left.items():
        if names:
            print(f"\n{reason}: {', '.join(names)}")
    largest = max((entry.largest_z for entry in rows), default=0)
    print(f"\nlargest |z|: {largest:.1f}; {time.perf_counter() - start:.0f} s")
    short = [entry.cells[0] for entry in rows if not entry.reached]
    if short:
        print(f"standard errors above those demanded: {', '.join(short)}")
    if largest > LARGEST_Z or short:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
