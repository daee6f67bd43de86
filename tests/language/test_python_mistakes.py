"""What users of numpy and torch write by habit in Python is answered with what to write, never with a TypeError."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tensorprog as tp


def names() -> dict[str, Any]:
    """A program under construction, with a handle of each kind."""
    P = tp.Program("mine", constants={"s": 4})
    i, j = P.index("i", "s"), P.index("j", "s")
    h, W, V = P.initial("h"), P.weight("W"), P.weight("V[i]")
    x = P.matmul("x[i]", V[i], h)
    p = P.dot("p[i,j]", x[i], x[j])
    return {"tp": tp, "np": np, "math": math, "P": P, "i": i, "j": j, "h": h, "W": W, "V": V, "x": x, "p": p}


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
