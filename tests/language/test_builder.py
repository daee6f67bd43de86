"""Programs written in Python equal those in files; every mistake is answered at the call, with what to write."""

from __future__ import annotations

import importlib
from inspect import Parameter, signature
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tensorprog import Program, ProgramError
from tensorprog.language.builder import Builder
from tensorprog.language.expr import Number, Variable, function, function_names
from tensorprog.language.schema import OPTIONS
from tests.reading import dump, load, loads

PROGRAMS = Path(__file__).parents[2] / "programs"
tp = SimpleNamespace(**{name: function(name) for name in function_names()})


def attention(name: str = "attention", first: str = "clip") -> Builder:
    loaded = load(PROGRAMS / f"{name}.yaml")
    P = Builder(
        name,
        constants={"s": 4, "H": 2} | ({} if first == "relu" else {"C": 100}),
        title=loaded.title,
        reference=loaded.reference,
    )
    i, j, a = P.index("i", "s"), P.index("j", "s"), P.index("a", "H")
    h = P.initial("h", mean=0, cov=1)
    W, WQ = P.weights("W[i]", "WQ[a]")
    (WK,) = (WQ,) if name == "attention_tied" else P.weights("WK[a]")
    WV, WO = P.weights("WV[a]", "WO[a]")
    u = P.matmul("u[i]", W[i], h)
    x = P.nonlin("x[i]", tp.relu(u[i]) if first == "relu" else tp.clip(u[i], -P.C, P.C))
    q = P.matmul("q[a,i]", WQ[a], x[i])
    k = P.matmul("k[a,j]", WK[a], x[j])
    p = P.dot("p[a,i,j]", q[a, i], k[a, j])
    v = P.matmul("v[a,j]", WV[a], x[j])
    o = P.matmul("o[a,j]", WO[a], v[a, j])
    y = P.nonlin("y[i]", tp.sum[a, j](tp.softmax[j](p[a, i, j]) * o[a, j]) / tp.sqrt(P.H))
    P.outputs(y)
    P.defaults(width=[16, 64, 256, 1024], samples=50000)
    return P


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("attention", "clip"),
        ("attention_relu", "relu"),
        ("attention_tied", "clip"),
    ],
)
def test_attention_equals_the_file(name, first):
    assert attention(name, first).netsor == load(PROGRAMS / f"{name}.yaml")


def test_mlp_equals_the_file():
    loaded = load(PROGRAMS / "mlp.yaml")
    constants = {"m": 4, "rho": 0.7, "sigma_w2": 1.5, "sigma_b2": 0.1}
    P = Builder("mlp", constants, title=loaded.title, reference=loaded.reference)
    i = P.index("i", P.m)
    x = P.initial("x[i]", cov=P.rho ** abs(i - P.second(i)))
    biases = [P.initial(f"b{layer}", cov=P.sigma_b2) for layer in (1, 2, 3)]
    weights = [P.weight(f"W{layer}", "sigma_w2") for layer in (1, 2, 3)]
    V = P.weight("V")
    for layer in (1, 2, 3):
        u = P.matmul(f"u{layer}[i]", weights[layer - 1], x[i])
        x = P.nonlin(f"x{layer}[i]", tp.tanh(u[i] + biases[layer - 1]))
    P.outputs(P.matmul("f[i]", V, x[i]))
    P.defaults(width=(16, 64, 256, 1024), samples=50_000)
    assert P.netsor == loaded


RECURRENT = """
program: rnn
constants: {T: 5, c: 0.5}
indices: {t: 1..T, k: {size: 2*T, boundary: wrap}}
widths: {d: n/T}
fixed_widths: {r: 8}
initial:
  e[t]: {mean: 0, cov: "min(t, t_)"}
  z: {mean: 1, cov: 2, width: r}
weights:
  W: 1
  R: {variance: c, shape: [d, r]}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t - 1])
  - s[t] = Nonlin(where((t > 2) & (t != 4), tanh(u[t] + e[t]), -c * u[t]**2))
  - g    = MatMul(R, z)
  - o[k] = Nonlin(max(g, 1, k) / leaky_relu(g, slope=0.1))
  - w[k] = Nonlin(o[k - 1] + o[k + 1] + o[0])
  - m    = Dot(s[T], s[T - 1], scale=1/n)
outputs: [w, m]
"""


