"""Small programs, one for each situation in which a rewrite could go wrong."""

from __future__ import annotations

from dataclasses import dataclass

from tests.reading import Netsor, loads


@dataclass(frozen=True)
class Case:
    """One program as text, and the kinds of rewrites that `normalize` applies to it, as words."""

    name: str
    body: str
    kinds: str = ""
    initial: str = "h: {mean: 0, cov: 1}"
    weights: str = ""
    indices: str = ""
    extra: str = ""
    constants: str = ""
    outputs: str = "y"

    def load(self) -> Netsor:
        lines = ["program: p", "constants:", "  s: 3", "  c[i]: i + 1", "  m[i,j]: i - 2*j + 0.5"]
        lines += [f"  {entry}" for entry in self.constants.split(" & ") if entry]
        lines += ["indices:", "  i: s", "  j: s", "  k: s", "  r: 1..2", "  a: 2"]
        lines += [f"  {entry}" for entry in self.indices.split(" & ") if entry]
        lines += ["initial:", *(f"  {entry}" for entry in self.initial.split(" & "))]
        lines += ["weights:"]
        lines += [f"  {entry}: 1" for entry in ("W[i]", "WQ[a]", "WK[a]", "WV[a]", "WO[a]", "U", "V")]
        lines += [f"  {entry}" for entry in self.weights.split(" & ") if entry]
        lines += [self.extra] if self.extra else []
        lines += ["body:", *(f"  - {line.strip()}" for line in self.body.strip().splitlines())]
        lines += [f"outputs: [{self.outputs}]"]
        return loads("\n".join(lines))


INPUT = "u[i] = MatMul(W[i], h)\nx[i] = Nonlin(tanh(u[i]))\n"
HEADS = INPUT + "q[a,i] = MatMul(WQ[a], x[i])\ng[a,j] = MatMul(WK[a], x[j])\n"
SCORES = HEADS + "p[a,i,j] = Dot(q[a,i], g[a,j])\nv[a,j] = MatMul(WV[a], x[j])\n"
LAST = "y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * v[a,j]))"
BIASES = "h: {mean: 0, cov: 1} & b[a]: {mean: 0, cov: 0.3 + a} & e[i]: {mean: 0, cov: 0.7**abs(i - i_)}"
ONE_HEAD = INPUT + "q[i] = MatMul(U, x[i])\ng[j] = MatMul(V, x[j])\np[i,j] = Dot(q[i], g[j])\n"

