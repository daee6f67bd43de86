"""Random expressions in a small program, and what is certified of them."""

from __future__ import annotations

import functools

from hypothesis import strategies as st

from tensorprog.check.certificates import Calculus, Profile
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    rebuild,
    substitute,
    variables,
)
from tensorprog.language.ir import Nonlin
from tensorprog.language.parse import Names, parse_expression
from tests.reading import loads

PROGRAM = """
program: random
constants: {C: 2, "c[j]": [0.5, -1, 2], "d[i]": [1, 3]}
indices: {i: 2, j: 3, l: 3}
initial:
  e: {mean: 0, cov: 1}
weights:
  W[i]: 1
  V[j]: 1
body:
  - g[i] = MatMul(W[i], e)
  - v[j] = MatMul(V[j], e)
  - p[i,j] = Dot(g[i], v[j])
  - m = Dot(e, e, scale=1/n)
  - y[i] = Nonlin(g[i])
outputs: [y]
"""
BASE = loads(PROGRAM)
LAST = 4  # the statement whose expression is replaced
AT_I, AT_J = Affine((("i", 1),)), Affine((("j", 1),))
G, E, P, V, M = (
    Variable("g", (AT_I,)),
    Variable("e"),
    Variable("p", (AT_I, AT_J)),
    Variable("v", (AT_J,)),
    Variable("m"),
)
CJ, DI = Constant("c", (AT_J,)), Constant("d", (AT_I,))
NAMES = Names({"C": 2, "c": None, "d": None}, frozenset({"i", "j", "l"}))
UNARY = [
    "tanh",
    "sigmoid",
    "erf",
    "gelu",
    "gelu_tanh",
    "silu",
    "softplus",
    "selu",
    "sin",
    "cos",
    "exp",
    "gaussian",
    "abs",
    "relu",
    "sign",
    "step",
    "sqrt",
    "log",
    "negative",
]
NUMBERS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.0, 3.0]).map(Number)
EXPONENTS = st.sampled_from([2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 2.5]).map(Number)
ONE = Number(1)


