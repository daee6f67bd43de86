"""Powers of the width n in training: what moves, how much, and whether features are learned.

At the start all vectors have coordinates of order one; entries of weights have variances of order 1/n_in.  A vector z
has w = 1 if its width grows, and w = 0 if it does not, as has the coordinate of an output f that a loss reads; the loss
is the square loss, dL/df of order one, or of f if f begins larger.  Powers of

    g(z), turned(z)    dL/dz at the start, and what the steps changed of it, so that it correlates with features
    e(W), e(v)         what the steps changed of an entry: the rate, times the gradient unless its size is divided out
    move(z), along(z)  what the steps changed of z, and the part of it along gradients

add up as follows.  A sum over n terms has n times their size if they correlate, and n**(1/2) times if they do not.

    u = W x           g(x) = g(u) + (w(u) - w(x))/2,          turned(x) = that of turned(u), or e(W) + w(u) + g(u)
                      along(u) = along(x), or e(W) + w(x)
    z = phi(u; p)     g(u) = g(z),                            turned(u) = turned(z), or g(z) + along(inputs)
                      g(p) = w(z)/2 + g(z), or w(z) + turned(u)
                      along(z) = along(u),                    move(z) = move(u), or move(p)
    p = n**-c q.k     g(q) = g(p) - c,                        turned(q) = g(p) - c + along(k)
                      move(p) = w - c + along(q, k), or move(q, k)

For a multilayer perceptron these are r and the conditions of Yang & Hu 2021, Definition 3.2, Theorems 3.3, 3.6, 3.8.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from fractions import Fraction
from typing import Literal

from tensorprog.blocks import Block, Grid, badge, paragraph
from tensorprog.blocks.html import Printed
from tensorprog.language.errors import did_you_mean, fail
from tensorprog.language.expr import Call, is_call, walk
from tensorprog.language.formats import plain_fields
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.program import Program, netsor_of
from tensorprog.results.imported import Imported
from tensorprog.training.coordinates import check_rates, rate_at

__all__ = ["Exponents", "ParameterExponents", "exponents"]

Powers = dict[str, float]  # of n; -inf for what is 0
Verdict = Literal["unstable", "trivial", "kernel", "features"]
NEVER = -math.inf
OUTPUT = "the output"
STEPS = 50  # powers are settled long before
PROVED = {"tanh", "add", "subtract", "negative"}  # in hidden layers
EXPLAINED = {
    "unstable": "something grows with the width",
    "trivial": "outputs do not learn: their changes vanish with the width",
    "kernel": "outputs learn and features stay as they are, as the tangent kernel describes it",
    "features": "outputs and features learn, at every width alike",
    "theorem": "for batches of one input (Yang & Hu 2021, Theorems 3.3, 3.6, 3.8)",
    "extension": "nothing is proved; powers are those of the worst case, in which what may correlate does",
}


@dataclass(frozen=True)
class ParameterExponents:
    """One parameter: powers of n of its learning rate, and of what its own updates move in the network as it is.

    `moves` is what they change of the vectors that it makes, `output` of the output; `largest` is the largest rate at
    which nothing grows, and `mup` the one of the maximal update parametrisation, after the changes that are named.
    """

    name: str
    rate: float
    largest: float
    mup: float
    moves: float
    output: float


@dataclass(frozen=True, repr=False)
class Exponents(Printed):
    """What the powers of n in a program and in its learning rates make of training.

    `moves` has for each family and "the output" what the first step changes of it and what later steps do, in powers of
    n; where something grows, what steps do until then: the first one alone, or the second as well.  `changes` lead to
    the maximal update parametrisation (muP).
    """

    verdict: Verdict
    reason: str
    grade: Literal["theorem", "extension"]
    optimizer: str
    parameters: tuple[ParameterExponents, ...]
    moves: Mapping[str, tuple[float, ...]]
    changes: tuple[str, ...]
    notes: tuple[str, ...]

    def blocks(self) -> list[Block]:
        """The verdict with its reason, parameters, families, and what to change."""
        rows = tuple((p.name, *map(_shown, (p.rate, p.largest, p.mup, p.moves, p.output))) for p in self.parameters)
        moves = tuple((name, *map(_shown, steps)) for name, steps in self.moves.items())
        steps = ("first step", "until something grows" if self.verdict == "unstable" else "later steps")
        return [
            paragraph(badge(self.verdict), f": {EXPLAINED[self.verdict]}"),
            paragraph(self.reason, label="why"),
            paragraph(badge(self.grade), f": {EXPLAINED[self.grade]}", label="grade"),
            Grid(
                f"\nlearning rates of {self.optimizer}, and what each parameter alone moves, as powers of the width n",
                ("parameter", "rate", "largest rate", "rate in muP", "moves its layer", "moves the output"),
                rows,
            ),
            Grid("\nwhat all parameters together move", ("family", *steps[: len(moves[0]) - 1]), moves),
            *(paragraph(change, label="in muP") for change in self.changes),
            *(paragraph(note, note=True) for note in self.notes),
        ]

    to_json = plain_fields  # None for the power of n of what is 0


def exponents(
    P: Program,
    lr: str | float | None = None,
    rates: Mapping[str, str | float] | None = None,
    *,
    optimizer: Literal["sgd", "adam"] = "sgd",
) -> Exponents:
    """Whether training has a limit at infinite width, whether it learns features, and which learning rates are wrong.

    `lr` is a power of n such as "1", "0.1/n" or "n**0.5", for all parameters; `rates` gives some their own, by names or
    patterns such as {"*.weight": "1/n"}, and 0 keeps a parameter fixed.  What is left out comes from the program's
    section `train:`; else it is 1.

    Of a program from `from_torch` the rates are those of the module's parameters, as an optimizer of torch has them:
    how the module initialises and scales each is known.  Of other programs they are those of `gradient_descent`, on the
    scale of muP; with "adam", which stands for every optimizer that divides gradients by their size, those of entries
    of weights with variance 1/n_in, and of coordinates of initial vectors.

    A loss reads the outputs: scalars, or one coordinate of a vector; vectors that a torch module returns whole are read
    by a further layer with weights of variance 1/n.

    Raises    ProgramError for rates that are no powers of n, and names that are no parameters
    Source    Yang & Hu 2021 (arXiv 2011.14522), Theorems 3.3, 3.6, 3.8; Yang et al. 2022 (arXiv 2203.03466), Table 3
    """
    if optimizer not in ("sgd", "adam"):
        raise fail(f"optimizer is 'sgd' or 'adam', not {optimizer!r}")
    check_rates(rates)
    netsor, imported = netsor_of(P, "exponents"), P.imported if isinstance(P, Program) else None
    factor = float(imported.power) if imported else 0.0
    scaling = _Scaling(netsor, optimizer == "adam", factor, _read(netsor, imported))
    parameters = _parameters(scaling, imported)
    options = dict(netsor.train) if optimizer == "sgd" else {}
    common = _power(options.get("rate", 1) if lr is None else lr, netsor)
    chosen = {each.label: common for each in parameters}
    given = dict(options.get("rates", ()) if lr is None else ()) | dict(rates or {})
    for pattern, value in given.items():
        found = [each.label for each in parameters if any(fnmatch(name, pattern) for name in each.names)]
        if not found:
            known = [name for each in parameters for name in each.names]
            raise fail(f"{pattern} is no parameter that outputs depend on", fix=did_you_mean(pattern, known))
        chosen |= dict.fromkeys(found, _power(value, netsor))
    counted = {name for each in parameters for name in each.names}
    told = [fate for fate in imported.fates if not fate.became.startswith("a copy of")] if imported else []
    left = [fate.alike for fate in told if fate.parameter not in counted]
    note = f"not counted: {', '.join(dict.fromkeys(left))}; hidden biases and gains have in muP the rate n, 1 with adam"
    return _judged(scaling, parameters, chosen, optimizer, (note,) if left else ())


def _power(rate: str | float, netsor: Netsor) -> float:
    """The power of n in a rate such as "0.1/n"; -inf for 0.

    Raises    ProgramError
    """
    one, other = (rate_at("a learning rate", rate, netsor, n) for n in (1e4, 1e8))
    if one == other == 0:
        return NEVER
    exact = math.log10(other / one) / 4 if min(one, other) > 0 else math.nan
    power = 0.0 if math.isnan(exact) else float(Fraction(exact).limit_denominator(12))
    if not abs(power - exact) < 1e-9:
        raise fail(f"a learning rate is a number times a power of n, not {rate}", fix='"1/n", "0.1*n**0.5" or 0')
    return power


def _shown(power: float) -> str:
    """A power of n as it is written."""
    if power in (NEVER, 0, 1):
        return {NEVER: "0", 0: "1", 1: "n"}[power]
    text = str(Fraction(power).limit_denominator(12))
    return f"n**({text})" if "/" in text else f"n**{text}"


# ---- what a program says --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parameter:
    """A parameter with its weights or initial vectors in the program, and the power of n in its rate beyond theirs."""

    label: str
    names: tuple[str, ...]
    members: tuple[str, ...]
    unit: float


def _parameters(scaling: _Scaling, imported: Imported | None) -> list[_Parameter]:
    """What moves: weights and initial vectors that outputs depend on, or the module's parameters behind them."""
    netsor = scaling.netsor
    used, vectors = upstream(netsor, netsor.outputs), {v.name: v.width for v in netsor.initial if not v.grid}
    read = dict.fromkeys(x.name for s in netsor.body if s.target.name in used for x in s.references)
    names = [name for name in read if name in netsor.weight or name in vectors]
    if imported is None:
        fixed, found = dict(netsor.fixed_widths), list[_Parameter]()
        for name in names:  # rates have the factor rows/columns, or the width of a vector
            rows, columns = netsor.weight[name].shape if name in netsor.weight else (vectors[name], "")
            unit = (columns not in fixed and columns != "") - (rows not in fixed)
            found.append(_Parameter(name, (name,), (name,), 0.0 if scaling.adam else float(unit)))
        return found
    found = list[_Parameter]()
    behind = imported.behind([n for n in names if n in netsor.weight], [n for n in names if n in vectors])
    for members, fates in behind.items():
        paths = [fate.parameter for fate in fates]
        label = fates[0].alike if len(paths) > 1 else paths[0]
        more = 0.0 if imported.at else float(fates[0].exponent)  # of variances, over those of the program
        found.append(_Parameter(label, (*paths, *members), members, more / 2 if scaling.adam else more))
    return found


