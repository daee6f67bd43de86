"""Members that differ by nothing but weights of their own have one law, which is asked for once."""

import pytest

import tensorprog as tp
from tensorprog.results.reference import alike
from tests.reading import loads

PROGRAM = """\
program: logits
indices: {i: 2, j: 2, c: 5}
initial:
  h[i]: {mean: 0, cov: "0.5**abs(i - i_)"}
weights:
  WQ: 1
  WK: 1
  V[c]: 1
  U[c]: VARIANCE
body:
  - q[i] = MatMul(WQ, h[i])
  - k[j] = MatMul(WK, h[j])
  - p[i,j] = Dot(q[i], k[j])
  - z[i] = Nonlin(tanh(sum[j](softmax[j](p[i,j]) * h[j])))
  - v[c] = MatMul(V[c], z[0])
  - u[c] = MatMul(U[c], z[1])
  - y[c] = Nonlin(EXPR)
outputs: [y]
"""


@pytest.mark.parametrize(
    ("variance", "expr", "same"),
    [
        ("1", "u[c] + v[c]", True),
        ("1", "u[c] + z[0]", True),
        ("1", "u[c] + v[0]", True),
        ("1", "u[c] * u[0]", False),
        ("c + 1", "u[c]", False),
        ("1", "c * u[c]", False),
        ("1", "z[0] + where(c == 0, 0, u[c])", False),
    ],
)
def test_what_differs_by_its_weights_only(variance: str, expr: str, same: bool) -> None:
    netsor = loads(PROGRAM.replace("VARIANCE", variance).replace("EXPR", expr))
    assert alike(netsor, "y", 0) == same
    assert not alike(netsor, "z", 0)


def test_the_density_of_logits_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tp.Program.from_netsor(loads(PROGRAM.replace("VARIANCE", "1").replace("EXPR", "u[c]")))
    law, asked = program.limit(), list[str]()
    density = type(law).density
    monkeypatch.setattr(type(law), "density", lambda *given: (asked.append(given[1]), density(*given))[1])
    found = tp.compare(program.run(16, 500), law)
    assert asked == ["y[0]"]
    assert all(row.ks_p > 1e-4 for row in found.rows)
