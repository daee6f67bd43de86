"""Small programs on which all methods must draw from one law, at widths where a mistake would show.

At such widths every shortcut is visible: a degree of freedom too many, a lost Gram matrix, a forgotten history of a
weight, a frame asked to hold more directions than the width has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tests.reading import Netsor, loads


@dataclass(frozen=True)
class Case:
    """One program and how to run it."""

    name: str
    body: str
    weights: str = ""  # "Q K:1.5" declares two, of variances 1 and 1.5
    initial: str = "x[i]: {mean: 0, cov: 1}"  # entries separated by " & "
    indices: str = "i: 2, j: 2, a: 2"
    outputs: str = "y"
    extra: str = ""  # further sections
    width: int = 4
    coordinates: int = 1
    keep: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """Networks of the slow comparison."""
        return MANY if self.name in CORE else 250_000

    @property
    def text(self) -> str:
        weights = [entry.partition(":") for entry in self.weights.split()]
        return "\n".join(
            [
                f"program: {self.name}",
                f"indices: {{{self.indices}}}",
                *([self.extra] if self.extra else []),
                "initial:",
                *(f"  {entry}" for entry in self.initial.split(" & ")),
                *(["weights:"] if weights and "weights:" not in self.extra else []),
                *(f"  {name}: {variance or 1}" for name, _, variance in weights),
                "body:",
                *(f"  - {line.strip()}" for line in self.body.strip().splitlines()),
                f"outputs: [{self.outputs}]",
            ]
        )

    @cached_property
    def netsor(self) -> Netsor:
        return loads(self.text, file=self.name)


MANY = 1_000_000  # for the programs that exercise one mechanism each, so that one percent of a variance shows
CORE = (
    "attention",
    "shared_keys",
    "low_rank",
    "biases",
    "output_weight_outside_the_sum",
    "two_layers_linear",
    "two_layers_relu",
    "reuse",
    "recurrent",
    "linear_recurrence_width_2",
    "linear_recurrence_width_4",
    "duplicated_tokens",
    "attention_more_tokens_than_width",
    "one_weight_in_two_statements",
    "layer_norm_of_inner_products_only",
)

# the paper's attention

INPUTS = """u[i] = MatMul(W[i], h)
x[i] = Nonlin(clip(u[i], -1, 1))
"""
SCORES = """q[a,i] = MatMul(WQ[a], x[i])
k[a,j] = MatMul(WK[a], x[j])
p[a,i,j] = Dot(q[a,i], k[a,j])
"""
VALUES = """v[a,j] = MatMul(WV[a], x[j])
o[a,j] = MatMul(WO[a], v[a,j])
y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * o[a,j]) / sqrt(2))
"""
HEADS = "WQ[a] WK[a]:1.5 WV[a] WO[a]"
PAPER = {"weights": f"W[i] {HEADS}", "initial": "h: {mean: 0, cov: 1}"}


def attention(name: str, indices: str = "i: 3, j: 3, a: 2", **run: object) -> Case:
    """The paper's layer as it stands."""
    return Case(name, INPUTS + SCORES + VALUES, indices=indices, **(PAPER | run))  # type: ignore[arg-type]


def scored(name: str, operands: str, weights: str = "Q K", then: str = "", **more: object) -> Case:
    """Operands q[i], k[j] as written, their scores, and a mixture of the inputs by them."""
    body = f"{operands}\np[i,j] = Dot(q[i], k[j])\n{then}\ny[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))"
    return Case(name, "\n".join(line for line in body.splitlines() if line), weights, **more)  # type: ignore[arg-type]


def rectangular(*shapes: str) -> str:
    """Weights with their shapes: 'Q d n' is d x n."""
    entries = (shape.split() for shape in shapes)
    return "weights:\n" + "\n".join(f"  {w}: {{variance: 1, shape: [{r}, {c}]}}" for w, r, c in entries)


