"""Mistakes of beginners in program files: what is offered as a fix, pasted in, gives the program that was meant."""

from __future__ import annotations

import re

import pytest

from tensorprog import ProgramError
from tests.reading import loads

PROGRAM = """program: mine
constants: {s: 4}
indices: {i: s, j: s}
initial:
  h: {cov: 1}
weights:
  W[i]: 1
  WQ: 1
  WK: 1
  V: 1
body:
  - u[i] = MatMul(W[i], h)
  - x[i] = Nonlin(tanh(u[i]))
  - q[i] = MatMul(WQ, x[i])
  - k[j] = MatMul(WK, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - v[j] = MatMul(V, x[j])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
outputs: [y]
run: {width: 64}
"""
U, X, P, Y = (line.removeprefix("  - ") for line in PROGRAM.splitlines() if re.match(r"  - [uxpy]\[", line))
SHARE = "one = Nonlin(1)\nx_mean[i] = Dot(u[i], one, scale=1/n)"

# a line of the program, the mistake in its place, what is said of it, and the lines that were meant
MISTAKES = [
    (Y, "y[i] = Nonlin(sum[j](softmax(p[i,j]) * v[j]))", "softmax needs the index", Y),
    (Y, "y[i] = Nonlin(sum(softmax(p[i,j], dim=-1) * v[j]))", "softmax needs the index", Y),
    (Y, "y[i] = F.softmax(p[i,j], dim=1) @ v[j]", "the right side must be", Y),
    (Y, "y[i] = Nonlin(sum(softmax[j](p[i,j]) * v[j], j))", "sum needs the index", Y),
    (Y, "y[i] = Nonlin(sum(softmax[j](p[i,j]) * v[j] for j in range(s)))", "a comprehension", Y),
    (Y, "y[i] = Nonlin(sum_j(softmax_j(p[i,j]) * v[j]))", "no function sum_j", Y),
    (X, "x[i] = Nonlin(ReLU(u[i]))", "no function ReLU", "x[i] = Nonlin(relu(u[i]))"),
    (X, "x[i] = tanh(u[i])", "the right side must be", X),
    (X, "x[i] = Nonlin(torch.tanh(u[i]))", "only functions of the language", X),
    (X, "x[i] = Nonlin(nn.LeakyReLU(0.2)(u[i]))", "only functions of the language",
        "x[i] = Nonlin(leaky_relu(u[i], 0.2))"),
    (X, "x[i] = Nonlin(u[i].tanh())", "only functions of the language", X),
    (X, "x[i] = Nonlin(layernorm(u[i]))", "no function layernorm",
        SHARE + "\nx_square[i] = Dot(u[i], u[i], scale=1/n)\n"
        "x[i] = Nonlin((u[i] - x_mean[i]) / sqrt(x_square[i] - x_mean[i]**2 + 0.00001))"),
    (X, "x[i] = Nonlin(RMSNorm(u[i]))", "no function RMSNorm", "x_square[i] = Dot(u[i], u[i], scale=1/n)\n"
        "x[i] = Nonlin(u[i] / sqrt(x_square[i] + 0.000001))"),
    (X, "x[i] = Nonlin(u[i] - mean(u[i]))", "mean needs the index", SHARE + "\nx[i] = Nonlin(u[i] - x_mean[i])"),
    (X, "x[i] = Nonlin(u[i]^2 + 1)", "the operator ^", "x[i] = Nonlin(u[i]**2 + 1)"),
    (X, "x[i] = Nonlin(u[i]²)", "cannot be read", "x[i] = Nonlin(u[i]**2)"),
    (X, "x[i] = Nonlin(square(u[i]))", "no function square", "x[i] = Nonlin(u[i]**2)"),
    (X, "x[i] = Nonlin(pow(u[i], 3))", "no function pow", "x[i] = Nonlin(u[i]**3)"),
    (X, "x[i] = Nonlin(clamp(u[i], min=-1, max=2))", "no function clamp", "x[i] = Nonlin(clip(u[i], -1, 2))"),
    (X, "x[i] = Nonlin(clip(u[i], 0))", "hi is missing", "x[i] = Nonlin(max(u[i], 0))"),
    (X, "x[i] = Nonlin(hardtanh(u[i]))", "no function hardtanh", "x[i] = Nonlin(clip(u[i], -1, 1))"),
    (X, "x[i] = Nonlin(swish(u[i]))", "no function swish", "x[i] = Nonlin(silu(u[i]))"),
    (X, "x[i] = Nonlin(gelu(u[i], approximate='none'))", "is not a number", "x[i] = Nonlin(gelu(u[i]))"),
    (X, "x[i] = Nonlin(ln(u[i]))", "no function ln", "x[i] = Nonlin(log(u[i]))"),
    (X, "x[i] = Nonlin(e**u[i])", "exponent", "x[i] = Nonlin(exp(u[i]))"),
    (X, "x[i] = Nonlin(np.pi * u[i])", "an attribute", "x[i] = Nonlin(pi * u[i])"),
    (X, "x[i] = Nonlin(u[i] if u[i] > 0 else 0)", "if ... else", "x[i] = Nonlin(where(u[i] > 0, u[i], 0))"),
    (X, "x[i] = Nonlin(u[i] * (u[i] > 0))", "a comparison", "x[i] = Nonlin(u[i] * where(u[i] > 0, 1, 0))"),
    (X, "x[i] = Nonlin(where(0 < u[i] < 1, u[i], 0))", "do not chain",
        "x[i] = Nonlin(where((0 < u[i]) & (u[i] < 1), u[i], 0))"),
    (X, "x[i] = Nonlin(tanh(u))", "u has 1 index, 0 given", X),
    (X, "x = Nonlin(tanh(u[i]))", "neither on the left nor reduced", X),
    (X, "x[i] = Nonlin(tanh(u_i))", "u_i is not defined", X),
    (X, "x[i] = Nonlin(tanh(u(i)))", "no function u", X),
    (X, "x[i] = Nonlin(tanh(u[:]))", "a slice", X),
    (X, "x[i] = Nonlin(tanh(u[i])", "never closed", X),
    (X, "x[i] = Nonlin(2u[i])", "cannot be read", "x[i] = Nonlin(2 * u[i])"),
    (X, "x[i] := Nonlin(tanh(u[i]))", "cannot be read", X),
    (X, "x[i] = nonlin(tanh(u[i]))", "the right side must be", X),
    (X, "x[i] = Nonlin(|u[i]|)", "cannot be read", "x[i] = Nonlin(abs(u[i]))"),
    (U, "u[i] = W[i] @ h", "the right side must be", U),
    (U, "u[i] = W[i] * h", "the right side must be", U),
    (U, "u[i] = Nonlin(W[i] @ h)", "the operator @", U),
    (U, "u[i] = h @ W[i].T", "the right side must be", U),
    (U, "u[i] = MatMul(h, W[i])", "h is not a weight", U),
    (U, "u[i] = MatMul(W, h)", "W has 1 index, 0 given", U),
    (U, "u[i] = MatMul(W[i], h) + 1", "the right side must be", "u1[i] = MatMul(W[i], h)\nu[i] = Nonlin(u1[i] + 1)"),
    (U, "u[i] = MatMul(W[i], relu(h))", "takes a vector by its name", "u1 = Nonlin(relu(h))\nu[i] = MatMul(W[i], u1)"),
    (U, "u[i] = MatMul(W[i], MatMul(WQ, h))", "must stand alone", "u1 = MatMul(WQ, h)\nu[i] = MatMul(W[i], u1)"),
    (P, "p[i,j] = Nonlin(q[i]*k[j]/sqrt(n))", "n may occur only", P),
    (P, "p[i,j] = q[i] @ k[j].T / sqrt(n)", "the right side must be", P),
    (P, "p[i,j] = Dot(q[i], k[j].T)", "k[j].T cannot stand here", P),
    (P, "p[i,j] = Dot(q[i], k[j]) / sqrt(n)", "the right side must be", P),
    (P, "p[i,j] = Dot(q[i], k[j], scale=1/sqrt(d))", "Dot has no scale", P),
    (P, "p[i][j] = Dot(q[i], k[j])", "the left side must be", P),
    (P, "p = Dot(q[i], k[j])", "neither on the left nor reduced", P),
    (P, "p[i,j] = Dot(q[i], 2*k[j])", "takes a vector by its name",
        "p1[j] = Nonlin(2 * k[j])\np[i,j] = Dot(q[i], p1[j])"),
    ("WQ: 1", "WQ: {std: 2}", "no option of a weight std", "WQ: {variance: 4}"),
    ("WQ: 1", "WQ: {sigma: 0.5, shape: [n, n]}", "no option of a weight sigma", "WQ: {variance: 0.25, shape: [n, n]}"),
    ("WQ: 1", "WQ: {shape: (n, n)}", "cut in two", "WQ: {shape: [n, n]}"),
    ("WQ: 1", "WQ = 1", "an entry is written", "WQ: 1"),
    ("WQ: 1", "WQ:1", "an entry is written", "WQ: 1"),
    ("  V: 1\n", "", "V is not defined", "  V: 1\n"),
    ("h: {cov: 1}", "h: {std: 3}", "no option of an initial vector std", "h: {cov: 9}"),
    ("h: {cov: 1}", "h: {mean: 0, var: 3}", "no option of an initial vector var", "h: {mean: 0, cov: 3}"),
    ("h: {cov: 1}", "h: {variance: 3}", "variance belongs to data", "h: {cov: 3}"),
    ("h: {cov: 1}", "h: 3", "h takes {mean: ..., cov: ...}", "h: {cov: 3}"),
    ("h: {cov: 1}", "h: N(0, 1)", "h takes {mean: ..., cov: ...}", "h: {cov: 1}"),
    ("indices: {i: s, j: s}", "indices: {i: range(4), j: s}", "is a number, or a range", "indices: {i: 4, j: s}"),
    ("indices: {i: s, j: s}", "indices: {i: [0, 1, 2, 3], j: s}", "is a number, or a range", "indices: {i: 4, j: s}"),
    ("indices: {i: s, j: s}", "indices: {i: 0:4, j: s}", "is a number, or a range", "indices: {i: 4, j: s}"),
    ("run: {width: 64}", "run: {width: 16, 64}", "a comma inside", "run: {width: [16, 64]}"),
    ("run: {width: 64}", "run:\n  width: 16, 64", "a list in square brackets", "run:\n  width: [16, 64]"),
    ("run: {width: 64}", "run: {width: 64, samples: 10,000}", "a comma inside", "run: {width: 64, samples: 10000}"),
    ("run: {width: 64}", "run: {n: 64}", "no run option n", "run: {width: 64}"),
    ("outputs: [y]", "output: [y]", "no section output", "outputs: [y]"),
    ("outputs: [y]", "outputs: [y[0]]", "the name of a whole family", "outputs: [y]"),
    ("outputs: [y]", "outputs: y", "is a list of names", "outputs: [y]"),
    ("body:", "forward:", "no section forward", "body:"),
    ("program: mine", "name: mine", "no section name", "program: mine"),
]  # fmt: skip


