"""Random programs of many shapes: what a seed writes, as text.

Families of one or two definitions over any indices, slots shifted, turned round and beyond boundaries, biases of all
kinds in scores, gates, products of combinations, averages, several widths, transposes, recurrences, unused statements.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Scope = Mapping[str, tuple[int, int]]

DECLARATIONS = """program: wide
constants:
  none: 0
  one: 1
  c[i]: [0.5, -2, 1]
  m[i,j]: j - 1.5*i + 0.25
  eye[i,j]: [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
  flat[i]: [1, 1, 1]
  zero[i]: [0, 0, 0]
  ca[a]: [1, -0.5]
  co[o]: [1, 2, -1]
  cw[w]: [1, 3, -1]
indices: {i: 3, j: 3, k: 3, l: 1..2, t: 1..2, a: 2, b: 2, o: {size: 3, boundary: zero}, w: {size: 3, boundary: wrap}}
widths: {d: n/2, e: n}
initial:
  h[i]: {mean: 0, cov: 1}
  B1[a]: {mean: 0, cov: a + 0.5}
  B2[i]: {mean: 0, cov: "0.5**abs(i - i_)"}
  B3[i,a]: {mean: 0, cov: "(a + 1) * 0.5**abs(i - i_)"}
  B4[o]: {mean: 0, cov: "0.5**abs(o - o_)"}
  B5[i]: {mean: 0, cov: [[1, 1, 0], [1, 1, 0], [0, 0, 2]]}
  B6[i]: {data: [[1, 2], [0, 1], [3, -1]], variance: 0.5}
  B7: {mean: 0, cov: 0}
  B8[w]: {mean: 0.3, cov: 1}
  D1[i]: {mean: 0, cov: 1, width: d}
weights:
  W[i]: 1
  Q[a]: 1
  K[a]: 0.5
  V: 2
  O[i]: 1
  U[o]: 1
  R[w]: 1
  T[t]: 1
  S: 1
  A[a]: {variance: 1, shape: [d, n]}
  E: {variance: 1, shape: [e, n]}
body:
"""
SPANS = {
    "i": (0, 3),
    "j": (0, 3),
    "k": (0, 3),
    "l": (1, 3),
    "t": (1, 3),
    "a": (0, 2),
    "b": (0, 2),
    "o": (0, 3),
    "w": (0, 3),
}
BOUNDARIES = {"o": "zero", "w": "wrap"}
WEIGHTS = {"W": "i", "Q": "a", "K": "a", "V": "", "O": "i", "U": "o", "R": "w", "S": "", "A": "a", "E": ""}
SQUARE = ("W", "Q", "K", "V", "O", "U", "R", "S")
BIASES = {"B1": "a", "B2": "i", "B3": "ia", "B4": "o", "B5": "i", "B6": "i", "B7": "", "B8": "w"}


@dataclass(frozen=True)
class Family:
    """The index of every slot, and whether members are vectors."""

    slots: str
    vector: bool


class Writer:
    """Statements of one program, drawn one by one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.families = {name: Family(slots, True) for name, slots in {**BIASES, "D1": "i"}.items()}
        self.count = 0

    def pick(self, options: Iterable[str]) -> str:
        return self.random.choice(list(options))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # -- references ---------------------------------------------------------------------------------------

    def slot(self, own: str, scope: Scope) -> str:
        """An affine form that reads what the slot of an index `own` has."""
        (low, high), free = SPANS[own], own in BOUNDARIES
        options = [str(self.random.randrange(low, high))]
        for name, (start, stop) in scope.items():
            for shift in (0, 0, 0, -1, 1, 2, -2):
                if free or (start + shift >= low and stop + shift <= high):
                    options += [f"{name} {'+' if shift > 0 else '-'} {abs(shift)}"] if shift else [name] * 3
            turned = high - 1 + start
            if free or (turned - stop + 1 >= low and turned - start < high):
                options.append(f"{turned} - {name}")
        if free and len(scope) > 1 and self.chance(0.4):
            first, second = self.random.sample(list(scope), 2)
            options += [f"{first} + {second}", f"2*{first} - {second}"]
        return self.pick(options)

    def read(self, name: str, scope: Scope) -> str:
        slots = [self.slot(own, scope) for own in (WEIGHTS[name] if name in WEIGHTS else self.families[name].slots)]
        return f"{name}[{','.join(slots)}]" if slots else name

    def any_of(self, names: Sequence[str], scope: Scope) -> str:
        return self.read(self.pick(names), scope)

    @property
    def scalars(self) -> list[str]:
        return [name for name, family in self.families.items() if not family.vector]

    # -- expressions ---------------------------------------------------------------------------------------

    def condition(self, scope: Scope) -> str:
        if not scope:
            return "none < one"
        one, two = self.pick(scope), self.pick(scope)
        return self.pick([f"{one} <= 1", f"{one} == 1", f"{one} < {two}", f"{one} + {two} > 2", "none < one"])

    def constant(self, scope: Scope) -> str:
        options = ["2", "-0.5", "1.5", "none", "one", "(1 - none)", "flat[1]", "zero[0]", "0", "1", "c[1]", "ca[0]"]
        for name in scope:
            options += [
                f"({name} + 1)",
                f"c[{name}]",
                f"m[{name},1]",
                f"flat[{name}]",
                f"zero[{name}]",
                f"m[{name},{self.pick(scope)}]",
                f"eye[{name},{self.pick(scope)}]",
                f"co[{name} + 1]",
                f"cw[{name} - 1]",
            ]
        return self.pick(options)

    def over(self, scope: Scope) -> tuple[str, Scope]:
        """An index that is not in scope, and the scope with it."""
        name = self.pick(name for name in "ijkablow" if name not in scope)
        return name, {**scope, name: SPANS[name]}

    def scalar(self, scope: Scope, depth: int = 2) -> str:
        """A coefficient: numbers, constants, functions of scores and averages."""
        if not self.scalars or self.chance(0.3):
            return self.constant(scope)
        if depth == 0 or self.chance(0.3):
            return self.any_of(self.scalars, scope)

        def inner() -> str:
            return self.scalar(scope, depth - 1)

        name, wider = self.over(scope)
        options = [
            f"tanh({inner()})",
            f"({inner()}) * ({inner()})",
            f"({inner()} {self.pick('+-')} {inner()})",
            f"{inner()} / (1 + abs({inner()}))",
            f"({inner()})**2",
            f"where({self.condition(scope)}, {inner()}, {inner()})",
            f"where({inner()} > 0, {inner()}, 1)",
            f"{self.pick(['sum', 'mean', 'max', 'logsumexp'])}[{name}]({self.scalar(wider, depth - 1)})",
        ]
        for count in range(1, min(len(scope), 2) + 1):
            options += [f"softmax[{','.join(self.random.sample(list(scope), count))}]({inner()})"] * 2
        if "i" in scope and "j" in scope:
            options.append(f"softmax[j](where(j <= i, {inner()}, -inf))")
        return self.pick(options)

    def calm(self, scope: Scope, pool: Sequence[str]) -> str:
        """Any function of vectors."""
        one, two = self.any_of(pool, scope), self.any_of(pool, scope)
        name, wider = self.over(scope)
        options = [
            f"tanh({one})",
            f"sigmoid({one} + {two})",
            one,
            f"({one} * {two})",
            f"where({one} > {two}, {one}, 1)",
            f"{self.pick(['sum', 'mean', 'max'])}[{name}](tanh({self.any_of(pool, wider)}))",
        ]
        return self.pick(options + [f"softmax[{index}]({one})" for index in scope])

    def combination(self, scope: Scope, pool: Sequence[str], calm: Sequence[str], depth: int) -> str:
        """A combination of vectors with scalar coefficients, and of products with functions of other vectors."""
        if depth == 0 or self.chance(0.15):
            return self.any_of(pool, scope)

        def inner(where: Scope = scope) -> str:
            return self.combination(where, pool, calm, depth - 1)

        name, wider = self.over(scope)
        number = self.scalar(scope)
        options = [f"{self.pick(['sum', 'sum', 'mean'])}[{name}]({self.scalar(wider)} * ({inner(wider)}))"] * 3
        options += [
            f"({inner()} {self.pick('+-')} {inner()})",
            f"{number} * ({inner()})",
            f"({inner()}) * ({number})",
            f"where({self.condition(scope)}, {inner()}, {self.pick([inner(), '0', '1', number])})",
            f"({inner()}) / (1 + ({number})**2)",
            f"({inner()} - {number})",
            f"-({inner()})",
        ]
        if calm:
            gate = self.calm(scope, calm)
            options += [
                gate,
                f"({gate}) * ({inner()})",
                f"({inner()}) * ({gate})",
                f"({inner()}) / (2 + tanh({gate}))",
                f"({number} * {gate}) * ({inner()})",
                f"{number} * {gate} * ({inner()})",
                f"({inner()}) * ({gate} * ({number} + 1))",
                f"({number} + {gate}) * ({inner()})",
                f"where({gate} > 0, {number}, 1) * ({inner()})",
                f"({inner()}) * ({inner()})",
            ]
        return self.pick(options)

    # -- statements ---------------------------------------------------------------------------------------

    def define(self, letter: str, make: Callable[[Scope], str], vector: bool = True) -> str:
        """A family over random indices, now and then with a definition of its own for the first member."""
        self.count += 1
        slots, name = self.random.sample("ijkabow", self.random.randint(0, 2)), f"{letter}{self.count}"
        plain = [k for k, slot in enumerate(slots) if slot in "ijk"]
        lefts = [slots]
        if plain and self.chance(0.3):
            k = self.random.choice(plain)
            lefts = [[*slots[:k], "0", *slots[k + 1 :]], [*slots[:k], "l", *slots[k + 1 :]]]
        for left in lefts:
            scope = {slot: SPANS[slot] for slot in left if slot in SPANS}
            self.lines.append(f"{name}[{','.join(left)}] = {make(scope)}" if left else f"{name} = {make(scope)}")
        self.families[name] = Family("".join(slots), vector)
        return name

    def product(self, pool: Sequence[str], weights: Sequence[str] = SQUARE) -> str:
        weight = self.pick(weights)
        turned = ".T" if weight in SQUARE and self.chance(0.15) else ""
        return self.define("g", lambda scope: f"MatMul({self.read(weight, scope)}{turned}, {self.any_of(pool, scope)})")

    def sum_of(self, letter: str, pool: Sequence[str], calm: Sequence[str], depth: int) -> str:
        return self.define(letter, lambda scope: f"Nonlin({self.combination(scope, pool, calm, depth)})")

    def score(self, left: Sequence[str], right: Sequence[str], scale: str = "") -> None:
        self.define("p", lambda scope: f"Dot({self.any_of(left, scope)}, {self.any_of(right, scope)}{scale})", False)

    def recurrence(self, pool: Sequence[str], calm: Sequence[str]) -> str:
        """A family along t, linear in what it was before."""
        self.count += 1
        name, own = f"r{self.count}", self.pick("ijk")
        scope = {own: SPANS[own]}
        later, before = {**scope, "t": SPANS["t"]}, f"{name}[t - 1,{own}]"
        self.lines.append(f"{name}[0,{own}] = Nonlin({self.combination(scope, pool, calm, 1)})")
        other = self.pick(index for index in "ijk" if index != own)
        if self.chance(0.3):
            self.lines.append(f"{name}_m[t,{own}] = MatMul(T[t], {before})")
            right = f"{before} + {self.scalar(scope, 1)} * {name}_m[t,{own}]"
        else:
            wider = {**scope, other: SPANS[other]}
            right = self.pick(
                [
                    f"{self.scalar(later, 1)} * {before} + {self.combination(later, pool, calm, 1)}",
                    f"{before} / 2 + sum[{other}]({self.scalar(wider, 1)} * {name}[t - 1,{other}])",
                ]
            )
        self.lines.append(f"{name}[t,{own}] = Nonlin({right})")
        self.families[name] = Family(f"i{own}", True)
        return name


INPUTS = {
    "u": ("i", "MatMul(W[i], h[i])"),
    "x": ("i", "Nonlin(tanh(u[i]))"),
    "xo": ("o", "Nonlin(u[o] + 1)"),
    "xw": ("w", "Nonlin(u[2 - w])"),
}


def program(seed: int) -> str:
    """Sums in scores, combinations with these as coefficients, and weights behind them."""
    w = Writer(seed)
    for name, (slot, right) in INPUTS.items():
        w.lines.append(f"{name}[{slot}] = {right}")
        w.families[name] = Family(slot, True)
    inputs = list(INPUTS)
    operands = [w.product(inputs) for _ in range(w.random.randint(2, 3))]
    narrow = [w.product(inputs, ("A",)) for _ in range(2)] if w.chance(0.3) else []
    if w.chance(0.2):
        w.product(inputs, ("E",))
    if w.chance(0.3):
        w.score(inputs, inputs, ", scale=1/n")
    biases = w.random.sample(list(BIASES), w.random.randint(0, 3))
    sums = list(operands)
    for _ in range(w.random.randint(0, 3)):
        sums.append(w.sum_of("s", [*sums, *biases], [], w.random.randint(1, 2)))
    if w.chance(0.2):
        sums.append(w.recurrence(sums, []))
    for _ in range(w.random.randint(1, 3)):
        sides = (narrow, [*narrow, "D1"]) if narrow and w.chance(0.5) else (sums, [*sums, *biases])
        w.score(*sides)
    calm = [*inputs, *operands]
    pool = list(calm)
    for _ in range(w.random.randint(1, 3)):
        z = w.sum_of("z", pool, calm, w.random.randint(1, 3))
        z = w.sum_of("z", [z], calm, 1) if w.chance(0.3) else z
        z = w.recurrence([z], calm) if w.chance(0.15) else z
        g = w.product([z])
        pool += [z, g]
        if w.chance(0.2):
            w.score([g], operands)
    outputs = [w.sum_of("y", pool[-4:], calm, 2)]
    if w.chance(0.3):
        outputs.append(w.define("y", lambda scope: f"Nonlin({w.read(outputs[0], scope)})"))
    outputs += [name for name in (z, g, w.pick(w.scalars)) if w.chance(0.3)]
    lines = "".join(f"  - {line}\n" for line in w.lines)
    return DECLARATIONS + lines + f"outputs: [{', '.join(dict.fromkeys(outputs))}]\n"