def _extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def pair(name: str) -> st.SearchStrategy[Expr]:
        return st.tuples(inner, inner).map(lambda args: Call(name, args))

    def made(form: object) -> st.SearchStrategy[Expr]:
        return inner.map(form)  # type: ignore[arg-type]

    return st.one_of(
        st.tuples(st.sampled_from(UNARY), inner).map(lambda t: Call(t[0], (t[1],))),
        *(pair(name) for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum")),
        st.tuples(inner, EXPONENTS).map(lambda t: Call("power", t)),
        made(lambda x: Call("clip", (x, Number(-1.0), Number(2.0)))),
        made(lambda x: Call("clip", (x, Call("negative", (DI,)), DI))),
        st.tuples(inner, st.sampled_from([0.1, -0.5, 2.0])).map(lambda t: Call("leaky_relu", (t[0], Number(t[1])))),
        st.tuples(inner, st.sampled_from([0.5, -1.0])).map(lambda t: Call("elu", (t[0], Number(t[1])))),
        st.tuples(inner, NUMBERS, inner, inner).map(lambda t: Call("where", (Call("less", (t[0], t[1])), t[2], t[3]))),
        st.tuples(inner, inner).map(lambda t: Call("where", (Call("less", (IndexValue("i"), ONE)), *t))),
        # forms with a relation between the parts
        made(lambda x: Call("divide", (x, Call("add", (ONE, Call("power", (x, Number(2)))))))),
        made(lambda x: Call("divide", (x, Call("add", (ONE, Call("abs", (x,))))))),
        made(lambda x: Call("multiply", (x, Call("sigmoid", (x,))))),
        made(lambda x: Call("divide", (ONE, Call("add", (ONE, Call("exp", (Call("negative", (x,)),))))))),
        made(lambda x: Call("where", (Call("less", (x, Number(0))), Call("tanh", (x,)), x))),
        pair("divide").map(lambda t: Call("divide", (t.children[0], _squares(*t.children)))),
        pair("less").map(lambda t: Call("where", (t, *t.children))),
        pair("add").map(lambda t: Call("log", (Call("add", tuple(Call("exp", (x,)) for x in t.children)),))),
        st.tuples(st.sampled_from(RELATED), inner, inner, inner).map(lambda t: _put(*t)),
    )


def _curve(name: str, x: Expr) -> Expr:
    """A function that is not negative, by its name."""
    if name == "elu + 1":
        return Call("add", (Call("elu", (x, ONE)), ONE))
    return Call("power", (x, Number(2))) if name == "square" else Call(name, (x,))


# functions of x = g[i], y = e, z = p[i,0], for which other expressions are put
RELATED = [
    "p[i,0] * exp(g[i]) / (exp(g[i]) + exp(e))",
    "log(exp(g[i]) + exp(e)) - g[i]",
    "p[i,0] * g[i] / max(sqrt(g[i]**2 + e**2), 0.1)",
    "abs(g[i]) / (1 + abs(g[i]) + sqrt(e**2 + p[i,0]**2))",
    "sign(g[i]) * g[i] * tanh(e)",
    "step(g[i]) * (exp(min(g[i], 1)) - 1)",
    "where(abs(g[i]) < 1, g[i]**2, abs(g[i]))",
    "where(g[i] < 1, where(g[i] < -1, -1, g[i]), 1)",
    "exp(-exp(g[i]))",
    "g[i] * p[i,0] / sqrt(1 + g[i]**2 + e**2)",
    "min(g[i], e) - g[i]",
    "log(softplus(g[i] + e))",
    "p[i,0] * (exp(g[i]) - 1) / (exp(g[i])**2 + 1)",
    "g[i] * e - max(g[i] * e, p[i,0])",
    "g[i]**2 * (1 - tanh(2 * g[i] + 1)**2)",
    "g[i] * exp(-abs(g[i])) + e",
    "g[i] * abs(g[i])**0.5 * e",
    "p[i,0] * exp(0.5 * log(1 + g[i]**2))",
    "g[i] * exp(e) / (exp(g[i]) + exp(e))",
    "(g[i] * exp(e) + p[i,0]) / (1 + exp(e))",
    "exp(g[i]) / sqrt(exp(2 * g[i]) + exp(2 * e) + exp(p[i,0]))",
    "(exp(g[i]) + exp(e))**2 / (exp(2 * g[i]) + exp(2 * e))",
    "p[i,0] / (exp(g[i] - e) + exp(e - g[i]))",
    "log(1 - sigmoid(g[i])) * sigmoid(g[i])",
    "log((1 + exp(g[i])) / (exp(e) + exp(g[i])))",
    "g[i] * tanh(log(1 + exp(g[i])))",
    "softplus(g[i]) - relu(g[i])",
    "g[i]**2 / sqrt(1 + g[i]**4) * exp(-g[i] / (1 + abs(g[i])))",
    "(1 + abs(g[i]) * g[i]) / (2 + g[i]**2 + abs(g[i] - 1))",
    "exp(min(g[i], e) - max(g[i], e))",
    "g[i]**2 * e**2 / (1 + 0.5 * g[i] * e * e * g[i])",
]
# functions of one value, of many kinds: x, f(x) and g(x) multiplied, added, divided
CHAINED = [
    "{0} * {1}",
    "{0} - {1}",
    "{0} / (1 + {1}**2)",
    "{0} * {1} / (1 + exp({0}))",
    "log(1 + exp({0})) * {1}",
    "{0} / sqrt(1 + {0}**2 + {1}**2)",
    "({0} + {1}) / (1 + abs({0}) + abs({1}))",
    "exp(-{0}**2) * {1}",
    "tanh({0}) - tanh({1})",
    "{0} / (exp({0}) + exp(-{0}) + {1}**2)",
    "max({0}, {1}) - {0}",
]
SIMPLE = [
    "g[i]",
    "2 * g[i]",
    "-g[i]",
    "abs(g[i])",
    "exp(g[i])",
    "exp(-g[i])",
    "sigmoid(g[i])",
    "tanh(2 * g[i])",
    "softplus(g[i])",
    "relu(g[i])",
    "g[i]**2",
    "(1 - sigmoid(g[i]))",
    "gelu(g[i])",
    "sin(g[i])",
    "exp(-exp(g[i]))",
    "(g[i] + 1)**3",
    "sqrt(1 + g[i]**2)",
    "erf(g[i])",
    "elu(g[i])",
    "log(1 + g[i]**2)",
    "(1 + tanh(g[i]))",
]


def _chained(t: tuple[str, str, str, str, str]) -> Expr:
    """Three simple functions of g[i] in two steps."""
    first, second, a, b, c = t
    return parsed(first.format(f"({second.format(a, b)})", c))


def _put(text: str, x: Expr, y: Expr, z: Expr) -> Expr:
    places = {G: x, E: y, parsed("p[i,0]"): z}
    return rebuild(parsed(text), places.get)


def _squares(*terms: Expr) -> Expr:
    """1 + x**2 + y**2 + ..."""
    return functools.reduce(lambda total, x: Call("add", (total, Call("power", (x, Number(2))))), terms, ONE)


def _zeros(parts: list[tuple[float, float, int]], at: Expr) -> Expr:
    """The product of ((x - b)**2 + c)**m, which for c = 0 has a zero of multiplicity 2m at b."""
    result: Expr = ONE
    for b, c, m in parts:
        factor = Call("add", (Call("power", (Call("subtract", (at, Number(b))), Number(2))), Number(c)))
        result = Call("multiply", (result, Call("power", (factor, Number(m)))))
    return result


PARTS = st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 1.0]), st.integers(1, 3))


