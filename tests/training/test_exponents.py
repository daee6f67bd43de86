"""Powers of the width in training: known parametrisations, networks of numpy beside the powers, modules of torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensorprog as tp
from tensorprog.jobs.cli import main


def network(scale: str = "", layers: int = 2) -> tp.Program:
    """Layers of tanh; the readout is a Dot on a scale, or a MatMul."""
    P = tp.Program("net")
    i = P.index("i", 2)
    x = P.nonlin("x1[i]", tp.tanh(P.initial("h1[i]", cov="where(i == i_, 1, 0.3)")[i]))
    for k in range(2, layers + 1):
        x = P.nonlin(f"x{k}[i]", tp.tanh(P.matmul(f"h{k}[i]", P.weight(f"W{k}"), x[i])[i]))
    P.outputs(P.dot("f[i]", P.initial("v"), x[i], scale=scale) if scale else P.matmul("f[i]", P.weight("V"), x[i]))
    return P


# scale of the readout; rates of h1, W2 and the readout on the scale of muP; verdict; how h1, h2 and f move
# in the first step; and the largest rates
KNOWN: dict[str, Any] = {
    "muP": ("1/n", ("1", "1", "1"), "features", (0, 0, 0), 0),
    "NTK": ("n**-0.5", ("1/n", "1/n", "1/n"), "kernel", (-0.5, -0.5, 0), -1),
    "standard, rate 1/n": ("", ("n**-2", "1/n", "1/n"), "kernel", (-1.5, -0.5, 0), -1),
    "standard, rate 1": ("", ("1/n", "1", "1"), "unstable", (-0.5, 0.5, 1), -1),
    "mean field": ("1/n", ("1/n", "1", "1/n"), "features", (-1, 0, 0), 0),
    "lazy": ("1/n", ("1/n", "1/n", "1/n"), "trivial", (-1, -1, -1), 0),
    "frozen below": ("n**-0.5", ("0", "0", "0.1/n"), "kernel", (-np.inf, -np.inf, 0), -1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_parametrisations(name: str) -> None:
    scale, rates, verdict, first, largest = KNOWN[name]
    P = network(scale)
    found = tp.exponents(P, rates=dict(zip(("h1", "W2", "v" if scale else "V"), rates, strict=True)))
    assert (found.verdict, found.grade) == (verdict, "theorem")
    own = {p.name: p for p in found.parameters}
    assert own["W2"].moves == first[1] or own["W2"].moves == -np.inf
    names = ("x1", "h2", "the output")
    assert tuple(found.moves.get(each, (-np.inf,))[0] for each in names) == first
    assert all(p.mup == 0 and p.largest == (largest if p.rate > -np.inf else -np.inf) for p in found.parameters)
    json.dumps(found.to_json(), allow_nan=False)


def test_the_condition_on_r() -> None:
    """Random powers a_l, b_l, c: stable, trivial, features as in Yang & Hu 2021, Theorems 3.3, 3.6, 3.8.

    h = n**-a w x with w of variance n**-2b is a weight of variance n**-1 if a + b = 1/2, with the rate n**(-c - 2a);
    a readout n**-a w.z is n**-(a + b) v.z, with the rate n**(2b - c) of v; rates of vectors count from n on.
    """
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        a1, a2, a, c = rng.integers(-4, 5, 4) / 2
        b = (0.5, 1.0)[rng.integers(2)] - a
        r = min(a + b, 2 * a + c) + c - 1 + min(2 * a1 + 1, 2 * a2)
        stable = r >= 0 and 2 * a + c >= 1 and a + b + r >= 1
        learns = 2 * a + c == 1 or a + b + r == 1
        expected = "unstable" if not stable else "trivial" if not learns else "features" if r == 0 else "kernel"
        rates = {"h1": f"n**{-c - 2 * a1 - 1}", "W2": f"n**{-c - 2 * a2}", "v": f"n**{2 * b - c - 1}"}
        found = tp.exponents(network("n**-0.5" if a + b == 0.5 else "1/n"), rates=rates)
        assert found.verdict == expected, (a1, a2, a, b, c)
        seen.add(expected)
    assert len(seen) == 4


def descent(n: int, c: float, rates: tuple[float, float, float], rng: np.random.Generator) -> list[float]:
    """Mean sizes of the changes of h1, h2 and f = v.x2 / n**c in two steps on two inputs, on matrices."""
    K, y = np.array([[1, 0.3], [0.3, 1]]), np.array([1, -1])
    h1 = np.linalg.cholesky(K) @ rng.standard_normal((2, n))
    W, v = rng.standard_normal((n, n)) / n**0.5, rng.standard_normal(n)
    before: list[Any] = []
    for _ in range(3):
        x1 = np.tanh(h1)
        h2 = x1 @ W.T
        x2 = np.tanh(h2)
        now = [h1, h2, x2 @ v / n**c]
        before = before or now
        df = now[2] - y
        dh2 = df[:, None] * v / n**c * (1 - x2**2)
        dh1 = dh2 @ W * (1 - x1**2)
        h1 = h1 - rates[0] * K @ dh1
        W, v = W - rates[1] * dh2.T @ x1, v - rates[2] * df @ x2 / n**c
    return [float(np.abs(one - other).mean()) for one, other in zip(now, before, strict=True)]


SCALES: dict[str, tuple[float, Callable[[int], tuple[float, float, float]]]] = {
    "muP": (1, lambda n: (n / 2, 0.5, n / 2)),
    "NTK": (0.5, lambda n: (0.5, 0.5 / n, 0.5)),
    "standard, rate 1/n": (0.5, lambda n: (0.5 / n, 0.5 / n, 0.5)),  # of v = n**0.5 times a row of V
}


@pytest.mark.parametrize("name", SCALES)
def test_networks_of_numpy_move_with_these_powers(name: str) -> None:
    (c, rates), rng = SCALES[name], np.random.default_rng(1)
    widths = (64, 128, 256, 512)
    sizes = [np.mean([descent(n, c, rates(n), rng) for _ in range(16)], axis=0) for n in widths]
    slopes = np.polyfit(np.log(widths), np.log(sizes), 1)[0]
    assert slopes == pytest.approx(KNOWN[name][3], abs=0.15)


def tied() -> tp.Program:
    """A layer and its transpose behind it, with a loss."""
    P = tp.Program("tied")
    i, y = P.index("i", 2), P.constant("y[i]", [1, -1])
    x = P.nonlin("x[i]", tp.tanh(P.initial("h[i]", cov="where(i == i_, 1, 0.3)")[i]))
    W = P.weight("W")
    a = P.nonlin("a[i]", tp.tanh(P.matmul("g[i]", W, x[i])[i]))
    z = P.nonlin("z[i]", tp.tanh(P.matmul("r[i]", W.T, a[i])[i]))
    f = P.dot("f[i]", P.initial("v"), z[i])
    P.outputs(f, P.nonlin("L", tp.sum[i]((f[i] - y[i]) ** 2) / 4))
    return P


def residual() -> tp.Program:
    """Two residual layers, with a loss."""
    P = tp.Program("residual")
    i, y = P.index("i", 2), P.constant("y[i]", [1, -1])
    x = P.initial("x0[i]", cov="where(i == i_, 1, 0.3)")
    for k in (1, 2):
        g = P.matmul(f"g{k}[i]", P.weight(f"W{k}"), P.nonlin(f"a{k}[i]", tp.tanh(x[i]))[i])
        x = P.nonlin(f"x{k}[i]", x[i] + g[i])
    f = P.dot("f[i]", P.initial("v"), P.nonlin("z[i]", tp.tanh(x[i]))[i])
    P.outputs(f, P.nonlin("L", tp.sum[i]((f[i] - y[i]) ** 2) / 4))
    return P


@pytest.mark.slow
@pytest.mark.parametrize("make", [tied, residual])
def test_networks_of_training_programs_move_with_these_powers(make: Callable[[], tp.Program]) -> None:
    P, widths = make(), (64, 128, 256, 512)
    counted = tp.exponents(P, "0.5/n")
    assert counted.verdict == "kernel"
    drawn = tp.train(P, loss="L", steps=2, lr="0.5/n", widths=widths, samples=24)
    for step in (1, 2):
        for name in set(counted.moves) & set(drawn["family"].values.tolist()):
            sizes = drawn["change_finite"].sel(step=step, family=name).values
            slope = np.polyfit(np.log(widths), np.log(sizes), 1)[0]
            assert slope == pytest.approx(counted.moves[name][step - 1], abs=0.15), name


def test_attention() -> None:
    """In muP, scores on the scale n**-1/2 grow as queries meet keys, and on the scale 1/n they do not."""
    P = tp.load("attention")
    found = tp.exponents(P, optimizer="adam")
    assert found.verdict == "unstable"
    assert any(text.startswith("divide the score p by n instead") for text in found.changes)
    mup = {p.name: f"n**({p.mup})" for p in found.parameters}
    assert mup["WQ"] == "n**(-1.0)" and mup["h"] == "n**(0.0)"
    again = tp.exponents(P, rates=mup, optimizer="adam")
    assert again.verdict == "unstable" and again.moves["p"][-1] > 0
    kernel = tp.exponents(P, rates={"W*": "1/n", "h": 0})
    assert kernel.verdict == "features" and kernel.moves["p"] == (0, 0) and kernel.moves["q"][0] == -0.5


def test_recurrences_widths_and_transposes() -> None:
    for name in ("rnn", "lstm", "resnet", "autoencoder_tied", "attention_fixed_head", "mixture_of_experts"):
        found = tp.exponents(tp.load(name), "1/n")
        assert found.grade == "extension" and found.verdict in ("kernel", "features", "unstable")
        assert all(p.rate == -1 and not np.isnan(p.largest) for p in found.parameters)


@pytest.mark.parametrize(
    ("said", "rates"),
    [
        ("U is no parameter", {"U": 1}),
        ("a number times a power of n", {"W2": "n + 1"}),
        ("a number times a power of n", {"W2": "-n"}),
        ("a number times a power of n", {"W2": "log(n)"}),
        ("m", {"W2": "m"}),
    ],
)
def test_what_is_refused(said: str, rates: dict[str, Any]) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        tp.exponents(network(), rates=rates)


def test_the_command_and_rates_of_files() -> None:
    told = CliRunner().invoke(main, ["exponents", "mlp", "--lr", "1/n", "--rate", "W1=0"])
    assert told.exit_code == 0 and "kernel: outputs learn" in told.output
    assert "learning rate of W2: n**-1 -> 1" in told.output and "rate of W1" not in told.output
    told = CliRunner().invoke(main, ["exponents", "sp_mlp", "--format", "json"])
    found = json.loads(told.output)
    assert told.exit_code == 1 and found["verdict"] == "unstable"
    assert [p["rate"] for p in found["parameters"]] == [-1, 0, 0]  # of its section train
    assert tp.exponents(tp.load("mup_mlp")).verdict == "features"


def torch_network(kind: str) -> Callable[[int], Any]:
    """A module of three layers in a parametrisation."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(4, n), nn.Linear(n, n, bias=False), nn.Linear(n, 3, bias=False)
            self.n = n
            for layer in (self.fc2, self.fc3) if kind == "NTK" else ():
                nn.init.normal_(layer.weight)
            if kind != "standard" and kind != "NTK":
                nn.init.normal_(self.fc3.weight, std=1 / n if kind == "muP" else 1)

        def forward(self, x: Any) -> Any:
            power = 0.5 if kind == "NTK" else 0
            x = self.fc2(torch.tanh(self.fc1(x))) / self.n**power
            return self.fc3(torch.tanh(x)) / self.n ** (1 if kind == "muP, multiplier" else power)

    return Network


