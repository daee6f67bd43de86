"""A matrix and its transpose: limits beside dense networks, and the cost of networks without matrices.

    python benchmarks/transposes.py            # cost
    python benchmarks/transposes.py --limits   # sixteen programs, limits beside dense networks at three widths

Networks at n = 64, 256 and 1024 are extrapolated by a parabola in 1/n; z counts standard errors of both.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import tensorprog as tp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.limit.test_transposes import THROUGH_TIME

TIED = """
program: four_products
initial:
  x: {cov: 1}
weights: {W: 1.5}
body:
  - u = MatMul(W, x)
  - h = Nonlin(tanh(u))
  - y = MatMul(W.T, h)
  - a = Nonlin(tanh(y))
  - v = MatMul(W, a)
  - b = Nonlin(tanh(v))
  - z = MatMul(W.T, b)
outputs: [z]
"""

HEAD = (
    "program: p\ninitial:\n  x: {cov: 1}\n  y: {mean: 0.5, cov: 1}\n  b: {cov: 0.3, width: wide}\nwidths: {wide: DN}\n"
)
HEAD += "weights:\n  W: {variance: 1.2, shape: [wide, n]}\n  V: 1\nbody:\n"
AVERAGE = "Dot({0}, {1}, scale=1/n)"
PROGRAMS = {  # ratio of widths, statements, and averages to compare
    "tied decoder, ratio 2": (
        "2*n",
        "u=W x;h=tanh(u + b);g=W.T h;c=relu(g + x);v=W c;k=tanh(v + b);o=W.T k",
        "oo ox gg gx",
    ),
    "tied decoder, jumps": (
        "n/2",
        "u=W x;h=sign(u + b);g=W.T h;c=tanh(2*g);v=W c;k=step(v);o=W.T k",
        "oo ox gx",
    ),
    "symmetric matrix, relu": (
        "n",
        "p=V y;q=V.T y;s=relu((p + q)/sqrt(2));p2=V s;q2=V.T s;t=relu((p2 + q2)/sqrt(2))",
        "ss tt ty ts",
    ),
    "shared inputs": (
        "n",
        "p=V x;q=V.T x;a=tanh(p*q);r=V a;s=V.T a;t=relu(r + s)",
        "rr rs tt tx",
    ),
    "W W^T W x": (
        "n/2",
        "u=W x;a=tanh(u);g=W.T a;c=tanh(g);v=W c;w=tanh(v);z=W.T w",
        "zz zx gg zg",
    ),
    "power iteration": (
        "2*n",
        "u=W y;g=W.T u;v=W g;h=W.T v",
        "gg gy hh hy hg",
    ),
    "gradient step": (
        "n",
        "u=V x;h=tanh(u);d=(h - y)*(1 - h**2);g=V.T d;c=x - g;v=V c;k=tanh(v)",
        "gg gx kk kh kd",
    ),
    "two gradient steps, relu": (
        "n",
        "u=V x;h=relu(u);d=(h - y)*step(u);g=V.T d;c=x - 0.5*g;v=V c;k=relu(v);e=(k - y)*step(v);f=V.T e",
        "ff fx fg kk",
    ),
    "gradient of a gradient": (
        "n",
        "u=V x;d=1 - tanh(u)**2;g=V.T d;e=g*x;v=V e;f=v*tanh(u)*d;k=V.T f",
        "kk kx gg",
    ),
    "message passing, soft": (
        "n/2",
        "u=W y;z=u + b;r=W.T z;c=tanh(r);v=W c;e=u + b - v;s=W.T e;t=tanh(c + s)",
        "tt ty rr ss",
    ),
    "two matrices": (
        "n",
        "u=V x;h=tanh(u);v=W h;k=tanh(v);g=W.T k;a=g*(1 - h**2);o=V.T a",
        "oo ox gg gh",
    ),
    "products of products": (
        "n",
        "p=V x;q=V.T y;a=p*q;r=V.T a;s=V a;t=tanh(r*s)",
        "rr ss tt rx sy",
    ),
}


TIED_EMBEDDING = """
program: factorised_embedding
widths: {d: n/4}
indices: {w: 3}
initial:
  e[w]: {cov: 1, width: d}
weights:
  E: {variance: 1.5, shape: [n, d]}
  W: 1.5
