"""Modules as programs, and the modules themselves beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: modules are not imported")

import tensorprog as tp  # noqa: E402
from tensorprog.importing.initialisers import built  # noqa: E402
from tensorprog.importing.refusals import SourcePlace, refused  # noqa: E402
from tensorprog.language.errors import Problem  # noqa: E402
from tensorprog.language.reading import loads  # noqa: E402
from tests.stated import STATED  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")
LARGEST = 4.9  # of z, over all that is compared here


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """torch warns of its own future; one thread, and seeds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(threads)


def tokens(count: int, size: int = 5) -> Any:
    return torch.as_tensor(np.random.default_rng(count).normal(size=(1, count, size)), dtype=torch.float32)


def mlp(n: int) -> Any:
    return nn.Sequential(nn.Linear(5, n), nn.ReLU(), nn.Linear(n, 2 * n), nn.Tanh(), nn.Linear(2 * n, 3))


class Attention(nn.Module):  # type: ignore[misc]
    """Attention as people write it: one matrix for queries, keys and values, heads by views, an einsum or two."""

    def __init__(self, n: int, heads: int = 2) -> None:
        super().__init__()
        self.embed, self.heads = nn.Linear(5, n), heads
        self.qkv, self.out = nn.Linear(n, 3 * n, bias=False), nn.Linear(n, n, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        b, t, n = x.shape
        q, k, v = (part.view(b, t, self.heads, n // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(n // self.heads)
        hidden = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, n))


class Encoder(nn.Module):  # type: ignore[misc]
    def __init__(self, n: int, layers: int = 2, apart: bool = True, **options: Any) -> None:
        super().__init__()
        self.embed = nn.Linear(5, n)
        layer = nn.TransformerEncoderLayer(n, 4, 2 * n, batch_first=True, **options)
        self.stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)  # copies of one layer
        if apart:
            self.stack = nn.Sequential(
                *(nn.TransformerEncoderLayer(n, 4, 2 * n, batch_first=True, **options) for _ in range(layers))
            )

    def forward(self, x: Any) -> Any:
        return self.stack(self.embed(x))


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(self, n: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(5, n), nn.Linear(5, n)
        self.layer = nn.TransformerDecoderLayer(n, 2, 2 * n, batch_first=True)

    def forward(self, x: Any, y: Any) -> Any:
        return self.layer(self.one(x), self.other(y))


class Experts(nn.Module):  # type: ignore[misc]
    """Two experts, mixed by a softmax of readouts."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.embed, self.route = nn.Linear(5, n), nn.Linear(n, 2, bias=False)
        self.experts = nn.ModuleList(nn.Linear(n, n, bias=False) for _ in range(2))

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.embed(x))
        gate = self.route(x).softmax(-1)
        return sum(gate[..., k : k + 1] * torch.relu(expert(x)) for k, expert in enumerate(self.experts))


class Reader(nn.Module):  # type: ignore[misc]
    """A recurrent layer."""

    def __init__(self, n: int, kind: Any = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.cell = kind(5, n, batch_first=True, **options)

    def forward(self, x: Any) -> Any:
        return self.cell(x)[0]


def image_net(n: int) -> Any:
    return nn.Sequential(
        nn.Conv2d(2, n, 3, padding=1),
        nn.BatchNorm2d(n),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(n, n, 3, padding=1, stride=2),
        nn.GroupNorm(2, n),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(n, 2),
    )


class Words(nn.Module):  # type: ignore[misc]
    """Tokens, positions and a first token of its own, as vision transformers have it."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.table, self.first = nn.Embedding(10, n), nn.Parameter(torch.randn(1, 1, n))
        self.place, self.norm = nn.Parameter(torch.randn(1, 4, n) * 0.5), nn.RMSNorm(n)
        self.up, self.gate, self.down = (nn.Linear(n, n, bias=False) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        x = torch.cat([self.first, self.table(ids)], 1) + self.place
        h = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Rotary(nn.Module):  # type: ignore[misc]
    """Attention with rotary positions as Llama has it: cosines kept in a buffer, halves that turn."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.table, self.heads = nn.Embedding(10, n), 2
        self.q, self.k, self.v = (nn.Linear(n, n, bias=False) for _ in range(3))
        angles = torch.arange(4)[:, None] * 100.0 ** (-torch.arange(0, n // 2, 2) / (n // 2))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def turned(self, x: Any) -> Any:
        one, other = x.chunk(2, -1)
        return x * self.cos + torch.cat([-other, one], -1) * self.sin

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        b, t, n = x.shape
        q, k, v = (layer(x).view(b, t, 2, n // 2).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, n)


class RmsNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class LlamaBlock(nn.Module):  # type: ignore[misc]
    """Grouped queries with rotary positions and normalised queries and keys, SwiGLU; w1, w2, w3 as Llama names them."""

    def __init__(self, n: int, turned: Any = None) -> None:
        super().__init__()
        self.d = n // 4
        self.norm1, self.norm2, self.q_norm, self.k_norm = (RmsNorm(size) for size in (n, n, self.d, self.d))
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(n, out, bias=False) for out in (n, n // 2, n // 2, n))
        self.w1, self.w3, self.w2 = (nn.Linear(*sizes, bias=False) for sizes in ((n, 3 * n), (n, 3 * n), (3 * n, n)))
        self.turned = (turned or half_rotated)(self.d, 100.0)

    def forward(self, x: Any) -> Any:
        b, t, n = x.shape
        h = self.norm1(x)
        q, k, v = (layer(h).view(b, t, -1, self.d) for layer in (self.wq, self.wk, self.wv))
        q, k = self.turned(self.q_norm(q)), self.turned(self.k_norm(k))
        k, v = (each[:, :, :, None].expand(b, t, 2, 2, self.d).reshape(b, t, 4, self.d) for each in (k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        score = q @ k.transpose(2, 3) / math.sqrt(self.d) + torch.full((t, t), -math.inf).triu(1)
        x = x + self.wo((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, n))
        h = self.norm2(x)
        return x + self.w2(nn.functional.silu(self.w1(h)) * self.w3(h))


def angles(d: int, base: float) -> Any:
    return torch.outer(torch.arange(3).float(), base ** (-torch.arange(0, d, 2).float() / d))[:, None]


def half_rotated(d: int, base: float) -> Callable[[Any], Any]:
    cos, sin = (torch.cat([wave, wave], -1) for wave in (angles(d, base).cos(), angles(d, base).sin()))
    return lambda x: x * cos + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * sin


def in_quarters(d: int, base: float) -> Callable[[Any], Any]:
    turned = half_rotated(d // 4, base)
    return lambda x: torch.cat([turned(x[..., : d // 4]), x[..., d // 4 :]], -1)


def in_part(d: int, base: float) -> Callable[[Any], Any]:
    turned = half_rotated(d // 2, base)
    return lambda x: torch.cat([turned(x[..., : d // 2]), x[..., d // 2 :]], -1)


class Llama(nn.Module):  # type: ignore[misc]
    """All entries N(0, 1/n), those of the table too."""

    def __init__(self, n: int, turned: Any = None, layers: int = 2) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(20, n), RmsNorm(n)
        self.blocks = nn.ModuleList(LlamaBlock(n, turned) for _ in range(layers))
        for each in self.modules():
            if isinstance(each, nn.Linear | nn.Embedding):
                nn.init.normal_(each.weight, std=n**-0.5)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Odds(nn.Module):  # type: ignore[misc]
    """What else people write: convolutions, a fixed mixture of tokens, joins, norms, parts of an output."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.table, self.side, self.out = nn.Embedding(20, n), nn.Linear(n, n), nn.Linear(n, 4)
        self.near, self.norm = nn.Conv1d(n, n, 3, padding=1), nn.GroupNorm(4, n)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        y = self.norm(torch.relu(self.near(x.transpose(1, 2)))).transpose(1, 2)
        near = torch.softmax(-(torch.arange(3)[:, None] - torch.arange(3)).abs().float(), -1)
        y = torch.einsum("ij,bjn->bin", near, y) + x.mean(1, keepdim=True)
        y = torch.stack([y, self.side(y)], 2).amax(2)
        y = nn.functional.normalize(y, dim=-1) * y.shape[-1] ** 0.5
        return self.out(y)[:, 1:].log_softmax(-1)


class Sinusoids(nn.Module):  # type: ignore[misc]
    """Positions of sines and cosines, in halves or by turns, under attention in which a triangle is cut out."""

    def __init__(self, n: int, by_turns: bool) -> None:
        super().__init__()
        self.into, self.slope, self.out = nn.Linear(5, n), nn.PReLU(), nn.Linear(n, 2 * n)
        self.q, self.k = (nn.Linear(n, n, bias=False) for _ in range(2))
        angles = torch.arange(3)[:, None] * torch.exp(torch.arange(0, n, 2) * (-math.log(1e3) / n))
        waves = torch.stack([angles.sin(), angles.cos()], -1 if by_turns else -2)
        self.register_buffer("places", waves.reshape(3, n))

    def forward(self, x: Any) -> Any:
        x = self.slope(self.into(x) + self.places)
        score = nn.functional.elu(self.q(x)) @ nn.functional.elu(self.k(x)).transpose(1, 2)
        seen = torch.tril(score / x.shape[-1])
        return nn.functional.glu(self.out(x + seen @ x), -1)


class Steps(nn.Module):  # type: ignore[misc]
    """A recurrence by hand, from a state of zeros; the output layer is as small as mup has it."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.into, self.back, self.out = nn.Linear(5, n), nn.Linear(n, n), nn.Linear(n, 2, bias=False)
        nn.init.normal_(self.out.weight, std=1 / n)

    def forward(self, x: Any) -> Any:
        state = x.new_zeros(1, self.back.in_features)
        for step in range(x.shape[1]):
            state = torch.tanh(self.into(x[:, step]) + self.back(state))
        return self.out(state)


IMAGE = torch.as_tensor(np.random.default_rng(0).normal(size=(1, 2, 4, 4)), dtype=torch.float32)
MODULES: dict[str, tuple[Callable[[int], Any], Any]] = {
    "mlp": (mlp, tokens(2)),
    "attention": (Attention, tokens(3)),
    "encoder": (Encoder, tokens(3)),
    "copied layers": (lambda n: Encoder(n, apart=False, norm_first=True), tokens(3)),
    "pre-norm encoder": (lambda n: Encoder(n, norm_first=True, activation="gelu"), tokens(3)),
    "decoder": (Decoder, (tokens(2), tokens(3))),
    "experts": (Experts, tokens(2)),
    "lstm": (Reader, tokens(3)),
    "gru": (lambda n: Reader(n, nn.GRU, num_layers=2), tokens(3)),
    "rnn": (lambda n: Reader(n, nn.RNN, bidirectional=True), tokens(3)),
    "images": (image_net, IMAGE),
    "rotary": (Rotary, torch.tensor([[3, 1, 3, 2]])),
    "llama": (Llama, torch.tensor([[3, 1, 3]])),
    "in part": (lambda n: Llama(n, in_part, 1), torch.tensor([[3, 1, 3]])),
    "in quarters": (lambda n: Llama(n, in_quarters, 1), torch.tensor([[3, 1, 3]])),
    "odds": (Odds, torch.tensor([[1, 2, 1], [4, 1, 2]])),
    "sinusoids": (lambda n: Sinusoids(n, False), tokens(3)),
    "sinusoids by turns": (lambda n: Sinusoids(n, True), tokens(3)),
    "steps": (Steps, tokens(3)),
    "words": (Words, torch.tensor([[3, 1, 3]])),
}


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "in part" else []) for name in MODULES]
)
def test_a_module_and_its_program_have_one_law_and_are_written(name: str, tmp_path: Path) -> None:
    program = tp.from_torch(*MODULES[name], widths=(32, 64), at=64)  # which compares them at two small widths
    assert "not compared" not in str(program.imported)
    assert ("batch normalisation is that of evaluation" in str(program.imported)) == (name == "images")
    assert (program.check().grade == "outside") == (name == "copied layers")
    if name in ("attention", "words", "lstm"):
        found = tp.compare_torch(program, *MODULES[name], width=64, samples=400, seed=5, limit=False)
        assert len(found.rows) >= 2
        for row in found.rows:
            assert max(abs(row.z_variance), abs(row.z_mean)) < LARGEST and row.ks_p > 1e-5, row
    told = program.imported
    (tmp_path / "program.yaml").write_text(told.text)
    for file, array in told.arrays.items():
        np.save(tmp_path / file, array)
    read = tp.load(tmp_path / "program.yaml")
    assert read == program
    assert {fate.parameter for fate in told.fates} == set(dict(MODULES[name][0](32).named_parameters()))
    assert "not used" not in str(told)
    assert ("a copy of" in str(told)) == (name == "copied layers")


def test_the_program_of_a_perceptron_is_the_one_that_a_person_writes() -> None:
    program = tp.from_torch(
        lambda n: nn.Sequential(nn.Linear(12, n, bias=False), nn.ReLU(), nn.Linear(n, n)),
        torch.ones(2, 12),
        name="small",
        check=False,
    )
    lines = [line.split("#")[0].rstrip() for line in program.imported.text.splitlines() if not line.startswith("#")]
    assert lines[lines.index("body:") + 1 : -2] == [
        "  - relu_out = Nonlin(relu(layer0))",
        "  - y        = MatMul(W_layer2, relu_out)",
    ]
    assert (
        program.netsor.weights[0].variance
        == loads("program: a\nweights: {W: 1/3}\nbody:\n  - y = Nonlin(1)\noutputs: [y]\n").weights[0].variance
    )
    assert program.imported["2.bias"].verdict == "vanishes"
    assert program.imported["2.bias"].became == "left out: it vanishes"


def test_many_layers_are_one_text() -> None:
    program = tp.from_torch(lambda n: Encoder(n, 4, norm_first=True), tokens(4), widths=(16, 32), check=False)
    assert len(program.imported.text.splitlines()) < 60
    assert {index.name: index.stop - 1 for index in program.netsor.indices}["l"] == 4


def test_layers_in_two_lists_are_written_out() -> None:
    class Lists(nn.Module):  # type: ignore[misc]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.embed, self.norms = nn.Linear(5, n), nn.ModuleList(nn.LayerNorm(n) for _ in range(3))
            self.layers = nn.ModuleList(nn.Linear(n, n) for _ in range(3))

        def forward(self, x: Any) -> Any:
            x = self.embed(x)
            for norm, layer in zip(self.norms, self.layers, strict=True):
                x = x + layer(norm(x))
            return x

    assert "written out one by one" in str(tp.from_torch(Lists, tokens(2), check=False).imported)


def test_outputs_that_vanish_are_compared_at_their_scale() -> None:
    program = tp.from_torch(Steps, tokens(3), check=False)
    assert program.imported is not None and program.imported.power == -0.5
    found = tp.compare_torch(program, Steps, tokens(3), width=128, samples=600, seed=5)
    assert all(abs(row.z_variance) < LARGEST and row.ks_p > 1e-5 for row in found.rows)
    assert "into.bias" not in str(found) and "back.bias" in str(found)  # which vanishes, and was left out


def test_initialisers_are_recorded() -> None:
    class Several(nn.Module):  # type: ignore[misc]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.normal, self.shifted = nn.Parameter(torch.randn(n, n) / math.sqrt(n)), nn.Parameter(torch.rand(n))
            self.cut = nn.Parameter(nn.init.trunc_normal_(torch.empty(n), std=1.0, a=-1, b=1))
            self.kaiming = nn.Parameter(nn.init.kaiming_normal_(torch.empty(n, n)))
            self.square, self.cell = nn.Parameter(nn.init.orthogonal_(torch.empty(n, n))), nn.LSTM(n, n)
            self.shifted.data.mul_(2).add_(-1)
            with torch.no_grad():
                self.cell.bias_hh_l0[n : 2 * n].fill_(1.0)
            self.table = nn.Embedding(9, n, padding_idx=0)

    _, laws = built(Several, 16)
    assert (laws["normal"].kind, laws["normal"].variance) == ("normal", pytest.approx(1 / 16))
    assert str(laws["shifted"]) == "uniform(-1, 1)"
    assert laws["cut"].kind == "truncated"
    assert laws["kaiming"].variance == pytest.approx(2 / 16)
    assert laws["square"].kind == "orthogonal"
    assert laws["cell.bias_hh_l0"].kind == "rows"
    assert (laws["table.weight"].kind, laws["table.weight"].padding) == ("normal", 0)


def test_a_small_number_beside_squares_that_vanish_is_left_out() -> None:
    program = tp.from_torch(Llama, torch.tensor([[3, 1, 3]]), check=False)
    assert program.imported["table.weight"].verdict == "vanishes"
    assert "1e-06 is left out beside an average that falls like n**(-1)" in str(program.imported)
    assert program.check().grade == "extension"
    widths = dict(program.netsor.parts)["widths"]
    assert {str(ratio) for _, ratio, _ in widths} == {"1/8", "1/4", "3"}


def test_what_does_not_depend_on_random_numbers_is_a_table() -> None:
    class Even(nn.Module):  # type: ignore[misc]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.first, self.tiny = nn.Linear(5, n, bias=False), nn.Linear(n, n)
            nn.init.normal_(self.tiny.weight, std=1 / n)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            seen = torch.softmax(self.tiny(y).mean(-1)[..., None, :] + torch.full((3, 3), -math.inf).triu(1), -1)
            return seen @ (seen @ y)

    program = tp.from_torch(Even, tokens(3), check=False)
    (table,) = (entry.value for entry in program.netsor.constants if entry.value.shape == (3, 3))
    assert table.array == pytest.approx(np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None])


def gpt2_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


SPELLED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "GPT-2": ("gelu_tanh", gpt2_gelu),
    "cubes": ("gelu_tanh", lambda x: x * torch.sigmoid(1.5957691 * x * (1 + 0.044715 * x * x))),
    "approximate": ("gelu_tanh", lambda x: nn.functional.gelu(x, approximate="tanh")),
    "BERT": ("gelu", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))),
    "swish": ("silu", lambda x: x * torch.sigmoid(x)),
    "another number": ("tanh", lambda x: 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * x**3)))),
    "its own slope": ("sigmoid", lambda x: x * torch.sigmoid(1.702 * x)),
    "two inputs": ("tanh", lambda x: 0.5 * x.mean() * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))),
}


@pytest.mark.parametrize("name", SPELLED)
def test_functions_that_are_spelled_out_are_recognised(name: str) -> None:
    atom, act = SPELLED[name]

    class Spelled(Choosing):
        def forward(self, x: Any) -> Any:
            return act(self.one(x))

    program = tp.from_torch(Spelled, tokens(2), check=False)
    text = [line for line in program.imported.text.splitlines() if " y[" in line or "_out[" in line][-1]
    found = set(re.findall(r"\b(gelu_tanh|gelu|silu|tanh|sigmoid)\(", text))
    assert found == {atom}, text


def test_a_text_that_the_language_refuses_names_the_operation() -> None:
    place = SourcePlace("model.py", 7, 0, "x = self.act(x)", "layers.0.act", "Swish", "silu")
    text = str(refused([Problem("h has width n, but v has width d", place)]))
    assert "silu in layers.0.act (Swish) cannot be imported" in text
    assert "h has width n, but v has width d" in text
    assert "[model.py, line 7]" in text


class Fixed(nn.Module):  # type: ignore[misc]
    """All weights N(0, 0.02**2), whatever the width, behind a normalisation."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.embed, self.norm, self.up = nn.Linear(12, n, bias=False), nn.LayerNorm(n), nn.Linear(n, n, bias=False)
        for layer in (self.embed, self.up):
            nn.init.normal_(layer.weight, std=0.02)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.up(self.norm(self.embed(x))))


def test_modules_are_made_at_a_width() -> None:
    for make in (nn.Linear(4, 4), 3, lambda n: n):
        with pytest.raises(tp.ProgramError, match="from_torch takes a function") as refused:
            tp.from_torch(make, torch.ones(2, 4))
        assert "lambda n: Model(n)" in refused.value.problems[0].fix
    with pytest.raises(tp.ProgramError, match="make\\(n\\) cannot be called"):
        tp.from_torch(lambda: nn.Linear(4, 4), torch.ones(2, 4))


@pytest.mark.slow
def test_post_norm_layers_that_share_an_index_have_their_limit() -> None:
    """Mean products of tokens of 300 modules of width 256 lie about those of the limit."""

    class Post(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.embed = nn.Linear(5, n)
            layers = (nn.TransformerEncoderLayer(n, 2, 2 * n, 0.0, batch_first=True) for _ in range(2))
            self.layers = nn.ModuleList(layers)

        def forward(self, x: Any) -> Any:
            x = self.embed(x)
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(2)
    x, found = torch.randn(1, 3, 5), []
    law = tp.from_torch(lambda n: Post(n).eval(), x).limit()
    with torch.no_grad():
        for _ in range(300):
            y = Post(256).eval()(x)[0].double().numpy()
            found.append([y[0] @ y[1] / 256, y[0] @ y[2] / 256, y[1] @ y[2] / 256])
    spread = np.std(found, axis=0) / np.sqrt(len(found))
    value, error = law.cov("y", with_error=True)
    pairs = [0, 0, 1], [1, 2, 2]
    assert np.all(np.abs(np.mean(found, axis=0) - value[pairs]) < STATED * spread + error[pairs] + 1 / 256)


def test_what_diverges_is_refused_and_frozen() -> None:
    with pytest.raises(tp.ProgramError, match=r"diverges like sqrt\(n\)[\s\S]*up\.weight"):
        tp.from_torch(Fixed, torch.ones(2, 12))
    program = tp.from_torch(Fixed, torch.ones(2, 12), at=768, check=False)
    assert program.imported["up.weight"].verdict == "diverges"
    assert float(str(program.netsor.weights[0].variance)) == pytest.approx(0.0004 * 768)


class Choosing(nn.Module):  # type: ignore[misc]
    def __init__(self, n: int) -> None:
        super().__init__()
        self.one = nn.Linear(5, n)

    def forward(self, x: Any) -> Any:
        y = self.one(x)
        return y if y.sum() > 0 else -y


class Sorting(Choosing):
    def forward(self, x: Any) -> Any:
        return torch.sort(self.one(x), dim=-1)[0]


class Tied(nn.Module):  # type: ignore[misc]
    def __init__(self, n: int) -> None:
        super().__init__()
        self.first, self.square = nn.Linear(5, n), nn.Linear(n, n, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.square(self.first(x))) @ self.square.weight


class Waves(Choosing):
    """Fixed positions that differ from coordinate to coordinate."""

    def forward(self, x: Any) -> Any:
        y = self.one(x)
        return y * torch.cos(torch.arange(y.shape[-1]))


class Strides(Choosing):
    """Parts of a tensor that are written over, in steps."""

    def forward(self, x: Any) -> Any:
        y = self.one(x)
        y[:, ::2].mul_(2.0)
        return y


class Complex(Choosing):
    def forward(self, x: Any) -> Any:
        return torch.view_as_complex(self.one(x).unflatten(-1, (-1, 2))).abs()


class Joined(Choosing):
    def forward(self, x: Any) -> Any:
        return torch.cat([self.one(x), x], -1)


class Halved(Choosing):
    """A parameter that is made from another one."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.smaller = nn.Parameter(self.one.weight.data * 0.5)

    def forward(self, x: Any) -> Any:
        return self.one(x) + x @ self.smaller.T


def orthogonal(n: int) -> Any:
    made = nn.Sequential(nn.Linear(5, n), nn.Linear(n, n))
    nn.init.orthogonal_(made[1].weight)
    return made


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (Choosing, ("the numbers that flow", "if y.sum() > 0", "torch.where")),
        (Sorting, ("sort in the module itself", "there is no rule", "torch.sort")),
        (Tied, ("square.weight is used in two ways", "tied", "a parameter of its own")),
        (Waves, ("mul in the module itself", "coordinate to coordinate", "torch.cos")),
        (Strides, ("every so many entries are written over", "line")),
        (Joined, ("joined with numbers that do not grow", "one(x) + other(h)")),
        (Halved, ("smaller", "one.weight", "made of the same random numbers", "draw each parameter by itself")),
        (Complex, ("abs in the module itself", "plainest form")),
        (orthogonal, ("linear in 1 (Linear)", "1.weight are orthogonal", "normal_")),
    ],
)
def test_refusals_say_where_and_what_to_do(make: Callable[[int], Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(tp.ProgramError) as refused:
        tp.from_torch(make, tokens(2), check=False)
    text = str(refused.value)
    assert all(part in text for part in parts), text
    assert "line" in text or make is Halved


def changed(change: Callable[[Any], Any]) -> Callable[[int], Any]:
    def make(n: int) -> Any:
        made = nn.Sequential(nn.Linear(5, n), nn.Linear(n, n))
        with torch.no_grad():
            made[1].weight.copy_(change(torch.randn(n, n) / n**0.5))
        return made

    return make


@pytest.mark.parametrize("change", [torch.tril, lambda w: w + w.T, lambda w: w / w.norm(dim=1, keepdim=True)])
def test_initialisers_that_are_not_followed_are_refused(change: Callable[[Any], Any]) -> None:
    with pytest.raises(tp.ProgramError, match=r"1\.weight are of an unknown law"):
        tp.from_torch(changed(change), tokens(2))


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (lambda n: nn.ConvTranspose2d(n, n, 3), "no rule for this operation"),
        (lambda n: nn.AvgPool2d(2, padding=1), "a mean over windows with a border"),
        (lambda n: nn.AdaptiveAvgPool2d(2), "adaptive pooling to several positions"),
    ],
)
def test_rare_layers_of_images_are_refused(layer: Callable[[int], Any], why: str) -> None:
    with pytest.raises(tp.ProgramError, match=why):
        tp.from_torch(lambda n: nn.Sequential(nn.Conv2d(2, n, 1), layer(n)), IMAGE, check=False)


def test_parameters_that_begin_as_the_same_numbers_each_time_are_these_numbers() -> None:
    class Decays(nn.Module):  # type: ignore[misc]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.into, self.log_rate = nn.Linear(5, n), nn.Parameter(torch.log(torch.arange(1.0, 4.0)))

        def forward(self, x: Any) -> Any:
            return self.into(x)[:, :, None] * torch.exp(-torch.exp(self.log_rate))[:, None]

    program = tp.from_torch(Decays, tokens(2), check=False)
    assert program.imported is not None and program.imported["log_rate"].law == "fixed numbers"
    one = tp.from_torch(lambda n: nn.Linear(5, n), tokens(2), check=False).limit().var("y")
    expected = np.exp(-2 * np.arange(1, 4)) * np.asarray(one)[:, None]
    np.testing.assert_allclose(program.limit().var("y"), expected, rtol=1e-6)
    with pytest.raises(tp.ProgramError, match="cannot be imported"):
        tp.from_torch(changed(lambda w: torch.eye(len(w))), tokens(2))


MODEL = """import torch


def make(n):
    return torch.nn.Sequential(torch.nn.Linear(5, n), torch.nn.ReLU(), torch.nn.Linear(n, n))
"""


def test_the_command_writes_a_file_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tensorprog.jobs.cli import main

    (tmp_path / "model.py").write_text(MODEL)
    np.save(tmp_path / "x.npy", tokens(3).numpy()[0])
    out = tmp_path / "block.yaml"
    command = ["import", f"{tmp_path / 'model.py'}:make", "--inputs", str(tmp_path / "x.npy"), "-o", str(out)]
    for at, expected in (("64", 0), ("32", 2)):  # the second time other files are there
        with pytest.raises(SystemExit) as done:
            main([*command, "--at", at], prog_name="tp")
        assert done.value.code == expected
    shown = capsys.readouterr()
    assert "0.weight" in shown.out
    assert "there already" in shown.err
    assert tp.load(out).check().grade == "theorem"
