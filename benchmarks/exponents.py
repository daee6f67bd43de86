"""What a step of training moves in modules of torch, at four widths, beside the powers that `tp.exponents` counts.

    python benchmarks/exponents.py            # needs torch, and transformers for GPT-2

For each module and its learning rates: slopes of the logarithms of mean absolute changes in one step, of the output and
of one or two tensors within, at widths 64 to 512.  Adam's first step is the sign of the gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import numpy as np
import torch
from torch import nn

import tensorprog as tp

WIDTHS, IDS, TARGETS = (64, 128, 256, 512), torch.tensor([[3, 1, 4]]), torch.tensor([1.0, -1.0, 0.5])

NETWORKS = 24


class Perceptron(nn.Module):
    """Two hidden layers of tanh and a readout of variance 1/n**power."""

    def __init__(self, n: int, power: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Embedding(9, n), nn.Linear(n, n, False), nn.Linear(n, 1, False)
        nn.init.normal_(self.fc2.weight, std=n**-0.5)
        nn.init.normal_(self.fc3.weight, std=n ** (-power / 2))

    def forward(self, ids: Any) -> Any:
        self.seen = {"h1": self.fc1(ids)}
        self.seen["h2"] = self.fc2(torch.tanh(self.seen["h1"]))
        return self.fc3(torch.tanh(self.seen["h2"]))


class Attention(nn.Module):
    """One head behind a layer, scores divided by n**scale, and a readout of variance 1/n**power."""

    def __init__(self, n: int, scale: float, power: int) -> None:
        super().__init__()
        self.table, self.scale, self.n = nn.Embedding(9, n), scale, n
        self.first, self.q, self.k, self.v = (nn.Linear(n, n, False) for _ in range(4))
        self.readout = nn.Linear(n, 1, False)
        for layer in (self.first, self.q, self.k, self.v):
            nn.init.normal_(layer.weight, std=n**-0.5)
        nn.init.normal_(self.readout.weight, std=n ** (-power / 2))

    def forward(self, ids: Any) -> Any:
        x = torch.tanh(self.first(self.table(ids)))
        self.seen = {"queries": self.q(x)}
        self.seen["scores"] = self.seen["queries"] @ self.k(x).transpose(-1, -2) / self.n**self.scale
        return self.readout(torch.tanh(x + torch.softmax(self.seen["scores"], -1) @ self.v(x)))


class GPT2(nn.Module):
    """Two layers of GPT-2 with variances 1/n, and a readout of variance 1/n**power."""

    measured = False  # attention is looked at

    def __init__(self, n: int, power: int) -> None:
        import transformers

        super().__init__()
        sizes: dict[str, Any] = {"n_embd": n, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": 50}
        kind = "eager" if self.measured else "sdpa"
        told = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False, "attn_implementation": kind}
        self.model = transformers.GPT2Model(transformers.GPT2Config(**sizes, **told)).eval()
        self.readout = nn.Linear(n, 1, False)
        nn.init.normal_(self.readout.weight, std=n ** (-power / 2))
        for name, p in self.model.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.7 if name.startswith("w") else p.shape[0] ** -0.5)

    def forward(self, ids: Any) -> Any:
        found = self.model(ids, output_attentions=self.measured)
        if self.measured:
            self.seen = {"log attention": found.attentions[1][:, :, -1].log()}
        return self.readout(found.last_hidden_state)


MUP_SGD = {"*": 0.3, "table*": "0.3*n", "fc1*": "0.3*n", "readout*": "0.3/n", "fc3*": "0.3/n"}
MUP_ADAM = {"*": "0.5/n", "table*": 0.02, "fc1*": 0.02, "*wte*": 0.02, "*wpe*": 0.02}
CASES: dict[str, tuple[Callable[[int], Any], str, dict[str, Any]]] = {
    "perceptron, muP": (lambda n: Perceptron(n, 2), "sgd", MUP_SGD),
    "perceptron, standard, rates 1/n": (lambda n: Perceptron(n, 1), "sgd", {"*": "0.5/n"}),
    "perceptron, standard, rates 1": (lambda n: Perceptron(n, 1), "sgd", {"*": 0.1}),
    "attention n**-1/2, tangent kernel": (lambda n: Attention(n, 0.5, 1), "sgd", {"*": "0.5/n", "table*": 0.5}),
    "attention n**-1/2, muP": (lambda n: Attention(n, 0.5, 2), "sgd", MUP_SGD),
    "attention n**-1/2, muP, Adam": (lambda n: Attention(n, 0.5, 2), "adam", MUP_ADAM),
    "attention 1/n, muP, Adam": (lambda n: Attention(n, 1.0, 2), "adam", MUP_ADAM),
    "GPT-2, rates of muP, Adam": (lambda n: GPT2(n, 1), "adam", MUP_ADAM),
    "GPT-2, rates and readout of muP, Adam": (lambda n: GPT2(n, 2), "adam", MUP_ADAM),
}


def moved(make: Callable[[int], Any], n: int, optimizer: str, rates: dict[str, Any]) -> dict[str, float]:
    """Mean absolute changes in one step."""
    module = make(n).double()

    def look() -> dict[str, Any]:
        f = module(IDS).reshape(-1)
        return {"f": f, **module.seen}

    before = look()
    (((before["f"] - TARGETS) ** 2).sum() / 2).backward()
    with torch.no_grad():
        for name, p in module.named_parameters():
            rate = [value for pattern, value in rates.items() if fnmatch(name, pattern)][-1]
            p -= eval(str(rate), {"n": n}) * (p.grad.sign() if optimizer == "adam" else p.grad)
        return {name: float((now - before[name]).abs().mean()) for name, now in look().items()}


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    for case, (make, optimizer, rates) in CASES.items():
        try:
            names = [name for name, _ in make(8).named_parameters()]
        except ImportError:
            print(f"{case}: transformers is not installed")
            continue
        rates = {pattern: rate for pattern, rate in rates.items() if any(fnmatch(name, pattern) for name in names)}
        GPT2.measured = True
        sizes = [[moved(make, n, optimizer, rates) for _ in range(NETWORKS)] for n in WIDTHS]
        GPT2.measured = False
        told = []
        for name in sizes[0][0]:
            means = [np.mean([each[name] for each in nets]) for nets in sizes]
            told.append(f"{name} {np.polyfit(np.log(WIDTHS), np.log(means), 1)[0]:.2f}")
        counted = "powers are those of attention"
        if "GPT-2" not in case:
            found = tp.exponents(tp.from_torch(make, IDS, check=False), rates=rates, optimizer=optimizer)
            powers = {name: steps[0] for name, steps in found.moves.items() if "score" in name or name == "the output"}
            counted = f"{found.verdict}, counted {powers}"
        print(f"{case}: {counted}, measured {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
