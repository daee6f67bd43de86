"""Programs without scores whose limits are compared as formulas and as numbers."""

from __future__ import annotations

MLP = """
program: mlp_{name}
constants: {{m: 3, rho: 0.6, sigma_w2: 1.4, sigma_b2: 0.3, c: 0.8}}
indices: {{i: m}}
initial:
  x[i]: {{mean: 0, cov: rho**abs(i - i_)}}
  b1: {{mean: 0, cov: sigma_b2}}
  b2: {{mean: 0, cov: sigma_b2}}
weights: {{W1: sigma_w2, W2: sigma_w2, V: 1}}
body:
  - u1[i] = MatMul(W1, x[i])
  - x1[i] = Nonlin({first})
  - u2[i] = MatMul(W2, x1[i])
  - x2[i] = Nonlin({second})
  - f[i] = MatMul(V, x2[i])
outputs: [f]
"""

FUNCTIONS = {
    "relu": "relu(z)",
    "erf": "erf(c*z)",
    "gelu": "gelu(z)",
    "sin": "sin(z + c)",
    "cos": "cos(z)",
    "abs": "abs(z)",
    "leaky_relu": "leaky_relu(z, 0.2)",
    "clip": "clip(z, -c, c)",
    "sign": "sign(z)",
    "cubic": "z**3/6 - c*z + 0.5",
    "gaussian": "gaussian(z)",
    "shifted_relu": "relu(z - c)",
    "tanh": "tanh(c*z)",
    "lopsided_clip": "clip(z, -0.5, 2*c)",
    "exp": "exp(c*z/4)",
    "hinge": "max(z, 0.3)",
    "mix": "z*step(z) + sin(z)",
    "elu": "elu(z)",
}


def mlp(name: str) -> str:
    """Two hidden layers with biases on correlated inputs."""
    phi = FUNCTIONS[name]
    return MLP.format(name=name, first=phi.replace("z", "(u1[i] + b1)"), second=phi.replace("z", "(u2[i] + b2)"))


OTHERS = {
    "means": """
program: means
constants: {s: 3, mu: 0.7, c: 0.9}
indices: {i: s}
initial:
  h[i]: {mean: mu*(1 + i), cov: 0.5**abs(i - i_)}
weights: {W: c}
body:
  - x[i] = Nonlin(relu(h[i] - 1))
  - g[i] = MatMul(W, x[i])
  - y[i] = Nonlin(clip(g[i], -1, 1) + 0.1*i)
outputs: [y, x]
""",
    "layer_norm": """
program: layer_norm
constants: {s: 3, eps: 0.1, w: 1.5}
indices: {i: s}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {W: w}
body:
  - u[i] = MatMul(W, h[i])
  - x[i] = Nonlin(relu(u[i]))
  - one = Nonlin(1)
  - m[i] = Dot(x[i], one, scale=1/n)
  - d[i] = Nonlin(x[i] - m[i])
  - v[i] = Dot(d[i], d[i], scale=1/n)
  - z[i] = Nonlin(d[i] / sqrt(v[i] + eps))
  - g[i] = MatMul(W, z[i])
outputs: [g, m, v]
""",
    "heads": """
program: heads
constants: {s: 3, H: 2, w: 1.5}
indices: {i: s, j: s, a: H}
initial:
  h[i]: {mean: 0, cov: 1}
weights: {W: w, "V[a]": w}
body:
  - u[i] = MatMul(W, h[i])
  - x[i] = Nonlin(relu(u[i]))
  - g[a,i] = MatMul(V[a], x[i])
  - y[a] = Nonlin(mean[i](tanh(g[a,i])))
  - z[i] = Nonlin(sum[a](g[a,i]) / H)
  - r[i] = Nonlin(relu(sum[a](g[a,i])))
  - o[i] = MatMul(W, r[i])
outputs: [y, z, o]
""",
    "bands": """
program: bands
constants: {s: 4, t: 3, w: 1.5}
indices: {i: s, k: t}
initial:
  h[i]: {mean: 0, cov: 1}
weights: {W: w}
body:
  - u[i] = MatMul(W, h[i])
  - x[i] = Nonlin(erf(u[i]))
  - d[k] = Nonlin(x[k+1] - 0.5*x[k])
  - g[k] = MatMul(W, d[k])
  - r[k] = Nonlin(relu(g[k]))
outputs: [g, r]
""",
    "gates": """
program: gates
constants: {s: 2, w: 1.5}
indices: {i: s}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {W: w, V: 1}
body:
  - u[i] = MatMul(W, h[i])
  - v[i] = MatMul(V, h[i])
  - x[i] = Nonlin(sigmoid(u[i]) * tanh(v[i]))
outputs: [x]
""",
    "data": """
program: data
constants: {N: 3, w: 1.5, b: 0.2}
indices: {i: N}
initial:
  x[i]: {mean: 0, variance: w, data: [[1, 2, 0], [1, 2, 0], [0.3, -1, 0.5]]}
weights: {W: w, V: w}
body:
  - u[i] = MatMul(W, x[i])
  - x1[i] = Nonlin(clip(u[i], -b, 1))
  - v[i] = MatMul(V, x1[i])
outputs: [v]
""",
}

