"""Small programs with the grade they deserve and the rule that decides it."""

from __future__ import annotations

from dataclasses import dataclass

from tensorprog.ir import Netsor
from tensorprog.yaml_io import loads


@dataclass(frozen=True)
class Case:
    """One program, as text, with its expected grade, deciding rule and consequence."""

    name: str
    body: str
    grade: str
    rule: str = ""
    consequence: str = ""
    weights: str = "W[i] WQ[a] WK[a] WV[a] WO[a]"
    outputs: str = "y"
    initial: str = "h: {mean: 0, cov: 1}"
    constants: str = "s: 4, H: 2, C: 2"
    indices: str = "i: s, j: s, a: H, b: H"
    extra: str = ""

    def load(self) -> Netsor:
        lines = [
            f"program: {self.name}",
            f"constants: {{{self.constants}}}",
            f"indices: {{{self.indices}}}",
            "initial:",
        ]
        lines += [f"  {entry}" for entry in self.initial.split(" & ")]
        lines += [
            "weights:",
            *(
                f"  {entry}: 1" if ": {" not in entry else f"  {entry}"
                for entry in (self.weights.split(" & ") if " & " in self.weights else self.weights.split())
            ),
        ]
        lines += [self.extra] if self.extra else []
        lines += [
            "body:",
            *(f"  - {line.strip()}" for line in self.body.strip().splitlines()),
            f"outputs: [{self.outputs}]",
        ]
        return loads("\n".join(lines))


INPUTS = """u[i] = MatMul(W[i], h)
x[i] = Nonlin(clip(u[i], -C, C))
"""
SCORES = """q[a,i] = MatMul(WQ[a], x[i])
k[a,j] = MatMul(WK[a], x[j])
p[a,i,j] = Dot(q[a,i], k[a,j])
"""
VALUES = """v[a,j] = MatMul(WV[a], x[j])
o[a,j] = MatMul(WO[a], v[a,j])
"""
OUTPUT = "y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * o[a,j]) / sqrt(H))\n"
ATTENTION = INPUTS + SCORES + VALUES + OUTPUT
NONE, REGULAR, MATMULS = "", "nonlinearities", "score operands are MatMul outputs"
BOUNDED, A, B, LAYER = (
    "operand inputs bounded",
    "dedicated weights",
    "weights of one score differ",
    "one layer of scores",
)
PLAIN = "W V"  # weights of programs without scores


def _attention(name: str, old: str, new: str, grade: str, rule: str = "", consequence: str = "", **more: str) -> Case:
    """The paper's attention with one thing changed."""
    assert old in ATTENTION, (name, old)
    return Case(name, ATTENTION.replace(old, new), grade, rule, consequence, **more)


def _plain(name: str, phi: str, grade: str, rule: str = "", **more: str) -> Case:
    """One hidden layer without scores."""
    more = {"weights": PLAIN} | more
    return Case(
        name,
        f"g = MatMul(W, h)\nx = Nonlin({phi})\ny = MatMul(V, x)",
        grade,
        rule,
        "not covered" if grade == "outside" else "",
        **more,
    )


def _masked(name: str, scored: str, grade: str, rule: str = "", consequence: str = "") -> Case:
    return _attention(name, "softmax[j](p[a,i,j])", scored, grade, rule, consequence)


