"""Indices that are bound never catch those that are free: softmaxes in softmaxes over one index, read elsewhere."""

from __future__ import annotations

import numpy as np
from networks import Network, draw

from tensorprog import Law
from tensorprog.check.certificates.program import inline
from tensorprog.check.graph import Structure
from tensorprog.language.expr import Affine, Reduction, Variable, free_indices, substitute
from tests.reading import loads

NESTED = """program: nested
constants:
  m[i,k]: [[0, 9], [0, 0]]
indices: {i: 2, k: 2, j: 2}
initial:
  x[i]: {cov: 1}
body:
  - t[i,k] = Nonlin(softmax[i](m[i,k]))
  - s[i,j] = Nonlin(softmax[i](t[j,i]))
  - y[k] = Nonlin(s[k,0] + 0 * x[k])
outputs: [y]
"""


def test_a_softmax_in_a_softmax_over_one_index() -> None:
    netsor = loads(NESTED)
    found = inline(Structure(netsor), netsor.body[2].expr, 2)
    assert found is not None
    assert str(found[0]) == "softmax[i*](softmax[i**](m[i**,i*]) at [0]) at [k] + 0 * x[k]"
    assert {"i*", "i**"} <= set(found[1])
    network: Network = draw(netsor, 3, np.random.default_rng(0))
    expected = [vector.mean() for vector in network.family("y")]
    np.testing.assert_allclose(np.asarray(Law(netsor).mean("y")), expected, rtol=0, atol=1e-14)


def index(name: str) -> Affine:
    return Affine(((name, 1),))


def test_values_are_not_caught_by_what_a_softmax_binds() -> None:
    expr = Reduction("softmax", ("i",), Variable("p", (index("i"), index("k"))))
    swapped = substitute(expr, {"i": index("k"), "k": index("i")})
    assert str(swapped) == "softmax[i*](p[i*,i]) at [k]"
    assert free_indices(swapped) == ["k", "i"]
    assert str(substitute(swapped, {"i": index("i*"), "k": index("j")})) == "softmax[i**](p[i**,i*]) at [j]"
    assert str(substitute(expr, {"k": index("i")})) == "softmax[i*](p[i*,i]) at [i]"
    assert substitute(expr, {"j": index("i")}) == expr
    assert substitute(expr, {"k": index("j")}) == Reduction("softmax", ("i",), Variable("p", (index("i"), index("j"))))
