"""Steps of training by torch itself beside `tp.train` of the imported module: outputs, losses, sizes of activations.

    python benchmarks/training.py            # five modules, at three widths
    python benchmarks/training.py mlp rnn    # some of them

Needs torch.  Losses, outputs and mean absolute values of activations at each step are averaged over seeds and
extrapolated by a line in 1/n; z counts standard errors of both, the largest of all quantities is shown.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import nn

import tensorprog as tp

WIDTHS = {256: 160, 1024: 48, 4096: 8}  # and seeds
D = 4  # entries of an input


class Net(nn.Module):
    """Weights in the maximal update parametrisation; `seen` has activations by their names in the program."""

    def __init__(self, n: int, hidden: int) -> None:
        super().__init__()
        self.n, self.seen = n, dict[str, list[Any]]()
        self.first, self.readout = nn.Linear(D, n, bias=False), nn.Linear(n, 1, bias=False)
        self.hidden = nn.ModuleList([nn.Linear(n, n, bias=False) for _ in range(hidden)])
        nn.init.normal_(self.first.weight, std=D**-0.5)
        nn.init.normal_(self.readout.weight, std=1 / n)
        for layer in self.hidden:
            nn.init.normal_(layer.weight, std=1.2 * n**-0.5)

    def see(self, name: str, value: Any) -> Any:
        """Keep an activation."""
        if not torch.compiler.is_exporting():
            self.seen.setdefault(name, []).append(value.detach())
        return value


class MLP(Net):
    """Two hidden layers."""

    def __init__(self, n: int) -> None:
        super().__init__(n, 1)

    def forward(self, x: Any) -> Any:
        """One number for each input."""
        z = self.see("tanh_out", torch.tanh(self.see("first", self.first(x))))
        z = self.see("tanh_out2", torch.tanh(self.see("hidden0", self.hidden[0](z))))
        return self.readout(z)


class Deep(Net):
    """Three hidden layers."""

    def __init__(self, n: int) -> None:
        super().__init__(n, 2)

    def forward(self, x: Any) -> Any:
        """One number for each input."""
        u = self.see("hidden0", self.first(x))
        for layer in self.hidden:
            u = self.see("hidden0", layer(self.see("tanh_out", torch.tanh(u))))
        return self.readout(self.see("tanh_out2", torch.tanh(u)))


class Residual(Net):
    """A layer added to what it reads."""

    def __init__(self, n: int) -> None:
        super().__init__(n, 1)

    def forward(self, x: Any) -> Any:
        """One number for each input."""
        z = self.see("x", torch.tanh(self.see("first", self.first(x))))
        return self.readout(self.see("x2", z + torch.tanh(self.see("hidden0", self.hidden[0](z)))))


class Recurrent(Net):
    """Three words, one after the other."""

    def __init__(self, n: int) -> None:
        super().__init__(n, 1)

    def forward(self, x: Any) -> Any:
        """One number for each sentence."""
        u = self.see("first", self.first(x))
        s = self.see("tanh_out", torch.tanh(u[:, 0]))
        s = self.see("tanh_out2", torch.tanh(self.hidden[0](s) + u[:, 1]))
        return self.readout(self.see("tanh_out3", torch.tanh(self.hidden[0](s) + u[:, 2])))


class Attention(Net):
    """Attention with scores q.k/n, a skip connection, and the mean over tokens."""

    def __init__(self, n: int) -> None:
        super().__init__(n, 3)

    def forward(self, x: Any) -> Any:
        """One number for each sentence."""
        z = self.see("x", torch.tanh(self.see("first", self.first(x))))
        q, k, v = (layer(z) for layer in self.hidden)
        p = torch.softmax(q @ k.transpose(-1, -2) / self.n, dim=-1)
        return self.readout(self.see("h", torch.tanh(z + p @ v).mean(dim=-2)))


DRAWN = np.random.default_rng(0)
INPUTS, SENTENCES = DRAWN.standard_normal((3, D)), DRAWN.standard_normal((2, 3, D))
CASES: dict[str, tuple[Any, Any, list[float], int, tuple[int, ...]]] = {  # inputs, targets, steps, widths
    "mlp": (MLP, INPUTS, [1, -1, np.nan], 4, (256, 1024, 4096)),
    "deep": (Deep, INPUTS, [1, -1, np.nan], 4, (256, 1024, 4096)),
    "residual": (Residual, INPUTS, [1, -1, np.nan], 4, (256, 1024, 4096)),
    "recurrent": (Recurrent, SENTENCES, [1, -1], 2, (256, 1024)),
    "attention": (Attention, SENTENCES, [1, -1], 2, (256, 1024)),
}


def descent(net: Net, inputs: Any, targets: Any, steps: int) -> list[dict[str, Any]]:
    """Loss, outputs and sizes at every step, by torch's own SGD: rates n/D, 1 and 1/n, which are 1 for `tp.train`."""
    rates = {"first.weight": net.n / D, "readout.weight": 1 / net.n}
    groups = [{"params": [p], "lr": rates.get(name, 1.0)} for name, p in net.named_parameters()]
    optimiser, learned, found = torch.optim.SGD(groups), ~torch.isnan(targets), list[dict[str, Any]]()
    for _ in range(steps + 1):
        net.seen.clear()
        optimiser.zero_grad()
        f = net(inputs)[:, 0]
        loss = ((f - targets)[learned] ** 2).mean() / 2
        sizes = {name: torch.cat([v.flatten() for v in values]).abs().mean() for name, values in net.seen.items()}
        found.append({"loss": loss.item(), "y": f.tolist(), "size": [v.item() for v in sizes.values()]})
        loss.backward()
        optimiser.step()
    return found