CORPUS: tuple[Case, ...] = (
    Case("attention", ATTENTION, "theorem"),
    # inputs of operands
    _attention("relu inputs", "clip(u[i], -C, C)", "relu(u[i])", "remark", BOUNDED),
    _attention("clipped relu inputs", "clip(u[i], -C, C)", "min(relu(u[i]), C)", "theorem"),
    _attention("rational inputs", "clip(u[i], -C, C)", "u[i] / (1 + u[i]**2)", "theorem"),
    _attention("rational inputs of higher degree", "clip(u[i], -C, C)", "u[i]**3 / (1 + u[i]**2)", "remark", BOUNDED),
    _attention("normalised inputs", "clip(u[i], -C, C)", "u[i] / sqrt(1 + u[i]**2)", "theorem"),
    _attention("hand-written sigmoid inputs", "clip(u[i], -C, C)", "1 / (1 + exp(-u[i]))", "theorem"),
    _attention("inputs without a nonlinearity", "clip(u[i], -C, C)", "u[i]", "remark", BOUNDED),
    _attention("quadratic inputs", "clip(u[i], -C, C)", "u[i]**2", "remark", BOUNDED),
    _attention("step inputs", "clip(u[i], -C, C)", "step(u[i])", "outside", REGULAR, "not covered"),
    _attention("sign inputs", "clip(u[i], -C, C)", "sign(u[i])", "outside", REGULAR, "not covered"),
    _attention("exp inputs", "clip(u[i], -C, C)", "exp(u[i])", "outside", REGULAR, "not covered"),
    _attention("exp inputs bounded above", "clip(u[i], -C, C)", "exp(min(u[i], C))", "theorem"),
    _attention("root inputs", "clip(u[i], -C, C)", "sqrt(min(abs(u[i]), 1))", "outside", REGULAR, "not covered"),
    _attention("root inputs away from 0", "clip(u[i], -C, C)", "sqrt(min(abs(u[i]), 1) + 0.1)", "theorem"),
    _attention("glued branches", "clip(u[i], -C, C)", "tanh(where(u[i] > 0, u[i], 0.5 * u[i]))", "theorem"),
    _attention(
        "branches with a gap",
        "clip(u[i], -C, C)",
        "tanh(where(u[i] > 0, u[i] + 1, 0.5 * u[i]))",
        "outside",
        REGULAR,
        "not covered",
    ),
    # two weights in one score
    Case(
        "tied query and key",
        ATTENTION.replace("WK[a]", "WQ[a]"),
        "outside",
        B,
        "diverges",
        weights="W[i] WQ[a] WV[a] WO[a]",
    ),
    Case(
        "keys by another member",
        ATTENTION.replace("WQ[a]", "WA[0, a]").replace("WK[a]", "WA[1, a]"),
        "theorem",
        weights="W[i] & 'WA[t,a]' & WV[a] & WO[a]".replace("WA[t,a]'", "WA[t,a]'"),
        indices="i: s, j: s, a: H, t: 2",
    ),
    Case(
        "keys of the next head",
        ATTENTION.replace("WK[a]", "WQ[a+1]"),
        "theorem",
        weights="W[i] WQ[c] WV[a] WO[a]",
        indices="i: s, j: s, a: H, c: H + 1",
    ),
    Case(
        "keys of another head, sometimes the same",
        INPUTS
        + "q[a,i] = MatMul(WQ[a], x[i])\nk[b,j] = MatMul(WQ[b], x[j])\np[a,b,i,j] = Dot(q[a,i], k[b,j])\n"
        + "y[i] = Nonlin(sum[a,b,j](tanh(p[a,b,i,j]) * x[j]))",
        "outside",
        B,
        "diverges",
        weights="W[i] WQ[a]",
    ),
    Case(
        "a score of one vector with itself",
        INPUTS + "q = MatMul(WQ, x[0])\np = Dot(q, q)\ny = Nonlin(tanh(p) * x[1])",
        "outside",
        B,
        "diverges",
        weights="W[i] WQ",
    ),
    Case(
        "tied weights on independent inputs",
        INPUTS + "q = MatMul(WQ, x[0])\nk = MatMul(WQ, x[1])\np = Dot(q, k)\ny = Nonlin(tanh(p) * x[1])",
        "outside",
        B,
        "not covered",
        weights="W[i] WQ",
    ),
    Case(
        "tied weights on positive inputs",
        INPUTS.replace("clip(u[i], -C, C)", "sigmoid(u[i])")
        + "q = MatMul(WQ, x[0])\nk = MatMul(WQ, x[1])\np = Dot(q, k)\ny = Nonlin(tanh(p) * x[1])",
        "outside",
        B,
        "diverges",
        weights="W[i] WQ",
    ),
    Case(
        "tied weights, averaged",
        ATTENTION.replace("WK[a]", "WQ[a]").replace("k[a,j])\nv", "k[a,j], scale=1/n)\nv"),
        "extension",
        "averages",
        weights="W[i] WQ[a] WV[a] WO[a]",
    ),
    # sharing across scores
    Case(
        "keys shared by all heads",
        ATTENTION.replace("k[a,j] = MatMul(WK[a]", "k[j] = MatMul(WK").replace("k[a,j])", "k[j])"),
        "theorem",
        weights="W[i] WQ[a] WK WV[a] WO[a]",
    ),
    # dedicated weights
    Case(
        "a value path by the query weight",
        ATTENTION.replace("WV[a]", "WQ[a]"),
        "outside",
        A,
        "not covered",
        weights="W[i] WQ[a] WK[a] WO[a]",
    ),
    Case(
        "a value path by another member",
        ATTENTION.replace("WV[a]", "WQ[a+H]"),
        "theorem",
        weights="W[i] WQ[c] WK[a] WO[a]",
        indices="i: s, j: s, a: H, c: 2*H",
    ),
    Case("an unused value path by the query weight", ATTENTION + "z[a,i] = MatMul(WQ[a], u[i])", "theorem"),
    _attention(
        "an operand in the output",
        "softmax[j](p[a,i,j]) * o[a,j]",
        "softmax[j](p[a,i,j]) * o[a,j] + 0 * q[a,i]",
        "theorem",
    ),
    # operands
    Case(
        "a score of nonlinear vectors",
        INPUTS + "p[i,j] = Dot(x[i], x[j])\ny[i] = Nonlin(sum[j](tanh(p[i,j]) * x[j]))",
        "outside",
        MATMULS,
        "not covered",
        weights="W[i]",
    ),
    Case(
        "a score of one nonlinear vector",
        INPUTS + "p[i] = Dot(x[i], x[i])\ny[i] = Nonlin(tanh(p[i]) * x[i])",
        "outside",
        MATMULS,
        "diverges",
        weights="W[i]",
    ),
    Case(
        "a score of an initial vector",
        INPUTS + "q = MatMul(WQ, x[0])\np = Dot(q, h)\ny = Nonlin(tanh(p) * x[0])",
        "outside",
        MATMULS,
        "not covered",
        weights="W[i] WQ",
    ),
    Case(
        "an operand with a bias",
        INPUTS + "g = MatMul(WQ, x[0])\nq = Nonlin(g + e)\nk = MatMul(WK, x[1])\np = Dot(q, k)\n"
        "y = Nonlin(tanh(p) * x[0])",
        "outside",
        MATMULS,
        "not covered",
        weights="W[i] WQ WK",
        initial="h: {mean: 0, cov: 1} & e: {mean: 0, cov: 1}",
    ),
    # after the scores
    Case(
        "a weight after the sum",
        INPUTS + SCORES + "v[a,j] = MatMul(WV[a], x[j])\n"
        "z[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * v[a,j]))\n"
        "w[a,i] = MatMul(WO[a], z[a,i])\ny[i] = Nonlin(sum[a](w[a,i]))",
        "outside",
        LAYER,
        "not covered",
    ),
    Case(
        "a weight after relu of the sum",
        INPUTS + SCORES + "v[a,j] = MatMul(WV[a], x[j])\n"
        "z[a,i] = Nonlin(relu(sum[j](softmax[j](p[a,i,j]) * v[a,j])))\n"
        "w[a,i] = MatMul(WO[a], z[a,i])\ny[i] = Nonlin(sum[a](w[a,i]))",
        "outside",
        LAYER,
        "not covered",
    ),
    Case(
        "an average after the scores",
        ATTENTION.replace("y[i] =", "z[i] =") + "m[i] = Dot(z[i], z[i], scale=1/n)\n"
        "y[i] = Nonlin(z[i] / sqrt(m[i] + 0.01))",
        "outside",
        "averages",
        "not covered",
    ),
    # functions of scores
    _masked("a causal mask", "softmax[j](where(j <= i, p[a,i,j], -inf))", "theorem"),
    _masked("a mask without softmax", "where(j <= i, p[a,i,j], -inf)", "outside", REGULAR, "not covered"),
    _masked("a step of scores", "step(p[a,i,j])", "outside", REGULAR, "not covered"),
    _masked("exp of scores", "exp(p[a,i,j])", "outside", REGULAR, "not covered"),
    _masked("hand-written softmax", "exp(p[a,i,j]) / sum[b](exp(p[b,i,j]))", "theorem"),
    _masked("scores themselves", "p[a,i,j]", "theorem"),
    _masked("squared scores", "p[a,i,j]**2", "theorem"),
    _masked("sigmoid attention", "sigmoid(p[a,i,j] - log(s))", "theorem"),
    _masked("division by scores", "1 / p[a,i,j]", "outside", REGULAR, "not covered"),
    Case(
        "scores through scalars",
        ATTENTION.replace(
            "y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j])",
            "w[a,i,j] = Nonlin(softmax[j](p[a,i,j]))\ny[i] = Nonlin(sum[a,j](w[a,i,j]",
        ),
        "theorem",
    ),
    # averages
    Case(
        "averages in place of scores", ATTENTION.replace("k[a,j])\nv", "k[a,j], scale=1/n)\nv"), "extension", "averages"
    ),
    Case(
        "layer norm",
        "g = MatMul(W, h)\nm = Dot(g, g, scale=1/n)\nx = Nonlin(g / sqrt(m + 0.01))\ny = MatMul(V, x)",
        "extension",
        "averages",
        weights=PLAIN,
    ),
    # without scores
    _plain("tanh", "tanh(g)", "theorem"),
    _plain("relu", "relu(g)", "theorem"),
    _plain("gelu", "gelu(g)", "theorem"),
    _plain("step", "step(g)", "theorem"),
    _plain("exp", "exp(g)", "theorem"),
    _plain("exp of a power below 2", "exp(abs(g)**1.5)", "theorem"),
    _plain("exp of a square", "exp(g**2)", "outside", REGULAR),
    _plain("exp of minus a square", "exp(-g**2)", "theorem"),
    _plain("logarithm", "log(g)", "outside", REGULAR),
    _plain("logarithm away from 0", "log(1 + g**2)", "theorem"),
    _plain("reciprocal", "1 / g", "outside", REGULAR),
    _plain("initial vector inside phi", "tanh(g) * h", "theorem"),
    Case(
        "recurrent network",
        "s[0] = Nonlin(0)\nu[t] = MatMul(W, s[t-1])\ns[t] = Nonlin(tanh(u[t] + e[t]))\ny = MatMul(V, s[3])",
        "theorem",
        weights=PLAIN,
        indices="t: 1..3",
        constants="T: 4",
        initial="e[t]: {mean: 0, cov: 1}",
    ),
    Case(
        "residual recurrence",
        "g[t] = MatMul(W, h)\ns[0] = Nonlin(h)\ns[t] = Nonlin(s[t-1] + tanh(g[t]))\ny = MatMul(V, s[3])",
        "theorem",
        weights=PLAIN,
        indices="t: 1..3",
        constants="T: 4",
    ),
    # widths
    Case(
        "low rank",
        ATTENTION,
        "extension",
        "widths",
        extra="widths: {d: n/2}",
        weights="W[i]: {variance: 1, shape: [n, n]} & "
        "WQ[a]: {variance: 1, shape: [d, n]} & WK[a]: {variance: 1, shape: [d, n]} & "
        "WV[a]: {variance: 1, shape: [d, n]} & "
        "WO[a]: {variance: 1, shape: [n, d]}",
    ),
    Case(
        "fixed width",
        ATTENTION,
        "extension",
        "widths",
        extra="fixed_widths: {d: 8}",
        weights="W[i]: {variance: 1, shape: [n, n]} & "
        "WQ[a]: {variance: 1, shape: [d, n]} & WK[a]: {variance: 1, shape: [d, n]} & "
        "WV[a]: {variance: 1, shape: [n, n]} & "
        "WO[a]: {variance: 1, shape: [n, n]}",
    ),
)
