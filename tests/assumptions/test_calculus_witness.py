"""Witnesses against a property, evaluated again with 60 digits and judged by the property itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath as mp
import pytest
from calculus_expressions import BASE, EXPRESSIONS, LAST, parsed, profile
from hypothesis import HealthCheck, assume, given, seed, settings

from tensorprog.calculus import Calculus, Witness
from tensorprog.errors import ProgramError
from tensorprog.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable
from tensorprog.facts import FAILS
from tensorprog.ir import Netsor
from tensorprog.yaml_io import loads

mp.mp.dps = 60
Env = dict[str, int]
FAR = mp.mpf(1000)  # from here on, tails are as good as 0


POLES: list[mp.mpf] = []  # met since it was last emptied


def _divide(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    """x / y, at a pole with the sign of x: what stands around it, such as a clip, may be finite there."""
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


def _exp(x: mp.mpf) -> mp.mpf:
    """exp, which far out is inf or 0: its digits would fill the memory when it is an argument again."""
    return mp.exp(x) if not abs(x) > 10 * FAR else mp.inf if x > 0 else mp.mpf(0)


def _elu(x: mp.mpf, alpha: mp.mpf) -> mp.mpf:
    return x if x > 0 else alpha * (_exp(x) - 1)


def _extreme(choose: Callable[..., mp.mpf]) -> Callable[..., mp.mpf]:
    return lambda *args: mp.nan if any(map(mp.isnan, args)) else choose(args)


MIN, MAX = _extreme(min), _extreme(max)
ATOMS = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": _divide, "negative": lambda x: -x, "power": _power,
    "minimum": MIN, "maximum": MAX, "abs": abs, "relu": lambda x: MAX(x, mp.mpf(0)),
    "less": lambda x, y: x < y, "less_equal": lambda x, y: x <= y, "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y, "equal": lambda x, y: x == y, "not_equal": lambda x, y: x != y,
    "leaky_relu": lambda x, slope: x if x > 0 else slope * x, "clip": lambda x, lo, hi: MIN(MAX(x, lo), hi),
    "sign": mp.sign, "step": lambda x: mp.mpf(x > 0), "tanh": mp.tanh, "erf": mp.erf, "sin": mp.sin, "cos": mp.cos,
    "exp": _exp, "sigmoid": lambda x: 1 / (1 + _exp(-x)), "gelu": lambda x: x * mp.ncdf(MAX(MIN(x, FAR), -FAR)),
    "silu": lambda x: x / (1 + _exp(-x)), "elu": _elu,
    "softplus": lambda x: MAX(x, mp.mpf(0)) + mp.log1p(mp.exp(-MIN(abs(x), FAR))),
    "selu": lambda x: mp.mpf("1.05070098735548049342") * _elu(x, mp.mpf("1.67326324235437728482")),
    "gaussian": lambda x: _exp(-(x**2)), "sqrt": lambda x: mp.sqrt(x) if x >= 0 else mp.nan,
    "log": lambda x: mp.log(x) if x > 0 else (-mp.inf if x == 0 else mp.nan),
}


def _slot(slot: Affine, env: Env) -> int:
    return slot.offset + sum(c * env[name] for name, c in slot.terms)


class Exact:
    """A witness's expression, walked here with numbers of 60 digits at one point of the witness's line."""

    def __init__(self, netsor: Netsor, witness: Witness) -> None:
        self.netsor, self.witness = netsor, witness
        self.first = {name: start for name, (start, _) in netsor.ranges.items()}

    def at(self, t: mp.mpf) -> mp.mpf:
        """The value with the arguments at t; nan where there is no real number; `pole`, whether one was met."""
        self.t = t
        POLES.clear()
        try:
            found = mp.mpf(self.value(self.witness.expr, dict(self.first)))
        except ZeroDivisionError:
            found = mp.inf
        self.pole = bool(POLES)
        return found

    def value(self, node: Expr, env: Env) -> mp.mpf:
        if isinstance(node, Number):
            return mp.mpf(node.value)
        if isinstance(node, IndexValue):
            return mp.mpf(env[node.name])
        if isinstance(node, Constant):
            table = self.netsor.constant[node.name].value
            if isinstance(table, int | float):
                return mp.mpf(table)
            starts = [self.netsor.index[name].start for name in self.netsor.constant[node.name].indices]
            place = tuple(_slot(s, env) - start for s, start in zip(node.slots, starts, strict=True))
            return mp.mpf(float(table.array[place]))
        if isinstance(node, Variable):
            member = [_slot(slot, env) for slot in node.slots]
            start, direction = self.witness.ray(node.name, member)
            return mp.mpf(start) + self.t * mp.mpf(direction)
        if isinstance(node, Reduction):
            return self.reduced(node, env)
        assert isinstance(node, Call)
        if node.atom == "where":
            condition, yes, no = node.args
            return self.value(yes if self.value(condition, env) else no, env)
        return ATOMS[node.atom](*(self.value(arg, env) for arg in node.args))

    def reduced(self, node: Reduction, env: Env) -> mp.mpf:
        spans = [range(*self.netsor.ranges[name.split("#")[0].rstrip("*")]) for name in node.indices]
        places = [env | dict(zip(node.indices, point, strict=True)) for point in itertools.product(*spans)]
        terms = [self.value(node.arg, place) for place in places]
        if node.reducer == "max":
            return MAX(*terms)
        if node.reducer in ("sum", "mean"):
            return mp.fsum(terms) / (len(terms) if node.reducer == "mean" else 1)
        top = MAX(*terms)
        total = mp.fsum(mp.exp(term - top) for term in terms)
        if node.reducer == "logsumexp":
            return top + mp.log(total)
        assert not node.at
        return mp.exp(self.value(node.arg, env) - top) / total


def _agree(exact: mp.mpf, value: float, kind: str) -> bool:
    """Whether a value is right; of growth only its size, for far out terms cancel, as in log(exp(-64) + 1)."""
    near = abs(exact - value) <= 1e-6 * (1 + abs(exact))
    return near or (kind == "growth" and abs(value) < 10 * abs(exact) < 100 * abs(value))


def refutes(netsor: Netsor, name: str, witness: Witness) -> bool:
    """Whether the witness's points, evaluated anew, show what it says."""
    f = Exact(netsor, witness)
    t = [mp.mpf(x) for x in witness.at]
    if witness.kind in ("nan", "infinite"):
        first = f.at(t[0])
        return bool(f.pole or mp.isinf(first) or (witness.kind == "nan" and mp.isnan(first)))
    v = [f.at(x) for x in t]
    if not all(map(mp.isfinite, v)) or not all(
        _agree(x, y, witness.kind) or math.isinf(y) for x, y in zip(v, witness.values, strict=True)
    ):
        return witness.kind == "jump" and abs(v[1] - v[0]) > 1e-3
    if witness.kind == "jump":
        return 0 < t[1] - t[0] < 1e-10 * (1 + abs(t[0])) and abs(v[1] - v[0]) > 1e-3
    if witness.kind == "slope":
        steep = [abs(y - v[0]) / abs(x - t[0]) for x, y in zip(t[1:], v[1:], strict=True)]
        beyond = [abs(f.at(t[0] + (t[1] - t[0]) * s) - v[0]) / abs((t[1] - t[0]) * s) for s in (1e-8, 1e-12)]
        return name == "pseudo-Lipschitz" and all(b > 2 * a for a, b in itertools.pairwise([*steep, *beyond]))
    sizes = [abs(x) for x in v]
    if not all(b > a for a, b in itertools.pairwise(sizes)):
        return False
    if name == "bounded":  # it goes on rising as far beyond the points as numbers reach
        beyond = (abs(f.at(t[-1] * far)) for far in (1000, 100, 10, 2))
        return next(filter(mp.isfinite, beyond), 0) > sizes[-1] + (sizes[-1] - sizes[-2]) / 20
    logs = [mp.log(x) for x in sizes]
    rates = [(mp.log(b / a) if name == "controlled" else b - a) / mp.log(s / r)
             for (a, b), (r, s) in zip(itertools.pairwise(logs), itertools.pairwise(t), strict=True)]
    return all(rate > 1.9 for rate in rates) if name == "controlled" else rates[0] > 14 and rates[-1] > 1.5 * rates[0]


