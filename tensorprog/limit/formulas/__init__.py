"""The limit in formulas: the only package that imports sympy at the top of its modules.

In goes a program, with its constants as symbols; out comes a `SymbolicLaw`, whose formulas are sympy expressions, text
or LaTeX, and have numbers again.

    law            what users ask: means, covariances, both given the scores, and the derivation, line by line
    recursion      the algebra of formulas for `moment.recursion`, case by case
    conversion     expressions of the language as formulas
    expectation    E f(X) and E f(X) g(Y), unevaluated; `closed` has the closed forms, with phi and Phi
    nodes          what sympy leaves as it is: scores, sums, softmaxes, with numbers
    writing        formulas as text, LaTeX and JSON; the derivation
"""

from tensorprog.limit.formulas.closed import Phi, phi
from tensorprog.limit.formulas.expectation import Expectation
from tensorprog.limit.formulas.law import FormulaArray, SymbolicLaw
from tensorprog.limit.formulas.nodes import IndexSum, Softmax, estimate

__all__ = ["Expectation", "FormulaArray", "IndexSum", "Phi", "Softmax", "SymbolicLaw", "estimate", "phi"]
