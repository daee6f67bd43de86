"""`tp.train` of torch modules: networks that torch itself has trained have the same losses, outputs and sizes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tensorprog as tp

torch = pytest.importorskip("torch")
INPUTS = np.array([[0.6, -0.2], [0.1, 0.9], [-0.4, 0.3]])


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two hidden layers, with factors in front of weights where `scaled`; else the first is torch's own."""

    def __init__(self, n: int, scaled: bool) -> None:
        super().__init__()
        self.n, self.scaled = n, scaled
        self.first, self.hidden = torch.nn.Linear(2, n, bias=not scaled), torch.nn.Linear(n, n, bias=False)
        self.readout = torch.nn.Linear(n, 1, bias=not scaled)
        if scaled:
            torch.nn.init.normal_(self.first.weight, std=2.0)
        torch.nn.init.normal_(self.hidden.weight, std=1.2 * (1 if scaled else n**-0.5))
        torch.nn.init.normal_(self.readout.weight, std=1 if scaled else n**-0.5)
        if self.readout.bias is not None:
            torch.nn.init.zeros_(self.readout.bias)

    def forward(self, x: Any) -> Any:
        """One number for each input."""
        one, two, three = (0.5, self.n**-0.5, 1 / self.n) if self.scaled else (1, 1, 1)
        z = torch.tanh(self.first(x) * one)
        return self.readout(torch.tanh(self.hidden(z) * two)) * three


def by_torch(n: int, networks: int, scaled: bool, rates: dict[str, float], decay: float) -> np.ndarray:
    """Loss and outputs after two steps of torch's SGD, over networks."""
    inputs, targets, found = torch.tensor(INPUTS, dtype=torch.float32), torch.tensor([1.0, -1.0, 0.0]), []
    for seed in range(networks):
        torch.manual_seed(seed)
        net = Net(n, scaled)
        groups = [{"params": [p], "lr": rates.get(name, 0.0)} for name, p in net.named_parameters()]
        optimiser = torch.optim.SGD(groups, lr=0.0, weight_decay=decay)
        for step in range(3):
            f = net(inputs)[:, 0]
            loss = ((f - targets)[:2] ** 2).mean() / 2
            if step < 2:
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        found.append([loss.item(), *f.tolist()])
    return np.array(found)


@pytest.mark.parametrize(("scaled", "decay"), [(True, 0.0), (False, 0.0), (False, 1.5)])
def test_networks_are_those_of_torch(scaled: bool, decay: float) -> None:
    n, count = 16, 250
    P = tp.from_torch(lambda n: Net(n, scaled), torch.tensor(INPUTS, dtype=torch.float32))
    lr: dict[str, Any] = {"first.weight": "0.5*n", "hidden.weight": "0.7*n", "readout.weight": "0.5*n"}
    if not scaled:
        lr = {"first.*": 0.2, "*d*.weight": 0.3}  # the readout has the pattern of the hidden layer
    found = tp.train(P, [1, -1, np.nan], 2, widths=[n], samples=4 * count, rates=lr, decay=decay)
    rates = (
        {name: eval(str(rate), {"n": n}) for name, rate in lr.items()}
        if scaled
        else {"first.weight": 0.2, "first.bias": 0.2}
    )
    rates |= {} if scaled else dict.fromkeys(("hidden.weight", "readout.weight"), 0.3)
    theirs = by_torch(n, count, scaled, rates, decay)
    ours = [found.loss_finite.values[0, 2], *found.y_finite.values[0, 2]]
    spread = [found.loss_finite_se.values[0, 2], *found.y_finite_se.values[0, 2]]
    assert (np.abs(ours - theirs.mean(0)) < 4.9 * np.hypot(spread, theirs.std(0) / count**0.5)).all()
    assert ("no_limit" in found.attrs) == (not scaled)
    assert ("readout.bias stay" in " ".join(json.loads(found.attrs["remarks"]))) == (not scaled)
    if not scaled:
        with pytest.raises(tp.ProgramError, match=r"readout.bias has a rate, 0.3, and does not move"):
            tp.train(P, [1, -1, np.nan], 2, rates={"readout.*": 0.3})
    with pytest.raises(tp.ProgramError, match="from_torch"):
        tp.train(Net, [1, -1, np.nan])
    with pytest.raises(tp.ProgramError, match="no parameter of the module"):
        tp.train(P, [1, -1, np.nan], 2, rates={"last.weight": 1})
