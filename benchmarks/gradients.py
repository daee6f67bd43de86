"""Gradients as programs: against differences, limits beside networks, tangent kernels and their time.

    python benchmarks/gradients.py             limits, tangent kernels and their time
    python benchmarks/gradients.py --scores    gradients of a transformer at three widths, and where they lead to
    python benchmarks/gradients.py --torch     the same by torch's autograd, with all weights as matrices

One row for each: the relu kernel of three layers, a convolutional kernel beside a direct formula, squared norms of
gradients at three widths beside their limit, and the time of kernels of 1000 and 3000 inputs over that of covariances.

The transformer has twelve causal pre-norm blocks, two heads, six tokens of correlation 0.3 and a relu network in each;
`g` is the variance of its scores.  What is shown is the mean over tokens of the squared norm of the gradient by the
input.  A line in 1/n through the widths leads to infinite width.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import tensorprog as tp

TOKENS, BLOCKS, HEADS = 6, 12, 2
NETWORKS = {64: 2048, 256: 512, 1024: 128}
MATRICES = {64: 8000, 256: 2400, 1024: 256}  # with torch
TRANSFORMER = """
program: prenorm
constants: {s: 6, H: 2, L: 12, g: 1}
indices: {i: s, j: s, a: H, t: 1..L}
initial:
  h[i]: {mean: 0, cov: "where(i == i_, 1, 0.3)"}
weights:
  WQ[t,a]: g
  WK[t,a]: 1
  WV[t,a]: 1
  WO[t,a]: 1
  W1[t]: 2
  W2[t]: 1
body:
  - x[0,i] = Nonlin(h[i])
  - m[t,i] = Dot(x[t - 1,i], x[t - 1,i], scale=1/n)
  - n1[t,i] = Nonlin(x[t - 1,i] / sqrt(m[t,i] + 1e-12))
  - q[t,a,i] = MatMul(WQ[t,a], n1[t,i])
  - k[t,a,j] = MatMul(WK[t,a], n1[t,j])
  - p[t,a,i,j] = Dot(q[t,a,i], k[t,a,j])
  - v[t,a,j] = MatMul(WV[t,a], n1[t,j])
  - o[t,a,j] = MatMul(WO[t,a], v[t,a,j])
  - z[t,i] = Nonlin(x[t - 1,i] + sum[a,j](softmax[j](where(j <= i, p[t,a,i,j], -inf)) * o[t,a,j]) / sqrt(H))
  - w[t,i] = Dot(z[t,i], z[t,i], scale=1/n)
  - n2[t,i] = Nonlin(z[t,i] / sqrt(w[t,i] + 1e-12))
  - u[t,i] = MatMul(W1[t], n2[t,i])
  - r[t,i] = Nonlin(relu(u[t,i]))
  - e[t,i] = MatMul(W2[t], r[t,i])
  - x[t,i] = Nonlin(z[t,i] + e[t,i])
  - y[i] = Nonlin(x[L,i])
outputs: [y]
"""


def by_program(score_variance: float, width: int, networks: int) -> tuple[float, float]:
    """Mean squared norm of the input's gradient of networks of the adjoint program, and its standard error."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "prenorm.yaml")
        path.write_text(TRANSFORMER.replace("g: 1}", f"g: {score_variance}}}"), encoding="utf-8")
        found = tp.depth(str(path), "x", gradients=True, draws=16, width=width, samples=networks)
    return tuple(float(found[f"gradient_norm_{end}"].values.ravel()[0]) for end in ("finite", "finite_se"))  # type: ignore[return-value]