ATTENTION = [
    attention("attention"),
    attention("attention_more_tokens_than_width", indices="i: 5, j: 5, a: 1", width=2),
    attention("attention_width_one", indices="i: 2, j: 2, a: 2", width=1),
    attention("attention_two_coordinates", coordinates=2),
    attention("attention_all_coordinates", width=3, coordinates=3),
    attention("attention_keys_and_values_kept", width=3, keep=("v", "k"), coordinates=2),
    attention("attention_inputs_kept", indices="i: 2, j: 2, a: 2", width=2, keep=("x", "h")),
    Case(
        "causal",
        """
        q[a,i] = MatMul(WQ[a], x[i])
        k[a,j] = MatMul(WK[a], x[j])
        p[a,i,j] = Dot(q[a,i], k[a,j])
        v[a,j] = MatMul(WV[a], x[j])
        y[i] = Nonlin(sum[a,j](softmax[j](where(j <= i, p[a,i,j], -inf)) * v[a,j]))""",
        "WQ[a]:1+a WK[a]:2-a WV[a]",
        indices="i: 3, j: 3, a: 2",
        width=3,
    ),
    Case(
        "shared_keys",
        """
        z[i] = Nonlin(relu(x[i]))
        q[a,i] = MatMul(WQ[a], z[i])
        k[j] = MatMul(WK, z[j])
        v[j] = MatMul(WV, z[j])
        p[a,i,j] = Dot(q[a,i], k[j])
        y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * v[j]))""",
        "WQ[a] WK:1.5 WV",
    ),
    Case(
        "grouped_queries",
        """
        z[i] = Nonlin(tanh(x[i]))
        q[g,b,i] = MatMul(WQ[g,b], z[i])
        k[g,j] = MatMul(WK[g], z[j])
        v[g,j] = MatMul(WV[g], z[j])
        p[g,b,i,j] = Dot(q[g,b,i], k[g,j])
        y[i] = Nonlin(sum[g,b,j](softmax[j](p[g,b,i,j]) * v[g,j]))""",
        "WQ[g,b]:1+b WK[g] WV[g]",
        indices="i: 2, j: 2, g: 2, b: 2",
    ),
    Case(
        "every_query_with_every_key",
        """
        q[a,i] = MatMul(WQ[a], x[i])
        k[b,j] = MatMul(WK[b], x[j])
        p[a,b,i,j] = Dot(q[a,i], k[b,j])
        y[i] = Nonlin(sum[a,b,j](tanh(p[a,b,i,j]) * x[j]))""",
        "WQ[a] WK[b]",
        indices="i: 2, j: 2, a: 2, b: 2",
        width=3,
    ),
    Case(
        "keys_are_values_behind_a_weight",
        """
        q[i] = MatMul(WQ, x[i])
        k[j] = MatMul(WK, x[j])
        p[i,j] = Dot(q[i], k[j])
        o[i] = Nonlin(sum[j](softmax[j](p[i,j]) * k[j]))
        y[i] = MatMul(WO, o[i])
        r[i,j] = Dot(o[i], k[j], scale=1/n)""",
        "WQ WK WO",
        width=3,
    ),
    Case("only_scores_are_asked_for", SCORES + "y[a,i] = Nonlin(logsumexp[j](p[a,i,j]))", "WQ[a] WK[a]", width=2),
    # a long prompt
]

WIDTHS = [
    Case(
        "low_rank",
        "z[i] = Nonlin(relu(x[i]))\n" + SCORES.replace("x[", "z[") + VALUES,
        extra="widths: {d: n/2}\n" + rectangular("WQ[a] d n", "WK[a] d n", "WV[a] d n", "WO[a] n d"),
        width=6,
    ),
    Case(
        "rank_one",
        SCORES + VALUES,
        width=3,
        coordinates=1,
        extra="widths: {d: n/3}\n" + rectangular("WQ[a] d n", "WK[a] d n", "WV[a] d n", "WO[a] n d"),
    ),
    scored(
        "fixed_width",
        """
        q0[i] = MatMul(Q, x[i])
        q[i] = Nonlin(q0[i] + b)
        k[j] = MatMul(K, x[j])""",
        "",
        initial="x[i]: {mean: 0, cov: 1} & b: {mean: 0.3, cov: 1, width: d}",
        extra="fixed_widths: {d: 3}\n" + rectangular("Q d n", "K d n"),
        width=5,
    ),
]

