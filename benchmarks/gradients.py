"""Gradients as programs: against differences, limits beside networks, tangent kernels and their time.

    python benchmarks/gradients.py

One row for each: the relu kernel of three layers, a convolutional kernel beside a direct formula, squared norms of
gradients at three widths beside their limit, and the time of kernels of 1000 and 3000 inputs over that of covariances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorprog as tp


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
            print(f"kernel of {inputs} inputs, {function.__name__:5} {tangent:.3f} s, covariance {covariance:.3f} s, "
                  f"ratio {ratio:.1f}, error of the kernel {kernel.error:.0e}")


if __name__ == "__main__":
    main()