def by_torch(score_variance: float, width: int, networks: int) -> tuple[float, float]:
    """The same by autograd."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    root = torch.linalg.cholesky(0.3 + 0.7 * torch.eye(TOKENS))
    later = torch.ones(TOKENS, TOKENS).triu(1).bool()

    def weight(variance: float = 1.0) -> Any:
        return torch.randn(width, width) * (variance / width) ** 0.5

    def normalised(x: Any) -> Any:
        return x / (x * x).mean(dim=1, keepdim=True).sqrt()

    found = []
    for _ in range(networks):
        x = start = (root @ torch.randn(TOKENS, width)).requires_grad_()
        for _ in range(BLOCKS):
            n, total = normalised(x), 0
            for _ in range(HEADS):
                scores = (n @ weight(score_variance)) @ (n @ weight()).T / width**0.5
                total = total + torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ (n @ weight() @ weight())
            z = x + total / HEADS**0.5
            x = z + torch.relu(normalised(z) @ weight(2.0)) @ weight()
        (x * torch.randn(TOKENS, width)).sum().div(width**0.5).backward()
        found.append(float((start.grad**2).sum()) / TOKENS)
    return float(np.mean(found)), float(np.std(found) / networks**0.5)


def scores(measure: Callable[[float, int, int], tuple[float, float]], networks: dict[int, int]) -> None:
    """Gradients at several widths, and the line in 1/n through them."""
    for score_variance in (1.0, 16.0):
        rows = []
        for width, count in networks.items():
            begun = time.process_time()
            rows.append(measure(score_variance, width, count))
            print(
                f"g = {score_variance:g}  n = {width:5d}  {count} networks  {rows[-1][0]:.3f} +- {rows[-1][1]:.3f}"
                f"  {time.process_time() - begun:.0f} s",
                flush=True,
            )
        values, errors = np.array(rows).T
        matrix = np.stack([np.ones(len(rows)), 1 / np.array([*networks])], axis=1) / errors[:, None]
        law = np.linalg.inv(matrix.T @ matrix)
        limit, slope = law @ matrix.T @ (values / errors)
        print(
            f"g = {score_variance:g}  n = infinity  {limit:.3f} +- {law[0, 0] ** 0.5:.3f}, and {slope:.0f}/n,"
            f"  chi**2 {np.sum((matrix @ [limit, slope] - values / errors) ** 2):.1f} of {len(rows) - 2}",
            flush=True,
        )


def network(layers: int, cov: str = "0.6**abs(i - i_)", function: Callable[..., Any] = tp.relu, **data: Any) -> Any:
    """A network whose last vectors are u<layers - 1>, on two inputs or on data."""
    P = tp.Program("net")
    i = P.index("i", len(data["data"]) if data else 2)
    u = P.initial("x[i]", **data) if data else P.matmul("u0[i]", P.weight("W0"), P.initial("x[i]", cov=cov)[i])
    for k in range(1, layers):
        h = P.nonlin(f"h{k}[i]", function(u[i]))
        u = P.matmul(f"u{k}[i]", P.weight(f"W{k}", 2), h[i])
    P.outputs(u)
    return P


def main() -> None:
    """Print all rows."""
    kernel = tp.ntk(network(3), "u2")
    print(f"relu kernel, three layers     {np.asarray(kernel)[0].round(7)}   known 3, 1.5444163")
    for name in ("mlp", "layernorm_mlp", "cnn", "rnn"):
        B = tp.backward(tp.load(name))
        gradient = next(o for o in B.netsor.outputs if o.startswith("grad_"))
        limit = np.asarray(B.limit().cov(gradient))
        members = int(np.sqrt(limit.size))
        row = [f"{np.diag(limit.reshape(members, members)).mean():.5f}"]
        for width in (64, 256):
            drawn = np.asarray(B.run(width, 200, seed=1, coordinates=width, keep=[gradient])[gradient], float)
            each = (drawn**2).reshape(200, -1).mean(axis=1)
            row.append(f"n = {width}: {each.mean():.4f}({each.std() / np.sqrt(200):.4f})")
        print(f"{name + ', |' + gradient + '|^2':30}limit {'   '.join(row)}")
    for inputs, rounds in ((1000, 9), (3000, 3)):
        x = np.random.default_rng(0).standard_normal((inputs, 20))
        for function in (tp.relu, tp.erf, tp.gelu, tp.tanh):
            P = network(4, function=function, data=x, variance=1.5)
            times = []
            for _ in range(1 + rounds):  # the first one warms up
                begun = time.process_time()
                np.asarray(P.limit().cov("u3"))
                middle = time.process_time()
                kernel = tp.ntk(P, "u3")
                np.asarray(kernel)
                times.append((middle - begun, time.process_time() - middle))
            covariance, tangent = np.median(times[1:], axis=0)
            ratio = np.median([second / first for first, second in times[1:]])
            print(
                f"kernel of {inputs} inputs, {function.__name__:5} {tangent:.3f} s, covariance {covariance:.3f} s, "
                f"ratio {ratio:.1f}, error of the kernel {kernel.error:.0e}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--torch", action="store_true")
    wanted = parser.parse_args()
    if wanted.scores:
        scores(by_program, NETWORKS)
    if wanted.torch:
        scores(by_torch, MATRICES)
    if not (wanted.scores or wanted.torch):
        main()