OPERANDS = [
    scored("plain_scores", "q[i] = MatMul(Q, x[i])\nk[j] = MatMul(K, x[j])"),
    Case(
        "biases",
        """
        q0[a,i] = MatMul(WQ[a], x[i])
        k0[a,j] = MatMul(WK[a], x[j])
        q[a,i] = Nonlin(q0[a,i] + b[a])
        k[a,j] = Nonlin(k0[a,j] + c[a])
        p[a,i,j] = Dot(q[a,i], k[a,j])
        y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * x[j]))""",
        "WQ[a] WK[a]",
        "x[i]: {mean: 0, cov: 1} & b[a]: {mean: 0, cov: 0.5} & c[a]: {mean: 0, cov: 0.5**abs(a - a_)}",
    ),
    scored(
        "bias_with_a_mean",
        """
        q0[i] = MatMul(Q, x[i])
        q[i] = Nonlin(2*q0[i] - b)
        k[j] = MatMul(K, x[j])""",
        initial="x[i]: {mean: 0, cov: 1} & b: {mean: 0.7, cov: 0.5}",
        width=3,
        then="r[i] = Dot(q[i], b)",
    ),
    scored(
        "one_weight_in_two_statements",
        """
        z[i] = Nonlin(relu(x[i]))
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        l[j] = MatMul(K, z[j])""",
        then="r[i,j] = Dot(q[i], l[j])",
    ),
    scored(
        "one_weight_in_two_statements_dependent",
        """
        z[i] = Nonlin(2*x[i] - x[0])
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        l[j] = MatMul(K, z[j])""",
        then="r[i,j] = Dot(l[i], l[j])\nt[i,j] = Dot(k[i], l[j])",
        width=3,
    ),
    scored("tied", "q[i] = MatMul(Q, x[i])\nk[j] = MatMul(Q, x[j])", "Q", width=3),
    scored("with_itself", "q[i] = MatMul(Q, x[i])\nk[j] = Nonlin(q[j])", "Q", width=2),
    Case(
        "tied_across_heads",
        """
        q[a,i] = MatMul(WQ[a], x[i])
        k[a,j] = MatMul(WK[a], x[j])
        p[i,j] = Dot(q[0,i], q[1,j])
        r[a,i,j] = Dot(q[a,i], k[1-a,j])
        y[i] = Nonlin(sum[a,j](tanh(p[i,j] + r[a,i,j]) * x[j]))""",
        "WQ[a] WK[a]",
        width=3,
    ),
    scored(
        "sums_of_products",
        """
        z[i] = Nonlin(abs(x[i]))
        q1[i] = MatMul(A, x[i])
        q2[i] = MatMul(B, z[i])
        k1[i] = MatMul(D, z[i])
        q[i] = Nonlin(q1[i] + q2[i])
        k[j] = Nonlin(k1[j] - 0.5*q2[j])""",
        "A B D",
        width=3,
    ),
    scored(
        "qk_norm",
        """
        q1[i] = MatMul(Q, x[i])
        k1[j] = MatMul(K, x[j])
        m[i] = Dot(q1[i], q1[i], scale=1/n)
        l[j] = Dot(k1[j], k1[j], scale=1/n)
        q[i] = Nonlin(q1[i] / sqrt(m[i] + 0.01))
        k[j] = Nonlin(k1[j] / sqrt(l[j] + 0.01))""",
        width=3,
    ),
    scored("scored_with_an_input", "q[i] = MatMul(Q, x[i])\nk[j] = Nonlin(tanh(x[j]))", "Q", width=2),
    scored(
        "products_are_not_linear",
        """
        q1[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        q[i] = Nonlin(q1[i] * k[i])""",
        width=3,
    ),
    Case(
        "initial_vectors_are_scored_and_multiplied",
        """
        u[i] = MatMul(W, x[i])
        v[i] = MatMul(W, u[i])
        p[i,j] = Dot(x[i], v[j])
        r[i,j] = Dot(u[i], v[j])
        t[i,j] = Dot(x[i], x[j])
        y[i] = Nonlin(sum[j](tanh(p[i,j]) * r[i,j]))""",
        "W",
        "x[i]: {mean: 0.5, cov: 0.5**abs(i - i_)}",
        width=2,
    ),
]

