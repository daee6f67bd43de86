"""One minimal invalid program per rule: exactly one problem, at the mark «."""

from __future__ import annotations

import pytest
from front_end_programs import marked, program

from tensorprog import ProgramError
from tests.reading import loads

CASES = {
    "constant and index": (
        program(constants="{s: 3, c: 2, i: 1}", indices="{«i: s, j: s, t: 1..s}"),
        "i is bound twice",
    ),
    "initial and weight": (program(weights="\n  W[i]: 1\n  V: 1\n  «h: 1"), "h is bound twice"),
    "initial and statement": (program("«h = Nonlin(1)"), "h is bound twice"),
    "defined twice": (program("«u[i] = MatMul(W[i], h)"), "u is bound twice: u[i] overlaps u[i]"),
    "key twice": (program(weights="\n  W[i]: 1\n  V: 1\n  «V: 2"), "V is bound twice"),
    "section twice": (program() + "title: a\n«title: b\n", "title is bound twice"),
    "reserved": (program("«tanh = Nonlin(1)"), "tanh is reserved"),
    "underscore": (program("«q_ = Nonlin(1)"), "q_: a trailing underscore is reserved"),
    "undefined": (program("q[i] = Nonlin(tanh(«uu[i]))"), "uu is not defined"),
    "undefined weight": (program("q[i] = MatMul(«WW[i], h)"), "WW is not defined"),
    "function": (program("q[i] = Nonlin(«tahn(u[i]))"), "there is no function tahn"),
    "instruction": (program("q[i] = «MatMull(W[i], h)"), "the right side must be"),
    "no instruction": (program("q[i] = «tanh(u[i])"), "the right side must be"),
    "nested instruction": (program("q[i] = Nonlin(«MatMul(W[i], h))"), "MatMul is an instruction"),
    "width n": (program("q[i] = Nonlin(u[i] / «n)"), "n may occur only as scale=1/n"),
    "too many": (program("q[i] = Nonlin(«u[i, j])"), "u has 1 index, 2 given"),
    "too few": (program("q[i] = Nonlin(«x[i])"), "x has 2 indices, 1 given"),
    "none": (program("q[i] = Nonlin(«u)"), "u has 1 index, 0 given"),
    "free": (program("q[i] = Nonlin(«u[j])"), "the index j is neither on the left nor reduced"),
    "free value": (program("«q[i] = Nonlin(u[i] * j)"), "the index j is neither on the left nor reduced"),
    "undeclared left": (program("q[«k] = Nonlin(1)"), "k is not an index or a constant"),
    "outside": (program("q[i] = Nonlin(«u[i + 1])"), "u: the index i + 1 runs over 1..3, outside 0..2"),
    "outside constant": (program("q[i] = Nonlin(«u[s])"), "u: the index s runs over 3..3, outside 0..2"),
    "outside under where": (program("q[i] = Nonlin(where(i > 0, «u[i - 1], 0))"), "runs over -1..1, outside 0..2"),
    "not affine": (program("q[i] = Nonlin(u[«i * i])"), "i * i is not affine"),
    "half": (program("q[i] = Nonlin(u[«i + 1/2])"), "not made of whole numbers"),
    "left shifted": (program("«q[i + 1] = Nonlin(u[i])"), "the left side takes plain indices"),
    "left twice": (program("«q[i, i] = Nonlin(u[i])"), "an index stands twice on the left"),
    "hidden": (program("q[i] = Nonlin(«sum[i](u[i]))"), "sum[i] hides the index i"),
    "kept": (program("q[i] = Nonlin(«softmax[j](x[i,j]))"), "softmax[j] keeps the index j"),
    "reduced undeclared": (program("q = Nonlin(sum[«k](u[k]))"), "takes declared indices, not k"),
    "two arities": (program(["q[0] = Nonlin(1)", "«q[i, j] = Nonlin(u[i])"]), "q is defined with 1 and with 2"),
    "gap": (program(["q[0] = Nonlin(1)", "«q[2] = Nonlin(1)"]), "the definitions of q leave a gap in 0..2"),
    "empty index": (program(indices="{i: s, j: s, t: 1..s, k: «3..2}"), "index k is empty"),
    "size zero": (program(indices="{i: s, j: s, t: 1..s, k: «0}"), "the size of index k must be at least 1"),
    "size fraction": (program(indices="{i: s, j: s, t: 1..s, k: «2.5}"), "must be a whole number, not 2.5"),
    "size name": (program(indices="{i: s, j: s, t: 1..s, k: «q}"), "q is not a constant number"),
    "range": (program(indices="{i: s, j: s, t: 1..s, k: «1..}"), "1.. is not a range"),
    "boundary": (program(indices="{i: s, j: s, t: 1..s, k: {size: 2, boundary: «mirror}}"), "no boundary mirror"),
    "second copy": (program("«q[i] = Nonlin(u[i] * i_)"), "i_: second copies"),
    "matmul of scalar": (program("q = MatMul(V, «m)"), "m is a scalar; MatMul needs a vector"),
    "dot of scalar": (program("q = Dot(«m, g)"), "m is a scalar; Dot needs two vectors"),
    "weight as vector": (program("q = MatMul(V, «V)"), "V is a weight; weights enter through MatMul only"),
    "vector as weight": (program("q = MatMul(«g, h)"), "g is not a weight"),
    "weight in nonlin": (program("q = Nonlin(tanh(«V))"), "V is a weight; weights enter through MatMul"),
    "expression in matmul": (program("q = MatMul(V, «tanh(g))"), "MatMul takes a vector by its name"),
    "expression with indices": (program("q[i] = MatMul(V, «2 * u[i])"), "MatMul takes a vector by its name"),
    "expression in its name": (
        program(["q_x = Nonlin(g)", "q = MatMul(V, «2 * q_x)"]),
        "MatMul takes a vector by its name",
    ),
    "product as an operator": (program("q[i] = «V @ u[i]"), "the right side must be"),
    "product inside": (program("q[i] = Nonlin(tanh(«V @ u[i]))"), "the operator in V @ u[i] is not part"),
    "bound without a constant": (program("q[i] = Nonlin(«clip(tanh(u[i]), -B, B))"), "B is none of these"),
    "flow weight": (program(weights="{Q«[i]: 1}"), "YAML cannot hold unquoted brackets"),
    "one argument": (program("«q = Dot(g)"), "Dot takes two vectors, not 1 argument"),
    "scale": (program("«q = Dot(g, g, scale=1/m)"), "Dot has no scale 1/m"),
    "option": (program("«q = Dot(g, g, width=n)"), "Dot: width is no option of it"),
    "vector exponent": (program("q = Nonlin(«g ** g)"), "exponent must be made of numbers"),
    "width of scalar": (program("«q = Nonlin(m, width=n)"), "q is a scalar; it has no width"),
    "vector and dot": (program(["«q[0] = Dot(g, g)", "q[1] = Nonlin(g)"]), "q is a vector in one definition"),
    "widths in nonlin": (
        program("q = Nonlin(g + «r)", fixed_widths="{d: 8}", initial="\n  h: {cov: 1}\n  r: {cov: 1, width: d}"),
        "q has width n, but r has width d",
    ),
    "widths in matmul": (
        program("q = MatMul(V, «r)", fixed_widths="{d: 8}", initial="\n  h: {cov: 1}\n  r: {cov: 1, width: d}"),
        "V has shape [n, n], but r has width d",
    ),
    "widths in dot": (
        program("«q = Dot(g, r)", fixed_widths="{d: 8}", initial="\n  h: {cov: 1}\n  r: {cov: 1, width: d}"),
        "Dot of g (width n) and r (width d)",
    ),
    "transpose in nonlin": (program("q = Nonlin(tanh(«V.T))"), "V.T cannot stand here"),
    "transpose in dot": (program("q = Dot(«g.T, g)"), "g.T cannot stand here"),
    "transpose of a vector": (program("q = MatMul(V, «g.T)"), "only the weight of a MatMul may be transposed"),
    "vector as transposed weight": (program("q = MatMul(«g.T, h)"), "g is not a weight"),
    "transpose twice": (program("q[i] = MatMul(«W[i].T.T, h)"), "W[i].T cannot stand here"),
    "transpose of a family": (program("q[i] = MatMul(«W.T[i], h)"), "only a name can carry indices"),
    "transpose of an expression": (program("q = MatMul(«(V + 1).T, h)"), "only a weight can be transposed"),
    "members of a transpose": (program("q = MatMul(«W.T, h)"), "W has 1 index, 0 given"),
    "widths in transposed matmul": (
        program("q = MatMul(Q.T, «h)", fixed_widths="{d: 8}", weights="\n  W[i]: 1\n  V: 1\n  Q: {shape: [d, n]}"),
        "Q.T has shape [n, d], but h has width n",
    ),
    "widths in plain matmul": (
        program(
            "q = MatMul(Q, «r)",
            fixed_widths="{d: 8}",
            initial="\n  h: {cov: 1}\n  r: {cov: 1, width: d}",
            weights="\n  W[i]: 1\n  V: 1\n  Q: {shape: [d, n]}",
        ),
        "Q has shape [d, n], but r has width d",
    ),
    "circular": (program("«q[i] = Nonlin(tanh(q[i]))"), "circular definition: q[i] depends on itself"),
    "circular mask": (program("«q[i] = Nonlin(sum[j](where(j < i, q[j], 0)))"), "not looked at"),
    "circular pair": (program(["«q = MatMul(V, r)", "r = Nonlin(tanh(q))"]), "q, r depend on each other"),
    "increasing": (
        program(["q[3] = Nonlin(1)", "«r[i] = Nonlin(tanh(q[i+1]))", "q[i] = MatMul(V, r[i])"]),
        "without an index that decreases",
    ),
    "around": (
        program("«q[k] = Nonlin(tanh(q[k-1]))", indices="{i: s, j: s, t: 1..s, k: {size: 3, boundary: wrap}}"),
        "circular definition",
    ),
    "before": (program(["q = MatMul(V, «r)", "r = Nonlin(g)"]), "r is used before it is bound"),
    "constant text": (program(constants="{s: 3, c: 2, q: «abc}"), "abc is not a constant number"),
    "constant infinite": (program(constants="{s: 3, c: 2, q: «1e999}"), "not a finite number"),
    "constant yes": (program(constants="{s: 3, c: 2, q: «true}"), "true is not a constant number"),
    "constant empty": (program(constants="{s: 3, c: 2, q:« }"), "q is empty"),
    "constant list": (program(constants="{s: 3, c: 2, «q: [1, 2]}"), "q is a list, so it needs an index"),
    "constant shape": (program(constants="\n  s: 3\n  c: 2\n  «q[i]: [1, 2]"), "q has shape (2,)"),
    "constant ragged": (program(constants="\n  s: 3\n  c: 2\n  q[i,j]: «[[1, 2], [3]]"), "different lengths"),
    "constant nan": (program(constants="\n  s: 3\n  c: 2\n  «q[i]: sqrt(i - 5)"), "q has entries that are not finite"),
    "constant slots": (
        program("q[i] = Nonlin(u[i] * «b)", constants="\n  s: 3\n  c: 2\n  b[i]: [1, 2, 3]"),
        "b has 1 index, 0 given",
    ),
    "negative cov": (program(initial="\n  «h: {cov: -1}"), "the cov of h must not be negative"),
    "not symmetric": (program(initial="\n  h: {cov: 1}\n  «q[i]: {cov: i - i_}"), "cov is not symmetric"),
    "not semidefinite": (program(initial="\n  h: {cov: 1}\n  «q[i]: {cov: abs(i - i_)}"), "not positive semidefinite"),
    "not semidefinite, of many members": (
        program(indices="{i: s, j: s, t: 1..s, k: 9000}", initial="\n  h: {cov: 1}\n  «q[k]: {cov: 1 - 2*abs(k - k_)}"),
        "not positive semidefinite",
    ),
    "cov shape": (
        program(initial="\n  h: {cov: 1}\n  «q[i]: {cov: [[1, 0], [0, 1]]}"),
        "cov has shape (2, 2), not (3, 3)",
    ),
    "cov and gram": (program(initial="\n  «h: {cov: 1, gram: [[1]]}"), "cov and gram both give its covariance"),
    "variance alone": (program(initial="\n  «h: {variance: 1}"), "variance belongs to data"),
    "data shape": (
        program(initial="\n  h: {cov: 1}\n  «q[i]: {data: [[1], [2]]}"),
        "data has shape (2, 1), not (3, d)",
    ),
    "mean of vector": (program(initial="\n  «h: {mean: u}"), "the mean of h must be made of constants"),
    "initial number": (program(initial="\n  «h: 1"), "h takes {mean: ..., cov: ...}"),
    "initial option": (program(initial="\n  h: {«men: 0}"), "there is no option of an initial vector men"),
    "initial index": (program(initial="\n  h: {cov: 1}\n  q[«k]: {cov: 1}"), "k is not an index"),
    "initial member": (program(initial="\n  h: {cov: 1}\n  «q[0]: {cov: 1}"), "carries plain indices"),
    "negative variance": (program(weights="\n  W[i]: 1\n  «V: -1"), "the variance of V must not be negative"),
    "variance of index": (
        program(weights="\n  W[i]: 1\n  «V: i + 1"),
        "the variance of V must be made of constants, not of i",
    ),
    "weight width": (
        program(weights="\n  W[i]: 1\n  V: 1\n  «Q: {variance: 1, shape: [d, n]}"),
        "d is not a declared width",
    ),
    "weight shape": (program(weights="\n  W[i]: 1\n  V: 1\n  Q: {shape: «[n]}"), "the shape of Q is [rows, columns]"),
    "weight numbers": (program(weights="\n  W[i]: 1\n  V: 1\n  Q: {shape: «[64, n]}"), "two widths by name"),
    "width square": (program(widths="{d: «n*n}"), "n*n is not a positive multiple of n"),
    "width root": (program(widths="{d: «sqrt(n)}"), "sqrt(n) is not a positive multiple of n"),
    "width negative": (program(widths="{d: «-1*n}"), "not a positive multiple of n"),
    "width text": (program(widths="{d: «m/2}"), "m is not a constant number"),
    "fixed width": (program(fixed_widths="{d: «0}"), "must lie between 1 and"),
    "output": (program(outputs="[y, «gg]"), "the output gg is not defined"),
    "output member": (program(outputs='[g, "«y[1]"]'), "the output y[1] is not defined"),
    "output text": (program(outputs="«y"), "outputs: is a list of names"),
    "output weight": (program(outputs="[y, g, «V]"), "the output V is not defined"),
    "run key": (program() + "run: {«widht: 3}\n", "there is no run option widht"),
    "run range": (program() + "run: {samples: «0}\n", "samples must lie between 1 and"),
    "run method": (program() + "run: {method: «quick}\n", "there is no method quick"),
    "run width": (program() + "run: {width: «[16, x]}\n", "x is not a constant number"),
    "section": (program().replace("constants:", "«constnats:"), "there is no section constnats"),
    "statement colon": (program("«q[i]: Nonlin(1)"), "each entry of body: is one statement"),
    "softmax row": (
        program("q[i] = Nonlin(sum[j](«softmax[j](where(j < i, m, -inf)) * x[i,j]))"),
        "every entry is masked at i=0",
    ),
    "where condition": (program("q = Nonlin(«where(g, 1, 0))"), "needs a comparison as its condition"),
    "comparison": (program("q[i] = Nonlin(«u[i] * (i < 1))"), "can only be the condition"),
    "summed comparison": (program("q = Nonlin(«sum[i](u[i] > 0))"), "can only be the condition"),
    "chained": (program("q[i] = Nonlin(where(«0 < i < 2, u[i], 0))"), "comparisons do not chain"),
    "infinite": (program("q[i] = Nonlin(u[i] * «9**9**9)"), "9**9**9 is not a finite number"),
    "clip of nothing": (
        program("q[i] = Nonlin(u[i] + «clip(u[i], 2 - i, 1))"),
        "the lower bound is above the upper one at i=0",
    ),
    "min of inf": (program("q[i] = Nonlin(2 * «min(u[i], inf))"), "inf is no value"),
    "exponent": (program("q[i] = Nonlin(«u[i]**1e300)"), "the exponent 1e+300 is too large"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_rule_gives_one_message_at_its_place(name):
    text, message = CASES[name]
    text, line, column = marked(text)
    with pytest.raises(ProgramError) as caught:
        loads(text, file="p.yaml")
    problems = caught.value.problems
    assert len(problems) == 1, str(caught.value)
    assert message in problems[0].message
    assert (problems[0].span.file, problems[0].span.line, problems[0].span.column) == ("p.yaml", line, column)
    assert "p.yaml, line" in str(caught.value)


def test_the_valid_program_is_valid():
    assert loads(program()).warnings == ()


def _messages(text: str) -> list[str]:
    with pytest.raises(ProgramError) as caught:
        loads(text)
    lines = [problem.span.line for problem in caught.value.problems]
    assert lines == sorted(lines)
    return [problem.message for problem in caught.value.problems]


def test_all_mistakes_of_a_phase_are_reported_together_in_the_order_of_the_file():
    statements = ["q[i] = Nonlin(tahn(u[i]))", "w[i] = Nonlin(u[i * j])"]
    weights, constants = "\n  W[i]: 1\n  V: zz**\n  U: c**", "{s: 3, c: 2, k: zz, l: 1 +}"
    found = _messages(program(statements, weights=weights, constants=constants))
    assert len(found) == 2 and "zz is not a constant" in found[0] and "cannot be read" in found[1]
    assert len(_messages(program(statements, weights=weights))) == 2
    found = _messages(program(statements))
    assert len(found) == 2 and "no function tahn" in found[0] and "not affine" in found[1]
    found = _messages(program(["r[i] = Nonlin(u[i] + vv[i])", "w[i] = Nonlin(u[i+1])"]))
    assert len(found) == 2 and "vv is not defined" in found[0] and "index i + 1 runs" in found[1]


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("constants", "{s: abc, c: 2}"),
        ("indices", "{i: 1e30, j: s, t: 1..s}"),
        ("weights", "\n  W[q]: 1\n  V: 1"),
        ("initial", "\n  h: {mean: [1, [2]], cov: 1}"),
    ],
)
def test_what_depends_on_a_broken_name_is_not_reported(section, text):
    with pytest.raises(ProgramError) as caught:
        loads(program(**{section: text}))
    assert len(caught.value.problems) == 1, str(caught.value)


@pytest.mark.parametrize("section", ["program", "body", "outputs"])
def test_a_missing_section_is_named(section):
    with pytest.raises(ProgramError, match=f"the section {section}: is missing") as caught:
        loads(program(**{section: None}))
    assert len(caught.value.problems) == 1


def test_unused_declarations_are_warnings():
    netsor = loads(program("q = Nonlin(1)", constants="{s: 3, c: 2, k: 1}"))
    assert [warning.message for warning in netsor.warnings] == [
        "the constant k is not used",
        "q is neither used nor an output",
    ]


def test_names_inside_index_expressions_and_sizes_count_as_used():
    netsor = loads(
        program(
            ["q[i] = Nonlin(u[a - 1])", "r[i] = Nonlin(q[i])"],
            outputs="[y, g, r]",
            constants="{s: 3, c: 2, a: 1, b: 4, d: 2*b}",
            fixed_widths="{e: d}",
        )
    )
    assert netsor.warnings == ()