def _read(netsor: Netsor, imported: Imported | None) -> frozenset[str]:
    """Families that a loss reads, scalars or one coordinate of vectors, with what goes into nothing else."""
    if imported is not None and any(size == 0 for _, _, size in imported.layout):
        return frozenset()
    kinds = {name: family.kind for name, family in netsor.families.items()}
    inner = [
        x.name
        for s in netsor.body
        for x in s.inputs
        if not isinstance(s, Nonlin) or kinds[x.name] != kinds[s.target.name]
    ]
    return frozenset(upstream(netsor, netsor.outputs)) - frozenset(upstream(netsor, inner))


# ---- counting -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scaling:
    """A program and what training it depends on; `averages` are scores that count as if their scale were 1/n."""

    netsor: Netsor
    adam: bool
    factor: float  # of outputs, a power of n
    read: frozenset[str]
    averages: frozenset[str] = frozenset()

    def width(self, name: str) -> float:
        """1 for vectors whose width grows."""
        family = self.netsor.families[name]
        fixed = family.kind != "vector" or name in self.read or family.width in dict(self.netsor.fixed_widths)
        return 0.0 if fixed else 1.0

    def scale(self, statement: Dot) -> float:
        """c in the factor n**-c of an inner product."""
        average = statement.scale == "1/n" or statement.target.name in self.averages
        return self.width(statement.left.name) * (1.0 if average else 0.5)

    def behind(self, target: str, read: str = "") -> float:
        """The power of the factor of outputs, where what a loss reads is made of what it does not."""
        return self.factor if target in self.read and read not in self.read else 0.0

    @property
    def large(self) -> float:
        """The power of dL/df, of the square loss, at the start."""
        return max(0.0, self.factor)

    def made(self, parameter: str) -> list[tuple[str, float, float]]:
        """The vectors that a parameter makes, the width that it sums over for each, and the factor behind it."""
        products = [s for s in self.netsor.body if isinstance(s, MatMul) and s.weight.name == parameter]
        found = [(s.target.name, self.width(s.vector.name)) for s in products] or [(parameter, 0.0)]
        return [(target, into, self.behind(target)) for target, into in found]

    def backward(self, changed: Powers, along: Powers) -> Powers:
        """Sizes of the gradients by all families, given what has changed."""
        size: Powers = defaultdict(lambda: NEVER)
        turned: Powers = defaultdict(lambda: NEVER)
        for name in self.netsor.outputs:
            size[name] = self.large + (0.0 if name in self.read else self.factor - self.width(name) / 2)
        for _ in self.netsor.body:
            before = dict(size), dict(turned)
            for s in reversed(self.netsor.body):
                t, w = s.target.name, self.width(s.target.name)
                g = max(size[t], turned[t])
                turn = max((along.get(x.name, NEVER) + self.behind(t, x.name) for x in s.inputs), default=NEVER)
                for x in s.inputs:
                    name, factor = x.name, self.behind(t, x.name)
                    spread = (w - self.width(name)) / 2 + factor
                    if isinstance(s, Dot):
                        other = s.right.name if x is s.left else s.left.name
                        size[name] = max(size[name], g - self.scale(s) + factor)
                        turned[name] = max(turned[name], g - self.scale(s) + along.get(other, NEVER) + factor)
                    elif self.netsor.families[name].kind != "vector":
                        size[name] = max(size[name], w / 2 + g + factor, w + turned[t] + factor, w + g + turn)
                    else:
                        moved = (
                            changed.get(s.weight.name, NEVER) + w + factor if isinstance(s, MatMul) else turn + spread
                        )
                        size[name] = max(size[name], size[t] + spread)
                        turned[name] = max(turned[name], turned[t] + spread, g + moved)
            if before == (size, turned):
                break
        return {name: max(value, turned[name]) for name, value in size.items()}

    def forward(self, changed: Powers) -> tuple[Powers, Powers]:
        """What changes of parameters move, families and the output, and the part of it along gradients."""
        along = {name: changed.get(name, NEVER) + self.behind(name) for name in self.netsor.families}
        moved = dict(along)
        for _ in self.netsor.body:
            before = dict(moved), dict(along)
            for s in self.netsor.body:
                t, lined = s.target.name, NEVER
                for x in s.inputs:
                    factor, gain = self.behind(t, x.name), max(0.0, self.width(x.name) - self.width(t)) / 2
                    if isinstance(s, Dot):
                        gain = self.width(x.name) - self.scale(s)
                    lined = max(lined, along[x.name] + gain + factor)
                    moved[t] = max(moved[t], moved[x.name] + factor)
                if isinstance(s, MatMul):
                    lined = max(lined, changed.get(s.weight.name, NEVER) + self.width(s.vector.name) + factor)
                moved[t] = max(moved[t], lined)
                along[t] = max(along[t], lined) if self.netsor.families[t].kind == "vector" else NEVER
            if before == (moved, along):
                break
        reached = [
            moved[y] if y in self.read else self.factor + max(self.width(y) / 2 + along[y], moved[y])
            for y in self.netsor.outputs
        ]
        return {**moved, OUTPUT: max(reached)}, along

    def changes(self, rates: Powers, sizes: Powers) -> Powers:
        """What one more step changes of an entry of each parameter."""
        found = Powers()
        for name, rate in rates.items():
            gradient = max(sizes.get(target, NEVER) + behind for target, _, behind in self.made(name))
            found[name] = NEVER if gradient == NEVER else rate if self.adam else rate + gradient
        return found

    def train(self, rates: Powers) -> tuple[list[Powers], Powers]:
        """What moves after each step, until powers are settled or something grows, and gradients in the last one."""
        changed, along, found = Powers(), Powers(), list[Powers]()
        for _ in range(STEPS):
            sizes = self.backward(changed, along)
            new = {name: max(power, changed.get(name, NEVER)) for name, power in self.changes(rates, sizes).items()}
            moved, along = self.forward(new)
            found.append(moved)
            if max(moved.values()) > 0 or (new == changed and moved == found[-2]):
                break
            changed = new
        return found, sizes

    def verdict(self, moved: Powers) -> Verdict:
        """What becomes of training that moves families like this."""
        if self.factor > 0 or max(moved.values()) > 0:
            return "unstable"
        if moved[OUTPUT] < 0:
            return "trivial"
        return "features" if self.learned(moved) else "kernel"

    def learned(self, moved: Powers) -> list[str]:
        """Families behind what a loss reads that move at every width alike."""
        made = dict.fromkeys(s.target.name for s in self.netsor.body)
        return [name for name in made if moved[name] == 0 and name not in {*self.read, *self.netsor.outputs}]

    def maximal(self, names: Sequence[str]) -> tuple[_Scaling, Powers]:
        """The maximal update parametrisation: gradients of order 1/n, and every update moves its vectors by order one.

        Scores that it makes grow are on the scale 1/n.
        """
        sizes = self.backward({}, {})
        inner = [size - self.large for name, size in sizes.items() if self.width(name) and size > NEVER]
        best, rates = replace(self, factor=self.factor - 1 - max(inner)) if inner else self, Powers()
        for name in names:
            found = []
            for target, into, behind in best.made(name):
                gradient = behind if target in self.read else -self.width(target)
                found.append(-into - behind - (0 if self.adam else gradient))
            rates[name] = min(found)
        scores = {*self.netsor.scores} - {*self.read}
        while grown := {name for name in scores - best.averages if best.train(rates)[0][-1][name] > 0}:
            best = replace(best, averages=best.averages | grown)
        return best, rates