# everything here is rewritten
REWRITTEN = (
    Case(
        "weights after softmax",
        SCORES + "z[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * v[a,j]))\n"
        "w[a,i] = MatMul(WO[a], z[a,i])\ny[i] = Nonlin(sum[a](w[a,i]))",
        "move",
    ),
    Case(
        "the index of the sum stands on the left",
        SCORES + "z[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * v[a,j]))\nw[a,j] = MatMul(WO[a], z[a,j])\n"
        "y[j] = Nonlin(sum[a](w[a,j]))",
        "move",
    ),
    Case(
        "masks and conditions on indices",
        SCORES + "z[a,i] = Nonlin(sum[j](where(j <= i, softmax[j](where(j <= i, p[a,i,j], -inf)) * v[a,j], 0)))\n"
        "w[a,i] = MatMul(WO[a], z[a,i])\ny[i] = Nonlin(sum[a](w[a,i]))",
        "move",
    ),
    Case(
        "sums over several indices",
        SCORES + "z[i] = Nonlin(sum[a,j](softmax[a,j](p[a,i,j]) * (a + 1) * v[a,j]))\ny[j] = MatMul(WO[1], z[j])",
        "move",
    ),
    Case(
        "constant slots and shifted ones",
        SCORES + "z[i] = Nonlin(tanh(p[0,i,1]) * v[1,i] + p[1,0,i] * sum[j](c[j] * v[0,j]))\n"
        "w[r] = MatMul(WO[0], z[r - 1])\nt = MatMul(WO[1], z[0])\ny[r] = Nonlin(w[r] + t)",
        "move",
    ),
    Case(
        "index renamed to one that is bound",
        SCORES + "z[i,k] = Nonlin(sum[j](m[i,j] * softmax[j](p[0,i,j] + p[1,k,j]) * v[0,k]) + c[k] * v[1,i])\n"
        "y[k,j] = MatMul(WO[0], z[j,k])",
        "move",
    ),
    Case(
        "softmax read at another index",
        ONE_HEAD + "a1[i,j] = Nonlin(softmax[j](p[i,j]))\n"
        "z[i] = Nonlin(sum[k](a1[i,k] * x[k]))\ny[j] = MatMul(WO[0], z[j])",
        "move",
    ),
    Case(
        "a diagonal of softmaxes is not inlined, the rest is",
        ONE_HEAD + "t[i,j] = Nonlin(softmax[j](p[i,j]))\n"
        "w[i] = Nonlin(2 * x[i])\ny[i] = Nonlin(t[i,i] * w[i] + t[0,i] * w[i] + t[i,0])",
        "",
    ),
    Case(
        "queries and keys swapped",
        ONE_HEAD + "t[i,j] = Nonlin(softmax[j](p[i,j]) * softmax[i](p[i,j]))\ny[i] = Nonlin(sum[j](t[j,i] * x[j]))",
        "",
    ),
    Case(
        "low rank",
        INPUT + "q[i] = MatMul(A, x[i])\ng[j] = MatMul(B, x[j])\n"
        "p[i,j] = Dot(q[i], g[j])\nz[i] = Nonlin(sum[j](softmax[j](p[i,j]) * (q[j] + 1)))\ny[i] = MatMul(C, z[i])",
        "move",
        extra="widths: {d: n/2}",
        weights="A: {variance: 1, shape: [d, n]} & B: {variance: 2, shape: [d, n]} & C: {variance: 1, shape: [n, d]}",
    ),
    Case(
        "fixed width",
        INPUT + "q[i] = MatMul(A, x[i])\ng[j] = MatMul(B, x[j])\n"
        "t[i] = Nonlin(q[i] + 2)\np[i,j] = Dot(t[i], g[j])\ny[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))",
        "expand",
        extra="fixed_widths: {d: 3}",
        weights="A: {variance: 1, shape: [d, n]} & B: {variance: 2, shape: [d, n]}",
    ),
    Case(
        "biases, one of them joint over tokens",
        INPUT + "q[a,i] = MatMul(WQ[a], x[i])\nf[a,i] = Nonlin(q[a,i] + b[a])\ng[a,j] = MatMul(WK[a], x[j])\n"
        "l[a,j] = Nonlin(g[a,j] - e[j])\np[a,i,j] = Dot(f[a,i], l[a,j])\nv[a,j] = MatMul(WV[a], x[j])\n" + LAST,
        "biases expand",
        initial=BIASES,
    ),
    Case(
        "biases that are operands themselves",
        ONE_HEAD + "t[i,j] = Dot(e[i], d[j,i])\ny[i] = Nonlin(sum[j](softmax[j](p[i,j] + t[i,j]) * (x[j] + e[i])))",
        "biases expand",
        initial='h: {mean: 0, cov: 1} & e[i]: {mean: 0, cov: "where(i == i_, 1, 0.5)"}'
        " & d[i,j]: {mean: 0, cov: (i + 1) * 0.5**abs(j - j_)}",
    ),
    Case(
        "the second index of a bias is independent",
        INPUT + "t[i,j] = Dot(d[j,i], x[i])\ny[i] = Nonlin(sum[j](softmax[j](t[i,j]) * x[j]))",
        "biases expand",
        initial="h: {mean: 0, cov: 1} & d[i,j]: {mean: 0, cov: (j + 1) * 0.5**abs(i - i_)}",
    ),
    Case(
        "biases with a boundary",
        INPUT + "t[i] = Dot(d[i + 1], x[i])\ny[i] = Nonlin(t[i] * x[i])",
        "biases expand",
        initial="h: {mean: 0, cov: 1} & d[o]: {mean: 0, cov: 0.5**abs(o - o_)}",
        indices="o: {size: 3, boundary: wrap}",
    ),
    Case(
        "biases from a table, singular",
        INPUT + "t[i] = Dot(d[i], x[0])\ny[i] = Nonlin(tanh(t[i]) * x[i])",
        "biases expand",
        initial="h: {mean: 0, cov: 1} & d[i]: {mean: 0, cov: [[1, 1, 0], [1, 1, 0], [0, 0, 2]]}",
    ),
    Case(
        "biases from data",
        INPUT + "t[i] = Dot(d[i], x[0])\ny[i] = Nonlin(tanh(t[i]) * x[i])",
        "biases expand",
        initial="h: {mean: 0, cov: 1} & d[i]: {data: [[1, 2], [0, 1], [3, -1]], variance: 0.5}",
    ),
    Case(
        "one vector from data",
        INPUT + "t = Dot(d, x[0])\ny[i] = Nonlin(tanh(t) * x[i])",
        "biases",
        initial="h: {mean: 0, cov: 1} & d: {data: [[1, 2]], variance: 0.5}",
    ),
    Case(
        "one vector from a table",
        INPUT + "t = Dot(d, x[0])\ny[i] = Nonlin(tanh(t) * x[i])",
        "biases",
        initial="h: {mean: 0, cov: 1} & d: {mean: 0, cov: [[0.25]]}",
    ),
    Case(
        "a bias that vanishes",
        INPUT + "t = Dot(d, x[0])\ny[i] = Nonlin(tanh(t) * x[i])",
        "biases",
        initial="h: {mean: 0, cov: 1} & d: {mean: 0, cov: 0}",
    ),
    Case(
        "biases of a further width",
        INPUT + "q[i] = MatMul(A, x[i])\nt[i] = Nonlin(2 * (q[i] + e))\n"
        "g[j] = MatMul(A2, x[j])\np[i,j] = Dot(t[i], g[j])\ny[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))",
        "biases expand",
        extra="widths: {d: n/2}",
        initial="h: {mean: 0, cov: 1} & e: {mean: 0, cov: 0.5, width: d}",
        weights="A: {variance: 1, shape: [d, n]} & A2: {variance: 1, shape: [d, n]}",
    ),
    Case(
        "scores of sums over tokens and heads",
        HEADS + "f[a,i] = Nonlin(sum[j](m[i,j] * q[a,j]) / (1 + c[i]) - mean[k](where(k <= i, q[a,k], c[k])))\n"
        "l[a,j] = Nonlin(-g[a,j] + sum[i](g[a,i]) * j)\np[a,i,j] = Dot(f[a,i], l[a,j])\n"
        "v[a,j] = MatMul(WV[a], x[j])\n" + LAST,
        "expand",
    ),
    Case(
        "both operands are sums over one index",
        HEADS + "f[i] = Nonlin(sum[a](q[a,i]))\nl[j] = Nonlin(sum[a](g[a,j]))\n"
        "p[i,j] = Dot(f[i], l[j])\ny[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))",
        "expand",
    ),
    Case(
        "keys shared by heads",
        INPUT + "q[a,i] = MatMul(WQ[a], x[i])\nf[a,i] = Nonlin(q[a,i] + b[a])\n"
        "g[j] = MatMul(WK[0], x[j])\np[a,i,j] = Dot(f[a,i], g[j])\n"
        "y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * x[j]))",
        "biases expand",
        initial=BIASES,
    ),
    Case(
        "scalars through Nonlins",
        ONE_HEAD + "t[i,j] = Nonlin(tanh(p[i,j] + i))\n"
        "d[i] = Nonlin(1 + sum[j](t[i,j]**2))\nz[i] = Nonlin(sum[j](t[i,j] * x[j]) / d[i] + t[i,0])\n"
        "y[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "constants in combinations",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * (x[j] + 1)) + p[i,i] - 3)\ny[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "averages as coefficients",
        INPUT + "t[i] = Dot(x[i], x[i], scale=1/n)\nq[i] = MatMul(U, x[i])\n"
        "f[i] = Nonlin(q[i] / sqrt(t[i] + 0.1) + t[0])\ng[j] = MatMul(V, x[j])\np[i,j] = Dot(f[i], g[j])\n"
        "z[i] = Nonlin(t[i] * sum[j](softmax[j](p[i,j]) * x[j]))\ny[i] = MatMul(WO[0], z[i])",
        "expand move",
    ),
    Case(
        "combinations of combinations",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * x[j]))\n"
        "w[i] = Nonlin(z[i] - sum[j](softmax[j](p[j,i]) * z[j]))\nl[i] = MatMul(WO[0], w[i])\n"
        "f[i] = Nonlin(l[i] + 2 * z[i])\ny[i] = MatMul(WO[1], f[i])",
        "move",
    ),
    Case(
        "two layers of attention",
        INPUT + "q[i] = MatMul(WQ[0], x[i])\ng[j] = MatMul(WK[0], x[j])\np[i,j] = Dot(q[i], g[j])\n"
        "v[j] = MatMul(WV[0], x[j])\n"
        "z[i] = Nonlin(x[i] + sum[j](softmax[j](p[i,j]) * v[j]))\nq2[i] = MatMul(WQ[1], z[i])\n"
        "g2[j] = MatMul(WK[1], z[j])\np2[i,j] = Dot(q2[i], g2[j])\nv2[j] = MatMul(WV[1], z[j])\n"
        "y[i] = Nonlin(z[i] + sum[j](softmax[j](p2[i,j]) * v2[j]))",
        "move expand",
    ),
    Case(
        "output and value weights in one combination",
        SCORES + "z[i] = Nonlin(sum[a](sum[j](softmax[j](p[a,i,j]) * v[a,j])) + u[i])\nw[i] = MatMul(U, z[i])\n"
        "t[i] = MatMul(V, w[i])\ny[i] = Nonlin(t[i] + w[i] / 2)",
        "move",
    ),
    Case("a transposed weight", INPUT + "y[i] = MatMul(U.T, x[i])", "turn"),
    Case(
        "transposed weights of two widths",
        INPUT + "q[r] = MatMul(A[r].T, x[r])\ny[r] = MatMul(B[r], q[r])",
        "turn",
        extra="widths: {d: n/2}",
        weights="A[r]: {variance: r, shape: [n, d]} & B[r]: {variance: 1, shape: [n, d]}",
    ),
    Case(
        "transposed weights of two fixed widths",
        "u = MatMul(A, h)\ng = MatMul(B.T, u)\ny = Nonlin(g)",
        "turn",
        extra="fixed_widths: {d: 3, l: 4}",
        weights="A: {variance: 1, shape: [d, n]} & B: {variance: 3, shape: [d, l]}",
    ),
    Case(
        "a transposed weight behind a combination",
        ONE_HEAD + "z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * (x[j] + 1)))\ny[i] = MatMul(A.T, z[i])",
        "turn move",
        extra="widths: {d: n/2}",
        weights="A: {variance: 1, shape: [n, d]}",
    ),
    Case(
        "a weight and its transpose behind a combination",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * x[j]) + p[i,0])\nf[i] = MatMul(A.T, z[i])\ny[i] = MatMul(A, f[i])",
        "move",
        extra="widths: {d: n/2}",
        weights="A: {variance: 1, shape: [n, d]}",
    ),
    Case(
        "neighbours",
        "u[o] = MatMul(W2[o], h)\nx[o] = Nonlin(tanh(u[o]))\nq[o] = MatMul(U, x[o])\n"
        "f[i] = Nonlin(q[i] + q[i + 1] - 2 * q[i - 1])\ng[i] = MatMul(V, x[i + 1])\np[i] = Dot(f[i], g[i])\n"
        "z[i] = Nonlin(p[i] * x[i + 1])\ny[i] = MatMul(WO[0], z[i])",
        "expand move",
        indices="o: {size: 3, boundary: zero}",
        weights="W2[o]: 1",
    ),
    Case(
        "neighbours of sums",
        "u[o] = MatMul(W2[o], h)\nq[o] = MatMul(U, u[o])\nf[o] = Nonlin(q[o] - q[o + 1] + o)\n"
        "g[o] = MatMul(V, u[o])\np[o] = Dot(f[o], g[o - 1])\nz[o] = Nonlin(p[o] * u[o + 1] + p[o - 1])\n"
        "v[o] = MatMul(W2[o + 1], z[o])\ny[o] = Nonlin(v[o] + v[o + 1])",
        "expand move",
        indices="o: {size: 3, boundary: zero}",
        weights="W2[o]: 1",
    ),
    Case(
        "neighbours on a circle",
        "u[o] = MatMul(W2[o], h)\n"
        "q[o] = MatMul(U, u[o])\nf[o] = Nonlin(q[o] - q[o + 1] + o)\n"
        "g[o] = MatMul(V, u[o])\np[o] = Dot(f[o], g[o - 1])\nz[o] = Nonlin(p[o] * u[o + 1] + p[o - 1])\n"
        "v[o] = MatMul(W2[o + 1], z[o])\ny[o] = Nonlin(v[o] + v[o + 1])",
        "expand move",
        indices="o: {size: 3, boundary: wrap}",
        weights="W2[o]: 1",
    ),
    Case(
        "indices beyond the end that are constants",
        INPUT + "q[i] = MatMul(U, x[i])\nf[i] = Nonlin(q[i] * l[i + 1] + l[i])\ng[i] = MatMul(V, x[i])\n"
        "p[i] = Dot(f[i], g[i])\n"
        "y[i] = Nonlin(p[i] * x[i])",
        "expand",
        indices="o: {size: 3, boundary: wrap}",
        constants="l[o]: [1, -2, 4]",
    ),
    Case(
        "a base case that is a scalar",
        ONE_HEAD + "t[0] = Nonlin(p[0,0])\nt[r] = Nonlin(x[r] * p[r,0])\ny[j] = Nonlin(t[0] * p[j,j] + t[1] * j)",
        "",
    ),
    Case(
        "a base case of which nothing else is read",
        ONE_HEAD + "t[0] = Nonlin(p[0,0])\nt[1] = Nonlin(x[1])\n"
        "t[2] = Nonlin(2)\nz[j] = Nonlin(x[j])\ny[j] = Nonlin(t[0] * p[j,j] - t[2])\nf[j] = Nonlin(t[0] + p[j,0])",
        "",
        outputs="y, f",
    ),
    Case(
        "one definition of several",
        ONE_HEAD + "t[0] = Nonlin(x[0] * p[0,0])\nt[r] = Nonlin(sum[i](p[i,r] * x[r]))\n"
        "z[i] = MatMul(U2, t[0])\nf[r] = MatMul(U2, t[r])\ny[i] = Nonlin(z[i] + f[2])",
        "move",
        weights="U2: 1",
    ),
    Case(
        "a family of which one part depends on scores",
        ONE_HEAD + "t[0] = Nonlin(x[0] * p[0,0])\n"
        "t[r] = Nonlin(tanh(x[r]))\nz = MatMul(V, t[0])\nf[r] = MatMul(V, t[r])\ny[r] = Nonlin(z + f[r])",
        "move",
    ),
    Case(
        "a recurrence written from its end",
        INPUT + "q[r] = MatMul(U, x[r])\ng[r] = MatMul(V, x[r])\n"
        "t[0] = Nonlin(x[0])\np[r] = Dot(l[r], g[r])\nt[r] = Nonlin(p[r] * u[r])\nb[r] = Nonlin(t[r - 1] + x[0])\n"
        "f[r] = MatMul(WQ[0], b[r])\nl[r] = Nonlin(f[r] + q[r])\ny[r] = Nonlin(t[r])",
        "expand",
    ),
    Case(
        "a gate",
        SCORES + "f[i] = MatMul(V, x[i])\n"
        "z[i] = Nonlin(sigmoid(f[i]) * sum[a,j](softmax[j](p[a,i,j]) * v[a,j]))\ny[i] = MatMul(U, z[i])",
        "move",
    ),
    Case(
        "a gate with an index that is bound behind it",
        ONE_HEAD + "z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]) * mean[j](tanh(x[j])) * tanh(x[i]) + p[i,0])\n"
        "y[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "a gate inside a sum, with a softmax of vectors",
        ONE_HEAD
        + "z[i] = Nonlin(sum[j](p[i,j] * (softmax[j](x[j]) * (u[i] + p[0,j] * u[j]))))\ny[j] = MatMul(WO[0], z[j])",
        "move",
    ),
    Case(
        "constants behind a gate",
        ONE_HEAD + "z[i] = Nonlin(tanh(u[i]) * (sum[j](p[i,j] * x[j]) + p[i,i] + 1) * x[i]**2)\n"
        "y[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "a gate on what a weight behind scores makes",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * x[j]))\n"
        "l[i] = MatMul(WO[0], z[i])\nf[i] = Nonlin(tanh(u[i]) * (l[i] - z[i]) / 2)\ny[i] = MatMul(WO[1], f[i])\n"
        "t[i] = MatMul(U, f[i])",
        "move inline",
        outputs="y, t",
    ),
    Case(
        "gates on gates",
        ONE_HEAD + "z[i] = Nonlin(tanh(u[i]) * sum[j](p[i,j] * x[j]))\n"
        "l[i] = Nonlin(x[i] * z[i] + sum[k](z[k]))\nf[j] = Nonlin(sum[i](u[i] * l[i]) * tanh(x[j]))\n"
        "y[i] = MatMul(WO[1], f[i])",
        "move inline",
    ),
    Case(
        "names that are taken",
        ONE_HEAD + "z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * (tanh(x[j]) + x[i] + 1)))\n"
        "y[j] = MatMul(WO[0], z[j])\ny_x[i] = Nonlin(x[i])",
        "move",
        outputs="y, y_x",
        indices="j2: 2",
        weights="ones: 1 & y_x2: 1",
    ),
    Case(
        "a product of score-dependent vectors",
        ONE_HEAD + "z[i] = Nonlin((p[i,0] * x[i]) * (p[i,1] * u[i]))\ny[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "a square of a combination, and a product with another",
        ONE_HEAD + "z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))\nf[i] = Nonlin(sum[j](p[j,i] * u[j]) - p[i,i])\n"
        "l[j] = Nonlin(z[j] * z[j] + f[j] * z[j] * (1 - f[0]))\ny[i] = MatMul(WO[0], l[i])",
        "move inline",
    ),
    Case(
        "a score times a gate times a combination",
        ONE_HEAD + "z[i] = Nonlin(p[i,0] * tanh(u[i]) * sum[j](softmax[j](p[i,j]) * x[j]))\ny[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "sums on both sides of products, over one index",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * x[j] * sum[k](m[j,k] * u[k])) * sum[j](p[j,i] * x[j]"
        " * tanh(sum[k](u[k] * x[j]))) + mean[j](p[j,j] * x[j]) * mean[j](tanh(u[j])))\n"
        "y[j] = MatMul(WO[0], z[j])",
        "move",
    ),
    Case(
        "a sum with numbers times a combination",
        ONE_HEAD + "z[i] = Nonlin((tanh(u[i]) * (2 + p[i,0]) + 1) * (sum[j](softmax[j](p[i,j]) * x[j]) - p[i,1]))\n"
        "y[i] = MatMul(WO[0], z[i])",
        "move",
    ),
    Case(
        "an operand of several definitions",
        INPUT + "q[0] = Nonlin(x[0] + u[0])\nq[r] = Nonlin(x[r] - u[r])\n"
        "g[i] = MatMul(V, x[i])\np[i] = Dot(q[i], g[i])\ny[i] = Nonlin(p[i] * x[i])",
        "split expand",
    ),
    Case(
        "operands of several definitions on both sides, one of them a MatMul",
        HEADS + "f[a,0] = Nonlin(g[a,1] + b[a])\nf[a,r] = MatMul(U, x[r - 1])\nt[0,a] = Nonlin(q[a,0] - 2 * q[a,1])\n"
        "t[r,a] = Nonlin(q[a,r])\np[a,i,j] = Dot(t[i,a], f[a,j])\nv[a,j] = MatMul(WV[a], x[j])\n" + LAST,
        "split expand biases",
        initial=BIASES,
    ),
    Case(
        "a score of several definitions that is a weight's index",
        ONE_HEAD + "t[0] = Nonlin(x[0] * p[0,0])\n"
        "t[r] = Nonlin(sum[i](p[i,r] * x[r]))\nz[i,r] = MatMul(W[i], t[i])\nf[i,r] = Nonlin(z[i,r] + z[0,r])\n"
        "l[i] = MatMul(W[i], f[i,2])\ny[i] = Nonlin(l[i] + l[0])",
        "split move",
    ),
    Case(
        "an operand with a boundary",
        "u[o] = MatMul(W2[o], h)\nf[o] = Nonlin(u[o] + o + 1)\ng[o] = MatMul(U, u[o])\n"
        "p[o] = Dot(f[o + 1], g[o])\nt[o,k] = Dot(f[o - k], g[2*o - 3])\ny[o] = Nonlin(p[o] * u[o] + t[o,1])",
        "expand",
        indices="o: {size: 3, boundary: zero}",
        weights="W2[o]: 1",
    ),
    Case(
        "an operand that wraps",
        "u[o] = MatMul(W2[o], h)\nf[o] = Nonlin(u[o] - lo[o] * u[o + 1])\n"
        "g[o] = MatMul(U, u[o])\np[o] = Dot(f[o - 1], g[o])\nt[o,k] = Dot(f[k - 2*o], f[o])\n"
        "y[o] = Nonlin(p[o] * u[o] + t[o,1])",
        "expand",
        indices="o: {size: 3, boundary: wrap}",
        weights="W2[o]: 1",
        constants="lo[o]: [1, -2, 4]",
    ),
    Case(
        "combinations read beyond a boundary",
        "u[o] = MatMul(W2[o], h)\ng[o] = MatMul(U, u[o])\n"
        "p[o,i] = Dot(u[o + 1], g[o])\nz[o] = Nonlin(sum[i](softmax[i](p[o,i]) * (u[o - i] + 1)))\n"
        "f[o] = Nonlin(z[o + 2] - z[o])\nv[o] = MatMul(V, f[o - 1])\ny[o] = Nonlin(v[o])",
        "move",
        indices="o: {size: 3, boundary: zero}",
        weights="W2[o]: 1",
    ),
    Case(
        "a definition whose index the statement has already",
        ONE_HEAD + "t[0] = Nonlin(x[0] * p[0,0])\n"
        "t[r] = Nonlin(sum[i](p[i,r] * x[r]))\nz[i,r] = MatMul(W[r], t[i])\ny[i] = Nonlin(z[i,1] + r2[i] * z[i,2])",
        "split move",
        constants="r2[i]: 3 - i",
    ),
    Case(
        "initial vectors that are 0",
        INPUT + "q[i] = MatMul(U, x[i])\nl[i] = Nonlin(q[i] + none * e[i] + d)\n"
        "g[i] = MatMul(V, x[i])\np[i,j] = Dot(l[i], g[j])\nv[a] = MatMul(WV[a], x[0])\n"
        "y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]) + d + v[1])",
        "constants expand",
        constants="none: 0",
        initial="h: {mean: none, cov: 1} & d: {mean: none, cov: 2 * none}"
        " & e[i]: {mean: 0, cov: [[0, 0, 0], [0, 0, 0], [0, 0, 0]]}",
    ),
    Case(
        "a vector of ones that is there",
        "f = Nonlin(1, width=d)\nl = Nonlin(1)\n" + INPUT + "t = Dot(b[0], x[0])\ny[i] = Nonlin(tanh(t) * x[i] + l)",
        "biases",
        initial=BIASES,
        extra="widths: {d: n/2}",
        outputs="y, f",
    ),
)

