"""Trained networks in the kernel regime: `tp.predict` beside neural-tangents.

    python benchmarks/peers/predictions.py peer/bin/python

with the interpreter of `neural_tangents.py`.  Networks of two hidden layers with biases on 50 inputs, 30 of them to
learn from; the largest difference of means and of covariances at several times, beside the stated errors.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

WEIGHT, BIAS, TRAIN = 1.5, 0.1, 30
TIMES = (0.1, 1.0, 10.0, np.inf)
NOISES = (0.0, 0.1)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((50, 6))
    return x, np.sin(x[:TRAIN, 0])


def theirs(folder: Path) -> None:
    """In their interpreter: a file for each network, noise and kernel, means beside covariances at all times."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import neural_tangents as nt
    from neural_tangents import stax

    x, y = inputs()
    for name, activation in (("relu", stax.Relu), ("erf", stax.Erf)):
        hidden = [part for _ in range(2) for part in (stax.Dense(512, WEIGHT**0.5, BIAS**0.5), activation())]
        kernel = stax.serial(*hidden, stax.Dense(1, WEIGHT**0.5, None))[2]
        for noise in NOISES:
            options: dict[str, Any] = {"diag_reg": noise, "diag_reg_absolute_scale": True}
            predict = nt.predict.gradient_descent_mse_ensemble(kernel, x[:TRAIN], y[:, None], **options)
            found: dict[str, list[np.ndarray]] = {"ntk": [], "nngp": []}
            for t in TIMES:
                at = None if t == np.inf else t * TRAIN  # theirs is the mean of squares
                law = predict(t=at, x_test=x, get=("ntk", "nngp"), compute_cov=True)
                for which, values in found.items():
                    one = getattr(law, which)
                    values.append(np.column_stack([one.mean, one.covariance]))
            for which, values in found.items():
                np.save(folder / f"{name}_{noise}_{which}.npy", values)


def ours(name: str) -> Any:
    import tensorprog as tp

    x, _ = inputs()
    P = tp.Program(name)
    i = P.index("i", len(x))
    u = P.initial("u0[i]", data=x, variance=WEIGHT)
    for k in (1, 2):
        z = P.nonlin(f"x{k}[i]", getattr(tp, name)(u[i] + P.initial(f"b{k}", cov=BIAS)))
        u = P.matmul(f"u{k}[i]", P.weight(f"W{k}", WEIGHT), z[i])
    P.outputs(u)
    return P


def main() -> None:
    import tensorprog as tp

    _, y = inputs()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "-I", __file__, "--serve", folder], check=True, stderr=subprocess.DEVNULL)
        print("network kernel noise     t   mean  stated   covariance  stated")
        for name in ("relu", "erf"):
            P = ours(name)
            for which in ("ntk", "nngp"):
                moving = ["u0", "b1", "W1", "b2", "W2"] if which == "ntk" else None
                for noise in NOISES:
                    law = tp.predict(P, "u2", y, noise=noise, kernel=which, parameters=moving)
                    peer = np.load(Path(folder) / f"{name}_{noise}_{which}.npy")
                    for t, values in zip(TIMES, peer, strict=True):
                        now = law.at(t)
                        own = np.column_stack([now.mean, now.cov])
                        off = np.abs(own - values).max(axis=0)
                        told = (
                            f"{off[0]:.0e}  {now.mean_error.max():.0e}  {off[1:].max():.0e}  {now.cov_error.max():.0e}"
                        )
                        print(f"{name:7} {which:6} {noise:5} {t:5}  {told}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        theirs(Path(sys.argv[2]))
    else:
        main()
