"""Random programs with a limit, as people build them: a seed gives the program, a style gives another way to write it.

A program is a stack of blocks over a token index: dense layers (weights shared or not), convolutions beyond a
boundary, normalisation by averages, gates, pooling, recurrences, attention with 1/sqrt(n) or 1/n scores, and layers
behind it.  Two styles of one seed are one program: names, order of statements and of terms, brackets and statements
for sub-expressions differ, nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Written", "write"]

BOUNDED = ("tanh", "erf", "sigmoid", "sin", "gaussian")
OTHERS = ("relu", "gelu", "abs", "softplus")


@dataclass
class Block:
    """Statements that stand together, the families that they define, and those that they read."""

    lines: list[str]
    makes: set[str]
    reads: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Written:
    """A program as text, and which name of the text each canonical name has become."""

    text: str
    names: dict[str, str]
    features: tuple[str, ...]
    outputs: tuple[str, ...]


class Writer:
    """Blocks drawn from a seed, written in a style; the style never changes what is drawn."""

    def __init__(self, seed: int, style: int | None) -> None:
        self.random = random.Random(seed)
        self.style = None if style is None else random.Random(style)
        self.size = self.random.choice([2, 3])
        self.heads = self.random.choice([1, 2])
        self.names: dict[str, str] = {}
        self.blocks: list[Block] = []
        self.weights: list[str] = []
        self.initial: list[str] = []
        self.features: list[str] = []
        self.count = 0
        self.current = Block([], set())

    # -- choices -------------------------------------------------------------------------------------------------

    def pick(self, options: Sequence[str]) -> str:
        return self.random.choice(list(options))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def styled(self, share: float = 0.5) -> bool:
        return self.style is not None and self.style.random() < share

    # -- writing -------------------------------------------------------------------------------------------------

    def new(self, letter: str) -> str:
        """A name; in a style, another one that sorts elsewhere."""
        self.count += 1
        name = f"{letter}{self.count}"
        self.names[name] = name if self.style is None else f"{self.style.choice('abgkmqruxyz')}_{self.count}"
        return name

    def at(self, name: str, *slots: str) -> str:
        """A reference, which is noted."""
        self.current.reads.add(name)
        return f"{self.names[name]}[{','.join(slots)}]" if slots else self.names[name]

    def define(self, name: str, slots: Sequence[str], right: str) -> None:
        self.current.makes.add(name)
        left = f"{self.names[name]}[{','.join(slots)}]" if slots else self.names[name]
        self.current.lines.append(f"{left} = {right}")

    def close(self, feature: str) -> None:
        """End a block: its statements stay together only if they read each other in a circle."""
        self.features.append(feature)
        self.blocks.append(self.current)
        self.current = Block([], set())

    def plus(self, *terms: str) -> str:
        """A sum; in a style, in another order and with other brackets."""
        return self._chain("+", terms)

    def times(self, *factors: str) -> str:
        """A product; in a style, in another order and with other brackets."""
        return self._chain("*", factors)

    def _chain(self, sign: str, terms: Sequence[str]) -> str:
        if self.style is None:
            return f"({f' {sign} '.join(terms)})"
        left = list(terms)
        self.style.shuffle(left)
        while len(left) > 1:
            k = self.style.randrange(len(left) - 1)
            left[k : k + 2] = [f"({left[k]} {sign} {left[k + 1]})"]
        return left[0]

    def over(self, factor: str, *terms: str) -> str:
        """A sum times a factor; in a style, term by term."""
        if self.styled():
            return self.plus(*(self.times(factor, term) for term in terms))
        return self.times(factor, self.plus(*terms))

    def named(self, slots: Sequence[str], expr: str) -> str:
        """An expression of vectors; in a style, as a statement of its own."""
        self.count += 1
        if not self.styled(0.4):
            return expr
        name = f"part{self.count}"
        self.names[name] = f"c_{self.count}"
        self.define(name, slots, f"Nonlin({expr})")
        return self.at(name, *slots)

    def weight(self, index: str = "", variance: str = "") -> Callable[..., str]:
        """A weight family and how its members are read."""
        name = self.new("W")
        declared = f"{self.names[name]}[{index}]" if index else self.names[name]
        self.weights.append(f"  {declared}: {variance or self.pick(['1', '0.5', '2'])}")
        return lambda *slots: f"{self.names[name]}[{','.join(slots)}]" if slots else self.names[name]

    def function(self, bounded: bool = False) -> Callable[[str], str]:
        name = self.pick(BOUNDED if bounded or self.chance(0.6) else OTHERS)
        if self.chance(0.15):
            return lambda x: f"clip({x}, -1.5, 2)"
        return lambda x: f"{name}({x})"

    # -- blocks --------------------------------------------------------------------------------------------------

    def inputs(self) -> str:
        """Tokens: correlated, independent, data, or a first layer on one vector."""
        h, kind = self.new("h"), self.pick(["correlated", "independent", "data", "layer"])
        if kind == "layer":
            self.initial.append(f"  {self.names[h]}: {{mean: 0, cov: 1}}")
            W, u = self.weight("i"), self.new("u")
            self.define(u, ["i"], f"MatMul({W('i')}, {self.at(h)})")
            self.close(kind)
            return u
        rows = [[self.random.choice([-1, 0.5, 1, 2]) for _ in range(2)] for _ in range(self.size)]
        law = {
            "correlated": 'cov: "0.5**abs(i - i_)"',
            "independent": f"cov: {self.pick(['1', '0.7'])}",
            "data": f"data: {rows}, variance: 1",
        }[kind]
        self.initial.append(f"  {self.names[h]}[i]: {{mean: 0, {law}}}")
        self.features.append(kind)
        return h

    def dense(self, x: str, bounded: bool = False) -> str:
        """A layer: one weight for all tokens or one for each, with a bias, a residual, or an offset."""
        shared, phi = self.chance(0.6), self.function(bounded)
        W, g, y = self.weight("" if shared else "i"), self.new("g"), self.new("x")
        read = self.pick(["i", "i", "i", f"{self.size - 1} - i"])
        self.define(g, ["i"], f"MatMul({W() if shared else W('i')}, {self.at(x, read)})")
        terms = [self.at(g, "i")]
        if self.chance(0.4):
            b = self.new("b")
            self.initial.append(f"  {self.names[b]}: {{mean: 0, cov: 0.3}}")
            terms.append(self.at(b))
        if self.chance(0.3):
            terms.append(self.pick(["0.5", "(i + 1)/4"]))
        inner = self.named(["i"], self.plus(*terms))
        right = phi(inner)
        if not bounded and self.chance(0.3):
            right = self.plus(right, self.over("0.5", self.at(x, "i"), self.at(g, "i")))
        self.define(y, ["i"], f"Nonlin({right})")
        self.close("dense")
        return y

    def convolution(self, x: str) -> str:
        edge, phi = self.pick(["c", "w"]), self.function()
        F, f, g, y = self.weight("d"), self.new("f"), self.new("g"), self.new("x")
        self.define(f, [edge], f"Nonlin({self.at(x, edge)})")
        read = self.at(f, f"{edge} + d")
        self.define(g, [edge, "d"], f"MatMul({F('d')}, {read})")
        inner = f"sum[d]({self.at(g, 'i', 'd')})"
        self.define(y, ["i"], f"Nonlin({phi(inner)})")
        self.close({"c": "zero boundary", "w": "wrap boundary"}[edge])
        return y

    def norm(self, x: str) -> str:
        """Division by a root mean square, with or without the mean taken away."""
        m, y = self.new("m"), self.new("x")
        self.define(m, ["i"], f"Dot({self.at(x, 'i')}, {self.at(x, 'i')}, scale=1/n)")
        if self.chance(0.5):
            one, mu = self.new("one"), self.new("m")
            self.define(one, [], "Nonlin(1)")
            self.define(mu, ["i"], f"Dot({self.at(x, 'i')}, {self.at(one)}, scale=1/n)")
            mean, square = self.at(mu, "i"), self.at(m, "i")
            self.define(y, ["i"], f"Nonlin(({self.at(x, 'i')} - {mean}) / sqrt({square} - {mean}**2 + 0.1))")
        else:
            self.define(y, ["i"], f"Nonlin({self.at(x, 'i')} / sqrt({self.plus(self.at(m, 'i'), '0.1')}))")
        self.close("average")
        return y

    def gate(self, x: str) -> str:
        W, V, g, h, y = self.weight(), self.weight(), self.new("g"), self.new("g"), self.new("x")
        self.define(g, ["i"], f"MatMul({W()}, {self.at(x, 'i')})")
        self.define(h, ["i"], f"MatMul({V()}, {self.at(x, '0') if self.chance(0.2) else self.at(x, 'i')})")
        part = self.named(["i"], f"sigmoid({self.at(g, 'i')})")
        other = f"tanh({self.at(h, 'i')})"
        self.define(y, ["i"], f"Nonlin({self.times(part, other)})")
        self.close("gate")
        return y

    def pool(self, x: str) -> str:
        y, how = self.new("x"), self.pick(["mean", "sum", "max"])
        pooled = f"{how}[j]({self.at(x, 'j')})"
        self.define(y, ["i"], f"Nonlin({self.plus(pooled, self.at(x, 'i'))})")
        self.close(f"pool by {how}")
        return y

    def recurrence(self, x: str) -> str:
        U, r, m = self.weight(variance=self.pick(["1", "0.8"])), self.new("r"), self.new("m")
        shift = self.pick(["t", "t - 1"])
        first = f"tanh({self.at(x, '0')})"
        self.define(r, ["0"], f"Nonlin({self.pick(['0', first])})")
        self.define(m, ["t"], f"MatMul({U()}, {self.at(r, 't - 1')})")
        right = self.plus(self.at(m, "t"), self.at(x, shift))
        self.define(r, ["t"], f"Nonlin({self.pick(['tanh', 'erf', 'relu'])}({right}))")
        self.close("recurrence")
        return r

    def averaged_attention(self, x: str) -> str:
        """Attention with 1/n scores."""
        p, V, v, y = self.new("p"), self.weight(), self.new("v"), self.new("x")
        self.define(p, ["i", "j"], f"Dot({self.at(x, 'i')}, {self.at(x, 'j')}, scale=1/n)")
        self.define(v, ["j"], f"MatMul({V()}, {self.at(x, 'j')})")
        weights = f"softmax[j]({self.at(p, 'i', 'j')})"
        self.define(y, ["i"], f"Nonlin(sum[j]({self.times(weights, self.at(v, 'j'))}))")
        self.close("1/n attention")
        return y

    def attention(self, x: str) -> str:
        """Scores of dedicated weights, functions of them, and values; `y` is linear in vectors given the scores."""
        Q, V = self.weight("a"), self.weight("a")
        keys = self.chance(0.3)  # shared by all heads
        K = self.weight("" if keys else "a")
        q, k, p, v, y = (self.new(letter) for letter in "qkpvy")
        self.define(q, ["a", "i"], f"MatMul({Q('a')}, {self.at(x, 'i')})")
        kind = self.pick(["pairs", "pairs", "pairs", "neighbours"])
        key, own = ([], K()) if keys else (["a"], K("a"))
        if kind == "pairs":
            self.define(k, [*key, "j"], f"MatMul({own}, {self.at(x, 'j')})")
            self.define(p, ["a", "i", "j"], f"Dot({self.at(q, 'a', 'i')}, {self.at(k, *key, 'j')})")
            score = self.at(p, "a", "i", "j")
            if self.chance(0.3):
                score = f"where(j <= i, {score}, -inf)"
                self.features.append("mask")
            function = self.pick(["softmax", "softmax", "softmax", "tanh", "sigmoid", "plain"])
            if function == "softmax":
                coefficient = f"softmax[j]({score})"
            else:
                score = self.at(p, "a", "i", "j")
                coefficient = score if function == "plain" else f"{function}({score})"
            self.define(v, ["a", "j"], f"MatMul({V('a')}, {self.at(x, 'j')})")
            total = f"sum[a,j]({self.times(coefficient, self.at(v, 'a', 'j'))})"
        else:  # scores of neighbours on a ring
            ring = f"r{k}"
            self.names[ring] = f"ring_{self.count}"
            self.define(ring, ["w"], f"Nonlin({self.at(x, 'w')})")
            self.define(k, [*key, "w"], f"MatMul({own}, {self.at(ring, 'w + 1')})")
            shift = self.pick(["w", "w + 1"])
            self.define(p, ["a", "w"], f"Dot({self.at(q, 'a', 'w')}, {self.at(k, *key, shift)})")
            self.define(v, ["a", "j"], f"MatMul({V('a')}, {self.at(x, 'j')})")
            function = self.pick(["tanh", "sigmoid", "relu"])
            coefficient = f"{function}({self.at(p, 'a', 'i')})"
            total = f"sum[a]({self.times(coefficient, self.at(v, 'a', 'i'))})"
        self.features += [kind, function] + ["shared keys"] * keys
        right = total
        if self.chance(0.4):
            right = self.plus(total, self.over("0.5", self.at(x, "i"), "0.2"))
        self.define(y, ["i"], f"Nonlin({right})")
        self.close("attention")
        return y

    def behind(self, y: str) -> str:
        """A layer behind attention: linear, which rewrites undo, or not."""
        W, g, z = self.weight(), self.new("g"), self.new("z")
        linear = self.chance(0.5)
        read = self.at(y, "i")
        if not linear:
            f = self.new("x")
            self.define(f, ["i"], f"Nonlin({self.function()(read)})")
            read = self.at(f, "i")
        self.define(g, ["i"], f"MatMul({W()}, {read})")
        self.define(z, ["i"], f"Nonlin({self.plus(self.at(g, 'i'), self.at(y, 'i'))})")
        self.close("linear layer behind scores" if linear else "layer behind scores")
        return z

    # -- the whole -----------------------------------------------------------------------------------------------

    def program(self) -> Written:
        x = self.inputs()
        makers = [
            self.dense,
            self.dense,
            self.convolution,
            self.norm,
            self.gate,
            self.pool,
            self.recurrence,
            self.averaged_attention,
        ]
        for _ in range(self.random.randint(0, 3)):
            x = self.random.choice(makers)(x)
        outputs = [x] if self.chance(0.2) and x != next(iter(self.names)) else []
        if self.chance(0.55):
            x = self.attention(self.dense(x, bounded=True))
            if self.chance(0.3):
                x = self.behind(x)
            if self.chance(0.2):
                z = self.new("z")
                self.define(z, ["i"], f"Nonlin({self.function()(self.at(x, 'i'))})")
                self.close("nonlinear output")
                x = z
        elif not self.blocks or self.chance(0.4):
            V, f = self.weight(), self.new("f")
            self.define(f, ["i"], f"MatMul({V()}, {self.at(x, 'i')})")
            self.close("readout")
            x = f
        outputs = list(dict.fromkeys([*outputs, x]))
        lines = self._ordered()
        sizes = (
            f"{{i: {self.size}, j: {self.size}, a: {self.heads}, t: 1..{self.size - 1}, d: -1..1, "
            f"c: {{size: {self.size}, boundary: zero}}, w: {{size: {self.size}, boundary: wrap}}}}"
        )
        text = "\n".join(
            [
                "program: battery",
                f"indices: {sizes}",
                "initial:",
                *self.initial,
                "weights:",
                *self.weights,
                "body:",
                *(f"  - {line}" for line in lines),
                f"outputs: [{', '.join(self.names[name] for name in outputs)}]",
                "",
            ]
        )
        return Written(text, self.names, tuple(dict.fromkeys(self.features)), tuple(outputs))

    def _ordered(self) -> list[str]:
        """The statements; in a style, blocks in another order in which everything stands before it is read."""
        if self.style is None:
            return [line for block in self.blocks for line in block.lines]
        waiting, made, lines = list(self.blocks), set[str](), list[str]()
        every = {name for block in self.blocks for name in block.makes}
        while waiting:
            ready = [b for b in waiting if (b.reads & every) - b.makes <= made]
            block = self.style.choice(ready)
            waiting.remove(block)
            made |= block.makes
            lines += block.lines
        return lines


def write(seed: int, style: int | None = None) -> Written:
    """The program of a seed, in a style (None: as it was drawn)."""
    return Writer(seed, style).program()
