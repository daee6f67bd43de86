"""Modules that look like others and are not: aliases, copies that were changed, numbers that change with the width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: modules are not imported")

import tensorprog as tp  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")
INPUT = torch.as_tensor(np.random.default_rng(0).normal(size=(1, 3, 5)), dtype=torch.float32)


class Two(nn.Module):  # type: ignore[misc]
    """Layers to be changed, under a forward pass that is given."""

    def __init__(self, n: int, act: Callable[[Any, Any], Any], change: Callable[[Any, int], Any] | None = None) -> None:
        super().__init__()
        self.act = act
        self.one, self.a, self.b = nn.Linear(5, n), nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False)
        if change is not None:
            change(self, n)

    def forward(self, x: Any) -> Any:
        return self.act(self, x)


def viewed(net: Any, x: Any) -> Any:
    y = net.one(x)
    v = y.view(1, 3, -1)
    y.mul_(3.0)
    return torch.relu(v)


def detached(net: Any, x: Any) -> Any:
    y = net.one(x)
    d = nn.functional.dropout(y, 0.1, training=False)[:, 0]
    y.relu_()
    return y[:, 1] + d


def masked(net: Any, x: Any) -> Any:
    h = net.one(x)
    near = (torch.arange(3)[:, None] - torch.arange(3)).abs() <= h.shape[-1] // 100
    score = (net.a(h) @ h.transpose(1, 2) / h.shape[-1]).masked_fill(~near, -torch.inf)
    return score.softmax(-1) @ h


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (masked, "a mask changes with the width"),
        (lambda net, x: torch.tanh(net.one(x)[:, net.a.in_features // 64 - 1]), "entries are read changes"),
        (lambda net, x: net.one(x) * (96.0 - net.a.in_features), "32 and -32"),
        (
            lambda net, x: nn.functional.leaky_relu(net.one(x), net.a.in_features**-0.5),
            "it is given 0.125 at one width",
        ),
        (lambda net, x: net.one(nn.functional.dropout(x, 0.5)), "dropout in training mode"),
        (lambda net, x: net.one(x + torch.empty(5).uniform_()), "random numbers are drawn in the forward pass"),
    ],
)
def test_what_would_be_wrong_is_refused(act: Callable[[Any, Any], Any], why: str) -> None:
    with pytest.raises(tp.ProgramError, match=why):
        tp.from_torch(lambda n: Two(n, act), INPUT, at=64, check=False)


def both(net: Any, x: Any) -> Any:
    h = torch.relu(net.one(x))
    return net.a(h) + torch.tanh(net.b(h))


def negated(net: Any, _: int) -> None:
    net.b.weight.data = -net.a.weight.data.clone()


def transposed(net: Any, _: int) -> None:
    net.b.weight.data = net.a.weight.data.t().clone()


def bent(net: Any, _: int) -> None:
    net.b.weight = nn.Parameter(torch.tanh(net.a.weight.data))


def parts(net: Any, n: int) -> None:
    both = torch.randn(2 * n, n) / n**0.5
    net.a.weight, net.b.weight = nn.Parameter(both[:n].clone()), nn.Parameter(both[n:].clone())


@pytest.mark.parametrize("change", [negated, transposed, bent, parts])
def test_parameters_that_are_made_of_each_other_are_not_taken_for_copies(change: Callable[[Any, int], None]) -> None:
    with pytest.raises(tp.ProgramError, match="made of the same random numbers"):
        tp.from_torch(lambda n: Two(n, both, change), INPUT, check=False)


def test_laws_that_are_drawn_and_means_that_change_are_refused() -> None:
    def louder(net: Any, _: int) -> None:
        net.a.weight.data.mul_(torch.rand(()))

    def lifted(net: Any, n: int) -> None:
        nn.init.normal_(net.one.bias, mean=n**-0.5)

    with pytest.raises(tp.ProgramError, match=r"a\.weight is drawn from another law each time"):
        tp.from_torch(lambda n: Two(n, both, louder), INPUT)
    with pytest.raises(tp.ProgramError, match=r"the mean of one\.bias changes with the width"):
        tp.from_torch(lambda n: Two(n, both, lifted), INPUT)


def test_a_seed_inside_of_make_is_seen() -> None:
    def make(n: int) -> Any:
        torch.manual_seed(0)
        return Two(n, both)

    program = tp.from_torch(make, INPUT, at=64, check=False)
    with pytest.raises(tp.ProgramError, match="the same numbers each time"):
        tp.compare_torch(program, make, INPUT, width=64, samples=10, limit=False)


def again(net: Any, x: Any) -> Any:
    return net.a(torch.relu(net.a(torch.relu(net.a(net.one(x.mul_(1.5)))))))


def single(net: Any, x: Any) -> Any:
    return torch.relu(net.one(x).amax(0)) * torch.exp(net.one(x)[0, :1].log_softmax(0))


def spread(net: Any, x: Any) -> Any:
    h = net.a(torch.relu(net.one(x)))
    h = h.view(1, 3, -1).relu_()
    return (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)


def half(net: Any, x: Any) -> Any:
    return net.one(x.bfloat16())


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("act", [viewed, again, single, spread, half])
def test_modules_agree_with_their_programs(act: Callable[[Any, Any], Any]) -> None:
    def make(n: int) -> Any:
        return Two(n, act).bfloat16() if act is half else Two(n, act)

    assert "not compared" not in str(tp.from_torch(make, INPUT, at=64).imported)


def test_dropout_that_is_off_hands_on_the_tensor_itself() -> None:
    """torch.export takes it for a copy, so that a change in place behind it is lost."""
    with pytest.raises(tp.ProgramError, match="does not agree with the module"):
        tp.from_torch(lambda n: Two(n, detached), INPUT, at=64)


def test_the_limit_of_a_variance_between_fans_is_exact() -> None:
    def make(n: int) -> Any:
        made = nn.Sequential(nn.Linear(5, n), nn.Linear(n, 20, bias=False))
        nn.init.xavier_normal_(made[1].weight)
        return made

    (weight,) = tp.from_torch(make, INPUT, check=False).netsor.weights
    assert float(str(weight.variance)) == pytest.approx(2.0, rel=1e-9)  # n * 2 / (n + 20)