def test_recurrences_boundaries_widths_equal_the_text():
    P = Builder("rnn", constants={"T": 5, "c": 0.5}, widths={"d": "n/T"}, fixed_widths={"r": 8})
    t, k = P.index("t", "1..T"), P.index("k", 2 * P.T, boundary="wrap")
    e = P.initial("e[t]", cov=tp.min(t, P.second(t)))
    z = P.initial("z", 1, 2, width="r")
    W, R = P.weight("W"), P.weight("R", variance=P.c, shape=("d", "r"))
    s = P.family("s[t]")
    P.nonlin("s[0]", 0)
    u = P.matmul("u[t]", W, s[t - 1])
    P.nonlin("s[t]", tp.where((t > 2) & tp.not_equal(t, 4), tp.tanh(u[t] + e[t]), -P.c * u[t] ** 2))
    g = P.matmul("g", R, z)
    o = P.nonlin("o[k]", tp.max(g, 1, k) / tp.leaky_relu(g, slope=0.1))
    w = P.nonlin("w[k]", o[k - 1] + o[k + 1] + o[0])
    m = P.dot("m", s[P.T], s["T - 1"], scale="1/n")
    P.outputs(w, m)
    assert P.netsor == loads(RECURRENT)
    assert P.netsor.families["s"].ranges == ((0, 6),)


TIED = """
program: tied
indices: {a: 2}
widths: {d: n/2}
initial:
  x: {mean: 0, cov: 1}
weights:
  W[a]: {variance: 3, shape: [d, n]}
body:
  - u[a] = MatMul(W[a], x)
  - g[a] = MatMul(W[a].T, u[a])
  - f[a] = MatMul(W[1 - a].T, u[a])
outputs: [g, f]
"""


def test_transposes_equal_the_text():
    P = Builder("tied", widths={"d": "n/2"})
    a, x, W = P.index("a", 2), P.initial("x"), P.weight("W[a]", 3, ("d", "n"))
    u = P.matmul("u[a]", W[a], x)
    g = P.matmul("g[a]", W[a].T, u[a])
    P.outputs(g, P.matmul("f[a]", "W[1 - a].T", "u[a]"))
    assert P.netsor == loads(TIED) == loads(dump(P.netsor))
    assert P.netsor != loads(TIED.replace("W[1 - a].T, u[a]", "W[a].T, u[a]"))
    assert [statement.transposed for statement in P.netsor.body] == [False, True, True]
    assert {name: P.netsor.families[name].width for name in "ugf"} == {"u": "d", "g": "n", "f": "n"}
    assert P.netsor.warnings == ()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (lambda P, W, x: P.nonlin("z", W[0].T), "W[0].T cannot stand in an expression: only the weight of a MatMul"),
        (lambda P, W, x: P.nonlin("z", 2 * tp.tanh(W[0].T)), "W[0].T cannot stand in an expression"),
        (lambda P, W, x: P.nonlin("z", W[0].T + x), "W[0].T cannot stand in an expression"),
        (lambda P, W, x: P.dot("z", x.T, x), "x.T cannot stand in an expression"),
        (lambda P, W, x: P.matmul("z", W[0], x.T), "x.T cannot stand in an expression"),
        (lambda P, W, x: P.matmul("z", x.T, x), "x is not a weight"),
        (lambda P, W, x: P.initial("z", cov=W[0].T), "W[0].T cannot stand in an expression"),
    ],
)
def test_a_transpose_stands_in_a_matmul_only(statement, message):
    P = Builder("p")
    P.index("i", 2)
    with pytest.raises(ProgramError) as caught:
        statement(P, P.weight("W[i]"), P.initial("x"))
    assert message in str(caught.value)


