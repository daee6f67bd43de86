"""Relations that composition cannot see: 1 / (1 + exp(-x)) is a sigmoid, u / (1 + u**2) is bounded.

Each function gives the facts of an expression it recognises, or None: "not mine".
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensorprog.atoms import Regularity
from tensorprog.calculus.inline import TooLarge, index_names, substitute
from tensorprog.calculus.profile import Fault, Profile, compose, join, join_kinks, tidy
from tensorprog.expr import Affine, Call, Expr, Number, Reduction, rebuild, variables, walk
from tensorprog.rename import fresh_substitute

if TYPE_CHECKING:
    from tensorprog.calculus.composition import Composition

__all__ = ["identity", "polynomial"]

INF = math.inf
SWITCHES = ("sigmoid", "tanh", "erf")  # bounded, with derivatives that decay faster than any power


def identity(rules: Composition, node: Call) -> Profile | None:
    """Facts that hold by a relation between the arguments, e.g. u / (1 + u**2) is bounded."""
    if node.atom == "divide":
        top, bottom = node.args
        average = weighted(rules, top, bottom)
        if average is not None:
            return average
        curve = logistic(rules, bottom)
        if curve is not None:
            base, line = polynomial(rules, bottom)
            over, top_line = polynomial(rules, top)
            if over == base and len(top_line) == 2:
                # (a + b E) / (c + d E) = b/d + (a/c - b/d) c / (c + d E)
                (a, b), (c, d) = top_line, line
                rise = Call("multiply", (Number(float(a - b * c / d)), curve))
                return rules.expression(Call("add", (Number(float(b / d)), rise)), rules.at)
            return rules.expression(Call("multiply", (top, curve)), rules.at)
        if isinstance(bottom, Call) and bottom.atom == "sqrt":
            share = normed(rules, node)
            if share is not None:
                return share
            return ratio(rules, top, bottom.args[0], 0.5)
        return halves(rules, node) or ratio(rules, top, bottom, 1.0)
    if node.atom == "log" and isinstance(node.args[0], Call | Reduction):
        arg = node.args[0]
        if isinstance(arg, Reduction) and arg.reducer == "sum" and isinstance(arg.arg, Call) and arg.arg.atom == "exp":
            return rules.reduce(Reduction("logsumexp", arg.indices, arg.arg.args[0]))
        base, c = polynomial(rules, arg)
        if len(c) == 2 and c[0] == c[1] == 1 and isinstance(base, Call) and base.atom == "exp":
            return rules.call(Call("softplus", base.args))
    if node.atom == "sqrt":
        base, c = polynomial(rules, node.args[0])
        if base is not None and len(c) == 3 and c[0] == c[1] == 0 < c[2]:
            return rules.call(Call("multiply", (Number(math.sqrt(c[2])), Call("abs", (base,)))))
        return ratio(rules, Number(1), node.args[0], -0.5)
    if node.atom == "power":
        exponent = rules.number(node.args[1])
        if exponent is not None and exponent < 0:
            return ratio(rules, Number(1), node.args[0], -exponent)
    if node.atom in ("multiply", "add", "subtract", "power"):
        base, c = polynomial(rules, node)
        if base is not None and base != node and len(c) > 2:
            return ratio(rules, node, Number(1), 1.0)
    if node.atom == "multiply":
        return switched(rules, node)
    return None


def polynomial(rules: Composition, expr: Expr) -> tuple[Expr | None, NDArray[np.float64]]:
    """Write an expression as a polynomial, lowest coefficient first, in one subexpression (None: a number)."""
    number = rules.number(expr)
    if number is not None:
        return None, np.array([number])
    if isinstance(expr, Call):
        if expr.atom == "negative":
            base, c = polynomial(rules, expr.args[0])
            return base, -c
        if expr.atom in ("add", "subtract", "multiply"):
            (u, a), (v, b) = polynomial(rules, expr.args[0]), polynomial(rules, expr.args[1])
            if u is None or v is None or u == v:
                if expr.atom == "multiply":
                    product = np.convolve(a, b)
                    if len(product) <= 13:
                        return u if u is not None else v, product
                else:
                    size = max(len(a), len(b))
                    a, b = np.pad(a, (0, size - len(a))), np.pad(b, (0, size - len(b)))
                    return u if u is not None else v, a + b if expr.atom == "add" else a - b
        if expr.atom == "divide":
            (u, a), (v, b) = polynomial(rules, expr.args[0]), polynomial(rules, expr.args[1])
            if v is None and b[0] != 0:
                return u, a / b[0]
        if expr.atom == "power":
            exponent = rules.number(expr.args[1])
            u, a = polynomial(rules, expr.args[0])
            if exponent is not None and exponent in range(1, 13) and (len(a) - 1) * exponent <= 12:
                result = a
                for _ in range(int(exponent) - 1):
                    result = np.convolve(result, a)
                return u, result
    return expr, np.array([0.0, 1.0])


def weighted(rules: Composition, top: Expr, bottom: Expr) -> Profile | None:
    """exp(u_j) / sum_k exp(u_k), or a sum of such weights times anything: softmax written by hand."""
    if not (
        isinstance(bottom, Reduction)
        and bottom.reducer == "sum"
        and isinstance(bottom.arg, Call)
        and bottom.arg.atom == "exp"
    ):
        return None
    if isinstance(top, Reduction) and top.reducer == "sum":
        for factor in _factors(top.arg):
            if same_up_to_indices(rules, bottom.arg, factor, bottom.indices):
                rest: Expr = Number(1)
                for other in _factors(top.arg):
                    rest = rest if other is factor else Call("multiply", (rest, other))
                return rules.reduce(
                    Reduction("sum", top.indices, Call("multiply", (Call("divide", (factor, bottom)), rest)))
                )
        return None
    if isinstance(top, Call) and same_up_to_indices(rules, bottom.arg, top, bottom.indices):
        return rules.reduce(Reduction("softmax", bottom.indices, bottom.arg.args[0]))
    return None


def normed(rules: Composition, node: Call) -> Profile | None:
    """u_i / sqrt(sum_j u_j**2), at most 1, or with the mean sqrt(count): defined wherever some u_j is not 0."""
    top, root = node.args
    total = root.children[0]
    if not (isinstance(total, Reduction) and total.reducer in ("sum", "mean") and isinstance(total.arg, Call)):
        return None
    square = total.arg
    if not (square.atom == "power" and rules.number(square.args[1]) == 2) and not (
        square.atom == "multiply" and square.args[0] == square.args[1]
    ):
        return None
    if not same_up_to_indices(rules, square.args[0], top, total.indices):
        return None
    inner = rules.expression(top, rules.at)
    count = math.prod(rules.ranges[name][1] - rules.ranges[name][0] for name in total.indices)
    bound = math.sqrt(count) if total.reducer == "mean" else 1.0
    norm = re.sub(r"#\d+", "", str(root))  # the names of indices as they were, where definitions are written out
    rough = Fault(node, rules.at, f"{node} is discontinuous where {norm} is 0")
    return Profile(
        -bound, bound, 0.0, INF, INF, depends=inner.depends, rough=rough, partial=inner.partial, kinks=None,
        assumes=(*inner.assumes, (f"{norm} is not 0, almost surely, in the limit", None)),
    )


def same_up_to_indices(rules: Composition, summed: Expr, free: Expr, indices: Sequence[str]) -> bool:
    """Whether renaming the summed indices to others of the same range turns one expression into the other."""
    if summed == free:
        return True
    names = dict.fromkeys(name for node in walk(free) for name in index_names(node))
    choices = [[other for other in names if rules.ranges[other] == rules.ranges[name]] for name in indices]
    if math.prod(map(len, choices)) > 100:
        return False
    for chosen in itertools.product(*choices):
        bound = {name: Affine(((other, 1),)) for name, other in zip(indices, chosen, strict=True)}
        try:
            again = substitute(summed, bound, dict(rules.ranges), itertools.count())
        except TooLarge:
            return False
        if len(set(chosen)) == len(chosen) and _canonical(again) == _canonical(free):
            return True
    return False


def _canonical(expr: Expr) -> Expr:
    """The expression with its reduced indices named by their order."""
    numbers = itertools.count()
    return fresh_substitute(expr, {}, lambda name: f"#{next(numbers)}")


def logistic(rules: Composition, bottom: Expr) -> Expr | None:
    """1 / (c + d exp(v)), c and d positive, as a sigmoid."""
    base, coefficients = polynomial(rules, bottom)
    if len(coefficients) != 2 or coefficients.min() <= 0 or not (isinstance(base, Call) and base.atom == "exp"):
        return None
    c, d = coefficients
    inner = Call("subtract", (Number(math.log(c / d)), base.args[0]))
    u, line = polynomial(rules, inner)
    if u is not None and len(line) == 2 and line[0] == 0 and line[1] == 1:
        inner = u  # type: ignore[assignment]
    return Call("multiply", (Number(float(1 / c)), Call("sigmoid", (inner,))))


def ratio(rules: Composition, top: Expr, bottom: Expr, power: float) -> Profile | None:
    """P(u) / Q(u)**power for polynomials with Q > 0 (or, for whole powers, without zeros) on the range of u."""
    (u, p), (v, q) = polynomial(rules, top), polynomial(rules, bottom)
    p, q = np.trim_zeros(p, "b"), np.trim_zeros(q, "b")
    base = u if u is not None else v
    if base is None or (u is not None and v is not None and u != v) or not len(p) or not len(q):
        return None
    if base in (top, bottom) and len(p) <= 2 and len(q) <= 2 and (u is None or v is None):
        return None  # composition does as well
    if isinstance(base, Call) and base in (Call("divide", (top, bottom)),):
        return None
    inner = rules.expression(base, rules.at)
    if inner.masked or inner.partial:
        return None
    low, high = inner.interval
    zeros = np.roots(q[::-1])
    margin = 1e-6 * (1 + np.abs(zeros))
    if ((np.abs(zeros.imag) < margin) & (zeros.real > low - margin) & (zeros.real < high + margin)).any():
        return None

    def value(x: float) -> float:
        numerator, denominator = np.polyval(p[::-1], x), np.polyval(q[::-1], x)
        if not power.is_integer() and denominator <= 0:
            return math.nan
        return float(numerator / denominator**power)

    degree = len(p) - 1 - power * (len(q) - 1)
    slope = _add(np.convolve(_derive(p), q), -power * np.convolve(p, _derive(q)))
    slope = np.trim_zeros(slope, "b")
    turning = np.roots(slope[::-1]) if len(slope) > 1 else np.zeros(0)
    points = [float(r.real) for r in turning]
    points = [x for x in points if low <= x <= high] + [x for x in (low, high) if math.isfinite(x)]
    if not points:
        points = [min(max(0.0, low), high)]
    values = [value(x) for x in points]
    if not np.isfinite(values).all():
        return None
    for end in (low, high):
        if math.isinf(end):
            sign = math.copysign(1.0, p[-1]) * (math.copysign(1.0, q[-1]) if power.is_integer() and power % 2 else 1.0)
            if end < 0:
                steps = len(p) - 1 + (power * (len(q) - 1) if power.is_integer() else 0)
                sign *= -1.0 if steps % 2 else 1.0
            limit = sign * INF if degree > 0 else 0.0 if degree < 0 else sign * abs(p[-1]) / abs(q[-1]) ** power
            values.append(limit)
    slack = 1e-9 * max((abs(x) for x in values if math.isfinite(x)), default=0.0)
    bound = min(values) - slack, max(values) + slack
    if power == -0.5:  # a root is not negative
        bound = max(bound[0], 0.0), bound[1]
    unbounded = math.isinf(low) or math.isinf(high)
    growth = max(degree, 0.0) if unbounded else 0.0
    modulus = max(degree - 1, 0.0) if unbounded else 0.0
    found = compose(Regularity(growth, modulus, INF), [inner], bound)
    near = 1e-6 * (1 + np.abs(turning))
    inside = (low - near < turning.real) & (turning.real < high + near) & (turning != low) & (turning != high)
    turns = (inside & (np.abs(turning.imag) < near)).any()
    middle = min(max(0.0, low), high)
    up = value(min(middle + 1, high)) > value(max(middle - 1, low))
    rises, falls = (inner.rises, inner.falls) if up else (inner.falls, inner.rises)
    steady = not turns or (inner.rises and inner.falls)
    found = replace(found, rises=steady and rises, falls=steady and falls, kinks=inner.kinks)
    return tidy(replace(found, depends=inner.depends, assumes=inner.assumes))


def halves(rules: Composition, node: Call) -> Profile | None:
    """P(u, abs(u)) / Q(u, abs(u)): what holds for u >= 0 and for u <= 0, because both agree at 0."""
    inner = next((n for n in walk(node) if isinstance(n, Call) and n.atom == "abs"), None)
    if inner is None:
        return None
    u = inner.args[0]
    if variables(rebuild(node, lambda n: Number(0) if n == u else None)):
        return None  # not a function of u alone
    reach = rules.expression(u, rules.at)
    sides = []
    for value, half in ((u, (0.0, INF)), (Call("negative", (u,)), (-INF, 0.0))):
        if reach.low <= half[1] and half[0] <= reach.high:
            signed = rebuild(node, functools.partial(lambda n, value: value if n == inner else None, value=value))
            sides.append(rules.within(signed, {u: half}))
    if any(p.partial or p.modulus == INF for p in sides):
        return None
    found = functools.reduce(join, sides)
    return replace(found, parity=0, kinks=join_kinks(found.kinks, ((u, (0.0,)),)))


def switched(rules: Composition, node: Call) -> Profile | None:
    """P(u) s(u): slope of degree deg P - 1, because u**k s'(u) is bounded; bounded for a Gaussian factor.

    s is a product of sigmoid, tanh, erf of a u + b, or of 1 + such a function; or gaussian(a u + b), exp(-u**2).
    """
    rest: Expr = Number(1)
    switches: list[Expr] = []
    decays: list[Expr] = []
    for factor in _factors(node):
        base, c = polynomial(rules, factor)
        if isinstance(base, Call) and base.atom in SWITCHES and len(c) == 2:
            switches.append(base.args[0])
        elif isinstance(base, Call) and base.atom == "gaussian" and len(c) == 2 and c[0] == 0:
            decays.append(base.args[0])
        elif isinstance(base, Call) and base.atom == "exp" and len(c) == 2 and c[0] == 0:
            _, q = polynomial(rules, base.args[0])
            if not (len(q) == 3 and q[2] < 0):
                return None
            decays.append(base.args[0])
        else:
            rest = factor if rest == Number(1) else Call("multiply", (rest, factor))
    if not switches and not decays:
        return None
    u, p = polynomial(rules, rest)
    bases = {polynomial(rules, arg)[0] for arg in (*switches, *decays)}
    if u is None or bases != {u} or any(len(polynomial(rules, arg)[1]) != 2 for arg in switches):
        return None
    if any(len(polynomial(rules, arg)[1]) < 2 or polynomial(rules, arg)[1][-1] == 0 for arg in (*switches, *decays)):
        return None
    inner = rules.expression(u, rules.at)
    if inner.masked or inner.partial:
        return None
    degree = float(len(np.trim_zeros(p, "b")) - 1)
    regularity = Regularity(0, 0) if decays else Regularity(degree, max(degree - 1, 0.0))
    found = replace(compose(regularity, [inner], (-INF, INF)), kinks=inner.kinks)
    return tidy(replace(found, depends=inner.depends, assumes=inner.assumes))


def _factors(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.atom == "multiply":
        return [*_factors(expr.args[0]), *_factors(expr.args[1])]
    if isinstance(expr, Call) and expr.atom == "negative":
        return [Number(-1), *_factors(expr.args[0])]
    return [expr]


def _derive(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return p[1:] * np.arange(1, len(p)) if len(p) > 1 else np.zeros(1)


def _add(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))
