"""A Llama block's limit beside networks of its program at n = 64, 256 and 1024, extrapolated in 1/n.

    python benchmarks/llama_limit.py                     # about two minutes
    python benchmarks/llama_limit.py --samples 4000 --modules 0

One layer of transformers' LlamaModel without the last normalisation: grouped queries, rotary positions, SwiGLU; the
matrices have variance 1/n, the table 1.  Each network gives (1/n) sum y**2 and (1/n) sum y**4 of the last token, over
all its coordinates.  Variance and kurtosis are a + b/n + c/n**2 through three widths: a is beside the limit, z in
standard errors of both.  Modules by their own initialisers stand beside networks of the program with at=, which has the
angles of positions where the module has them.  Needs benchmarks/models.txt beside the package.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import models
import numpy as np
import torch
from torch import nn

import tensorprog as tp

IDS = torch.tensor([[3, 1, 4, 1]])
WIDTHS = (64, 256, 1024)
LAST = IDS.shape[1] - 1


def block(n: int) -> Any:
    sizes = {
        "hidden_size": n,
        "intermediate_size": 3 * n,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "initializer_range": n**-0.5,
        **models.SMALL,
    }
    made = models.transformers_model("Llama", **sizes)(n)
    nn.init.normal_(made.embed_tokens.weight)
    made.norm = nn.Identity()
    return made


def moments(squares: Any, fourths: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Variance and kurtosis from averages over coordinates in each network, with standard errors."""
    two, four = np.mean(squares), np.mean(fourths)
    slopes = fourths / two**2 - 2 * four * squares / two**3
    count = len(squares) ** 0.5
    return (two, np.std(squares) / count), (four / two**2, np.std(slopes) / count)


def extrapolated(found: Any) -> tuple[float, float]:
    """The value at 1/n = 0 of the parabola in 1/n through three widths, with its standard error."""
    weights = np.linalg.inv(np.vander([1 / n for n in WIDTHS], increasing=True))[0]
    values, errors = np.transpose(found)
    return float(weights @ values), float(np.sqrt(np.sum((weights * errors) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=160_000, help="networks of the smallest width; fewer of others")
    parser.add_argument("--modules", type=int, default=2000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    program = tp.from_torch(block, IDS, name="llama_block")
    print(f"LlamaModel, one layer: {program.check().grade}, {len(program.imported.text.splitlines())} lines")
    began, law = time.process_time(), program.limit()
    output = f"y[{LAST}]"
    limits = law.var(output, with_error=True), law.kurtosis(output, with_error=True)
    took = time.process_time() - began
    rows = []
    for n, samples in zip(WIDTHS, (options.samples, options.samples // 2, options.samples // 8), strict=True):
        began = time.process_time()
        drawn = program.run(n, samples, seed=n, averages={"two": f"{output}**2", "four": f"{output}**4"}).averages
        rows.append(moments(drawn["two"], drawn["four"]))
        show(f"n = {n}, {samples} networks", rows[-1], time.process_time() - began)
    ends = [extrapolated([row[k] for row in rows]) for k in range(2)]
    show("extrapolated to 1/n = 0", ends, 0.0)
    show("limit", limits, took)
    print(
        "  z of the extrapolation",
        *(f"{(a - b) / np.hypot(s, t):6.2f}" for (a, s), (b, t) in zip(ends, limits, strict=True)),
    )
    if options.modules:
        beside_modules(WIDTHS[0], options.modules, output)


def beside_modules(n: int, count: int, output: str) -> None:
    """Modules beside networks of the program as it is at their width, angles of positions included."""
    began = time.process_time()
    torch.manual_seed(0)
    values = drawn_modules(n, count)
    found = moments(np.mean(values**2, 1), np.mean(values**4, 1))
    show(f"n = {n}, {count} modules", found, time.process_time() - began)
    began, program = time.process_time(), tp.from_torch(block, IDS, at=n)
    drawn = program.run(n, 20 * count, averages={"two": f"{output}**2", "four": f"{output}**4"}).averages
    other = moments(drawn["two"], drawn["four"])
    show(f"the same, {20 * count} networks", other, time.process_time() - began)
    print(
        "  z of the modules", *(f"{(a - b) / np.hypot(s, t):6.2f}" for (a, s), (b, t) in zip(found, other, strict=True))
    )


def drawn_modules(n: int, count: int) -> Any:
    """The last token of so many modules: (count, n)."""
    with torch.no_grad():
        return np.array([block(n).eval()(IDS)[0][0, LAST].double().numpy() for _ in range(count)])


def show(title: str, found: Any, seconds: float) -> None:
    (variance, error), (kurtosis, other) = found
    print(
        f"{title:28} variance {variance:.5f} +- {error:.5f}   kurtosis {kurtosis:.5f} +- {other:.5f}   "
        f"({seconds:.0f} s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