def test_arguments_may_be_text_and_arrays():
    P = Builder("p", {"s": 3})
    i = P.index("i", 3)
    b = P.constant("b[i]", np.arange(3))
    P.constant("c", "s + 1")
    P.constant("f[i]", i * 2)
    h = P.initial("h[i]", mean=[0, 1, 2], cov=np.eye(3))
    P.initial("x[i]", data=np.ones((3, 2)), variance="c")
    P.initial("g[i]", gram=[[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    P.weight("W[i]", "i + 1")
    P.matmul("u[i]", "W[i]", "h[i]")
    y = P.nonlin("y[i]", "u[i] * b[i] + f[0] + x[i] + g[i] + c")
    P.outputs("y")
    assert P.netsor.warnings == ()
    assert P["u"][0] == Variable("u", (P["u"][0].slots[0],))
    assert str(b[i] + h[i] * y[2]) == "b[i] + h[i] * y[2]"
    assert P.netsor is P.netsor
    before = P.netsor
    P.weight("Q")
    assert P.netsor is not before
    assert Builder.from_netsor(before).netsor == before


def small() -> Builder:
    P = Builder("p", {"s": 3, "c": 2.0})
    i, _ = P.index("i", "s"), P.index("j", "s")
    h = P.initial("h")
    W, _ = P.weights("W[i]", "V")
    u = P.matmul("u[i]", W[i], h)
    P.nonlin("x", tp.sum[i](u[i]))
    P.outputs("x")
    return P


MISTAKES = {
    "bare family": (lambda P, i, j, u: P.nonlin("z[i]", tp.tanh(u)), "u has 1 index: write u[i]"),
    "minus bare family": (lambda P, i, j, u: u[i] - u, "u has 1 index: write u[i]"),
    "number of indices": (lambda P, i, j, u: u[i, j], "2 given, but u has 1 index"),
    "product of indices": (lambda P, i, j, u: u[i * j], "i * j is not affine"),
    "float index": (lambda P, i, j, u: u[0.5], "not made of whole numbers"),
    "string index": (lambda P, i, j, u: u["q"], "q is not an index or a constant"),
    "slice": (lambda P, i, j, u: u[0:2], "slices are not index expressions"),
    "outside": (lambda P, i, j, u: P.nonlin("z[i]", u[i + 1]), "runs over 1..3, outside 0..2"),
    "free index": (lambda P, i, j, u: P.nonlin("z", u[i]), "the index i is neither on the left nor reduced"),
    "unknown name": (lambda P, i, j, u: P["uu"], "did you mean u?"),
    "unknown family": (lambda P, i, j, u: P.nonlin("z", "tanh(hh)"), "did you mean h?"),
    "unknown function": (lambda P, i, j, u: P.nonlin("z", "tahn(h)"), "did you mean tanh?"),
    "not announced": (lambda P, i, j, u: P.matmul("z", "V", "later"), "later is not defined"),
    "size": (lambda P, i, j, u: P.index("k", "S"), "the size of index k: S is not a constant"),
    "size zero": (lambda P, i, j, u: P.index("k", 0), "must be at least 1"),
    "size large": (lambda P, i, j, u: P.index("k", 10**12), "more than the 10000000 allowed"),
    "size half": (lambda P, i, j, u: P.index("k", 2.5), "must be a whole number"),
    "boundary": (lambda P, i, j, u: P.index("k", 2, "mirror"), "no boundary mirror"),
    "bound twice": (lambda P, i, j, u: P.index("h", 2), "h is bound twice"),
    "statement twice": (lambda P, i, j, u: P.nonlin("u[i]", 1), "u is bound twice"),
    "declared after": (lambda P, i, j, u: P.weight("u"), "u is bound twice"),
    "other arity": (lambda P, i, j, u: P.nonlin("u[i,j]", 1), "u has 1 indices, 2 given"),
    "reserved": (lambda P, i, j, u: P.weight("tanh"), "tanh is reserved"),
    "not a name": (lambda P, i, j, u: P.index("1k", 2), "is not a name"),
    "weight index": (lambda P, i, j, u: P.weight("A[k]"), "k is not an index"),
    "weight shape": (lambda P, i, j, u: P.weight("A", shape="d"), "two widths by name"),
    "weight width": (lambda P, i, j, u: P.weight("A", shape=("d", "n")), "d is not a declared width"),
    "negative variance": (lambda P, i, j, u: P.weight("A", -1), "must not be negative"),
    "covariance": (lambda P, i, j, u: P.initial("A[i]", cov=[[1, 2], [2, 1]]), "cov has shape (2, 2), not (3, 3)"),
    "two covariances": (lambda P, i, j, u: P.initial("A[i]", cov=2, gram=np.eye(3)), "both give its covariance"),
    "text array": (lambda P, i, j, u: P.initial("A[i]", mean=["a", "b", "c"]), "an array of real numbers is needed"),
    "constant text": (lambda P, i, j, u: P.constant("A", "abc"), "constant A: abc is not a constant number"),
    "constant infinite": (lambda P, i, j, u: P.constant("A", float("inf")), "not a finite number"),
    "constant bool": (lambda P, i, j, u: P.constant("A", True), "True is not a number"),
    "constant shape": (lambda P, i, j, u: P.constant("A[i]", [1, 2]), "has shape (2,)"),
    "matmul order": (lambda P, i, j, u: P.matmul("z[i]", u[i], P["V"]), "u is not a weight"),
    "matmul of expression": (lambda P, i, j, u: P.matmul("z[i]", P["V"], u[i] + 1), "a vector by its name"),
    "weight in nonlin": (lambda P, i, j, u: P.nonlin("z", P["V"] * 2), "weights enter through MatMul only"),
    "scale": (lambda P, i, j, u: P.dot("z[i]", u[i], u[i], scale="1/m"), "Dot has no scale 1/m"),
    "width": (lambda P, i, j, u: P.nonlin("z", 1, width="d"), "d is not a declared width"),
    "outputs member": (lambda P, i, j, u: P.outputs(u[0]), "an output is a whole family, not u[0]"),
    "outputs unknown": (lambda P, i, j, u: P.outputs("xx"), "the output xx is not defined"),
    "outputs number": (lambda P, i, j, u: P.outputs(3), "an output is a whole family, not 3"),
    "run": (lambda P, i, j, u: P.defaults(widht=3), "did you mean width?"),
    "none": (lambda P, i, j, u: P.nonlin("z", None), "an argument of Nonlin is missing"),
    "array": (lambda P, i, j, u: u[i] * np.ones(3), "cannot stand in an expression"),
    "large integer": (lambda P, i, j, u: u[i] * 10**400, "this integer is too large"),
    "deep": (lambda P, i, j, u: P.nonlin("z", sum((u[0] for _ in range(500)), Number(0))), "nested too deeply"),
    "very deep": (lambda P, i, j, u: P.nonlin("z", sum((u[0] for _ in range(5000)), Number(0))), "nested too deeply"),
    "truth value": (lambda P, i, j, u: P.nonlin("z", 1 if u[0] < 1 else 2), "has no truth value"),
    "sum without index": (lambda P, i, j, u: tp.sum(u[i]), "sum needs the index that it runs over"),
    "sum over text": (lambda P, i, j, u: tp.sum["i"](u[i]), "sum[...] takes indices, not i"),
    "sum twice": (lambda P, i, j, u: tp.sum[i, i](u[i]), "names an index twice"),
    "tanh over index": (lambda P, i, j, u: tp.tanh[i](u[i]), "tanh does not act over indices"),
    "max of one": (lambda P, i, j, u: tp.max(u[i]), "max takes two or more arguments"),
    "arguments": (lambda P, i, j, u: tp.clip(u[i]), "clip takes (x, lo, hi): missing a required argument: 'lo'"),
    "keyword": (lambda P, i, j, u: tp.clip(u[i], -1, high=2), "clip takes (x, lo, hi)"),
    "function": (lambda P, i, j, u: function("tahn"), "did you mean tanh?"),
    "other program": (lambda P, i, j, u: P.nonlin("z[i]", u[i] * Builder("q", {"k": 1}).k), "another meaning"),
    "title": (lambda P, i, j, u: Builder("p", title="\ud800"), "title has characters that are not printable"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_answered_at_the_call_and_change_nothing(name):
    act, message = MISTAKES[name]
    P = small()
    before = P.netsor
    i, j = P["i"], P["j"]
    with pytest.raises(ProgramError) as caught:
        act(P, i, j, P["u"])
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert P.netsor == before


def test_missing_constants_are_attribute_errors_too():
    P = small()
    assert not hasattr(P, "C")
    assert getattr(P, "C", None) is None
    assert P.c == P["c"]


def test_what_only_the_whole_program_shows_is_reported_at_the_end():
    P = Builder("p")
    s = P.family("s")
    P.nonlin("y", tp.tanh(s))
    P.outputs("y")
    with pytest.raises(ProgramError, match="s is not defined"):
        _ = P.netsor
    P.nonlin("s", 1)
    with pytest.raises(ProgramError, match="s is used before it is bound"):
        _ = P.netsor


def test_functions_come_from_the_registry():
    from tensorprog.language.atoms import ATOMS, REDUCTIONS

    assert {*ATOMS, *REDUCTIONS, "min", "max"} == set(function_names())
    for name in function_names():
        assert function(name).__doc__
    h = Variable("h")
    assert str(tp.max(h, 1, 2)) == "max(max(h, 1), 2)"
    assert str(tp.elu(h)) == "elu(h, 1.0)"
    assert tp.abs(h) == abs(h)
    assert np.float64(2) * h == 2 * h
    assert np.int64(2) + h == 2 + h


@pytest.mark.parametrize("name", ["", "x/y", "a\nb", "n" * 300])
def test_names_that_no_file_could_hold_are_refused(name: str) -> None:
    with pytest.raises(ProgramError, match="short name"):
        Builder(name)


def test_no_submodule_hides_a_function_of_its_name() -> None:
    importlib.import_module("tensorprog.gaussian")
    package = importlib.import_module("tensorprog")
    assert all(callable(getattr(package, name)) for name in function_names())


@pytest.mark.parametrize(("method", "section"), [("index", "indices"), ("initial", "initial"), ("weight", "weights")])
def test_the_builder_takes_the_options_of_files(method, section):
    parameters = dict(list(signature(getattr(Builder, method)).parameters.items())[2:])  # after self and name
    assert parameters.keys() == OPTIONS[section].keys()
    for key, option in OPTIONS[section].items():
        required = parameters[key].default is Parameter.empty
        assert required == (key == "size")
        assert required or parameters[key].default in (option.get("default"), ("n", "n"), "", None)


def test_a_program_shows_its_name_and_size() -> None:
    assert repr(Program.from_netsor(load(PROGRAMS / "attention.yaml"))) == "Program('attention', 8 statements)"


def test_handles_are_names_and_mistakes_are_those_of_python_too():
    P = Program("p")
    i = P.index("i", 3)
    h, W = P.initial("h[i]"), P.weight("W")
    u = P.matmul("u[i]", W, h[i])
    y = P.nonlin("y[i]", tp.tanh(u[i]))
    P.outputs(y)
    law, net = P.limit(), P.run(width=8, samples=4, seed=0, keep=(u,))
    assert law.var(y[0]) == law.var("y[0]")
    assert law.mean(y).shape == (3,)
    assert np.array_equal(net[u][:, 1], net[u[1]])
    assert net.get("z") is None
    for act, kind in [
        (lambda: law.var("z"), KeyError),
        (lambda: P["z"], KeyError),
        (lambda: law.var(3), TypeError),
        (lambda: P.run(width=8, samples="4"), TypeError),
        (lambda: P.run(width=0, samples=4), ValueError),
    ]:
        with pytest.raises(kind) as caught:
            act()
        assert isinstance(caught.value, ProgramError)


@pytest.mark.parametrize("weight", ["softmax[j](where(j <= i, -p, -inf))", "where(j <= i, sigmoid(-p), 0)"])
def test_scores_may_be_negated_under_a_mask(weight):
    """Scores are as likely to be negative."""

    def law(expr):
        text = "program: p\nindices: {i: 2, j: 2}\ninitial:\n  x[i]: {cov: 1}\nweights: {Q: 1, K: 1, V: 1}\nbody:\n"
        text += "  - q[i] = MatMul(Q, x[i])\n  - k[j] = MatMul(K, x[j])\n  - v[j] = MatMul(V, x[j])\n"
        text += f"  - p[i,j] = Dot(q[i], k[j])\n  - y[i] = Nonlin(sum[j]({expr} * v[j]))\noutputs: [y]\n"
        return Program.from_netsor(loads(text)).limit()

    negated, plain = (
        law(weight.replace("-p", sign)).kurtosis("y[1]", with_error=True) for sign in ("-p[i,j]", "p[i,j]")
    )
    assert abs(negated[0] - plain[0]) < 4 * (negated[1] + plain[1])