MEMBERS = [
    Case(
        "weights_by_sums_of_indices",
        """
        q[i,j] = MatMul(Q[i+j], x[i])
        k[j] = MatMul(K, x[j])
        p[i,j] = Dot(q[i,j], k[j])
        r[i,j] = Dot(q[i,j], q[j,i])
        y[i] = Nonlin(sum[j](tanh(p[i,j]) * x[j]))""",
        "Q[d]:1+d K",
        indices="i: 2, j: 2, d: 3",
        width=3,
    ),
    Case(
        "weight_members_in_parts",
        """
        k[0] = MatMul(K[0], x[0])
        k[1] = MatMul(K[2], x[0])
        k[2] = MatMul(K[0], x[1])
        k[3] = MatMul(K[1], x[1])
        q[i] = MatMul(Q, x[i])
        p[i,j] = Dot(q[i], k[j])
        r[i,j] = Dot(k[i], k[j])
        y[i] = Nonlin(sum[j](softmax[j](p[i,j])*r[i,j]))""",
        "Q K[d]",
        indices="i: 2, j: 4, d: 3",
        width=3,
    ),
    Case(
        "parts_overlap_in_their_members",
        """
        k[i] = MatMul(K[i], x[i])
        l[i] = MatMul(K[i+1], x[i])
        q[i] = MatMul(Q, x[i])
        p[i,j] = Dot(q[i], k[j])
        r[i,j] = Dot(q[i], l[j])
        t[i,j] = Dot(k[i], l[j])
        y[i] = Nonlin(sum[j](tanh(p[i,j] + r[i,j])*t[i,j]))""",
        "Q K[d]",
        indices="i: 2, j: 2, d: 3",
        width=3,
    ),
    Case(
        "wrapped",
        """
        q[c] = MatMul(Q, x[c])
        k[c] = MatMul(K, x[c])
        p[c,d] = Dot(q[c], k[c+d])
        g[d,c] = MatMul(F[d], x[c+d])
        r[c] = Dot(g[1,c], g[0,c])
        y[c] = Nonlin(sum[d](softmax[d](p[c,d]) * x[c+d]))""",
        "Q K F[d]",
        "x[c]: {mean: 0, cov: 0.5**abs(c - c_)}",
        indices='c: {size: 3, boundary: wrap}, d: "-1..1"',
        width=3,
    ),
    Case(
        "padded",
        """
        q[c] = MatMul(Q, x[c])
        k[c] = MatMul(K, x[c])
        p[c,d] = Dot(q[c], k[c+d])
        g[d,c] = MatMul(F[d], x[c+d])
        r[c] = Dot(g[1,c], g[0,c])
        y[c] = Nonlin(sum[d](softmax[d](p[c,d]) * x[c+d]))""",
        "Q K F[d]",
        "x[c]: {mean: 0, cov: 0.5**abs(c - c_)}",
        indices='c: {size: 3, boundary: zero}, d: "-1..1"',
        width=3,
    ),
]

MEETINGS = [
    Case(
        "diagonal_scores",
        """
        q[a,i] = MatMul(Q[a], x[i])
        k[a,i] = MatMul(K, x[i])
        p[a,i] = Dot(q[a,i], k[a,i])
        y[i] = Nonlin(sum[a](tanh(p[a,i]) * x[i]))""",
        "Q[a] K",
        width=3,
    ),
    Case(
        "shifted_scores",
        """
        q[t] = MatMul(Q, x[t])
        k[t] = MatMul(K[t], x[t])
        p[l] = Dot(q[l], k[l+1])
        r[l] = Dot(k[l], k[l+1])
        y[l] = Nonlin(tanh(p[l]) * x[l] + r[l])""",
        "Q K[t]",
        "x[t]: {mean: 0, cov: 0.5**abs(t - t_)}",
        indices="t: 4, l: 3",
        width=3,
    ),
    Case(
        "swapped_slots",
        """
        q[i,a] = MatMul(Q[a], x[i])
        k[a,j] = MatMul(K[a], x[j])
        p[a,i,j] = Dot(q[i,a], k[a,j])
        r[a,i] = Dot(q[a,i], k[i,a])
        y[i] = Nonlin(sum[a,j](tanh(p[a,i,j] + r[a,j]) * x[i]))""",
        "Q[a] K[a]",
        width=3,
    ),
    Case(
        "heads_meet_in_a_shared_output_weight",
        SCORES
        + """o[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * k[a,j]))
        w[a,i] = MatMul(WO, o[a,i])
        r[i] = Dot(w[0,i], w[1,i])
        y[i] = Nonlin(sum[a](w[a,i]))""",
        "WQ[a] WK[a] WO",
        width=3,
    ),
    Case(
        "prompts_that_never_meet",
        """
        p[b,i] = Dot(x[0,b], x[i,b])
        q[b,i] = MatMul(Q[b], x[i,b])
        r[b,i,j] = Dot(q[b,i], q[b,j], scale=1/n)
        y[b] = Nonlin(sum[i](tanh(p[b,i]) * r[b,i,i]))""",
        "Q[b]",
        "x[i,b]: {mean: 0, cov: 0.5**abs(i - i_)}",
        indices="i: 2, j: 2, b: 2",
        width=3,
    ),
]

