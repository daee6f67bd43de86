"""Tangent kernels: tensorprog beside neural-tangents, in double precision.

    python3 -m venv peer
    python3 -m pip --python peer install -r benchmarks/peers/neural_tangents.txt
    python benchmarks/peers/tangent_kernels.py peer/bin/python

Networks on data: relu and erf, residual layers, LayerNorm, one-dimensional convolutions read flattened and averaged.
Each row has the largest relative difference and the error that ours states.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FIRST, WEIGHT, LAST, EPS = 1.5, 2.0, 1.3, 1e-5
THEIRS = f"""
import os, sys
os.environ["JAX_ENABLE_X64"] = "1"
import numpy as np
from neural_tangents import stax

x, images = (np.load(f"{{sys.argv[1]}}/{{name}}.npy") for name in ("x", "images"))
dense = lambda variance: stax.Dense(1, W_std=variance**0.5, b_std=None)
conv = lambda variance: stax.Conv(1, (3,), padding="SAME", W_std=variance**0.5, b_std=None,
                                  dimension_numbers=("NHC", "HIO", "NHC"))
layers = lambda f: (dense({FIRST}), f(), dense({WEIGHT}), f(), dense({LAST}))
block = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), stax.serial(stax.Relu(), dense({WEIGHT}))),
                    stax.FanInSum())
norm = stax.LayerNorm(eps={EPS})
convolutions = (conv({FIRST}), stax.Relu(), conv({WEIGHT}), stax.Relu())
networks = dict(
    relu=(layers(stax.Relu), x), erf=(layers(stax.Erf), x),
    residual=((dense({FIRST}), block, block, stax.Relu(), dense({LAST})), x),
    layernorm=((dense({FIRST}), norm, stax.Relu(), dense({WEIGHT}), norm, stax.Relu(), dense({LAST})), x),
    flattened=((*convolutions, stax.Flatten(), dense({LAST})), images),
    averaged=((*convolutions, stax.GlobalAvgPool(), dense({LAST})), images),
)
np.savez(f"{{sys.argv[1]}}/kernels.npz", **{{
    name: np.asarray(stax.serial(*parts)[2](data, None, "ntk")) for name, (parts, data) in networks.items()}})
"""


def ours(name: str, x: Any, images: Any) -> Any:
    """One of the networks as a program."""
    import tensorprog as tp

    P = tp.Program(name)
    if name in ("flattened", "averaged"):
        m, places, channels = images.shape
        i, c, d = P.index("i", m), P.index("c", places, boundary="zero"), P.index("d", "-1..1")
        wide = np.zeros((m, places + 2, channels))
        wide[:, 1:-1] = images
        patches = np.concatenate([wide[:, k : k + places] for k in range(3)], axis=2).reshape(m * places, -1)
        u = P.initial("x[i,c]", data=patches, variance=FIRST)
        h = P.nonlin("h[i,c]", tp.relu(u[i, c]))
        g = P.matmul("g[i,c,d]", P.weight("F[d]", WEIGHT / 3)[d], h[i, c + d])
        h = P.nonlin("k[i,c]", tp.relu(tp.sum[d](g[i, c, d])))
        if name == "averaged":
            P.outputs(P.matmul("f[i]", P.weight("V", LAST), P.nonlin("m[i]", tp.mean[c](h[i, c]))[i]))
        else:
            r = P.matmul("r[i,c]", P.weight("V[c]", LAST / places)[c], h[i, c])
            P.outputs(P.nonlin("f[i]", tp.sum[c](r[i, c])))
        return P
    i, one = P.index("i", len(x)), P.nonlin("one", 1)
    z = P.initial("x[i]", data=x, variance=FIRST)
    for k, variance in enumerate((WEIGHT, WEIGHT, LAST) if name == "residual" else (WEIGHT, LAST)):
        u = z
        if name == "layernorm":
            m, v = P.dot(f"m{k}[i]", u[i], one, scale="1/n"), P.dot(f"v{k}[i]", u[i], u[i], scale="1/n")
            u = P.nonlin(f"n{k}[i]", (u[i] - m[i]) / tp.sqrt(v[i] - m[i] ** 2 + EPS))
        h = P.nonlin(f"h{k}[i]", (tp.erf if name == "erf" else tp.relu)(u[i]))
        w = P.matmul(f"w{k}[i]", P.weight(f"W{k}", variance), h[i])
        z = P.nonlin(f"z{k}[i]", z[i] + w[i]) if name == "residual" and variance == WEIGHT else w
    P.outputs(z)
    return P


def main() -> None:
    """Print a row for each network."""
    import tensorprog as tp

    rng = np.random.default_rng(0)
    x, images = rng.standard_normal((5, 7)), rng.standard_normal((3, 6, 4))
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", x)
        np.save(Path(folder) / "images.npy", images)
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([sys.argv[1], "-W", "ignore", "-c", THEIRS, folder], check=True, env=clean)
        kernels = np.load(Path(folder) / "kernels.npz")
        for name in kernels.files:
            P = ours(name, x, images)
            kernel = tp.ntk(P, P.netsor.outputs[0])
            away = np.abs(np.asarray(kernel) / kernels[name] - 1).max()
            print(f"{name:10} relative difference {away:.1e}, stated error {kernel.error:.1e}")


if __name__ == "__main__":
    main()
