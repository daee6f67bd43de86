"""Programs of many statements, each on the one before: they load and are judged, whatever their length."""

from __future__ import annotations

import numpy as np
import pytest

from tensorprog import NotCompiledError, OutsideError, Program
from tests.reading import loads as read


def loads(text: str) -> Program:
    return Program.from_netsor(read(text))


def _chain(length: int, step: str, last: str = "softmax[j](c{n}[i,j])") -> str:
    """Attention whose scores pass through many functions, c0 to c{length}."""
    steps = "\n".join(f"  - c{t}[i,j] = Nonlin({step.replace('c', f'c{t - 1}')})" for t in range(1, length + 1))
    return f"""
program: chain
constants: {{s: 2}}
indices: {{i: s, j: s}}
initial: {{"h[i]": {{cov: 1}}}}
weights: {{Q: 1, K: 1}}
body:
  - x[i] = Nonlin(tanh(h[i]))
  - q[i] = MatMul(Q, x[i])
  - k[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - c0[i,j] = Nonlin(where(i < j, -inf, p[i,j]))
{steps}
  - y[i] = Nonlin(sum[j]({last.format(n=length)} * h[j]))
outputs: [y]
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["c[i,j] + 1", "c[i,j] + c[i,j] / 2", "c[i,j] + c[j,i]"])
def test_masks_are_followed_through_long_chains(step: str) -> None:
    assert loads(_chain(400, step)).check().grade == "theorem"


@pytest.mark.slow
def test_functions_of_functions_are_compiled_or_refused() -> None:
    law = loads(_chain(100, "c[i,j] * 0.999")).limit()
    assert np.all(np.isfinite(law.given({"p": np.ones((2, 2))}).cov("y")))
    with pytest.raises((NotCompiledError, OutsideError)):
        loads(_chain(400, "tanh(c[i,j])")).limit().given({"p": np.ones((2, 2))}).cov("y")


def test_numbers_carried_along_a_recurrence() -> None:
    """r = 1, then r / 2 + 3 r each time: a vector that is one number, 12.25 after two steps."""
    program = loads("""
program: numbers
constants: {m: 3}
indices: {t: 1..2, i: m, k: m}
initial: {"g[i]": {cov: 1}}
weights: {W: 1}
body:
  - r[0,i] = Nonlin(1)
  - r[t,i] = Nonlin(r[t-1,i] / 2 + sum[k](r[t-1,k]))
  - a = Dot(r[1,1], g[2], scale=1/n)
  - b = Dot(r[1,1], r[2,0], scale=1/n)
  - y = Nonlin(g[0] * r[2,0])
outputs: [y, a, b]
""")
    assert program.check().grade == "extension"
    law = program.limit()
    for name, expected in (("a", 0.0), ("b", 3.5 * 12.25)):
        mean, error = law.mean(name, with_error=True)
        assert abs(mean - expected) <= error + 1e-10 and error < 1e-4
    value, error = law.var("y", with_error=True)
    assert abs(value - 12.25**2) <= error + 1e-9
