"""Imports that do not agree with their modules are refused; all modules of `test_from_torch` agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: modules are not imported")

import tensorprog as tp  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.tensor([[3, 1, 4]])
Act = Callable[[Any, Any, Any, Any], Any]


class Heads(nn.Module):  # type: ignore[misc]
    """Queries, keys and values of three tokens, and what is made of them."""

    def __init__(self, n: int, act: Act) -> None:
        super().__init__()
        self.n, self.act = n, act
        self.emb, self.mix = nn.Embedding(10, n), nn.Linear(3, 1, bias=False)
        self.q, self.k, self.v = (nn.Linear(n, n, bias=False) for _ in range(3))
        for layer in (self.q, self.k, self.v):
            nn.init.normal_(layer.weight, std=n**-0.5)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        return self.act(self, self.q(x), self.k(x), self.v(x))


def imported(act: Act, **options: Any) -> Any:
    return tp.from_torch(lambda n: Heads(n, act), IDS, **options)


def attention(net: Any, q: Any, k: Any, v: Any, seen: int = 3) -> Any:
    scores = q @ k.transpose(1, 2) * net.n**-0.5
    return scores.softmax(-1)[..., :seen] @ v[:, :seen]


def linear(net: Any, q: Any, k: Any, v: Any) -> Any:
    return q @ (k.transpose(1, 2) @ v) * net.n**-0.5


WRONG: dict[str, tuple[Act, str]] = {
    "weights cut behind the softmax": (lambda *a: attention(*a, seen=2), "variance"),
    "keys and values first": (linear, "kurtosis|variance"),
    "by einsum": (
        lambda net, q, k, v: torch.einsum("bia,bac->bic", q, torch.einsum("bja,bjc->bac", k, v)) * net.n**-0.5,
        "kurtosis|variance",
    ),
    "by bmm": (lambda net, q, k, v: torch.bmm(q, torch.bmm(k.mT, v)) * net.n**-0.5, "kurtosis|variance"),
    "a matrix": (lambda net, q, k, v: (k.transpose(1, 2) @ v).flatten(1), "number of coordinates"),
    "uniform numbers": (lambda net, q, k, v: net.mix(v.transpose(1, 2)), "kurtosis|variance"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_import_that_does_not_agree_is_refused(name: str) -> None:
    act, what = WRONG[name]
    with pytest.raises(tp.ProgramError, match=rf"does not agree with the module: at width \d+ the .*({what})"):
        imported(act)
    assert imported(act, check=False).netsor.outputs


def test_random_numbers_of_torch_go_on_as_they_were() -> None:
    torch.manual_seed(5)
    program = imported(attention, check=False)
    first = torch.rand(3)
    torch.manual_seed(5)
    assert program == imported(attention)
    assert torch.equal(first, torch.rand(3))


def test_a_comparison_that_cannot_be_made_is_told() -> None:
    def seeded(n: int) -> Any:
        torch.manual_seed(0)
        return Heads(n, attention)

    program = tp.from_torch(seeded, IDS)
    assert "not compared" in str(program.imported) and "the same numbers each time" in str(program.imported)
