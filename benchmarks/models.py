"""Real models at random initialisation as programs: time, grade, length, and the module beside the program.

    python benchmarks/models.py                        # all, widths 64 and 256, 2,000 networks
    python benchmarks/models.py gpt2 vit --samples 500 --widths 64 --limit

Each width has an import of its own, with variances as they are there (`at=`).  Seconds are those of the processor, of
an import without its own comparison with the module, and with it.  Needs benchmarks/models.txt beside the package.  z
is the largest deviation of a variance of an output, module against program, in standard errors; p the smallest p-value
of Kolmogorov and Smirnov, and how many variables it is the smallest of.
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


class SetAttention(nn.Module):
    """A block of attention between sets, as the Set Transformer has it."""

    def __init__(self, n: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(n, n) for _ in range(4))
        self.first, self.last = nn.LayerNorm(n), nn.LayerNorm(n)

    def forward(self, x: Any) -> Any:
        n = x.shape[-1]
        q, k, v = (torch.cat(layer(x).split(n // self.heads, 2), 0) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(q.bmm(k.transpose(1, 2)) / n**0.5, 2)
        x = self.first(torch.cat((q + weights.bmm(v)).split(x.shape[0], 0), 2))
        return self.last(x + torch.relu(self.out(x)))


class LatentAttention(nn.Module):
    """Latent attention of DeepSeek: low ranks, rotary positions by complex numbers in part, a cache that is filled."""

    def __init__(self, n: int, heads: int) -> None:
        super().__init__()
        self.n, self.heads = n, heads
        self.down, self.up = nn.Linear(n, n // 2, bias=False), nn.Linear(n // 2, heads * 3 * n // 4, bias=False)
        self.down_kv, self.up_kv = nn.Linear(n, 3 * n // 4, bias=False), nn.Linear(n // 2, heads * n, bias=False)
        self.norm, self.norm_kv = nn.RMSNorm(n // 2), nn.RMSNorm(n // 2)
        self.out = nn.Linear(heads * n // 2, n, bias=False)
        angles = torch.outer(torch.arange(4.0), 1e4 ** -(torch.arange(n // 8) * 8 / n))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def turned(self, x: Any) -> Any:
        made = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * self.turns[: x.shape[1], None]
        return torch.view_as_real(made).flatten(3)

    def forward(self, x: Any) -> Any:
        (batch, size, n), heads = x.shape, self.heads
        q = self.up(self.norm(self.down(x))).view(batch, size, heads, -1).split([n // 2, n // 4], -1)
        kv, k_turned = self.down_kv(x).split([n // 2, n // 4], -1)
        k, v = self.up_kv(self.norm_kv(kv)).view(batch, size, heads, n).split([n // 2, n // 2], -1)
        k = torch.cat([k, self.turned(k_turned.unsqueeze(2)).expand(-1, -1, heads, -1)], -1)
        cache = torch.zeros(batch, size + 1, heads, 3 * n // 4)
        cache[:, :size] = k
        scores = torch.einsum("bshd,bthd->bsht", torch.cat([q[0], self.turned(q[1])], -1), cache[:, :size])
        scores = scores * (3 * n // 4) ** -0.5 + torch.full((size, size), -torch.inf).triu(1).unsqueeze(1)
        return self.out(torch.einsum("bsht,bthd->bshd", scores.softmax(-1), v).flatten(2))


class Masked(nn.Module):
    """nn.TransformerEncoder with a mask."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(n, 4, 4 * n, batch_first=True), 2)

    def forward(self, x: Any) -> Any:
        return self.layers(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


class PreActivation(nn.Module):
    """A residual block of images whose norms stand before its convolutions, and a readout."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, n, 3, padding=1, bias=False), nn.Linear(2 * n, 10)
        self.norms = nn.ModuleList([nn.BatchNorm2d(n), nn.BatchNorm2d(2 * n)])
        self.one, self.other = nn.Conv2d(n, 2 * n, 3, 2, 1, bias=False), nn.Conv2d(2 * n, 2 * n, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(n, 2 * n, 1, 2, bias=False)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norms[0](self.into(x)))
        x = self.other(torch.relu(self.norms[1](self.one(x)))) + self.shortcut(x)
        return self.out(nn.functional.avg_pool2d(x, x.shape[-1]).flatten(1))


class Graph(nn.Module):
    """Layers that average over neighbours in a graph."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(5, n), nn.Linear(n, n), nn.Linear(n, 4)])

    def forward(self, x: Any, neighbours: Any) -> Any:
        for k, layer in enumerate(self.layers):
            x = neighbours @ layer(torch.relu(x) if k else x)
        return x.log_softmax(-1)


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
    short = {key: value for key, value in wide.items() if key != "intermediate_size"}
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
        "clip": (transformers_model("CLIPVision", **wide, image_size=16, patch_size=8), image),
        "dinov2": (transformers_model("Dinov2", **short, image_size=16, patch_size=8), image),
        "gemma2": (transformers_model("Gemma2", **grouped, head_dim=lambda n: n // 4), IDS),
        "gptneox": (transformers_model("GPTNeoX", **wide, **SMALL), IDS),
        "set attention": (lambda n: Layer(n, lambda n: SetAttention(n, 4)), x),
        "latent attention": (lambda n: Layer(n, lambda n: LatentAttention(n, 2)), x),
        "masked encoder": (lambda n: Layer(n, Masked), x),
        "pre-activation": (PreActivation, image),
        "graph": (Graph, (x[0], torch.tensor([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]) / 3)),
    }


def row(name: str, make: Callable[[int], Any], inputs: Any, widths: Sequence[int], samples: int, limit: bool) -> None:
    for width in widths:
        took: list[float] = []
        try:
            for check in (False, False, True):  # the first also loads what is needed
                began = time.process_time()
                program = tp.from_torch(make, inputs, at=width, check=check)
                took.append(time.process_time() - began)
        except tp.ProgramError as refused:
            print(f"{name:15} refused: {str(refused).splitlines()[0]}", flush=True)
            return
        began = time.process_time()
        grade = tp.Program.from_netsor(program.netsor).check().grade  # the import has judged its own
        checked, began = time.process_time() - began, time.process_time()
        found = tp.compare_torch(program, make, inputs, width, samples, limit=limit)
        drawn = time.process_time() - began
        notes = [note for note in program.imported.notes if "not compared" in note]
        lines = len(program.imported.text.splitlines())
        z, p = max(abs(r.z_variance) for r in found.rows), min(r.ks_p for r in found.rows)
        variances = "  ".join(f"{r.variance:.4f}|{r.limit_variance:.4f}" for r in found.rows[:3])
        print(
            f"{name:15} n={width:<4} import {took[1]:4.1f} s, compared {took[2]:4.1f} s  {grade:9} {checked:4.1f} s  "
            f"{lines:3} lines  z {z:4.2f}  p {p:.3f} of {len(found.rows)}  variance module|program {variances}  "
            f"({drawn:.0f} s)",
            flush=True,
        )
        for note in notes:
            print(f"{'':15} {note}", flush=True)
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