REFUTED = [
    ("step(g[i])", "pseudo-Lipschitz", "jump"),
    ("where(g[i] > 0.3, 1, 2)", "pseudo-Lipschitz", "jump"),
    ("sign(g[i] - 1/3) * e", "pseudo-Lipschitz", "jump"),
    ("exp(g[i])", "pseudo-Lipschitz", "growth"),
    ("exp(exp(g[i]))", "pseudo-Lipschitz", "growth"),
    ("sum[j](exp(p[i,j]) * v[j])", "pseudo-Lipschitz", "growth"),
    ("sqrt(abs(g[i]))", "pseudo-Lipschitz", "slope"),
    ("abs(g[i] - 2)**0.7", "pseudo-Lipschitz", "slope"),
    ("1 / g[i]", "pseudo-Lipschitz", "infinite"),
    ("1 / relu(g[i])", "pseudo-Lipschitz", "infinite"),
    ("g[i] / abs(g[i])", "pseudo-Lipschitz", "nan"),
    ("log(g[i])", "controlled", "nan"),
    ("log(abs(g[i]))", "controlled", "infinite"),
    ("sqrt(g[i])", "pseudo-Lipschitz", "nan"),
    ("exp(g[i]**2)", "controlled", "growth"),
    ("exp(exp(g[i]))", "controlled", "growth"),
    ("exp(abs(g[i])**2.5)", "controlled", "growth"),
    ("relu(g[i])", "bounded", "growth"),
    ("log(1 + abs(g[i]))", "bounded", "growth"),
    ("sqrt(1 + abs(g[i]))", "bounded", "growth"),
    ("sum[j](softmax[j](p[i,j]) * v[j])", "bounded", "growth"),
    ("max[j](p[i,j])", "bounded", "growth"),
    ("g[i] - e", "bounded", "growth"),
    ("where(g[i] > 0, p[i,0], 0)", "pseudo-Lipschitz", "jump"),
    ("clip(-2 / g[i], -1, 2)", "pseudo-Lipschitz", "jump"),
    ("exp(0.1 * p[i,0]) * g[i]", "pseudo-Lipschitz", "growth"),
    ("exp(1e-6 * g[i])", "pseudo-Lipschitz", "growth"),
    ("exp(1e-6 * g[i]**2)", "controlled", "growth"),
    ("exp(g[i]) / (1 + g[i]**4)", "bounded", "growth"),
    ("sum[j](clip(p[i,j]**-1, -1, 1)) * clip(g[i]**-1, -1, 1)", "pseudo-Lipschitz", "slope"),
    ("sum[j](p[i,j]) / clip(log(exp(g[i]) + exp(0.0)), -1.0, 2.0)", "pseudo-Lipschitz", "growth"),
    ("tanh(-2) / sign(g[i])", "bounded", "infinite"),
    ("logsumexp[j](p[i,j] - (p[i,j] - 2)) * g[i]", "bounded", "growth"),
]