CONSTANTS = [
    *(
        scored(
            f"constants_kept_in_{coordinates}_of_{width}",
            """
        q0[i] = MatMul(Q, x[i])
        k0[j] = MatMul(K, x[j])
        q[i] = Nonlin(q0[i] + 0.7)
        k[j] = Nonlin(2 - k0[j] + b)""",
            initial="x[i]: {mean: 0, cov: 1} & b: {mean: 0.5, cov: 1}",
            width=width,
            coordinates=coordinates,
            keep=("q", "k"),
            then="r[i] = Dot(q[i], b, scale=1/n)",
        )
        for coordinates, width in ((1, 1), (1, 3), (2, 3), (2, 2))
    ),
    Case(
        "constant_vectors_are_scored",
        """
        one = Nonlin(1)
        c = Nonlin(2*one - 0.5)
        u = MatMul(W, c)
        v = MatMul(W, one)
        w = MatMul(V, u)
        p = Dot(u, one)
        r = Dot(v, u)
        t = Dot(w, c, scale=1/n)
        y = Nonlin(w + p*v + t)""",
        "W V",
        indices="i: 2",
        width=3,
    ),
    Case(
        "fixed_inputs",
        """
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        p[i,j] = Dot(q[i], k[j])
        r[i] = Dot(q[i], x[i])
        y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * r[j]))""",
        "Q K",
        "x[i]: {mean: i + 0.5, cov: 0*abs(i - i_)}",
        width=3,
    ),
]

DEGENERATE = [
    scored(
        "duplicated_tokens",
        "q[i] = MatMul(Q, x[i])\nk[j] = MatMul(K, x[j])",
        initial="x[i]: {mean: 0, cov: [[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]]}",
        indices="i: 3, j: 3",
        width=3,
    ),
    scored(
        "zero_vectors",
        """
        z[0] = Nonlin(0)
        z[1] = Nonlin(x[1])
        q[i] = MatMul(Q, z[i])
        k[j] = MatMul(K, z[j])""",
        width=3,
    ),
    scored("width_one", "q[i] = MatMul(Q, x[i])\nk[j] = MatMul(K, x[j])", then="r[i,j] = Dot(q[i], q[j])", width=1),
    scored(
        "tokens_of_two_dimensions",
        "q[i] = MatMul(Q, x[i])\nk[j] = MatMul(K, x[j])",
        initial="x[i]: {mean: 0, data: [[1, 0], [0, 1], [1, 1], [-1, 2]], variance: 2}",
        indices="i: 4, j: 4",
        width=5,
    ),
    Case(
        "dependent",
        """
        x[0] = Nonlin(h + 0)
        x[1] = Nonlin(h + 0)
        x[2] = Nonlin(h - 2*g)
        u[i] = MatMul(W, x[i])
        z = Nonlin(x[2] + 3*x[0])
        w = MatMul(W, z)
        y0 = Nonlin(w * u[0])
        y1 = Nonlin(sum[i](u[i]) + abs(w))""",
        "W",
        "h: {mean: 0, cov: 1} & g: {mean: 0, cov: 2}",
        indices="i: 3",
        outputs="y0, y1, u, w",
        width=8,
    ),
]