def pasted(text: str, error: ProgramError) -> str:
    """The text with the fix of the first problem in the place of its line, or in the section that it names."""
    problem = error.problems[0]
    lines = text.splitlines()
    added = re.match(r"add `(.+?)` under `(\w+):`", problem.fix)
    if added:
        place = lines.index(f"{added[2]}:") + 1
        while lines[place].startswith(" "):
            place += 1
        return "\n".join([*lines[:place], f"  {added[1]}", *lines[place:]])
    old = lines[problem.span.line - 1]
    start = re.match(r"\s*(- )?", old)
    assert start is not None
    new = [start.group() + line for line in problem.fix.splitlines()]
    return "\n".join([*lines[: problem.span.line - 1], *new, *lines[problem.span.line :]])


@pytest.mark.parametrize(("line", "mistake", "message", "meant"), MISTAKES, ids=[entry[1] for entry in MISTAKES])
def test_a_pasted_fix_gives_what_was_meant(line: str, mistake: str, message: str, meant: str) -> None:
    assert PROGRAM.count(line) == 1
    text = PROGRAM.replace(line, mistake)
    with pytest.raises(ProgramError) as caught:
        loads(text)
    assert message in caught.value.problems[0].message
    wanted = loads(PROGRAM.replace(line, meant.replace("\n", "\n  - ") if line in (U, X, P, Y) else meant))
    found = loads(pasted(text, caught.value))
    assert found == wanted
    assert found.run == wanted.run


def test_a_statement_of_which_nothing_is_known_is_not_rewritten() -> None:
    for mistake in (
        "x[i] = Nonlin(arctan(u[i]))",
        "x[i] = Nonlin(tanh(u[i]) / sqrt(n))",
        "x[i] = Nonlin(foo.bar(u[i]))",
        "x[i] = MatMul(u[i], u[i])",
        "x[i] = MatMul(WZ, u[i])",
    ):
        with pytest.raises(ProgramError) as caught:
            loads(PROGRAM.replace(X, mistake))
        assert "x[i] =" not in caught.value.problems[0].fix, mistake