def beside(name: str) -> None:
    """One module: torch at each width, extrapolated, beside the limit."""
    make, given, wanted, steps, widths = CASES[name]
    inputs, targets = (torch.tensor(values, dtype=torch.float32) for values in (given, wanted))
    start = time.perf_counter()
    P = tp.from_torch(make, inputs)
    imported = time.perf_counter() - start
    limit = tp.train(P, wanted, steps, widths=(), rates={"first.weight": f"n/{D}", "readout.weight": "1/n"})
    took, start = time.perf_counter() - start - imported, time.perf_counter()
    means: dict[str, list[Any]] = {"loss": [], "y": [], "size": []}
    for n in widths:
        runs = []
        for seed in range(WIDTHS[n]):
            torch.manual_seed(seed + n)
            net = make(n)
            runs.append(descent(net, inputs, targets, steps))
        for what, rows in means.items():
            values = np.array([[step[what] for step in run] for run in runs])
            rows.append((values.mean(0), values.std(0, ddof=1) / len(runs) ** 0.5))
    families = list(net.seen)
    known = {"loss": limit.loss, "y": limit.y, "size": limit["size"].sel(family=families)}
    errors = {"loss": limit.loss_error, "y": limit.y_error, "size": limit.size_error.sel(family=families)}
    print(f"{name}: import {imported:.0f} s, limit {took:.0f} s, torch {time.perf_counter() - start:.0f} s", flush=True)
    for what, rows in means.items():
        value, spread = extrapolated(np.array(widths), *(np.array(part) for part in zip(*rows, strict=True)))
        z = (value - known[what].values) / np.hypot(spread, errors[what].values + 1e-9)
        pairs = zip(np.ravel(value[-1]), np.ravel(spread[-1]), strict=True)
        last = ", ".join(f"{a:.4f}({1e4 * b:.0f})" for a, b in pairs)
        ours = ", ".join(f"{a:.4f}" for a in np.ravel(known[what].values[-1]))
        print(f"  {what:5} largest |z| of {z.size}: {np.abs(z).max():.2f}; after {steps} steps {last}; limit {ours}")


def extrapolated(widths: Any, values: Any, spread: Any) -> tuple[Any, Any]:
    """The constant of the line a + b/n through means with standard errors, and its standard error."""
    shape = values.shape[1:]
    values, spread = values.reshape(len(widths), -1), spread.reshape(len(widths), -1)
    found = []
    for mean, error in zip(values.T, spread.T, strict=True):
        design = np.stack([np.ones(len(widths)), 1 / widths], 1) / np.maximum(error, 1e-12)[:, None]
        inverse = np.linalg.pinv(design)
        found.append((inverse[0] @ (mean / np.maximum(error, 1e-12)), np.linalg.norm(inverse[0])))
    return tuple(np.array(part).reshape(shape) for part in zip(*found, strict=True))  # type: ignore[return-value]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="modules; all of them if none is named")
    torch.set_num_threads(1)
    for case in parser.parse_args().cases or CASES:
        beside(case)
