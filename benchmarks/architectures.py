"""Shipped architectures against whole networks in plain numpy, in one table.

    python benchmarks/architectures.py [--networks 4000] [--width 32] [--imported] [NAME ..]

The networks of tests/programs/dense.py hold all their matrices and share no code with the package.  At n = --width
their second moments, cross moments and fourth moments are compared with those of networks that the package draws; z is
the largest difference in its standard errors.  Then (4 m(4n) - m(n)) / 3, without a term in 1/n, is compared with the
second moments of the limit, in standard errors and the law's own; shown is the largest of them, relative to the moment.
Times are of the processor: of the limit, and of the networks in numpy.  It leaves with exit code 1 if a z is above 5.

--imported, which needs torch and transformers (benchmarks/models.txt), imports GPT2Model, LlamaModel and ViTModel with
weights of variance 1/fan-in instead, and compares the covariances of their limits with those of the shipped programs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shipped import line

import tensorprog as tp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.programs.dense import NETWORKS, Array, moments

LARGEST_Z = 5
HEADER = (
    "program",
    "grade",
    "numbers",
    "z of networks",
    "n extrapolated",
    "largest error",
    "z of the limit",
    "s of the limit",
    "s of networks",
)


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
    return [
        name,
        program.check().grade,
        str(len(ours)),
        f"{first:.1f}",
        f"{width}, {4 * width}",
        f"{relative:.2%}",
        f"{second:.1f}",
        f"{compiled:.1f}",
        f"{simulated:.1f}",
    ], max(first, second)


def models() -> dict[str, tuple[Callable[[int], Any], Any]]:
    """Functions that make the models of transformers at a width, and their inputs."""
    import torch
    import transformers

    def scaled(module: Any, weights: float = 1) -> Any:
        """With tables and positions of variance 1, weights of 1/fan-in, those behind attention times `weights`."""
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                table = any(part in name for part in ("wte", "wpe", "embed", "token"))
                inputs = parameter.shape["c_attn" not in name and "c_fc" not in name and "c_proj" not in name]
                share = weights if "c_proj" in name else 1
                torch.nn.init.normal_(parameter, std=1.0 if table else (share / inputs) ** 0.5)
        return module

    def gpt2(n: int) -> Any:
        config = transformers.GPT2Config(
            n_embd=n, n_layer=1, n_head=2, activation_function="gelu", vocab_size=50, bos_token_id=0, eos_token_id=0,
            use_cache=False, attn_implementation="sdpa")  # fmt: skip
        return scaled(transformers.GPT2Model(config), 1 / 2)

    def llama(n: int) -> Any:
        config = transformers.LlamaConfig(
            hidden_size=n, intermediate_size=4 * n, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=50, use_cache=False, attn_implementation="sdpa")  # fmt: skip
        module = scaled(transformers.LlamaModel(config))
        module.norm = torch.nn.Identity()
        return module

    def vit(n: int) -> Any:
        config = transformers.ViTConfig(
            hidden_size=n, intermediate_size=4 * n, num_hidden_layers=1, num_attention_heads=2, image_size=4,
            patch_size=2, num_channels=1, attn_implementation="sdpa")  # fmt: skip
        return scaled(transformers.ViTModel(config, add_pooling_layer=False))

    apart = np.abs(np.arange(2)[:, None] - np.arange(2))
    patches = np.linalg.cholesky(np.kron(0.5**apart, 0.5**apart))  # a row of pixels for each of 2 x 2 patches
    image = patches.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(1, 1, 4, 4)
    ids = torch.tensor([[3, 1, 4]])
    return {"gpt2": (gpt2, ids), "llama_block": (llama, ids), "vit": (vit, torch.tensor(image, dtype=torch.float32))}


def compare_imported() -> None:
    """One line for each model that is imported."""
    header = ("program", "lines of the import", "grade", "largest difference of covariances", "error stated")
    print(line(header))
    print(line(["---"] * len(header)))
    for name, (make, inputs) in models().items():
        program = tp.from_torch(make, inputs, name=name)
        (first, error), (second, slack) = (
            law.cov(law.outputs[0], with_error=True) for law in (program.limit(), tp.load(name).limit())
        )
        largest_difference = float(np.abs(np.asarray(first) - np.asarray(second)).max())
        lines = len(program.imported.text.splitlines()) if program.imported else 0
        print(
            line(
                [
                    name,
                    str(lines),
                    program.check().grade,
                    f"{largest_difference:.1e}",
                    f"{np.max(error):.1e}, {np.max(slack):.1e}",
                ]
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(NETWORKS))
    parser.add_argument("--networks", type=int, default=4000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--imported", action="store_true")
    args = parser.parse_args()
    if args.imported:
        compare_imported()
        return
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