body:
  - x[w] = MatMul(E, e[w])
  - h[w] = Nonlin(tanh(x[w]))
  - u[w] = MatMul(W, h[w])
  - y[w] = Nonlin(h[w] + relu(u[w]))
  - r[w] = MatMul(E.T, y[w])
  - l[w,w2] = Dot(e[w2], r[w], scale=1/n)
  - m[w] = Dot(r[w], r[w], scale=1/n)
outputs: [l, m]
""".replace("{w: 3}", "{w: 3, w2: 3}")
ATTENTION = """
program: attention
indices: {i: 2, j: 2}
initial:
  x[i]: {cov: 1}
weights: {Q: 4, K: 1, V: 1}
body:
  - q[i] = MatMul(Q, x[i])
  - k[j] = MatMul(K, x[j])
  - v[j] = MatMul(V, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
outputs: [z]
"""


def read_gradients(text: str) -> tp.Program:
    """The gradients of a program, with their mean squares."""
    lines = tp.backward(read(text)).to_yaml().split("outputs:")[0]
    return read(lines + "  - a[i] = Dot(grad_x[i], grad_x[i], scale=1/n)\noutputs: [a]\n")


FURTHER = {
    "backward through time": lambda: read(THROUGH_TIME),
    "factorised tied embedding": lambda: read(TIED_EMBEDDING),
    "tied embedding": lambda: tp.load("tied_embedding"),
    "gradients of attention": lambda: read_gradients(ATTENTION),
}


def program(ratio: str, body: str, averages: str) -> tp.Program:
    """A program from short texts: `u=W x` multiplies, anything else is a function."""
    lines = []
    for entry in body.split(";"):
        name, value = entry.split("=", 1)
        weight, _, vector = value.partition(" ")
        product = weight in ("W", "V", "W.T", "V.T") and vector.isidentifier()
        lines.append(f"  - {name} = " + (f"MatMul({weight}, {vector})" if product else f"Nonlin({value})"))
    lines += [f"  - m_{pair} = " + AVERAGE.format(*pair) for pair in averages.split()]
    text = HEAD.replace("DN", ratio) + "\n".join(lines)
    return read(f"{text}\noutputs: [{', '.join(f'm_{pair}' for pair in averages.split())}]\n")


def read(text: str) -> tp.Program:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.yaml")
        path.write_text(text, encoding="utf-8")
        return tp.load(path)


def cost() -> None:
    """Time of one network of four products, and CPU beside matrices."""
    P = read(TIED)
    P.run(64, 1)
    for width, method in ((65536, "lazy"), (4096, "lazy"), (4096, "dense")):
        start, cpu = time.perf_counter(), time.process_time()
        P.run(width, 4, method=method, max_memory="4GiB")
        wall, used = (time.perf_counter() - start) / 4, (time.process_time() - cpu) / 4
        print(f"n = {width}, {method}: {wall:.3f} s, {used:.3f} s of CPU each")


def limits() -> None:
    """The programs, beside networks by their matrices."""
    widths, samples = (64, 256, 1024), (6000, 2000, 300)
    inverse = np.array([[1, 1 / n, 1 / n**2] for n in widths])
    at_zero = np.linalg.inv(inverse)[0]
    worst = 0.0
    made = {name: (lambda texts=texts: program(*texts)) for name, texts in PROGRAMS.items()} | FURTHER
    for name, make in made.items():
        P, start = make(), time.process_time()
        law, grade = P.limit(), P.check().grade
        found = {o: [np.ravel(part) for part in law.mean(o, with_error=True)] for o in P.netsor.outputs}
        took = time.process_time() - start
        drawn = [P.run(n, count, seed=n, method="dense") for n, count in zip(widths, samples, strict=True)]
        line = []
        for o, (value, error) in found.items():
            rows = [np.asarray(net[o]).reshape(len(net[o]), -1) for net in drawn]
            means = np.stack([row.mean(axis=0) for row in rows])
            errors = np.stack([row.std(axis=0) / len(row) ** 0.5 for row in rows])
            away = np.hypot(np.linalg.norm(at_zero[:, None] * errors, axis=0), error / 4.07)
            far = np.divide(at_zero @ means - value, away, out=np.zeros(len(away)), where=away > 0)
            k = int(np.argmax(np.abs(far)))
            worst = max(worst, abs(far[k]))
            line.append(f"{o} {value[k]:.5f}({error[k]:.0e}) z {far[k]:+.1f}")
        print(f"{name} ({grade}, {took:.1f} s): " + ", ".join(line), flush=True)
    print(f"largest |z|: {worst:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", action="store_true")
    limits() if parser.parse_args().limits else cost()
