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
        self.latents, self.zero = nn.Parameter(torch.randn(2, n)), nn.Linear(n, 2 * n, bias=False)
        nn.init.zeros_(self.zero.weight)
        self.tokens, self.near = nn.Conv1d(3, 3, 1), nn.Conv1d(n, n, 3, padding=2, groups=n)
        self.none, self.bias = nn.Conv1d(n, n, 3, padding=1), nn.Parameter(torch.randn(5, 1))
        for numbers in self.none.parameters():
            nn.init.zeros_(numbers)
        for layer in (self.q, self.k, self.v):
            nn.init.normal_(layer.weight, std=n**-0.5)
        for numbers in self.tokens.parameters():
            nn.init.normal_(numbers)

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


def outer(k: Any, v: Any) -> Any:
    return k[..., :, None] * v[..., None, :]


TWO = "makes a matrix of two widths"
WRONG: dict[str, tuple[Act, str]] = {
    "a matrix": (lambda net, q, k, v: (k.transpose(1, 2) @ v).flatten(1), TWO),
    "a function of a matrix": (lambda net, q, k, v: q @ torch.tanh(k.transpose(1, 2) @ v), TWO),
    "a diagonal": (lambda net, q, k, v: torch.diagonal(outer(k, v), dim1=-2, dim2=-1), "cannot be imported"),
    "uniform numbers": (lambda net, q, k, v: net.mix(v.transpose(1, 2)), r"share the numbers mix\.weight"),
    "0 / 0": (lambda net, q, k, v: torch.tanh(v / v.mean(-1, keepdim=True) / net.n**0.5), "average that may be 0"),
    "0 / 0 in a sum": (lambda net, q, k, v: k + v / v.mean(-1, keepdim=True) / net.n**0.5, "average that may be 0"),
    "a picked coordinate": (lambda net, q, k, v: v[..., [2, 0]], "coordinates of a vector are picked"),
    "picked by numbers": (lambda net, q, k, v: v[v > 0], "decide how many entries are read"),
    "hidden by numbers": (
        lambda net, q, k, v: (q @ k.transpose(1, 2) * net.n**-0.5).masked_fill(
            scores(net, q, k, 0.0) < 0.1, -torch.inf
        ),
        "what is minus infinity",
    ),
    "beside infinity": (lambda net, q, k, v: q * (v > -torch.inf), "compared with infinity"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_language_does_not_say_is_refused(name: str) -> None:
    act, why = WRONG[name]
    with pytest.raises(tp.ProgramError, match=why):
        imported(act, check=False)


def scores(net: Any, q: Any, k: Any, more: Any) -> Any:
    return (q @ k.transpose(1, 2) * net.n**-0.5 + more).softmax(-1)


def triangle(net: Any, q: Any, k: Any, v: Any) -> Any:
    return scores(net, q, k, torch.triu(torch.full((3, 3), -torch.inf).type_as(v), 1)) @ v


def sinks(net: Any, q: Any, k: Any, v: Any) -> Any:
    score = q @ k.transpose(1, 2) * net.n**-0.5
    return torch.cat([score, torch.zeros(1, 3, 1)], -1).softmax(-1)[..., :-1] @ v


def columns(net: Any, q: Any, k: Any, v: Any) -> Any:
    score = q @ k.transpose(1, 2) * net.n**-0.5
    weights = torch.stack([score[..., 0], score[..., 1]], -1).softmax(-1)
    return weights[..., :1] * v + weights[..., 1:] * q


def written_over(net: Any, q: Any, k: Any, v: Any) -> Any:
    """A cache that is filled, and a choice that depends on fixed numbers."""
    cache = torch.zeros(1, 4, net.n)
    cache[:, 1:] = k
    cache[:, 0] = v[:, 1].tanh()
    seen = torch.ones(3, 4).tril()
    return seen @ cache if seen.any().item() else v


def turned(net: Any, q: Any, k: Any, v: Any) -> Any:
    """Rotary positions by complex numbers, on a quarter of the coordinates."""
    angles = torch.outer(torch.arange(3.0), 1e4 ** -(torch.arange(net.n // 8) * 8 / net.n))
    plain, pairs = q.split([net.n // 4 * 3, net.n // 4], -1)
    made = torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([plain, torch.view_as_real(made).flatten(2)], -1)


def positions(net: Any, q: Any, k: Any, v: Any) -> Any:
    """Sines and cosines with the last frequency at its bound, behind a layer of their own."""
    angles = torch.outer(torch.arange(3.0), 1e4 ** -(torch.arange(net.n // 2) / (net.n // 2 - 1)))
    return v + net.q(torch.cat([angles.sin(), angles.cos()], -1))


def by_twos(net: Any, q: Any, k: Any, v: Any) -> Any:
    """Rotary positions of neighbouring coordinates, and numbers of relative positions by a list of two dimensions."""
    angles = torch.outer(torch.arange(3.0), 1e4 ** -(torch.arange(0, net.n, 2) / net.n))
    cos, sin = (wave.repeat_interleave(2, -1) for wave in (angles.cos(), angles.sin()))
    q, k = (x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * sin for x in (q, k))
    return scores(net, q, k, net.bias[torch.arange(3) - torch.arange(3)[:, None] + 2, 0]) @ v


def by_channels(net: Any, q: Any, k: Any, v: Any) -> Any:
    """A convolution of each channel by itself, one of zeros, and sums of positive numbers that are divided by."""
    near, none = (layer(v.transpose(1, 2))[..., :3].transpose(1, 2) for layer in (net.near, net.none))
    return near + none + net.n * (q.softmax(-1) + k.abs() / k.abs().sum(-1, keepdim=True))


def functions(*made: Any) -> Any:
    """At most as many as are compared, of one token each."""
    return torch.cat([x[:, :1] for x in made], 1)


RIGHT: dict[str, Act] = {
    "by twos": by_twos,
    "by channels": by_channels,
    "a part of a softmax is not the softmax of a part": lambda *a: attention(*a, seen=2),
    "a triangle of another type": triangle,
    "sinks": sinks,
    "two columns": columns,
    "deviations": lambda net, q, k, v: v / (v.std(-1, keepdim=True) + 1e-6),
    "latents": lambda net, q, k, v: scores(net, net.q(net.latents), k, 0.0) @ v,
    "zeros": lambda net, q, k, v: v * (1 + net.zero(q).chunk(2, -1)[0]),
    "keys and values first": linear,
    "an outer product": lambda net, q, k, v: (
        (q[:, :1, :, None] * outer(k, v).sum(1, keepdim=True)).sum(-2) / net.n**0.5
    ),
    "three operands": lambda net, q, k, v: torch.einsum("...ja,...jc,...ia->...ic", k, v, q) * net.n**-0.5,
    "fast weights": lambda net, q, k, v: (q[..., None, :] @ outer(k, v).cumsum(1))[..., 0, :] * net.n**-0.5,
    "moved": lambda net, q, k, v: v[:, [2, 0, 0]] + q.roll(1, 1) + nn.functional.pad(k.flip(1), (0, 0, 1, -1)),
    "a layer over tokens": lambda net, q, k, v: net.tokens(v) + q,
    "parts of other sizes": lambda net, q, k, v: v.split([net.n // 4, net.n // 2, net.n // 4], -1)[1].tanh(),
    "written over": written_over,
    "complex numbers": turned,
    "positions": positions,
    "bounds": lambda net, q, k, v: functions(
        *(nn.functional.threshold(q, 0.5, 0.1), nn.functional.threshold(q, 0.3, 0.3), nn.functional.softshrink(q)),
        *(nn.functional.hardshrink(q), q.masked_fill(q < 0, 0.3), torch.where(q.abs() > 1, q, torch.ones(3, 1))),
    ),
    "choices": lambda net, q, k, v: functions(
        *(torch.where(q > k, q, v), torch.where(q >= 0, q, 0.1 * q), (~((q <= -1) | (q > 1))).float()),
        *(torch.logical_and(q > -1, k < 1) * v, (q > 0) & torch.eye(3)[0].bool()[:, None], torch.where(q > 0, 1.0, v)),
    ),
    "smooth functions": lambda net, q, k, v: functions(
        *(nn.functional.tanhshrink(q), nn.functional.softshrink(q), nn.functional.mish(q)),
    ),
    "powers and others": lambda net, q, k, v: functions(
        *(
            q.exp2(),
            (1 + q * q).log2(),
            q.erfc(),
            torch.lerp(q, k, 0.3),
            q.addcdiv(k, 1 + v * v),
        ),
    ),
    "no numbers": lambda net, q, k, v: scores(net, q, k, 0.0).nan_to_num(0.0) @ v,
}


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("name", RIGHT)
def test_what_people_write_agrees(name: str) -> None:
    assert "not compared" not in str(imported(RIGHT[name]).imported)


def of_a_part(net: Any, q: Any, k: Any, v: Any) -> Any:
    return attention(net, q, k[:, :2], v[:, :2])


# what is traced, and what stands in its place where both are compared
OTHERS: dict[str, tuple[Act, Act]] = {
    "a part of a softmax": (of_a_part, lambda *a: attention(*a, seen=2)),
    "sinks": (attention, sinks),
    "twice the variance": (attention, lambda *a: 2**0.5 * attention(*a)),
    "tails": (lambda net, q, k, v: 3**0.5 * q, linear),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_by_as_much_as_known_faults_is_refused(name: str) -> None:
    traced, other = OTHERS[name]
    with pytest.raises(tp.ProgramError, match="does not agree with the module"):
        tp.from_torch(lambda n: Heads(n, traced if n >= 64 else other), IDS)


def test_keys_and_values_first_are_scores() -> None:
    law = imported(linear, check=False).limit()
    value, error = law.kurtosis("y[0]", with_error=True)
    assert abs(value - 5.0) < 4 * error + 0.05


def test_a_head_that_begins_with_zeros_gives_zero() -> None:
    program = imported(lambda net, q, k, v: net.none(v.transpose(1, 2)), at=256, check=False)
    assert "y[i] = Nonlin(0)" in program.imported.text and not program.limit().var("y").any()


def test_one_tensor_is_one_statement() -> None:
    def sink(net: Any, q: Any, k: Any, v: Any) -> Any:
        one, other = ((q @ k.transpose(1, 2) * net.n**-0.5).exp() for _ in range(2))
        return one / (1 + other.sum(-1, keepdim=True)) @ v

    program = imported(sink, check=False)
    assert program.imported.text.count("= Dot(") == 1
    assert program.check().grade == "extension"


def test_an_axis_grows() -> None:
    with pytest.raises(tp.ProgramError, match="no axis of a parameter grows with n"):
        tp.from_torch(lambda n: nn.Linear(5, 5), torch.ones(5))


def test_a_sum_of_either_sign_is_no_average() -> None:
    program = imported(lambda net, q, k, v: torch.tanh(v * net.n**0.5 / v.sum(-1, keepdim=True)), check=False)
    assert program.check().grade == "outside"


def test_inputs_are_numbers() -> None:
    with pytest.raises(tp.ProgramError, match="tensors or arrays of numbers, not dict"):
        tp.from_torch(lambda n: nn.Linear(5, n), {"x": torch.ones(5)})


def test_torch_says_nothing_of_what_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(tp.ProgramError, match="depends on the numbers that flow through the network"):
        imported(lambda net, q, k, v: q if v.sum() > 0 else k, check=False)
    assert capfd.readouterr() == ("", "")


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
