"""Programs whose readings have to be inverted: shifts, strides, borders, reductions, widths, definitions in parts."""

from __future__ import annotations

import tensorprog as tp

TEXTS = {
    "strided": """
indices: {i: {size: 9, boundary: zero}, c: 4, d: -1..1}
initial: {"x[i]": {cov: 1}}
weights: {"F[d]": 1, V: 1}
body:
  - g[c,d] = MatMul(F[d], x[2*c + d])
  - u[c] = Nonlin(relu(sum[d](g[c,d]) + x[2*c + 1]))
  - f[c] = MatMul(V, u[c])
""",
    "wrapped": """
indices: {i: {size: 5, boundary: wrap}, d: -1..1, e: 2}
initial: {"x[i]": {cov: 1}}
weights: {"F[d]": 1, V: 1}
body:
  - g[i,d] = MatMul(F[d], x[i + d])
  - h[i] = Nonlin(tanh(sum[d](g[i,d])) * x[i - 1] * i + exp(x[i + 2] / 4))
  - f[e] = Nonlin(h[2*e + 3] + sum[d](h[d + 3*e] * x[d]))
""",
    "backwards": """
indices: {i: 4, j: 4, k: 1..3}
initial: {"x[i]": {cov: 1}}
weights: {"W[i]": 1}
body:
  - u[i] = MatMul(W[3 - i], x[3 - i])
  - p[i,j] = Dot(u[i], x[3 - j])
  - r[i] = Nonlin(sin(p[i,i]) + sum[j](p[j,i])**2 / 8)
  - f[k] = Nonlin(r[k] * u[k - 1] + where(k == 2, r[0], 1) * x[k])
""",
    "parts": """
indices: {t: 1..4, a: 2, b: 2..3, l: 2}
initial: {x: {cov: 1}, "e[t]": {cov: 1}}
weights: {"W[a]": 1, V: 1}
body:
  - s[0] = Nonlin(tanh(x))
  - u[t,a] = MatMul(W[a], s[t - 1])
  - v[t] = Nonlin(u[t,0] * sigmoid(u[t,1]) + e[t])
  - s[t] = Nonlin(erf(v[t]) + s[0] / t)
  - m[0] = Nonlin(mean[t](s[t]))
  - m[1] = Nonlin(mean[b](s[b]) * s[4])
  - f[l] = MatMul(V, m[l])
""",
    "pieces": """
indices: {k: 1..3, i: 4, j: 6, t: 1..4}
initial: {"b[i]": {cov: 1}, c: {cov: 1}}
weights: {W: 1}
body:
  - y[0] = Nonlin(sin(c))
  - y[k] = Nonlin(tanh(b[k - 1]))
  - y[4] = Nonlin(b[3] * c)
  - y[5] = Nonlin(y[4] * b[0])
  - s[0] = Nonlin(b[0] + c)
  - u[t] = MatMul(W, s[t - 1])
  - s[t] = Nonlin(erf(u[t]) + s[t - 1] * y[t])
  - s[5] = Nonlin(s[4]**2 + s[2])
  - f[j] = Nonlin(y[j] * s[j] + s[5])
""",
    "stacked": """
indices: {t: 1..3}
initial: {"e[t]": {cov: 1}}
weights: {W: 1, V: 1, U: 1}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t - 1])
  - s[t] = Nonlin(tanh(u[t] + e[t]))
  - i[t] = MatMul(U, s[t])
  - r[0] = Nonlin(0)
  - v[t] = MatMul(V, r[t - 1])
  - r[t] = Nonlin(tanh(v[t] + i[t]))
  - f = Nonlin(r[3])
""",
    "unrolled": """
initial: {x: {cov: 1}}
weights: {W: 1}
body:
  - s[0] = Nonlin(tanh(x))
  - u[0] = MatMul(W, s[0])
  - s[1] = Nonlin(tanh(u[0]) + s[0])
  - u[1] = MatMul(W, s[1])
  - f = Nonlin(s[1] * u[1] + u[0])
""",
    "reductions": """
indices: {i: 3, j: 3, k: 3}
initial: {"x[i]": {cov: 1}, "z[i]": {cov: 1}}
weights: {"W[i]": 1}
body:
  - u[i] = MatMul(W[i], x[i])
  - m = Nonlin(max[i](u[i]))
  - l = Nonlin(logsumexp[i](u[i] * z[i]))
  - w[i] = Nonlin(softmax[i](u[i] + l))
  - p[i,j] = Dot(u[i], z[j])
  - q[i] = Nonlin(logsumexp[j](p[i,j]) + max[k](p[k,i]) * mean[k](p[k,k]))
  - r[i] = Nonlin(softmax[i](q[i]))
  - o[j] = Nonlin(sum[k](p[j,k] * u[k]))
  - y[i] = Nonlin(sum[j](softmax[j](where(j <= i, p[i,j], -inf)) * w[j]) + m * l * r[i] + sum[j](r[j] * o[j]))
  - f = Nonlin(sum[i](y[i]**2) / 3)
""",
    "averages": """
indices: {i: 3, j: 3}
initial: {"x[i]": {cov: 1}, "b[i]": {cov: 1}}
weights: {W: 1, V: 1}
body:
  - one = Nonlin(1)
  - u[i] = MatMul(W, x[i])
  - p[i,j] = Dot(u[i], x[j])
  - m[i,j] = Dot(u[i], b[j], scale=1/n)
  - v[i] = Dot(u[i], u[i], scale=1/n)
  - s[i] = Nonlin(tanh(p[i,i]) * v[i] + sum[j](m[i,j] * p[j,i]) + m[i,i]**2)
  - c = Nonlin(s[0] / (1 + s[1]**2))
  - z[i] = Nonlin((u[i] - m[i,1]) / sqrt(v[i] + 1) * s[i] + c * b[i])
  - k[i] = Nonlin(s[i])
  - y[i] = MatMul(V, z[i])
  - f[i] = Nonlin(y[i] + k[i] * v[i] * one)
""",
    "widths": """
constants: {H: 2, D: 3}
indices: {i: 3, j: 3, a: H}
widths: {d: n/H}
fixed_widths: {e: D}
initial: {"x[i]": {cov: 1}, t: {grid: true, width: d}}
weights:
  Q[a]: {shape: [d, n]}
  K[a]: {shape: [d, n]}
  O[a]: {shape: [n, d]}
  E: {shape: [e, n]}
  F: {shape: [n, e]}
body:
  - q[a,i] = MatMul(Q[a], x[i])
  - k[a,j] = MatMul(K[a], x[j])
  - r[a,i] = Nonlin(q[a,i] * cos(i * t))
  - p[a,i,j] = Dot(r[a,i], k[a,j])
  - m[a,i] = Dot(k[a,i], r[a,i], scale=1/n)
  - o[a,j] = MatMul(O[a], k[a,j])
  - g[i] = MatMul(E, x[i])
  - h[i,j] = Dot(g[i], g[j])
  - hm[i] = Dot(g[i], g[i], scale=1/n)
  - c[i] = MatMul(F, g[i])
  - l[a,i] = Nonlin(k[a,i] * m[a,i])
  - y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j] + h[i,j]) * o[a,j]) / sqrt(H) + c[i] * hm[i] + m[0,i])
outputs: [y, g, l]
""",
    "atoms": """
constants: {"c[i]": [0.5, 2]}
indices: {i: 2}
initial: {"x[i]": {cov: 1}, z: {cov: 1}}
weights: {W: 1}
body:
  - u[i] = MatMul(W, x[i])
  - a[i] = Nonlin(gelu(u[i]) + silu(u[i] * 2) - softplus(u[i]) + selu(u[i]) + elu(u[i], 0.7) + leaky_relu(u[i], 0.1))
  - b[i] = Nonlin(abs(u[i]) * sin(u[i]) * cos(z) + gaussian(u[i]) / (2 + tanh(z)) + c[i] * exp(z / 3))
  - d[i] = Nonlin(sqrt(1 + u[i]**2) * log(2 + z**2) + clip(u[i], -1, 0.5) + clip(z, 0, inf))
  - h[i] = Nonlin(min(u[i], z) * max(u[i], z, 0.1) - gelu_tanh(2 * u[i]))
  - e[i] = Nonlin(where(u[i] > z, a[i] * sigmoid(z), erf(b[i])) + sign(u[i]) * step(z) * d[i] - h[i])
  - f[i] = Nonlin(e[i] - u[i]**3 - 2**(u[i] / 4))
outputs: [f]
""",
    "triangular": """
indices: {i: 4, j: 4, d: 1-4..3}
initial: {"x[i]": {cov: 1}, "r[d]": {cov: 1}}
weights: {W: 1, Q: 1}
body:
  - q[i] = MatMul(Q, x[i])
  - p[i,j] = Dot(q[i], r[j - i])
  - s[i,j] = Nonlin(p[i,j] + tanh(p[j,i]))
  - v[i] = MatMul(W, x[i])
  - f[i] = Nonlin(sum[j](softmax[j](where(j <= i, s[i,j], -inf)) * v[j] * r[i - j]))
""",
}  # fmt: skip


def made(name: str) -> tp.Program:
    """One of the programs, by name."""
    from tests.reading import loads

    text = TEXTS[name].strip("\n")
    outputs = "" if "outputs:" in text else "\noutputs: [f]\n"
    found = tp.Program.from_netsor(loads(f"program: {name}\n{text}{outputs}"))
    assert isinstance(found, tp.Program)
    return found
