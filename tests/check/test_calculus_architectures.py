"""Nothing is left undecided on shipped and realistic programs: every fact is certified, or refuted by a witness."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorprog.check.certificates import Calculus
from tensorprog.language.facts import FAILS, HOLDS
from tensorprog.language.ir import Nonlin
from tests.reading import Netsor, judge, load, loads

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "programs").glob("*.yaml")) + sorted((ROOT / "benchmarks" / "programs").glob("*.yaml"))
HEAD = """
program: {name}
constants:
  s: 5
  H: 2
  C: 3
  T: 6
  eps: 1e-5
  slope[a]: 2.0**(-a - 1)
indices:
  i: s
  j: s
  l: s
  a: H
  t: "1..T"
  b: 4
  c: {{size: 6, boundary: zero}}
  d: "-1..1"
initial:
  h: {{cov: 1}}
  e[i]: {{cov: 0.5**abs(i - i_)}}
  x[t]: {{cov: 1}}
  s0[b]: {{cov: "where(b == b_, 1, 0.5)"}}
  pix[c]: {{cov: 0.5**abs(c - c_)}}
  bias: {{cov: 0.1}}
  B[t]: {{cov: 0.1}}
weights:
  W: 2
  V: 1
  U: 1
  F[d]: 1/3
  Wl[t]: 2
  Wi: 1
  Wf: 1
  Wo: 1
  Wc: 1
  Ui: 1
  Uf: 1
  Uo: 1
  Uc: 1
  WQ[a]: 1
  WK[a]: 1
  WV[a]: 1
  WO[a]: 1
  LQ[t,a]: 1
  LK[t,a]: 1
  LV[t,a]: 1
