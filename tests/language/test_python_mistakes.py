"""What users of numpy and torch write by habit in Python is answered with what to write, never with a TypeError."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import tensorprog as tp


class _Names(dict[str, Any]):
    """Names whose values are made when they are first used, of a mistake only what it speaks of."""

    MADE: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "net": lambda done: done.run(width=4, samples=4),
        "law": lambda done: done.limit(),
        "report": lambda done: done.check(),
        "comparison": lambda done: tp.compare(done.run(width=4, samples=4), None),
    }

    def __missing__(self, name: str) -> Any:
        if name not in self.MADE:
            raise KeyError(name)
        return self.setdefault(name, self.MADE[name](self["done"]))


def names() -> dict[str, Any]:
    """A program under construction, with a handle of each kind."""
    P = tp.Program("mine", constants={"s": 4})
    i, j = P.index("i", "s"), P.index("j", "s")
    h, W, V = P.initial("h"), P.weight("W"), P.weight("V[i]")
    x = P.matmul("x[i]", V[i], h)
    p = P.dot("p[i,j]", x[i], x[j])
    done = tp.load("attention", s=2, H=1)
    return _Names(
        {
            "done": done,
            "tp": tp,
            "np": np,
            "math": math,
            "P": P,
            "names": names,
            "i": i,
            "j": j,
            "h": h,
            "W": W,
            "V": V,
            "x": x,
            "p": p,
        }
    )


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
    "P.forward(3)": ("no constant and no method forward", "P.run(width=64)", ""),
    "P.limit(accuracy='high')": ("accuracy must lie between", "", ""),
    "tp.Program('a', constants=[1])": ("constants are given by name", 'constants={"s": 4}', ""),
    "tp.load(3)": ("the path of a program file", 'tp.load("attention")', ""),
    "tp.load('missing.yaml')": ("there is no file missing.yaml", "shipped programs: attention", ""),
    "tp.load('atention')": ("there is no file atention", "did you mean attention?", ""),
    "done.run(width='64')": ("width must be a whole number", "width=64", ""),
    "done.run(width=64, samples=-1)": ("samples must be a whole number of at least 1, not -1", "", ""),
    "net['Y']": ("Y was not kept; known names: p, y", "", ""),
    "net[0]": ("looked up by the name of a variable", 'samples["y"]', ""),
    "net.y": ("the result of run has no attribute y", 'samples["y"]', ""),
    "law.cov('z')": ("z is not a vector or scalar of the program; known names:", "", ""),
    "law.covariance('y')": ("a law has no attribute covariance", 'law.cov("y")', 'law.cov("y")'),
    "law.moment(4, 'y[0]')": ('a name such as "y[0]", or a list of at least one, is needed here, not 4', "", ""),
    "law.pdf('y')": ("a law has no attribute pdf", 'law.density("y[0]", grid)', ""),
    "law.rvs(1000)": ("a law has no attribute rvs", "law.sample(1000)", ""),
    "law.density('y[0]')": ("density needs grid", "name, grid, with_error", ""),
    "P.run()": ("run needs width", "its arguments are width, samples, seed", ""),
    "P.run(width=64, n_samples=3)": ("run has no argument n_samples", "did you mean samples?", ""),
    "P.limit(width=3)": ("limit has no argument width", "symbolic, accuracy", ""),
    "P.limit('x')": ("more arguments than it takes without their names", "symbolic, accuracy", ""),
    "P.run(64, width=64)": ("run is given width twice", "", ""),
    "P.index('k')": ("index needs size", "name, size, boundary", ""),
    "tp.Program('a', s=4)": ("Program has no argument s", "name, constants", ""),
    "tp.compare(3, 4)": ("compare takes samples first", "", ""),
    "P(3)": ("a program is no function", "P.run(width=64)", ""),
    "len(P)": ("a program has no length", "P.run(width=64)", ""),
    "P + P": ("a program is no number, so that + cannot take it", "P.limit()", ""),
    "2 * P": ("a program is no number, so that * cannot take it", "P.limit()", ""),
    "x[i] + P": ("cannot stand in an expression", "", ""),
    "[part for part in P]": ("nothing can run over it", "P.check()", ""),
    "P.grade": ("no constant and no method grade", "P.check().grade", ""),
    "P.sample(100)": ("no constant and no method sample", "P.limit().sample(1000)", ""),
    "P.simulate": ("no constant and no method simulate", "P.run(width=64)", ""),
    "P.save('x.yaml')": ("no constant and no method save", "P.to_yaml()", ""),
    "P.cov('y')": ("no constant and no method cov", 'P.limit().cov("y")', ""),
    "tp.load('a', 'b')": ("more arguments than it takes", "source", ""),
    "tp.limit(P)": ("tensorprog has no function limit", "P.limit()", ""),
    "tp.check(P)": ("tensorprog has no function check", "P.check()", ""),
    "tp.run(widths=(16, 64))": ("tensorprog has no function run", "P.run(width=64)", ""),
    "tp.kurtosis(law)": ("tensorprog has no function kurtosis", 'P.limit().kurtosis("y")', ""),
    "tp.matmul(W, h)": ("tensorprog has no function matmul", 'P.matmul("u", W, x)', ""),
    "tp.depth(done, 'nope')": ("nope is no vector of the program", "known names:", ""),
    "tp.depth(done)": ("depth needs of", "program, of, index", ""),
    "tp.depth(done, 'y', H=3)": ("depth has no argument H", "its arguments are", ""),
    "tp.depth(3, 'y')": ("takes a program or the path of one", 'tp.load("attention")', ""),
    "tp.solve(done)": ("solve needs constant and quantity and value", "its arguments are", ""),
    "tp.sweep(done)": ("sweep needs width", "its arguments are", ""),
    "tp.sweep(done, widths=16)": ("sweep has no argument widths", "did you mean width?", ""),
    "tp.sweep(3, 16)": ("takes a program or the path of one", "", ""),
    "tp.ntk(done)": ("ntk needs name", "P, name", ""),
    "tp.ntk(3, 'y')": ("takes a program or the path of one", 'tp.load("attention")', ""),
    "tp.backward(3)": ("takes a program or the path of one", 'tp.load("attention")', ""),
    "tp.backward(done, 'y')": ("more arguments than it takes", "its arguments are P", ""),
    "tp.atom('f')": ("atom needs fn", "name, fn", ""),
    "tp.rate(3)": ("rate takes the result of a sweep", "", ""),
    "tp.kl(net)": ("kl needs law and variable", "", ""),
    "tp.compare()": ("compare needs samples and law", "variables", ""),
    "done.run(widht=64)": ("run has no argument widht", "did you mean width?", ""),
    "done.run(width=64.0)": ("width must be a whole number", "width=64", ""),
    "law.sample('x')": ("size must be a whole number of at least 1, not 'x'", "", ""),
    "law.variance('y')": ("a law has no attribute variance", 'law.var("y")', 'law.var("y")'),
    "law.correlation('y')": ("a law has no attribute correlation", 'law.cov("y")', 'law.cov("y")'),
    "law('y')": ("a law is no function", 'law.cov("y")', ""),
    "law['y']": ("square brackets", 'law.cov("y")', ""),
    "law + law": ("a law is no number", 'law.cov("y")', ""),
    "float(law)": ("a law is no number, so that float cannot take it", 'law.cov("y")', ""),
    "law.run(64)": ("a law has no attribute run", "law.sample(1000)", ""),
    "report['grade']": ("square brackets", ".grade", ""),
    "report.verdict": ("a report has no attribute verdict", "report.grade", "report.grade"),
    "report.claim": ("a report has no attribute claim", "did you mean claims?", ""),
    "report()": ("a report is no function", "report.grade", ""),
    "net()": ("the result of run is no function", 'samples["y"]', ""),
    "net + 1": ("the result of run is no number", 'samples["y"]', ""),
    "tp.plots(net)": ("plots is no function", "tp.plots.density(samples", ""),
    "tp.plots.hist(net)": ("plots has no function hist", "density", ""),
    "tp.Samples()": ("the result of run is not made in this way", "P.run(width=64", ""),
    "tp.Report()": ("a report is not made in this way", "P.check()", ""),
    "tp.Law()": ("a law is not made in this way", "P.limit()", ""),
    "tp.Law(3)": ("a law is made of a program", "P.limit()", ""),
    "tp.Program.from_yaml('mine.yaml')": ("the class Program has no attribute from_yaml", 'tp.load("file.yaml")', ""),
    "tp.Program.from_torch(3)": ("the class Program has no attribute from_torch", "tp.from_torch(module)", ""),
    "tp.Program.simulate": ("the class Program has no attribute simulate", "P.run(width=64)", ""),
    "tp.sklearn.ProgramKernel('mlp')([[0.0]])": ("takes a function that writes the program", "def network(rows)", ""),
    "tp.sklearn.ProgramKernel(names).fit(3, 3)": ("a kernel has no attribute fit", "(kernel).fit(X, y)", ""),
    "f'{law:.3f}'": ("a law is no number, and has no format", 'law.cov("y")', ""),
    "f'{net:.3f}'": ("the result of run is no number, and has no format", 'samples["y"]', ""),
    "done.check().findings[0].text": ("a finding has no attribute text", "finding.message", ""),
    "done.limit(seed='a')": ("seed must be a whole number of at least 0, not 'a'", "", ""),
    "law.cov('y', 'y', True)": ("more arguments than it takes without their names", "with_error", ""),
    "law.given({'z': 1})": ("z is not a score of the program", "p", ""),
    "net.save(3)": ("a file is named by text, not by 3", '"file.npz"', ""),
    "setattr(done, 'H', 4)": ("a program keeps its constants: H is given where it is made", "tp.load(", ""),
    "setattr(done, 'depth', 4)": ("a program has no attribute depth", 'P.constant("depth", 4)', ""),
    "net.to_datframe()": ("no attribute to_datframe", "did you mean to_dataframe?", ""),
    "comparison.row": ("a comparison has no attribute row", "did you mean rows?", ""),
    "comparison()": ("a comparison is no function", "to_dataframe()", ""),
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
        found = names()
        functions = {name: getattr(tp, name) for name in dir(tp) if name not in found}
        pasted = eval(problem.fix, _Names(functions | found))
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


def test_what_is_refused_changes_nothing_else() -> None:
    found = names()
    done, report = found["done"], found["done"].check()
    assert all(map(bool, (done, report, done.limit())))
    assert [*map(type, np.array([done, done], dtype=object))] == [tp.Program] * 2
    assert copy.copy(report) == pickle.loads(pickle.dumps(report)) == report
    assert pickle.loads(pickle.dumps(tp.load)) is tp.load
    assert not hasattr(report, "verdict") and not hasattr(done, "fit")
