"""Random programs made to be rewritten: combinations with scalar coefficients in and after scores."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SIZES = {"i": 2, "j": 3, "k": 3, "a": 2}
DECLARATIONS = """program: p
constants:
  none: 0
  one: 1
  same[k]: [1, 1, 1]
  c[i]: [0.5, -2]
  m[j,a]: j - 1.5*a + 0.25
indices: {i: 2, j: 3, k: 3, a: 2}
initial:
  h[j]: {mean: 0, cov: 1}
  b[i]: {mean: 0, cov: i + 0.5}
  e[a,k]: {mean: 0, cov: (a + 1) * 0.5**abs(k - k_)}
weights:
  W[j]: 1
  Q[a]: 1
  K[a]: 0.5
  V[a]: 2
  O[i]: 1
  U[k]: 1
body:
"""
COEFFICIENTS = {
    "i": ("c[i]", "(i + 1)"),
    "j": ("m[j,1]", "where(j <= 1, 1, -0.5)"),
    "k": ("(k - 1)",),
    "a": ("m[0,a]",),
}


class Writer:
    """Statements of one program, drawn one by one; families by name with the indices of their slots."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.scalars: dict[str, list[str]] = {}

    def one_of(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def indices(self, most: int = 2) -> list[str]:
        return list(self.draw(st.lists(st.sampled_from(sorted(SIZES)), max_size=most, unique=True)))

    def read(self, name: str, slots: list[str], scope: list[str]) -> str:
        """A reference: every slot an index in scope that fits, or a number."""
        places = [self.one_of([*(s for s in scope if SIZES[s] <= SIZES[slot]), SIZES[slot] - 1]) for slot in slots]
        return f"{name}[{','.join(map(str, places))}]" if slots else name

    def member(self, families: dict[str, list[str]], scope: list[str]) -> str:
        name = self.one_of(sorted(families))
        return self.read(name, families[name], scope)

    def scalar(self, scope: list[str]) -> str:
        """A coefficient: a number, a constant, or a function of scores."""
        kinds = ["number", "constant"] + ["score", "tanh", "softmax"] * bool(self.scalars)
        kind = self.one_of(kinds)
        if kind == "number" or not scope:
            return str(self.one_of([2, 2, -0.5, 1.5, 1.5, "none", "one", "same[1]", "(1 - none)", "(one - 1)"]))
        if kind == "constant":
            return str(self.one_of(COEFFICIENTS[self.one_of(scope)]))
        score = self.member(self.scalars, scope)
        if kind == "score":
            return score
        return f"tanh({score})" if kind == "tanh" else f"softmax[{self.one_of(scope)}]({score})"

    def combination(self, vectors: dict[str, list[str]], scope: list[str], depth: int) -> str:
        """A combination of vectors with scalar coefficients."""
        free = [name for name in SIZES if name not in scope]
        deeper = ("product", "sum", "sum", "add", "add", "where", "divide", "constant", "leaf")
        deeper += ("gate",) * bool(self.scalars)
        kind = self.one_of(deeper if depth else ("vector",))
        if kind == "vector":
            return self.member(vectors, scope)
        if kind == "leaf":
            return f"tanh({self.member(vectors, scope)})" if self.scalars else self.member(vectors, scope)
        if kind == "sum" and free:
            name = self.one_of(free)
            inner = [*scope, name]
            term = self.combination(vectors, inner, depth - 1)
            return f"{self.one_of(['sum', 'sum', 'mean'])}[{name}]({self.scalar(inner)} * ({term}))"
        inner = self.combination(vectors, scope, depth - 1)
        if kind == "add":
            return f"({inner} {self.one_of('+-')} {self.combination(vectors, scope, depth - 1)})"
        if kind == "where" and scope:
            condition = self.one_of([f"{self.one_of(scope)} <= 0", f"{self.one_of(scope)} <= 0", "none < one"])
            return f"where({condition}, {inner}, {self.one_of([0, 1, self.member(vectors, scope)])})"
        if kind == "divide":
            return f"({inner}) / (1 + {self.scalar(scope)}**2)"
        if kind == "gate":
            return f"({inner}) {self.one_of(['*', '/'])} (2 + tanh({self.member({'x': ['j'], 'u': ['j']}, scope)}))"
        return f"({inner} + {self.scalar(scope)})" if kind == "constant" else f"{self.scalar(scope)} * ({inner})"

    def state(self, target: str, slots: list[str], right: str) -> None:
        self.lines.append(f"{target}[{','.join(slots)}] = {right}" if slots else f"{target} = {right}")


@st.composite
def programs(draw: Any) -> str:
    """Vectors, combinations of them in scores, combinations with these as coefficients, and weights behind them."""
    w = Writer(draw)
    w.state("u", ["j"], "MatMul(W[j], h[j])")
    w.state("x", ["j"], "Nonlin(tanh(u[j]))")
    vectors = {"x": ["j"], "u": ["j"]}
    operands: dict[str, list[str]] = {}
    for name, weight in (("q", "Q"), ("g", "K")):
        slots = w.indices()
        matrix = w.read(weight, ["a"], slots) + w.one_of(["", "", ".T"])
        w.state(name, slots, f"MatMul({matrix}, {w.member(vectors, slots)})")
        operands[name] = slots
    made = {}
    for number in range(draw(st.integers(1, 2))):
        slots = w.indices()
        pool = operands | (made if number else {})
        pool |= {name: own for name, own in (("b", ["i"]), ("e", ["a", "k"])) if w.one_of([True, True, False])}
        w.state(f"f{number}", slots, f"Nonlin({w.combination(pool, slots, draw(st.integers(1, 2)))})")
        made[f"f{number}"] = slots
    for number in range(draw(st.integers(1, 2))):
        slots = w.indices()
        sides = [w.member(made | operands, slots), w.member(operands | made, slots)]
        w.state(f"p{number}", slots, f"Dot({', '.join(sides)})")
        w.scalars[f"p{number}"] = slots
    layer = vectors
    for number, weight, own in ((0, "O", "i"), (1, "U", "k")):
        slots = w.indices()
        w.state(f"z{number}", slots, f"Nonlin({w.combination(layer, slots, draw(st.integers(1, 3)))})")
        behind = w.indices()
        source = w.read(f"z{number}", slots, behind)
        w.state(f"v{number}", behind, f"MatMul({w.read(weight, [own], behind)}, {source})")
        layer = {"x": ["j"], f"z{number}": slots, f"v{number}": behind}
    slots = w.indices()
    w.state("y", slots, f"Nonlin({w.combination(layer, slots, 2)})")
    outputs = "y, v1, z1" if draw(st.booleans()) else "y"
    return DECLARATIONS + "".join(f"  - {line}\n" for line in w.lines) + f"outputs: [{outputs}]"