body:
"""
INPUTS = """
u[i] = MatMul(W, e[i])
f[i] = Nonlin({})
"""
SCORES = """
q[a,i] = MatMul(WQ[a], f[i])
k[a,j] = MatMul(WK[a], f[j])
p[a,i,j] = Dot(q[a,i], k[a,j])
"""
VALUES = """
v[a,j] = MatMul(WV[a], f[j])
o[a,j] = MatMul(WO[a], v[a,j])
"""
HEADS = "y[i] = Nonlin(sum[a,j](softmax[j]({}) * o[a,j]) / sqrt(H))"


def _attention(inputs: str = "clip(u[i], -C, C)", weights: str = "p[a,i,j]", output: str = HEADS) -> str:
    return INPUTS.format(inputs) + SCORES + VALUES + output.format(weights)


GATES = """
gi[t] = MatMul(Wi, x[t])
gf[t] = MatMul(Wf, x[t])
go[t] = MatMul(Wo, x[t])
gc[t] = MatMul(Wc, x[t])
ri[t] = MatMul(Ui, y[t-1])
rf[t] = MatMul(Uf, y[t-1])
ro[t] = MatMul(Uo, y[t-1])
rc[t] = MatMul(Uc, y[t-1])
"""
NORM = "mu = Dot(u, one, scale=1/n)\nm2 = Dot(u, u, scale=1/n)\n"
ARCHITECTURES = {
    "mlp_bias": "u = MatMul(W, h)\nz = Nonlin(relu(u + bias))\ny = MatMul(V, z)",
    "resnet": """
        z[0] = Nonlin(h)
        u[t] = MatMul(Wl[t], r[t])
        r[t] = Nonlin(relu(z[t-1] + B[t]))
        z[t] = Nonlin(z[t-1] + u[t] / sqrt(T))
        y = Nonlin(z[T])""",
    "cnn": """
        g[d,c] = MatMul(F[d], pix[c+d])
        r[c] = Nonlin(relu(sum[d](g[d,c]) + bias))
        m[c] = MatMul(V, r[c])
        y = Nonlin(mean[c](tanh(m[c])))""",
    "max_pooling": """
        g[d,c] = MatMul(F[d], pix[c+d])
        r[c] = Nonlin(relu(sum[d](g[d,c])))
        y = Nonlin(max[c](r[c]))""",
    "rnn": """
        y[0] = Nonlin(0)
        u[t] = MatMul(U, y[t-1])
        w[t] = MatMul(W, x[t])
        y[t] = Nonlin(tanh(u[t] + w[t] + bias))""",
    "lstm": "z[0] = Nonlin(0)\ny[0] = Nonlin(0)"
    + GATES
    + """
        z[t] = Nonlin(sigmoid(gf[t] + rf[t]) * z[t-1] + sigmoid(gi[t] + ri[t]) * tanh(gc[t] + rc[t]))
        y[t] = Nonlin(sigmoid(go[t] + ro[t]) * tanh(z[t]))""",
    "gru": """
        y[0] = Nonlin(0)
        gz[t] = MatMul(Wi, x[t])
        gr[t] = MatMul(Wf, x[t])
        gh[t] = MatMul(Wc, x[t])
        rz[t] = MatMul(Ui, y[t-1])
        rr[t] = MatMul(Uf, y[t-1])
        w[t] = Nonlin(sigmoid(gr[t] + rr[t]) * y[t-1])
        rh[t] = MatMul(Uc, w[t])
        z[t] = Nonlin(sigmoid(gz[t] + rz[t]))
        y[t] = Nonlin((1 - z[t]) * y[t-1] + z[t] * tanh(gh[t] + rh[t]))""",
    "layernorm_mlp": "u = MatMul(W, h)\none = Nonlin(1)\n"
    + NORM
    + """
        z = Nonlin(relu((u - mu) / sqrt(m2 - mu**2 + eps)))
        y = MatMul(V, z)""",
    "layernorm_scalars": "u = MatMul(W, h)\none = Nonlin(1)\n"
    + NORM
    + """
        sd = Nonlin(sqrt(m2 - mu**2))
        z = Nonlin(gelu((u - mu) / sd))
        y = MatMul(V, z)""",
    "batchnorm_mlp": """
        u[b] = MatMul(W, s0[b])
        mu = Nonlin(mean[b](u[b]))
        va = Nonlin(mean[b]((u[b] - mu)**2))
        z[b] = Nonlin(relu((u[b] - mu) / sqrt(va + eps)))
        y[b] = MatMul(V, z[b])""",
    "batchnorm_two_moments": """
        u[b] = MatMul(W, s0[b])
        mu = Nonlin(mean[b](u[b]))
        va = Nonlin(mean[b](u[b]**2) - mu**2)
        z[b] = Nonlin(relu((u[b] - mu) / sqrt(max(va, 0) + eps)))
        y[b] = MatMul(V, z[b])""",
    "attention_relu_inputs": _attention("relu(u[i])"),
    "attention_gelu": _attention("gelu(u[i])"),
    "attention_softplus": _attention("softplus(u[i])"),
    "attention_silu": _attention("u[i] * sigmoid(u[i])"),
    "attention_masked": _attention(weights="where(j <= i, p[a,i,j], -inf)"),
    "attention_masked_scaled": _attention(weights="where(j <= i, p[a,i,j] / sqrt(2), -inf)"),
    "attention_mask_added": _attention(weights="p[a,i,j] + where(j <= i, 0, -inf)"),
    "attention_window": _attention(weights="where((j <= i) & (i - j < 3), p[a,i,j], -inf)"),
    "attention_positions": _attention(weights="p[a,i,j] - slope[a] * abs(i - j)"),
    "attention_positions_masked": _attention(weights="where(j <= i, p[a,i,j] - slope[a] * (i - j), -inf)"),
    "attention_temperature": _attention(weights="p[a,i,j] / 0.7"),
    "attention_capped": _attention(weights="C * tanh(p[a,i,j] / C)"),
    "attention_by_hand": _attention(
        output="y[i] = Nonlin(sum[a](sum[j](exp(p[a,i,j]) * o[a,j]) / sum[j](exp(p[a,i,j]))))"
    ),
    "attention_shifted": _attention(
        output="y[i] = Nonlin(sum[a](sum[j](exp(p[a,i,j] - max[l](p[a,i,l])) * o[a,j]) "
        "/ sum[j](exp(p[a,i,j] - max[l](p[a,i,l])))))"
    ),
    "attention_weights_named": INPUTS.format("clip(u[i], -C, C)")
    + SCORES
    + VALUES
    + """
        w[a,i,j] = Nonlin(softmax[j](p[a,i,j]))
        y[i] = Nonlin(u[i] + sum[a,j](w[a,i,j] * o[a,j]) / sqrt(H))""",
    "attention_sigmoid": _attention(output="y[i] = Nonlin(sum[a,j](sigmoid(p[a,i,j]) * o[a,j]))"),
    "attention_relu_weights": _attention(output="y[i] = Nonlin(sum[a,j](relu(p[a,i,j]) * o[a,j]) / s)"),
    "attention_linear": _attention(output="y[i] = Nonlin(sum[a,j](p[a,i,j] * o[a,j]) / s)"),
    "attention_normalised": _attention(
        output="y[i] = Nonlin(sum[a](sum[j](softplus(p[a,i,j]) * o[a,j]) / (eps + sum[j](softplus(p[a,i,j])))))"
    ),
    "attention_elu_features": _attention(
        output="y[i] = Nonlin(sum[a](sum[j]((elu(p[a,i,j]) + 1) * o[a,j]) / (eps + sum[j](elu(p[a,i,j]) + 1))))"
    ),
    "attention_masked_linear": _attention(output="y[i] = Nonlin(sum[a,j](where(j <= i, p[a,i,j], 0) * o[a,j]))"),
    "cross_attention": """
        uq[i] = MatMul(W, e[i])
        f[i] = Nonlin(clip(uq[i], -C, C))
        uk[t] = MatMul(V, x[t])
        m[t] = Nonlin(tanh(uk[t]))
        q[a,i] = MatMul(WQ[a], f[i])
        k[a,t] = MatMul(WK[a], m[t])
        p[a,i,t] = Dot(q[a,i], k[a,t])
        v[a,t] = MatMul(WV[a], m[t])
        y[i] = Nonlin(f[i] + sum[a,t](softmax[t](p[a,i,t]) * v[a,t]) / sqrt(H))""",
    "multi_query": INPUTS.format("clip(u[i], -C, C)")
    + """
        q[a,i] = MatMul(WQ[a], f[i])
        k[j] = MatMul(U, f[j])
        p[a,i,j] = Dot(q[a,i], k[j])
        v[j] = MatMul(V, f[j])
        y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * v[j]) / sqrt(H))""",
    "linear_attention": INPUTS.format("clip(u[i], -C, C)")
    + """
        ql[a,i] = MatMul(WQ[a], f[i])
        kl[a,j] = MatMul(WK[a], f[j])
        q[a,i] = Nonlin(elu(ql[a,i]) + 1)
        k[a,j] = Nonlin(elu(kl[a,j]) + 1)
        p[a,i,j] = Dot(q[a,i], k[a,j], scale=1/n)
        v[a,j] = MatMul(WV[a], f[j])
        y[i] = Nonlin(sum[a](sum[j](p[a,i,j] * v[a,j]) / sum[j](p[a,i,j])))""",
    "average_attention": _attention().replace("Dot(q[a,i], k[a,j])", "Dot(q[a,i], k[a,j], scale=1/n)"),
    "gated": "u = MatMul(W, h)\nw = MatMul(V, h)\nz = Nonlin(u * sigmoid(w))\ny = MatMul(U, z)",
    "swiglu": "u = MatMul(W, h)\nw = MatMul(V, h)\nz = Nonlin(silu(u) * w)\ny = MatMul(U, z)",
    "swiglu_by_hand": "u = MatMul(W, h)\nw = MatMul(V, h)\nz = Nonlin(u / (1 + exp(-u)) * w)\ny = MatMul(U, z)",
    "geglu": "u = MatMul(W, h)\nw = MatMul(V, h)\nz = Nonlin(u * (1 + erf(u / sqrt(2))) / 2 * w)\ny = MatMul(U, z)",
    "gelu_tanh": """
        u = MatMul(W, h)
        z = Nonlin(0.5 * u * (1 + tanh(sqrt(2/pi) * (u + 0.044715*u**3))))
        y = MatMul(V, z)""",
    "mish": "u = MatMul(W, h)\nz = Nonlin(u * tanh(softplus(u)))\ny = MatMul(V, z)",
    "relu_squared": "u = MatMul(W, h)\nz = Nonlin(relu(u)**2)\ny = MatMul(V, z)",
    "softsign": "u = MatMul(W, h)\nz = Nonlin(u / (1 + abs(u)))\ny = MatMul(V, z)",
    "hard_swish": "u = MatMul(W, h)\nz = Nonlin(u * clip(u + 3, 0, 6) / 6)\ny = MatMul(V, z)",
    "maxout": "u[a] = MatMul(WQ[a], h)\ny = Nonlin(max[a](u[a]))",
    "rms_norm": "u = MatMul(W, h)\nm2 = Dot(u, u, scale=1/n)\nz = Nonlin(relu(u / sqrt(m2 + eps)))\ny = MatMul(V, z)",
    "attention_normed": _attention(output=HEADS.replace("y[i]", "r[i]"))
    + """
        m[i] = Dot(r[i], r[i], scale=1/n)
        y[i] = Nonlin(r[i] / sqrt(m[i] + eps))""",
    "deep_attention": """
        z[0,i] = Nonlin(e[i])
        q[t,a,i] = MatMul(LQ[t,a], z[t-1,i])
        k[t,a,j] = MatMul(LK[t,a], z[t-1,j])
        p[t,a,i,j] = Dot(q[t,a,i], k[t,a,j])
        v[t,a,j] = MatMul(LV[t,a], z[t-1,j])
        r[t,i] = Nonlin(z[t-1,i] + sum[a,j](softmax[j](where(j <= i, p[t,a,i,j], -inf)) * v[t,a,j]) / sqrt(H))
        u[t,i] = MatMul(Wl[t], r[t,i])
        z[t,i] = Nonlin(r[t,i] + relu(u[t,i]))
        y[i] = Nonlin(z[T,i])""",
    "gated_residual": """
        z[0] = Nonlin(h)
        u[t] = MatMul(Wl[t], z[t-1])
        z[t] = Nonlin(sigmoid(u[t]) * z[t-1] + (1 - sigmoid(u[t])) * tanh(u[t] + B[t]))
        y = Nonlin(z[T])""",
}


def program(name: str) -> Netsor:
    body = "\n".join(f"  - {line.strip()}" for line in ARCHITECTURES[name].strip().splitlines() if line.strip())
    return loads(HEAD.format(name=name) + body + "\noutputs: [y]\n")


JUMPS = "attention_sign"  # an instructive failure: its sign is refuted
CASES = {path.stem: lambda path=path: load(path) for path in FILES} | {
    name: lambda name=name: program(name) for name in ARCHITECTURES
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", CASES)
def test_every_fact_of_a_realistic_program_is_decided(name: str) -> None:
    netsor = CASES[name]()
    assert [f for f in judge(netsor).findings if f.verdict == "unknown"] == []
    calculus = Calculus(netsor)
    nonlins = [p for p, s in enumerate(netsor.body) if isinstance(s, Nonlin)]
    for prop in ("pseudo-Lipschitz", "controlled"):
        for position in nonlins:
            fact = calculus.fact(prop, position)
            assert fact.verdict is HOLDS or (name == JUMPS and fact.witness), (netsor.body[position], fact)
    for position in nonlins:
        fact = calculus.fact("bounded", position)  # unknown where it hangs on the value of an average
        assert fact.verdict is not FAILS or fact.witness