# Yang et al. 2022, Tables 3 and 8: rates of input, hidden and output weights
TABLES = {
    ("muP", "sgd"): ("n", "1", "n**-1"),
    ("muP", "adam"): ("1", "n**-1", "n**-1"),
    ("muP, multiplier", "sgd"): ("n", "1", "n"),
    ("muP, multiplier", "adam"): ("1", "n**-1", "1"),
}


@pytest.mark.parametrize(("kind", "optimizer"), TABLES)
def test_tables_of_mup(kind: str, optimizer: Any) -> None:
    torch = pytest.importorskip("torch")
    P = tp.from_torch(torch_network(kind), torch.ones(2, 4) + torch.eye(2, 4), check=False)
    rates = TABLES[kind, optimizer]
    given = dict(zip(("fc1.*", "fc2.weight", "fc3.weight"), rates, strict=True))
    found = tp.exponents(P, rates=given, optimizer=optimizer)
    assert found.verdict == "features" and not found.changes
    assert [p.name for p in found.parameters] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc3.weight"]
    assert all(p.rate == p.mup == p.largest and p.moves == p.output == 0 for p in found.parameters)


def test_torch_modules_in_wrong_parametrisations() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 4) + torch.eye(2, 4)
    P = tp.from_torch(torch_network("standard"), x, check=False)
    found = tp.exponents(P, optimizer="adam")
    assert found.verdict == "unstable"
    assert "the learning rate of fc2.weight is 1 and may be at most n**(-3/2)" in found.reason
    assert found.changes == (
        "multiply the output by n**(-1/2)",
        "learning rate of fc2.weight: 1 -> n**-1",
        "learning rate of fc3.weight: 1 -> n**(-1/2)",
    )
    large = tp.exponents(tp.from_torch(torch_network("readout of variance 1"), x, check=False), "1/n")
    assert (large.verdict, large.grade) == ("unstable", "extension")  # networks of torch: -0.58, 0.42, 1.39
    assert [large.moves[name] for name in ("b2", "fc2", "y")] == [(-0.5,), (0.5,), (1.5,)]
    assert "later steps" not in str(large)
    ntk = tp.exponents(tp.from_torch(torch_network("NTK"), x, check=False))
    assert ntk.verdict == "kernel" and [p.mup for p in ntk.parameters] == [1, 1, 1, 1]