LAYERS = [
    Case(
        "output_weight_outside_the_sum",
        SCORES
        + """v[a,j] = MatMul(WV[a], x[j])
        o[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * v[a,j]))
        w[a,i] = MatMul(WO[a], o[a,i])
        y[i] = Nonlin(sum[a](w[a,i]) / sqrt(2))""",
        HEADS,
    ),
    Case(
        "score_dependent_vector_reaches_its_own_weight",
        """
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        p[i,j] = Dot(q[i], k[j])
        o[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))
        l[i] = MatMul(Q, o[i])
        r[i,j] = Dot(l[i], k[j])
        y[i] = Nonlin(l[i] + sum[j](r[i,j])*x[i])""",
        "Q K",
        width=3,
    ),
    *(
        Case(
            f"two_layers_{kind}",
            f"""
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        v[j] = MatMul(V, x[j])
        p[i,j] = Dot(q[i], k[j])
        z[i] = Nonlin({phi})
        q2[i] = MatMul(Q2, z[i])
        k2[j] = MatMul(K2, z[j])
        v2[j] = MatMul(V2, z[j])
        p2[i,j] = Dot(q2[i], k2[j])
        y[i] = Nonlin({residual}sum[j](softmax[j](p2[i,j]) * v2[j]))""",
            "Q K V Q2 K2 V2",
            width=width,
        )
        for kind, width, residual, phi in (
            ("linear", 3, "", "sum[j](softmax[j](p[i,j]) * v[j])"),
            ("residual", 3, "z[i] + ", "x[i] + sum[j](softmax[j](p[i,j]) * v[j])"),
            ("relu", 3, "", "relu(sum[j](softmax[j](p[i,j]) * v[j]))"),
            ("residual_relu", 2, "z[i] + ", "x[i] + relu(sum[j](softmax[j](p[i,j]) * v[j]))"),
        )
    ),
    Case(
        "two_layers_of_one_set_of_weights",
        """
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        v[j] = MatMul(V, x[j])
        p[i,j] = Dot(q[i], k[j])
        z[i] = Nonlin(x[i] + sum[j](softmax[j](p[i,j]) * v[j]))
        q2[i] = MatMul(Q, z[i])
        k2[j] = MatMul(K, z[j])
        v2[j] = MatMul(V, z[j])
        p2[i,j] = Dot(q2[i], k2[j])
        y[i] = Nonlin(z[i] + sum[j](softmax[j](p2[i,j]) * v2[j]))""",
        "Q K V",
        width=3,
    ),
    Case(
        "scores_of_scores",
        """
        q[i] = MatMul(Q, x[i])
        k[j] = MatMul(K, x[j])
        v[j] = MatMul(V, x[j])
        p[i,j] = Dot(q[i], k[j])
        w[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
        r[i,j] = Dot(w[i], q[j])
        m[i] = Nonlin(sum[j](softmax[j](r[i,j]) * w[j] + 0.1*k[j]))
        t[i,j] = Dot(m[i], k[j])
        y[i] = Nonlin(sum[j](softmax[j](t[i,j]) * v[j]))""",
        "Q K V",
        width=3,
    ),
    Case(
        "layer_norm_of_inner_products_only",
        """
        v[i] = MatMul(V, x[i])
        one = Nonlin(1)
        m[i] = Dot(v[i], one, scale=1/n)
        s[i] = Dot(v[i], v[i], scale=1/n)
        l[i] = Nonlin((v[i] - m[i]) / sqrt(s[i] - m[i]**2 + 0.01))
        q[i] = MatMul(Q, l[i])
        k[j] = MatMul(K, l[j])
        p[i,j] = Dot(q[i], k[j])
        r[i,j] = Dot(l[i], l[j], scale=1/n)
        y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))""",
        "V Q K",
        width=3,
    ),
]