# nothing here may be rewritten
KEPT = (
    Case("no scores", INPUT + "z[i] = Nonlin(2 * x[i] + 1)\ny[i] = MatMul(U, z[i])"),
    Case("scores of products only", SCORES + LAST),
    Case("relu between", ONE_HEAD + "z[i] = Nonlin(relu(sum[j](p[i,j] * x[j])))\ny[i] = MatMul(WO[0], z[i])"),
    Case(
        "a score below a vector that depends on scores",
        ONE_HEAD + "z[i] = Nonlin(p[i,0] / (1 + (p[i,1] * x[i])**2))\ny[i] = MatMul(WO[0], z[i])",
    ),
    Case("division by a vector", ONE_HEAD + "z[i] = Nonlin(p[i,0] / (1 + x[i]**2))\ny[i] = MatMul(WO[0], z[i])"),
    Case(
        "a condition on a vector",
        ONE_HEAD + "z[i] = Nonlin(where(x[i] > 0, p[i,0] * x[i], where(u[0] > x[i], p[i,1], 0)))\n"
        "y[i] = MatMul(WO[0], z[i])",
    ),
    Case(
        "the largest of score-dependent vectors",
        ONE_HEAD + "z[i] = Nonlin(max[j](p[i,j] * x[j]))\ny[i] = MatMul(WO[0], z[i])",
    ),
    Case(
        "a condition on score-dependent vectors",
        ONE_HEAD + "z[i] = Nonlin(where(p[i,0] * x[i] > 0, x[i], p[i,1] * u[i]))\ny[i] = MatMul(WO[0], z[i])",
    ),
    Case(
        "a gate that depends on scores",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * x[j]))\nf[i] = Nonlin(tanh(z[i]) * z[i])\ny[i] = MatMul(WO[0], f[i])",
    ),
    Case(
        "a gate on something of several definitions",
        ONE_HEAD + "t[0] = Nonlin(p[0,0] * x[0])\n"
        "t[r] = Nonlin(p[r,0] * x[r])\nf[i] = Nonlin(tanh(u[i]) * t[i])\ny[i] = MatMul(WO[0], f[i])",
    ),
    Case(
        "tied weights",
        INPUT + "q[i] = MatMul(U, x[i])\ng[j] = MatMul(U, x[j])\np[i,j] = Dot(q[i], g[j])\n"
        "y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))",
    ),
    Case(
        "a value like the keys, but for a shift and the indices that make copies",
        ONE_HEAD + "v[r] = MatMul(V, x[r - 1])\nw[i,k] = MatMul(V, x[i])\nl[r] = MatMul(V, x[r])\n"
        "y[i] = Nonlin(sum[r](p[i,r] * v[r] + w[i,r]) + l[1])",
    ),
    Case(
        "a family that wraps, of another length",
        "u[o] = MatMul(W2[o], h)\nl[d] = MatMul(V, e[d])\n"
        "f[o] = Nonlin(u[o] + l[o])\ng[o] = MatMul(U, u[o])\np[o] = Dot(f[o + 1], g[o])\n"
        "y[o] = Nonlin(p[o] * u[o])",
        indices="o: {size: 3, boundary: wrap} & d: {size: 2, boundary: wrap}",
        weights="W2[o]: 1",
        initial="h: {mean: 0, cov: 1} & e[d]: {mean: 0, cov: 1}",
    ),
    Case(
        "a score with a boundary, of an operand of several definitions",
        "u[o] = MatMul(W2[o], h)\n"
        "t[0] = Nonlin(u[0] + 1)\nt[r] = Nonlin(u[r] - u[0])\ng[o] = MatMul(U, u[o])\np[o] = Dot(t[o], g[o])\n"
        "y[o] = Nonlin(p[o + 1] * u[o])",
        indices="o: {size: 3, boundary: zero}",
        weights="W2[o]: 1",
    ),
    Case(
        "an operand that reads a part of a definition",
        ONE_HEAD + "t[0] = Nonlin(x[0] * p[0,0])\nt[r] = Nonlin(p[0,r] * x[r])\ny[a] = MatMul(V, t[a])",
    ),
    Case(
        "an operand of several definitions, one of them not linear",
        ONE_HEAD + "t[0] = Nonlin(tanh(x[0] * p[0,0]))\nt[r] = Nonlin(p[0,r] * x[r])\ny[i] = MatMul(V, t[i])",
    ),
    Case(
        "a score of an operand of several definitions, one of them not linear",
        INPUT + "q[0] = Nonlin(tanh(u[0]))\n"
        "q[r] = Nonlin(u[r] - u[0])\ng[i] = MatMul(V, x[i])\np[i] = Dot(q[i], g[i])\ny[i] = Nonlin(p[i] * x[i])",
    ),
    Case(
        "a score along a recurrence",
        INPUT + "q[i] = MatMul(U, x[i])\nt[0] = Nonlin(q[0])\n"
        "t[r] = Nonlin(t[r - 1] + q[r])\ng[i] = MatMul(V, x[i])\np[i] = Dot(t[i], g[i])\n"
        "y[i] = Nonlin(p[i] * x[i])",
    ),
    Case(
        "initial vectors that are a number",
        INPUT + "q[i] = MatMul(U, x[i])\ng[i] = MatMul(V, x[i])\np[i] = Dot(q[i], g[i])\ny[i] = Nonlin(p[i] * d + e)",
        initial="h: {mean: 0, cov: 1} & d: {mean: 2, cov: 0} & e: {mean: 0, cov: 2}",
    ),
    Case("a softmax of vectors", ONE_HEAD + "z[i] = Nonlin(softmax[i](p[i,0] * x[i]))\ny[i] = MatMul(WO[0], z[i])"),
    Case(
        "one layer can be moved, the next cannot",
        ONE_HEAD + "z[i] = Nonlin(sum[j](p[i,j] * x[j]))\n"
        "v[i] = MatMul(WO[0], z[i])\nf[i] = Nonlin(tanh(v[i]))\ny[i] = MatMul(WO[1], f[i])",
    ),
    Case(
        "a recurrence through a weight",
        ONE_HEAD + "t[0] = Nonlin(x[0])\nf[r] = MatMul(WO[0], t[r - 1])\n"
        "t[r] = Nonlin(p[r,0] * f[r] + x[r])\ny[r] = Nonlin(t[r])",
    ),
    Case(
        "transformer blocks as a recurrence, in the order in which they are read",
        "u[i] = MatMul(W[i], h)\n"
        "x[0,i] = Nonlin(tanh(u[i]))\nt[r,i] = Dot(x[r - 1,i], x[r - 1,i], scale=1/n)\n"
        "n1[r,i] = Nonlin(x[r - 1,i] / sqrt(t[r,i] + 0.01))\nq[r,i] = MatMul(Q[r], n1[r,i])\n"
        "g[r,j] = MatMul(K[r], n1[r,j])\np[r,i,j] = Dot(q[r,i], g[r,j])\n"
        "z[r,i] = Nonlin(sum[j](softmax[j](p[r,i,j]) * n1[r,j]))\no[r,i] = MatMul(O[r], z[r,i])\n"
        "x[r,i] = Nonlin(x[r - 1,i] + o[r,i])\ny[i] = Nonlin(x[2,i])",
        weights="Q[r]: 1 & K[r]: 1 & O[r]: 1",
    ),
    Case(
        "a diagonal of softmaxes as coefficients",
        ONE_HEAD + "z[i,j] = Nonlin(softmax[j](p[i,j]) * x[j])\ny[i] = MatMul(WO[0], z[i,i])",
    ),
    Case(
        "a softmax read at a fixed place",
        ONE_HEAD + "z[i] = Nonlin(softmax[i](p[i,0]) * x[i])\ny = MatMul(WO[0], z[1])",
    ),
    Case(
        "a softmax read over a part", ONE_HEAD + "z[i] = Nonlin(softmax[i](p[i,0]) * x[i])\ny[r] = MatMul(WO[0], z[r])"
    ),
    Case(
        "biases with a mean",
        INPUT + "t = Dot(d, x[0])\ny[i] = Nonlin(t * x[i])",
        initial="h: {mean: 0, cov: 1} & d: {mean: 0.5, cov: 1}",
    ),
    Case(
        "biases in averages only",
        INPUT + "t = Dot(d, x[0], scale=1/n)\ny[i] = Nonlin(t * x[i])",
        initial="h: {mean: 0, cov: 1} & d: {mean: 0, cov: 1}",
    ),
    Case("a score that reaches no output", INPUT + "f = Nonlin(x[0] + x[1])\nt = Dot(f, x[0])\ny[i] = Nonlin(x[i])"),
    Case("a weight used both ways", INPUT + "q[i] = MatMul(U, x[i])\ny[i] = MatMul(U.T, q[i])"),
    Case(
        "a transposed weight with one width that stays finite",
        "u = MatMul(W2.T, h)\ny = Nonlin(u)",
        extra="fixed_widths: {d: 3}",
        weights="W2: {variance: 1, shape: [n, d]}",
    ),
)
