"""Real models at random initialisation as programs: time, grade, length, and the module beside the program.

    python benchmarks/models.py                        # all, widths 64 and 256, 2,000 networks
    python benchmarks/models.py gpt2 vit --samples 500 --widths 64 --limit

Each width has an import of its own, with variances as they are there (`at=`).  Needs benchmarks/models.txt beside
the package.  z is the largest deviation of a variance of an output, module against program, in standard errors; p the
smallest p-value of Kolmogorov and Smirnov, and how many variables it is the smallest of.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import tensorprog as tp

IDS = torch.tensor([[3, 1, 4, 1, 5]])
SMALL = {"vocab_size": 50, "use_cache": False, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}


class Layer(nn.Module):
    """A layer of torch behind linear embeddings of tokens with 5 features."""

    def __init__(self, n: int, layer: Callable[[int], Any], inputs: int = 1) -> None:
        super().__init__()
        self.embed = nn.ModuleList(nn.Linear(5, n) for _ in range(inputs))
        self.layer = layer(n)

    def forward(self, *x: Any) -> Any:
        result = self.layer(*(embed(each) for embed, each in zip(self.embed, x, strict=True)))
        return result[0] if isinstance(result, tuple) else result


def transformers_model(kind: str, **options: Any) -> Callable[[int], Any]:
    import transformers

    transformers.logging.set_verbosity_error()

    def make(n: int) -> Any:
        sizes = {key: value(n) if callable(value) else value for key, value in options.items()}
        config = getattr(transformers, f"{kind.removesuffix('Encoder')}Config")
        return getattr(transformers, f"{kind}Model")(config(**sizes))

    return make


def models() -> dict[str, tuple[Callable[[int], Any], Any]]:
    torch.manual_seed(0)
    x, y, image = torch.randn(1, 3, 5), torch.randn(1, 4, 5), torch.randn(1, 3, 16, 16)
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": lambda n: 4 * n}
    wide = {"hidden_size": lambda n: n, **heads}
    grouped = {**wide, "num_key_value_heads": 2, **SMALL}
    return {
        "gpt2": (transformers_model("GPT2", n_embd=lambda n: n, n_layer=2, n_head=4, n_positions=16, **SMALL), IDS),
        "bert": (transformers_model("Bert", **wide, vocab_size=50), IDS),
        "vit": (transformers_model("ViT", **wide, image_size=16, patch_size=8), image),
        "t5": (
            transformers_model(
                "T5Encoder",
                d_model=lambda n: n,
                d_kv=lambda n: n // 4,
                num_heads=4,
                num_layers=2,
                d_ff=lambda n: 4 * n,
                vocab_size=50,
            ),
            IDS,
        ),
        "llama": (transformers_model("Llama", **grouped), IDS),
        "mistral": (transformers_model("Mistral", **grouped), IDS),
        "encoder layer": (lambda n: Layer(n, lambda n: nn.TransformerEncoderLayer(n, 4, 4 * n, batch_first=True)), x),
        "pre-norm layer": (
            lambda n: Layer(n, lambda n: nn.TransformerEncoderLayer(n, 4, 4 * n, batch_first=True, norm_first=True)),
            x,
        ),
        "decoder layer": (
            lambda n: Layer(n, lambda n: nn.TransformerDecoderLayer(n, 4, 4 * n, batch_first=True), 2),
            (x, y),
        ),
        "lstm": (lambda n: Layer(n, lambda n: nn.LSTM(n, n, batch_first=True)), x),
        "gru": (lambda n: Layer(n, lambda n: nn.GRU(n, n, batch_first=True)), x),
        "resnet": (
            transformers_model(
                "ResNet",
                embedding_size=lambda n: n,
                hidden_sizes=lambda n: [n, 2 * n],
                depths=[1, 1],
                layer_type="basic",
            ),
            image,
        ),
    }


def row(name: str, make: Callable[[int], Any], inputs: Any, widths: Sequence[int], samples: int, limit: bool) -> None:
    for width in widths:
        began = time.process_time()
        try:
            program = tp.from_torch(make, inputs, at=width)
        except tp.ProgramError as refused:
            print(f"{name:15} refused: {str(refused).splitlines()[0]}", flush=True)
            return
        took, began = time.process_time() - began, time.process_time()
        grade = tp.Program.from_netsor(program.netsor).check().grade  # the import has judged its own
        checked, began = time.process_time() - began, time.process_time()
        found = tp.compare_torch(program, make, inputs, width, samples, limit=limit)
        drawn = time.process_time() - began
        lines = len(program.imported.text.splitlines())
        z, p = max(abs(r.z_variance) for r in found.rows), min(r.ks_p for r in found.rows)
        variances = "  ".join(f"{r.variance:.4f}|{r.limit_variance:.4f}" for r in found.rows[:3])
        print(
            f"{name:15} n={width:<4} import {took:5.1f} s  {grade:9} {checked:4.1f} s  {lines:3} lines  z {z:4.2f}  "
            f"p {p:.3f} of {len(found.rows)}  variance module|program {variances}  ({drawn:.0f} s)",
            flush=True,
        )
        if limit and found.limit is not None:
            z = max(abs(r.z_variance) for r in found.limit.rows)
            variances = "  ".join(f"{r.limit_variance:.4f}" for r in found.limit.rows[:3])
            print(f"{'':15} limit {variances}, z of the module {z:.2f}", flush=True)
        elif limit:
            print(f"{'':15} no limit: {found.refused.splitlines()[0] if found.refused else ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--widths", default="64,256")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--limit", action="store_true", help="the limit too, which may take minutes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = models()
    for name in options.names or known:
        row(name, *known[name], [int(width) for width in options.widths.split(",")], options.samples, options.limit)


if __name__ == "__main__":
    main()