RECURRENCES = [
    # one weight on vectors that depend on its own earlier outputs, through a sum, a product and a nonlinearity
    Case(
        "reuse",
        """
        a = MatMul(W, h)
        b = MatMul(W, a)
        c = Nonlin(relu(b) + 0.5*a - h)
        d = MatMul(W, c)
        e = MatMul(V, d)
        p = Dot(a, d, scale=1/n)
        f = MatMul(W, e)
        y0 = Nonlin(f + b)
        y1 = Nonlin(tanh(d) * p)""",
        "W:1.5 V",
        "h: {mean: 0.5, cov: 1}",
        indices="i: 2",
        outputs="y0, y1",
        width=8,
    ),
    Case(
        "recurrent",
        """
        s[0] = Nonlin(0.3)
        u[t] = MatMul(W, s[t-1])
        s[t] = Nonlin(tanh(u[t] + e[t]))
        y0 = Nonlin(u[3])
        y1 = Nonlin(u[2] * s[1])""",
        "W:1.2",
        "e[t]: {mean: 0, cov: 0.5**abs(t - t_)}",
        indices="t: 1..3",
        outputs="y0, y1",
        width=8,
    ),
    *(
        Case(
            f"linear_recurrence_width_{width}",
            """
        s[0] = Nonlin(h)
        u[t] = MatMul(W, s[t-1])
        s[t] = Nonlin(u[t] + 0.5*e[t])
        p[t] = Dot(s[t], h)
        r[t] = Dot(u[t], u[t], scale=1/n)
        m[t] = Dot(u[t], s[t-1])
        y = Nonlin(sum[t](tanh(p[t]) + r[t]))""",
            "W",
            "h: {mean: 0.5, cov: 1} & e[t]: {mean: 0, cov: 1}",
            indices="t: 1..3",
            width=width,
        )
        for width in (1, 2, 4)
    ),
    Case(
        "powers",
        """
        u1 = MatMul(W, x)
        u2 = MatMul(W, u1)
        u3 = MatMul(W, u2)
        m1 = Dot(u1, u1, scale=1/n)
        m2 = Dot(u2, u2, scale=1/n)
        m3 = Dot(u3, u3, scale=1/n)
        p1 = Dot(x, u1)
        p2 = Dot(x, u2)
        p3 = Dot(u1, u3)
        y = Nonlin(m1 * m2)""",
        "W",
        "x: {mean: 1, cov: 0}",
    ),
    Case(
        "a_weight_meets_its_outputs_in_a_sum",
        """
        k[i] = MatMul(K, x[i])
        z[i] = Nonlin(k[i] + x[0])
        l[i] = MatMul(K, z[i])
        q[i] = MatMul(Q, z[i])
        p[i,j] = Dot(q[i], l[j])
        r[i,j] = Dot(k[i], l[j])
        y[i] = Nonlin(sum[j](tanh(p[i,j]) * r[i,j]))""",
        "K Q",
        width=3,
    ),
    Case(
        "recurrence_beside_shared_keys",
        """
        s[0] = Nonlin(relu(h))
        u[t] = MatMul(W, s[t-1])
        s[t] = Nonlin(u[t] + 0.3*s[t-1])
        q[a,t] = MatMul(WQ[a], s[t])
        k[m] = MatMul(WK, s[m])
        p[a,t,m] = Dot(q[a,t], k[m])
        y[t] = Nonlin(sum[a,m](softmax[m](p[a,t,m]) * s[m]))""",
        "W WQ[a] WK",
        "h: {mean: 0, cov: 1}",
        indices="t: 1..2, m: 1..2, a: 2",
        width=3,
    ),
    Case(
        "recurrence_of_scores",
        """
        s[0] = Nonlin(h)
        u[t] = MatMul(W, s[t-1])
        p[t] = Dot(u[t], s[t-1], scale=1/n)
        s[t] = Nonlin(u[t] * (1 + tanh(p[t])))
        y = Nonlin(s[3] + p[2])""",
        "W",
        "h: {mean: 0.5, cov: 1}",
        indices="t: 1..3",
        width=3,
    ),
    Case(
        "attention_over_depth_tied",
        """
        z[0,i] = Nonlin(x[i])
        q[t,i] = MatMul(Q, z[t-1,i])
        k[t,i] = MatMul(K, z[t-1,i])
        v[t,i] = MatMul(V, z[t-1,i])
        p[t,i,j] = Dot(q[t,i], k[t,j])
        z[t,i] = Nonlin(z[t-1,i] + 0.5*sum[j](softmax[j](p[t,i,j]) * v[t,j]))
        y[i] = Nonlin(z[2,i])""",
        "Q K V",
        indices="i: 2, j: 2, t: 1..2",
        width=3,
        coordinates=2,
    ),
]

CASES = {
    case.name: case
    for case in (*ATTENTION, *WIDTHS, *OPERANDS, *MEMBERS, *MEETINGS, *CONSTANTS, *DEGENERATE, *LAYERS, *RECURRENCES)
}