# ---- judging --------------------------------------------------------------------------------------------------------


def _judged(
    scaling: _Scaling,
    parameters: Sequence[_Parameter],
    chosen: Mapping[str, float],
    optimizer: str,
    notes: tuple[str, ...],
) -> Exponents:
    """The verdict with its reason, and what to change."""
    rates = {name: chosen[each.label] - each.unit for each in parameters for name in each.members}
    steps, sizes = scaling.train(rates)
    best, target = scaling.maximal([*rates])
    own, rows = scaling.changes(rates, sizes), list[ParameterExponents]()
    for each in parameters:
        moved, _ = scaling.forward({name: own[name] for name in each.members})
        worst, rate = max(moved.values()), chosen[each.label]
        moves = max(own[name] + into + behind for name in each.members for _, into, behind in scaling.made(name))
        mup = min(target[name] for name in each.members) + each.unit
        largest = rate - worst if worst > NEVER else NEVER
        rows.append(ParameterExponents(each.label, rate, largest, mup, moves, moved[OUTPUT]))
    verdict, changes = scaling.verdict(steps[-1]), list[str]()
    if best.verdict(best.train(target)[0][-1]) != "features":
        changes.append("no rates are known with which this program learns features at every width alike")
    else:
        if best.factor != scaling.factor:
            dots = [s for s in scaling.netsor.body if isinstance(s, Dot) and s.scale != "1/n"]
            readouts = ", ".join(dict.fromkeys(s.target.name for s in dots if s.target.name in scaling.read))
            power = _shown(best.factor - scaling.factor)
            changes.append(f"multiply the output by {power}{f', scale=1/n in {readouts}' if readouts else ''}")
        changes += [f"divide the score {name} by n instead of its root: scale=1/n" for name in sorted(best.averages)]
        changes += [
            f"learning rate of {p.name}: {_shown(p.rate)} -> {_shown(p.mup)}"
            for p in rows
            if p.rate not in (p.mup, NEVER)
        ]
    order = dict.fromkeys([*(s.target.name for s in scaling.netsor.body), OUTPUT])
    counted = (steps[0], steps[-1])[: len(steps)]
    both = {name: tuple(step[name] for step in counted) for name in order if steps[-1][name] > NEVER}
    why, grade = _reason(scaling, steps, verdict, rows), _grade(scaling)
    return Exponents(verdict, why, grade, optimizer, tuple(rows), both, tuple(changes), notes)


