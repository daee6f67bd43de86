"""Readouts: one coordinate of a product with a weight is an inner product with a row of it, and the other way round.

f = (W z)_0    <->    f = n**-0.5 v.z,  v the row
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from tensorprog.language.errors import fail
from tensorprog.language.expr import Expr, Number, Variable, is_call
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Weight
from tensorprog.language.schedule import upstream

__all__ = ["with_product", "with_readout"]


def with_readout(netsor: Netsor, output: str, power: Fraction = Fraction(0)) -> Netsor:
    """The program with one coordinate of an output y = MatMul(W, z), n**power times that, as v.z with a row v of W.

    A bias beside it is left out where it vanishes with n.
    Raises    ProgramError for other outputs
    """
    made = [s for s in netsor.body if s.target.name == output]
    read = {name: [s for s in netsor.body if any(v.name == name for v in s.inputs)] for name in netsor.families}
    body, product = list(netsor.body), made[0]
    if isinstance(product, Nonlin):
        terms = _summands(product.expr)
        others = [v for v in terms if isinstance(v, Variable) and not netsor.families[v.name].statements]
        rest = [v for v in terms if v not in others]
        last = rest[0] if len(rest) == 1 and power < 0 and all(read[v.name] == [product] for v in others) else None
        if isinstance(last, Variable) and read[last.name] == [product]:
            body.remove(product)
            product = next(s for s in body if s.target.name == last.name)
    scale: Any = {Fraction(0): "n**-0.5", Fraction(-1, 2): "1/n"}.get(power)
    weight = netsor.weight[product.weight.name] if isinstance(product, MatMul) else None
    uses = [s for s in body if isinstance(s, MatMul) and weight is not None and s.weight.name == weight.name]
    if len(made) != 1 or not isinstance(product, MatMul) or product.transposed or weight is None or not scale:
        said = f"{output} is no readout: no product with a weight, or on the scale n**{power}"
        raise fail(said, made[0].span, "f[i] = Dot(v, z[i], scale=1/n)")
    if len(uses) != 1 or read[output]:
        raise fail(f"{output} is no readout: it, or its weight, is used again", product.span)
    row = Initial(weight.name, weight.indices, Number(0), weight.variance, None, weight.shape[1])
    dot = Dot(Variable(output, product.target.slots), product.weight, product.vector, scale, product.span)
    parts: dict[str, Any] = {
        **netsor.parts,
        "weights": tuple(w for w in netsor.weights if w is not weight),
        "initial": (*netsor.initial, row),
        "body": tuple(dot if s is product else s for s in body),
    }
    return Netsor(**parts)


def _summands(expr: Expr) -> list[Expr]:
    return [each for arg in expr.args for each in _summands(arg)] if is_call(expr, "add") else [expr]


def with_product(netsor: Netsor, name: str) -> Netsor:
    """The program with a readout n**-0.5 v.z, v an initial vector of its own, as one coordinate of V z."""
    for s in netsor.body:
        ends = (s.left, s.right) if isinstance(s, Dot) and s.target.name == name and s.scale != "1/n" else ()
        for v, z in (ends, ends[::-1]) if ends else ():
            own = next((x for x in netsor.initial if x.name == v.name and not x.indices and x.mean == Number(0)), None)
            if own and isinstance(own.cov, Expr) and sum(x.name == v.name for t in netsor.body for x in t.inputs) == 1:
                weight = Weight(v.name, (), own.cov, (own.width, own.width))
                used = upstream(netsor, [name])
                body = tuple(MatMul(s.target, v, z) if t is s else t for t in netsor.body if t.target.name in used)
                initial = tuple(x for x in netsor.initial if x is not own)
                return replace(netsor, initial=initial, weights=(*netsor.weights, weight), body=body, outputs=(name,))
    return netsor
