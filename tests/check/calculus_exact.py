"""Expressions evaluated member by member with numbers of 60 digits, by a walker of the tests' own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import mpmath as mp

from tensorprog.language.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable
from tests.reading import Netsor

mp.mp.dps = 60
Env = dict[str, int]
Read = Callable[[str, Sequence[int]], mp.mpf]
FAR = mp.mpf(1000)  # from here on, tails are as good as 0
TINY: list[mp.mpf] = []  # exponents of numbers that were taken for 0, though a logarithm would tell them from it
LARGEST = mp.mpf(10) ** 7  # exponents beyond are infinite: their digits would fill the memory
POLES: list[mp.mpf] = []  # met since it was last emptied
DENOMINATORS: list[mp.mpf] = []


def _divide(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    """x / y, at a pole with the sign of x: what stands around it, such as a clip, may be finite there."""
    DENOMINATORS.append(y)
    if y:
        return x / y
    POLES.append(x)
    return mp.sign(x) * mp.inf if x else mp.nan


def _power(x: mp.mpf, exponent: mp.mpf) -> mp.mpf:
    if x == 0 and exponent < 0:
        POLES.append(x)
        return mp.inf
    if exponent == int(exponent):
        return x ** int(exponent)
    return x**exponent if x >= 0 else mp.nan


def _positive(x: mp.mpf) -> mp.mpf:
    """exp(x); where it is taken for 0, which it never is, x is noted."""
    if x < -LARGEST:
        TINY.append(x)
    return _exp(x)


def _exp(x: mp.mpf) -> mp.mpf:
    return mp.exp(x) if not abs(x) > LARGEST else mp.inf if x > 0 else mp.mpf(0)


def _elu(x: mp.mpf, alpha: mp.mpf) -> mp.mpf:
    return x if x > 0 else alpha * mp.expm1(MAX(x, -LARGEST))


def _extreme(choose: Callable[..., mp.mpf]) -> Callable[..., mp.mpf]:
    return lambda *args: mp.nan if any(map(mp.isnan, args)) else choose(args)


def _wave(function: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: function(x) if abs(x) < mp.mpf(10) ** 400 else mp.nan


def _capped(function: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    """A function that is constant far out."""
    return lambda x: x if mp.isnan(x) else function(MAX(MIN(x, LARGEST), -LARGEST))


MIN, MAX = _extreme(min), _extreme(max)
ATOMS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": _divide,
    "negative": lambda x: -x,
    "power": _power,
    "minimum": MIN,
    "maximum": MAX,
    "abs": abs,
    "relu": lambda x: MAX(x, mp.mpf(0)),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "leaky_relu": lambda x, slope: x if x > 0 else slope * x,
    "clip": lambda x, lo, hi: MIN(MAX(x, lo), hi),
    "sign": mp.sign,
    "step": lambda x: mp.mpf(x > 0),
    "tanh": _capped(mp.tanh),
    "erf": _capped(mp.erf),
    "sin": _wave(mp.sin),
    "cos": _wave(mp.cos),
    "exp": _positive,
    "sigmoid": lambda x: 1 / (1 + _exp(-x)),
    "gelu": lambda x: x * mp.ncdf(MAX(MIN(x, FAR), -FAR)),
    "gelu_tanh": lambda x: x / (1 + _exp(-mp.sqrt(8 / mp.pi) * (x + mp.mpf("0.044715") * x**3))),
    "silu": lambda x: x / (1 + _exp(-x)),
    "elu": _elu,
    "softplus": lambda x: MAX(x, mp.mpf(0)) + mp.log1p(mp.exp(-MIN(abs(x), FAR))),
    "selu": lambda x: mp.mpf("1.05070098735548049342") * _elu(x, mp.mpf("1.67326324235437728482")),
    "gaussian": lambda x: _positive(-(x**2)),
    "sqrt": lambda x: mp.sqrt(x) if x >= 0 else mp.nan,
    "log": lambda x: mp.log(x) if x > 0 else (-mp.inf if x == 0 else mp.nan),
}


def _slot(slot: Affine, env: Env) -> int:
    return slot.offset + sum(c * env[name] for name, c in slot.terms)


def exact(netsor: Netsor, expr: Expr, read: Read, env: Env) -> mp.mpf:
    """Value of an expression; read(name, member) gives what stands for vectors, scores and averages."""

    def value(node: Expr, env: Env) -> mp.mpf:
        if isinstance(node, Number):
            return mp.mpf(node.value)
        if isinstance(node, IndexValue):
            return mp.mpf(env[node.name])
        if isinstance(node, Constant):
            table = netsor.constant[node.name].value
            if isinstance(table, int | float):
                return mp.mpf(table)
            starts = [netsor.index[name].start for name in netsor.constant[node.name].indices]
            place = tuple(_slot(s, env) - start for s, start in zip(node.slots, starts, strict=True))
            return mp.mpf(float(table.array[place]))
        if isinstance(node, Variable):
            return read(node.name, [_slot(slot, env) for slot in node.slots])
        if isinstance(node, Reduction):
            return reduced(node, env)
        assert isinstance(node, Call)
        if node.atom == "where":
            condition, yes, no = node.args
            return value(yes if value(condition, env) else no, env)
        return ATOMS[node.atom](*(value(arg, env) for arg in node.args))

    def reduced(node: Reduction, env: Env) -> mp.mpf:
        spans = [range(*netsor.ranges[name.split("#")[0].rstrip("*")]) for name in node.indices]
        places = [env | dict(zip(node.indices, point, strict=True)) for point in itertools.product(*spans)]
        terms = [value(node.arg, place) for place in places]
        if node.reducer == "max":
            return MAX(*terms)
        if node.reducer in ("sum", "mean"):
            return mp.fsum(terms) / (len(terms) if node.reducer == "mean" else 1)
        top = MAX(*terms)
        total = mp.fsum(_exp(term - top) for term in terms)
        if node.reducer == "logsumexp":
            return top + mp.log(total)
        assert not node.at
        return _exp(value(node.arg, env) - top) / total

    try:
        return mp.mpf(value(expr, env))
    except ZeroDivisionError:
        POLES.append(mp.nan)
        return mp.inf