ATTENTION = """
program: attention_named
constants: {s: 4, H: 2, C: 1.3, sQ: 0.9, sK: 1.1, sV: 0.8, sO: 1.2}
indices: {i: s, j: s, a: H}
initial:
  h: {mean: 0, cov: 1}
weights:
  W[i]: 1
  WQ[a]: sQ**2
  WK[a]: sK**2
  WV[a]: sV**2
  WO[a]: sO**2
body:
  - u[i]     = MatMul(W[i], h)
  - x[i]     = Nonlin(clip(u[i], -C, C))
  - q[a,i]   = MatMul(WQ[a], x[i])
  - k[a,j]   = MatMul(WK[a], x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - v[a,j]   = MatMul(WV[a], x[j])
  - o[a,j]   = MatMul(WO[a], v[a,j])
  - y[i]     = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * o[a,j]) / sqrt(H))
outputs: [y]
"""

SHARED_KEYS = """
program: shared_keys
constants: {s: 2, H: 2, w: 1.5}
indices: {i: s, j: s, a: H}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {W: w, "WQ[a]": w, WK: 1, "WO[a]": 1}
body:
  - u[i] = MatMul(W, h[i])
  - x[i] = Nonlin(erf(u[i]))
  - q[a,i] = MatMul(WQ[a], x[i])
  - k[j] = MatMul(WK, x[j])
  - p[a,i,j] = Dot(q[a,i], k[j])
  - o[a,j] = MatMul(WO[a], x[j])
  - y[i] = Nonlin(sum[a,j](softmax[j](where(j <= i, p[a,i,j], -inf)) * o[a,j]) + 0.5*u[i])
outputs: [y]
"""

CROSSED = """
program: crossed
constants: {s: 2, w: 1.5, rho: 0.4}
indices: {i: s, j: s}
initial:
  h[i]: {mean: 0, cov: rho**abs(i - i_)}
weights: {W: 1, A: w, B: 0.7}
body:
  - u[i] = MatMul(W, h[i])
  - x[i] = Nonlin(erf(u[i]))
  - f[i] = MatMul(A, x[i])
  - g[i] = MatMul(B, x[i])
  - p[i,j] = Dot(f[i], g[j])
  - t[i,j] = Dot(g[i], f[j])
  - y = Nonlin(tanh(p[0,1])*u[0] + t[1,0]*u[1])
outputs: [y]
"""

# windows of two that overlap: the sum over d = d' + k' - k has fewer terms the farther k' is from k
WINDOWS = """
program: windows
constants: {s: 4, t: 3, w: 1.5}
indices: {i: s, k: t, d: 2}
initial:
  h[i]: {mean: 0, cov: 1}
weights: {"W[i]": 1, V: w}
body:
  - u[i] = MatMul(W[i], h[i])
  - x[i] = Nonlin(erf(u[i]))
  - z[k] = Nonlin(sum[d]((1 + d) * x[k+d]))
  - g[k] = MatMul(V, z[k])
outputs: [g, z]
"""