def _reason(scaling: _Scaling, steps: list[Powers], verdict: Verdict, rows: Sequence[ParameterExponents]) -> str:
    """The sentence that says why."""
    moved = steps[-1]
    if scaling.factor > 0:
        grown = f"outputs grow like {_shown(scaling.factor)} before any step: their last layer begins too large"
        return f"{grown}; powers are those of the square loss, whose gradient grows with them"
    if verdict == "unstable":
        first = max(OUTPUT, *moved, key=lambda name: moved[name])
        wrong: dict[str, list[str]] = defaultdict(list)
        for p in sorted(rows, key=lambda p: p.largest - p.rate):
            if p.rate > p.largest:
                wrong[f"is {_shown(p.rate)} and may be at most {_shown(p.largest)}"].append(p.name)
        said = [f"the learning rate of {', '.join(names)} {text}" for text, names in wrong.items()]
        return "; ".join([f"in step {len(steps)} {first} moves like {_shown(moved[first])}", *said])
    if verdict == "trivial":
        slow = max(rows, key=lambda p: p.output)
        may = f"whose learning rate is {_shown(slow.rate)} and may be {_shown(slow.largest)}"
        return f"outputs move like {_shown(moved[OUTPUT])}, most by {slow.name}, {may}"
    if verdict == "kernel":
        most = max((power for name, power in moved.items() if name != OUTPUT and scaling.width(name)), default=NEVER)
        return f"outputs move at every width alike, and vectors like {_shown(most)} at most"
    still = [p.name for p in rows if p.rate > NEVER and p.moves < 0 and p.output < 0]
    learned = scaling.learned(moved)
    names = ", ".join(learned[:4]) + (f" and {len(learned) - 4} more" if len(learned) > 4 else "")
    return f"these move at every width alike: {names}" + (f"; updates of {', '.join(still)} vanish" if still else "")


def _grade(scaling: _Scaling) -> Literal["theorem", "extension"]:
    """Whether the theorems are about this program: a multilayer perceptron, by gradient descent."""
    netsor, first = scaling.netsor, {v.name for v in scaling.netsor.initial}
    products = [s for s in netsor.body if isinstance(s, MatMul)]
    first |= {s.target.name for s in netsor.body if isinstance(s, Nonlin) and {x.name for x in s.inputs} <= first}
    hidden = [s for s in netsor.body if isinstance(s, Nonlin) and s.target.name not in scaling.read]
    layers = (
        len({s.weight.name for s in products}) == len(products)
        and not any(s.transposed for s in products)
        and all(s.target.name in scaling.read for s in netsor.body if isinstance(s, Dot))
        and all(is_call(s.expr, "tanh") and len({x.name for x in s.inputs} - first) <= 1 for s in hidden)
    )
    called = {node.atom for s in hidden for node in walk(s.expr) if isinstance(node, Call)}
    proved = layers and called <= PROVED and not scaling.adam and not scaling.large
    return "theorem" if proved else "extension"