def test_a_block_of_attention_from_torch() -> None:
    """Queries, keys and values of one parameter are one row; embeddings move as vectors, and scores need 1/n."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.table, self.norm, self.qkv = nn.Embedding(9, n), nn.LayerNorm(n), nn.Linear(n, 3 * n, bias=False)
            self.out, self.n = nn.Linear(n, n, bias=False), n

        def forward(self, ids: Any) -> Any:
            x = self.table(ids)
            q, k, v = (p.view(1, 3, 2, self.n // 2).transpose(1, 2) for p in self.qkv(self.norm(x)).split(self.n, 2))
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return x + self.out(y.transpose(1, 2).reshape(1, 3, self.n))

    P = tp.from_torch(Block, torch.tensor([[1, 2, 3]]), check=False)
    found = tp.exponents(P, rates={"*.weight": "0.003/n", "table.weight": 0.003}, optimizer="adam")
    assert [(p.name, p.rate, p.mup) for p in found.parameters] == [
        ("table.weight", 0, 0), ("qkv.weight", -1, -1), ("out.weight", -1, -1)
    ]  # fmt: skip
    assert found.verdict == "unstable" and found.moves["score"][0] == found.moves["the output"][0] == 0.5
    assert found.changes == (
        "multiply the output by n**(-1/2)",
        "divide the score score by n instead of its root: scale=1/n",
    )
    assert "norm.weight" in found.notes[0]