def expressions(leaves: list[Expr], size: int) -> st.SearchStrategy[Expr]:
    return st.recursive(st.one_of(st.sampled_from(leaves), NUMBERS), _extend, max_leaves=size)


def _weights(t: tuple[str, Expr, bool]) -> Expr:
    """A reduction of p, v, c over j, perhaps of a part of it only."""
    name, inner, masked = t
    if masked:
        seen = Call("less_equal", (IndexValue("j"), Call("add", (IndexValue("i"), ONE))))
        inner = Call("where", (seen, inner, Number(0.0) if name in ("sum", "mean") else Number(float("-inf"))))
    return Reduction(name, ("j",), inner)


def _averaged(t: tuple[Expr, Expr]) -> Expr:
    return Reduction("sum", ("j",), Call("multiply", t))


MEMBERS = [P, V, CJ]
INNER = expressions(MEMBERS, 3)
REMOVED = st.tuples(st.sampled_from(["sum", "mean", "max", "logsumexp"]), INNER, st.booleans()).map(_weights)
SOFTMAX = st.tuples(st.just("softmax"), INNER, st.booleans()).map(_weights)
REDUCED = st.one_of(REMOVED, st.tuples(SOFTMAX, expressions([*MEMBERS, G], 3)).map(_averaged))
AT_L = Affine((("l", 1),))


def _at_l(expr: Expr) -> Expr:
    """The same member at l in place of j."""
    return substitute(expr, {"j": AT_L})


def _handmade(t: tuple[str, Expr, Expr, float]) -> Expr:
    """sum_j f(u_j) x_j / (c + sum_l f(u_l))."""
    name, u, x, floor = t
    total: Expr = Reduction("sum", ("l",), _curve(name, _at_l(u)))
    top = Reduction("sum", ("j",), Call("multiply", (_curve(name, u), x)))
    return Call("divide", (top, Call("add", (total, Number(floor))) if floor else total))


def _shifted(t: tuple[str, Expr, Expr]) -> Expr:
    """sum_j exp(u_j - L) x_j with L the largest, or the log sum exp."""
    name, u, x = t
    shift = Call("subtract", (u, Reduction(name, ("l",), _at_l(u))))
    return Reduction("sum", ("j",), Call("multiply", (Call("exp", (shift,)), x)))