@pytest.mark.parametrize(("text", "name", "kind"), REFUTED, ids=[f"{c[0]} {c[1]}" for c in REFUTED])
def test_a_refutation_shows_what_it_says(text: str, name: str, kind: str) -> None:
    calculus, _ = profile(parsed(text))
    fact = calculus.fact(name, LAST)
    witness = calculus.witness(name, LAST)
    assert witness is not None
    assert (fact.verdict, witness.kind) == (FAILS, kind)
    assert fact.witness == str(witness)
    assert refutes(BASE, name, witness), witness


# values that are too large or too small for the computer, though real: no witness may speak of them
FINITE = [
    "(exp(8*g[i]) + g[i]) / (1 + exp(8*g[i]))",
    "exp(-exp(g[i])) / exp(-exp(g[i]))",
    "tanh(exp(exp(g[i])) * e)",
    "g[i] * gaussian(e) * exp(e)",
    "1 / (gaussian(g[i]) + gaussian(2*g[i]))",
]


@pytest.mark.parametrize("text", FINITE)
def test_overflow_is_no_witness(text: str) -> None:
    calculus, _ = profile(parsed(text))
    for name in ("bounded", "pseudo-Lipschitz", "controlled"):
        witness = calculus.witness(name, LAST)
        assert witness is None or (witness.kind not in ("nan", "infinite") and refutes(BASE, name, witness)), witness


# they grow, or are steep, for long, but not for ever
TRANSIENT = [
    ("g[i] * e / (1e14 + g[i]**2 + e**2)", "bounded"),
    ("g[i] * exp(-abs(g[i]) / 1e7)", "bounded"),
    ("g[i] / sqrt(1 + 1e-14 * (g[i]**2 + e**2))", "bounded"),
    ("g[i] * gaussian(1e-30 * e)", "bounded"),
    ("g[i]**32 * gaussian(1e-20 * g[i])", "bounded"),
    ("sigmoid(g[i] - 1000) * e / (1 + abs(e))", "pseudo-Lipschitz"),
    ("1 / (1e-250 + gaussian(g[i]))", "controlled"),
]


@pytest.mark.parametrize(("text", "name"), TRANSIENT, ids=[c[0] for c in TRANSIENT])
def test_growth_that_ends_is_no_witness(text: str, name: str) -> None:
    calculus, _ = profile(parsed(text))
    witness = calculus.witness(name, LAST)
    assert witness is None or refutes(BASE, name, witness), witness


def check_refutations(expr: Expr) -> None:
    try:
        calculus, _ = profile(expr)
    except ProgramError:
        assume(False)
        raise
    for name in ("bounded", "pseudo-Lipschitz", "controlled"):
        if calculus.fact(name, LAST).verdict is FAILS:
            witness = calculus.witness(name, LAST)
            assert witness is not None
            assert refutes(BASE, name, witness), (str(expr), name, witness)


RANDOM = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@settings(RANDOM, max_examples=100)
@given(EXPRESSIONS)
def test_refutations_of_random_expressions_check_out(expr: Expr) -> None:
    check_refutations(expr)


@pytest.mark.slow
@seed(2)
@settings(RANDOM, derandomize=False, max_examples=2000)
@given(EXPRESSIONS)
def test_refutations_of_many_expressions_check_out(expr: Expr) -> None:
    check_refutations(expr)


RECURRENCE = """
program: recurrence
constants: {T: 5}
indices: {t: "1..T"}
initial:
  x[t]: {cov: 1}
weights:
  W: 1
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(step(x[t] + u[t]))
  - r[t] = Nonlin(s[t] + u[t])
  - y    = Nonlin(r[2])
outputs: [y]
"""


def test_recurrences_are_refuted_at_a_member() -> None:
    netsor = loads(RECURRENCE)
    calculus = Calculus(netsor)
    for position in (2, 4):
        witness = calculus.witness("pseudo-Lipschitz", position)
        assert witness is not None
        assert refutes(netsor, "pseudo-Lipschitz", witness), witness
