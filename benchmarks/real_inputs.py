"""Programs on two sentences against implementations that share no code with the package, in one table.

    python benchmarks/real_inputs.py [--vectors FILE.npy ..] [--networks 128]

FILE.npy holds 16 token vectors, one in each row and of any dimension: 7 tokens of one sentence, 9 of another.  Without
it the vectors that ship are used.  Closed forms are those of tests/programs/sentences.py, in plain numpy; gated
networks are simulated there, without the package, at width 32,768.  Shown are the largest difference of all
covariances, the largest error that the law states, the largest standard error of the simulation, and the largest
difference in units of what both allow: error + 5 standard errors (and rounding, 1e-13 of the largest covariance).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shipped import line

import tensorprog as tp
from tensorprog.shipped import shipped_programs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.programs import sentences

Array = NDArray[np.float64]
HEADER = (
    "vectors",
    "program",
    "covariances",
    "largest difference",
    "error of the law",
    "se of the simulation",
    "difference / allowed",
    "seconds",
)


def on(vectors: Array, name: str) -> tp.Program:
    """A shipped program on these vectors: a copy of it, and a folder `data` beside the copy."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.yaml")
        shutil.copy(shipped_programs()[name], path)
        (path.parent / "data").mkdir()
        np.save(path.parent / "data" / "tokens.npy", vectors)
        return tp.load(path)


def expected(name: str, tokens: Array, networks: int) -> tuple[Array, Array]:
    """Covariances and their standard errors, without the package."""
    if name in sentences.GATED:
        return sentences.simulated(name, tokens, networks)
    closed = sentences.CLOSED[name](tokens)
    return closed, np.zeros_like(closed)


def row(label: str, vectors: Array, name: str, networks: int) -> list[str]:
    """One line of the table."""
    start = time.perf_counter()
    try:
        law = on(vectors, name).limit()
    except tp.NotCompiledError:
        return [label, name, *["not compiled"] * 5, ""]
    found, error = (np.asarray(part) for part in law.cov(law.outputs[0], with_error=True))
    value, se = expected(name, sentences.gram(vectors), networks)
    difference = np.abs(found - value)
    allowed = error + 5 * se + 1e-13 * np.abs(value).max()
    return [
        label,
        name,
        str(value.size),
        f"{difference.max():.1e}",
        f"{error.max():.1e}",
        f"{se.max():.1e}" if se.any() else "",
        f"{(difference / allowed).max():.2f}",
        f"{time.perf_counter() - start:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, nargs="*", default=[], metavar="FILE.npy")
    parser.add_argument("--networks", type=int, default=128, help="simulated, of gated networks")
    arguments = parser.parse_args()
    shipped = shipped_programs()["rnn"].parent / "data" / "tokens.npy"
    print(line(HEADER))
    print(line(["---", "---", *["---:"] * (len(HEADER) - 2)]))
    for path in [shipped, *arguments.vectors]:
        vectors = np.load(path).astype(float)
        label = f"{path.stem}, {' x '.join(map(str, vectors.shape))}"
        for name in (*sentences.CLOSED, *sentences.GATED):
            print(line(row(label, vectors, name, arguments.networks)), flush=True)


if __name__ == "__main__":
    main()