def _normed(t: tuple[Expr, float, bool]) -> Expr:
    """sum_j c_j (u_j - mean u) / sqrt(c + variance), the variance from two moments or from one."""
    u, floor, two = t
    centred = Call("subtract", (u, Reduction("mean", ("l",), _at_l(u))))
    square = Call("power", (u if two else centred, Number(2)))
    variance: Expr = Call("add", (Number(floor), Reduction("mean", ("j",), square)))
    if two:
        variance = Call("subtract", (variance, Call("power", (Reduction("mean", ("j",), u), Number(2)))))
    top = Reduction("sum", ("j",), Call("multiply", (CJ, centred)))
    return Call("divide", (top, Call("sqrt", (variance,))))


def _monomial(t: tuple[list[Expr], list[Expr], float, float]) -> Expr:
    """A product of arguments over (1 + weighted squares)**r."""
    tops, squared, weight, power = t
    top = functools.reduce(lambda a, b: Call("multiply", (a, b)), tops, ONE)
    bottom = _squares(*(Call("multiply", (Number(weight), x)) for x in squared))
    return Call("divide", (top, Call("power", (bottom, Number(power)))))


CURVES = st.sampled_from(["exp", "sigmoid", "softplus", "elu + 1", "relu", "abs", "square", "gaussian"])
MEMBER = expressions(MEMBERS, 2).filter(variables)  # of constants alone rounding is left, where terms cancel
COMBINED = st.one_of(
    st.tuples(CURVES, MEMBER, MEMBER, st.sampled_from([0.0, 0.1, 1.0])).map(_handmade),
    st.tuples(st.sampled_from(["max", "logsumexp"]), MEMBER, MEMBER).map(_shifted),
    st.tuples(MEMBER, st.sampled_from([0.1, 1.0]), st.booleans()).map(_normed),
)
KINDS = {
    "one vector": expressions([G], 6),
    "vectors and constants": expressions([G, E, DI], 6),
    "rational functions": st.builds(
        lambda top, bottom, x: Call("divide", (_zeros(top, x), _zeros(bottom, x))),
        st.lists(PARTS, max_size=2),
        st.lists(PARTS, min_size=1, max_size=2),
        st.sampled_from([G, E, Call("abs", (G,))]),
    ),
    "averages": expressions([G, E, M], 5),
    "chains of one vector": st.tuples(
        *(st.sampled_from(CHAINED) for _ in range(2)), *(st.sampled_from(SIMPLE) for _ in range(3))
    ).map(_chained),
    "reductions": st.builds(
        lambda a, b, name: Call(name, (a, b)),
        REDUCED,
        expressions([G, E], 3),
        st.sampled_from(["add", "multiply", "divide"]),
    ),
    "many terms": expressions([G, E, DI], 12),
    "rational functions of several": st.tuples(
        st.lists(st.sampled_from([G, E, Call("abs", (E,))]), max_size=4),
        st.lists(st.sampled_from([G, E, Variable("v", (Affine((), 0),))]), min_size=1, max_size=3),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from([0.5, 1, 1.5, 2]),
    ).map(_monomial),
    "combined reductions": COMBINED,
    "several reductions": st.tuples(
        st.sampled_from(["add", "multiply", "subtract", "maximum", "divide"]), COMBINED, st.one_of(COMBINED, REDUCED)
    ).map(lambda t: Call(t[0], t[1:])),
    "functions of reductions": st.tuples(st.sampled_from(["tanh", "relu", "exp", "abs"]), REDUCED).map(
        lambda t: Call(t[0], (t[1],))
    ),
}
EXPRESSIONS = st.one_of(*KINDS.values())


def parsed(text: str) -> Expr:
    return parse_expression(text, NAMES)


def profile(expr: Expr) -> tuple[Calculus, Profile]:
    """What is certified of an expression that stands in the program's last statement."""
    body = (*BASE.body[:LAST], Nonlin(Variable("y", G.slots), expr))
    netsor = type(BASE)(BASE.name, BASE.constants, BASE.indices, BASE.initial, BASE.weights, body, ("y",))
    calculus = Calculus(netsor)
    return calculus, calculus.statement(LAST)
