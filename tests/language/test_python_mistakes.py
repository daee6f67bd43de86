"""What users of numpy and torch write by habit in Python is answered with what to write, never with a TypeError."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorprog as tp


class _Late:
    """What is made when it is first used."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._make()[key]


def names() -> dict[str, Any]:
    """A program under construction, with a handle of each kind."""
    P = tp.Program("mine", constants={"s": 4})
    i, j = P.index("i", "s"), P.index("j", "s")
    h, W, V = P.initial("h"), P.weight("W"), P.weight("V[i]")
    x = P.matmul("x[i]", V[i], h)
    p = P.dot("p[i,j]", x[i], x[j])
    done = tp.load("attention", s=2, H=1)
    return {"done": done, "net": _Late(lambda: done.run(width=4, samples=4)), "law": _Late(done.limit),
            "tp": tp, "np": np, "math": math, "P": P, "i": i, "j": j, "h": h, "W": W, "V": V, "x": x, "p": p}


# what is written, what is answered, and what the answer gives when it is pasted: a second way to write it
MISTAKES = {
    "W[i]": ("W was declared without indices", "", ""),
    "np.tanh(x[i])": ("np.tanh is a function of arrays", "tp.tanh(x[i])", "tp.tanh(x[i])"),
    "np.maximum(x[i], 0)": ("np.maximum is a function of arrays", "tp.max(x[i], 0)", "tp.max(x[i], 0)"),
    "np.exp(x[i])": ("np.exp is a function", "tp.exp(x[i])", "tp.exp(x[i])"),
    "np.sum(x[i])": ("np.sum is a function of arrays", "tp.sum[i](x[i])", "tp.sum[i](x[i])"),
    "np.mean(x[i])": ("np.mean is a function of arrays", "tp.mean[i](x[i])", "tp.mean[i](x[i])"),
    "np.dot(W, h)": ("np.dot is a function of arrays", "P.matmul", ""),
    "np.asarray(x[i])": ("no array can be made of it", "P.run(width=64, samples=1000)", ""),
    "np.ones(3) * x[i]": ("an array cannot stand in an expression", "P.constant", ""),
    "np.exp(x)": ("x cannot stand in an expression", "x[i]", "x[i]"),
    "math.tanh(x[i])": ("functions such as math.tanh cannot take it", "tp.tanh(x[i])", "tp.tanh(x[i])"),
    "sum(x[i])": ("not a list", "tp.sum[i](x[i])", "tp.sum[i](x[i])"),
    "[a for a in x]": ("x cannot stand in an expression", "x[i]", "x[i]"),
    "x[i].tanh()": ("no attribute tanh", "tp.tanh(x[i])", "tp.tanh(x[i])"),
    "x[i].sum()": ("no attribute sum", "tp.sum[i](x[i])", "tp.sum[i](x[i])"),
    "x[i].shape": ("no attribute shape", "tp.tanh(x[i])", ""),
    "x.shape": ("x has no attribute shape", "tp.tanh(x[i])", ""),
    "x[i] @ h": ("@ is not part of the language", "P.dot", ""),
    "W @ h": ("@ is not part of the language", 'P.matmul("u", W, h)', ""),
    "x[i] ^ 2": ("^ is not part of the language", "x[i]**2", "x[i]**2"),
    "x[i] % 2": ("% is not part of the language", "", ""),
    "x[i] // 2": ("// is not part of the language", "(x[i]) / 2", "x[i] / 2"),
    "~(i < j)": ("~ is not part of the language", "i >= j", ""),
    "x[i] if x[i] > 0 else 0": ("has no truth value", "tp.where(x[i] > 0, x, y)", ""),
    "max(x[i], 0)": ("has no truth value", "tp.max", ""),
    "x + 1": ("x has 1 index: write x[i]", "x[i]", "x[i]"),
    "p[i][j]": ("p has 2 indices: write p[i, j]", "", ""),
    "x[i][j]": ("x[i] is one vector or scalar already", "", ""),
    "x(i)": ("x is no function", "x[i]", "x[i]"),
    "len(x)": ("x has no length", "P.netsor.ranges", ""),
    "round(x[i])": ("could be rounded", "", ""),
    "tp.softmax(p[i, j])": (
        "softmax needs the index that it runs over", "softmax[j](p[i,j])", "tp.softmax[j](p[i, j])"),
    "tp.relu('x[i]')": ("the text 'x[i]' cannot stand inside", "tp.tanh(x[i])", ""),
    "P.nonlin('y[i]', np.tanh)": ("tanh is a function and no expression yet", "tp.tanh(x[i])", ""),
    "P.nonlin(x[i], tp.tanh(x[i]))": ("whose name comes first, as text", 'P.nonlin("y[i]", ...)', ""),
    "P.nonlin(tp.tanh(x[i]))": ("whose name comes first, as text", 'P.nonlin("y[i]", ...)', ""),
    "P.matmul(W, h)": ("whose name comes first, as text", 'P.matmul("y[i]", ...)', ""),
    "P.weight('U', std=2)": ("U has no option std", "P.weight('U', variance=4)", "P.weight('U', variance=4)"),
    "P.initial('g', std=3)": ("g has no option std", "P.initial('g', cov=9)", "P.initial('g', cov=9)"),
    "x[i] @ W": ("@ is not part of the language", 'P.dot("p", x[i], W)', ""),
    "x[i] == 0 and 1 or tp.tanh(x[i] == 0)": ("False is not a number", "tp.where(x[i] > 0, 1, 0)", ""),
    "x[i] + 'a'": ("the text 'a' cannot stand inside", "tp.tanh(x[i])", ""),
    "x[i] + [1]": ("a list cannot stand in an expression", 'P.constant("b[i]", numbers)', ""),
    "x[i] + x": ("x has 1 index: write x[i]", "x[i]", "x[i]"),
    "x[i] + tp": ("the module tensorprog cannot stand in an expression", "", ""),
    "x[i, j]": ("2 indices are given, but x has 1 index", "x[i]", "x[i]"),
    "p[i]": ("1 index is given, but p has 2 indices", "p[i, j]", "p[i, j]"),
    "float(x[i])": ("has no numerical value", "tp.tanh(x[i])", ""),
    "int(x[i])": ("has no numerical value that could be rounded", "", ""),
    "len(x[i])": ("x[i] has no length here", "P.run(width=64, samples=1000)", ""),
    "divmod(x[i], 2)": ("divmod is not part of the language", "", ""),
    "x[i] << 2": ("<< and >> are not part of the language", "x[i] * 2**2", "x[i] * 2**2"),
    "W(h)": ("W is no function", 'P.matmul("u", W, h)', ""),
    "h(3)": ("h is no function", "", ""),
    "tp.swish(x[i])": ("tensorprog has no function swish", "tp.silu(x)", ""),
    "tp.ReLU(x[i])": ("tensorprog has no function ReLU", "tp.relu(x)", ""),
    "tp.erfc(x[i])": ("tensorprog has no function erfc", "1 - tp.erf(x)", ""),
    "tp.dropout(x[i])": ("tensorprog has no function dropout", "leave it out", ""),
    "tp.max(x[i])": ("max takes two or more arguments", "tp.max(x, y), or tp.max[i](x[i])", ""),
    "tp.sum['k'](x[i])": ("takes indices, not k", "tp.sum[i](x[i])", ""),
    "tp.tanh(x[i], 2)": ("tanh takes (x), not 2 arguments", "tanh(x)", ""),
    "tp.clip(x[i])": ("lo is missing", "clip(x, lo, hi)", ""),
    "P.nonlin('y[i]')": ("an argument of Nonlin is missing", 'P.nonlin("y", tp.tanh(x))', ""),
    "P.nonlin('y[i]', lambda z: z)": ("is a function and no expression yet", "tp.tanh(x[i])", ""),
    "P.nonlin('y[i]', np.ones(4))": ("an array cannot stand in an expression", 'P.constant("b[i]"', ""),
    "P.matmul('u', W)": ("an argument of MatMul is missing", 'P.matmul("u", W, x)', ""),
    "P.dot('q', h)": ("an argument of Dot is missing", 'P.dot("p", x, y)', ""),
    "P.weight(3)": ("a name is text", '"W[i]"', ""),
    "P.weight('U', variance=-1)": ("the variance of U must not be negative", "the square of a scale", ""),
    "P.index(3, 4)": ("the name of an index is text", "", ""),
    "P.family(3)": ("a name is text", "", ""),
    "P.constant('c', [1, 2])": ("c is declared without indices", 'P.constant("c[i]", numbers)', ""),
    "P.initial('g[i]', cov=[[1, 2], [3]])": ("an array of real numbers is needed", "every row of the same length", ""),
    "P.initial('g[i]', data='x.npy')": ("not the name of a file", "np.load('x.npy')", ""),
    "P['Y']": ("Y is not defined", "known names: V, W, h", ""),
    "P.x": ("x is no constant", 'P["x"]', ""),
    "P.limits()": ("no constant and no method limits", "did you mean limit?", ""),
    "P.forward(3)": ("no constant and no method forward", "check, run, limit", ""),
    "P.limit(accuracy='high')": ("accuracy must lie between", "", ""),
    "tp.Program('a', constants=[1])": ("constants are given by name", 'constants={"s": 4}', ""),
    "tp.load(3)": ("the path of a program file", 'tp.load("attention")', ""),
    "tp.load('missing.yaml')": ("there is no file missing.yaml", "shipped programs: attention", ""),
    "tp.load('atention')": ("there is no file atention", "did you mean attention?", ""),
    "done.run(width='64')": ("width must be a whole number", "", ""),
    "done.run(width=64, samples=-1)": ("samples must be a whole number of at least 1, not -1", "", ""),
    "net['Y']": ("Y was not kept; known names: p, y", "", ""),
    "net[0]": ("looked up by the name of a variable", 'samples["y"]', ""),
    "net.y": ("samples have no attribute y", 'samples["y"]', ""),
    "law.cov('z')": ("z is not a vector or scalar of the program; known names:", "", ""),
    "law.covariance('y')": ("laws have no attribute covariance", 'law.cov("y")', 'law.cov("y")'),
    "law.pdf('y')": ("laws have no attribute pdf", 'law.density("y[0]", grid)', ""),
    "law.rvs(1000)": ("laws have no attribute rvs", "law.sample(1000)", ""),
    "law.density('y[0]')": ("density needs grid", "name, grid, with_error", ""),
    "P.run()": ("run needs width", "its arguments are width, samples, seed", ""),
    "P.run(width=64, n_samples=3)": ("run has no argument n_samples", "did you mean samples?", ""),
    "P.limit(width=3)": ("limit has no argument width", "symbolic, accuracy", ""),
    "P.limit('x')": ("more arguments than it takes without their names", "symbolic, accuracy", ""),
    "P.run(64, width=64)": ("run is given width twice", "", ""),
    "P.index('k')": ("index needs size", "name, size, boundary", ""),
    "tp.Program('a', s=4)": ("Builder has no argument s", "name, constants", ""),
    "tp.compare(3, 4)": ("compare takes samples first", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("written", MISTAKES)
def test_a_habit_is_answered_with_what_to_write(written: str) -> None:
    message, fix, meant = MISTAKES[written]
    with pytest.raises(tp.ProgramError) as caught:
        eval(written, names())
    problem = caught.value.problems[0]
    assert message in problem.message
    assert fix in problem.fix
    if meant:  # the fix is an expression by itself: pasted, it is what was meant
        pasted = eval(problem.fix, {**vars(tp), **{name: getattr(tp, name) for name in dir(tp)}, **names()})
        assert str(pasted) == str(eval(meant, names()))


def test_nothing_is_assigned_to_a_member() -> None:
    found = names()
    with pytest.raises(tp.ProgramError, match="nothing is assigned"):
        exec("x[i] = tp.tanh(x[i])", found)


def test_numbers_of_numpy_stay_numbers() -> None:
    found = names()
    for number in (np.float64(2.5), np.int64(2), np.float32(2.5), np.array(2.5)):
        plain = 2 if number.dtype.kind == "i" else 2.5
        assert str(number * found["h"]) == str(plain * found["h"])
        assert str(found["h"] / number) == str(found["h"] / plain)
        assert (number == found["h"]) is False
