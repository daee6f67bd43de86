"""Does a theorem apply?  One rule per clause of Assumption 1, each with findings that say why and what to change.

`check(netsor)` gives a `Report` with one of four grades:

    theorem     Assumption 1 as written (Sakai et al. 2025, Theorem 1), or Yang's theorem for programs without scores
    remark      all but the boundedness of operand inputs, which the paper says can be dropped
    extension   covered by a result elsewhere, or exact; `claims` says which
    outside     no limit is claimed; `consequence` says what follows

Source    theory.md section 3; Sakai et al. 2025 (arXiv 2506.00846), Yang 2019 (arXiv 1910.12478), Theorem 5.4
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tensorprog.calculus import Calculus, Profile
from tensorprog.expr import Call, Expr, Reduction, Variable, rebuild, variables, walk
from tensorprog.facts import FAILS, HOLDS, Fact
from tensorprog.graph import Operand, Structure
from tensorprog.ir import Dot, MatMul, Netsor, Nonlin

__all__ = ["RULES", "Claim", "Finding", "Report", "Rule", "check"]

Grade = Literal["theorem", "remark", "extension", "outside"]
GRADES: tuple[Grade, ...] = ("theorem", "remark", "extension", "outside")
Says = Literal["holds", "fails", "unknown", "warning", "remark"]
ORDER = ("fails", "unknown", "remark", "warning", "holds")
SAKAI = "Sakai et al. 2025, Theorem 1"
ASSUMPTION = "Sakai et al. 2025, Assumption 1"
YANG = "Yang 2019, Theorem 5.4"
NETSOR_PLUS = "Yang 2019, Netsor+ master theorem"
DIVERGES, NO_LIMIT, NOT_COVERED = "diverges", "no limit", "not covered"


@dataclass(frozen=True)
class Finding:
    """What one clause says about one place of the program, in the user's names."""

    rule: str
    verdict: Says
    where: str = ""  # statements, separated by ", "
    line: int = 0
    message: str = ""
    fix: str = ""
    source: str = ""
    nodes: tuple[str, ...] = ()  # of the graph: the statements at fault and the chain between them
    consequence: str = ""  # what follows if it fails

    def to_json(self) -> dict[str, Any]:
        """Return the public fields."""
        return {"rule": self.rule, "verdict": self.verdict, "where": self.where, "line": self.line, "message": self.message,
                "fix": self.fix}

    def __str__(self) -> str:
        place = f"   [{'line ' + str(self.line)}]" if self.line else ""
        head = f"{self.verdict:<8}{self.rule}" + (f": {self.where}" if self.where else "") + place
        lines = [head, f"        why   {self.message}"]
        if self.source and self.source not in self.message:
            lines.append(f"        from  {self.source}")
        if self.fix:
            lines.append(f"        try   {self.fix}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Claim:
    """A result used beyond Assumption 1, with the standing of its proof."""

    name: str
    standing: Literal["proved", "exact", "conjecture"]
    text: str

    def __str__(self) -> str:
        return f"{self.name} ({self.standing}): {self.text}"


@dataclass(frozen=True)
class Report:
    """The grade of a program and the findings behind it, worst first."""

    program: str
    grade: Grade
    source: str
    findings: tuple[Finding, ...]
    claims: tuple[Claim, ...] = ()
    consequence: str = ""  # of `outside`: diverges | no limit | not covered
    rate: str = ""  # of `diverges`

    @property
    def exit_code(self) -> int:
        """1 if no limit is claimed, else 0."""
        return int(self.grade == "outside")

    @property
    def failing(self) -> tuple[Finding, ...]:
        """Findings that put the program outside."""
        return tuple(f for f in self.findings if f.verdict in ("fails", "unknown"))

    def to_json(self) -> dict[str, Any]:
        """Return plain data: grade, source, consequence, claims and findings."""
        return {"grade": self.grade, "source": self.source, "consequence": self.consequence, "rate": self.rate,
                "claims": [{"name": c.name, "standing": c.standing, "text": c.text} for c in self.claims],
                "findings": [finding.to_json() for finding in self.findings]}

    def __str__(self) -> str:
        says = {"theorem": f"the theorem applies as written ({self.source})",
                "remark": f"the theorem applies with its remark on unbounded inputs ({self.source})",
                "extension": f"covered beyond the theorem ({self.source})",
                "outside": f"no limit is claimed: {self.consequence}" + (f" like {self.rate}" if self.rate else "")}[self.grade]
        lines = [f"{self.program}: {self.grade} - {says}"]
        lines += [f"claim   {claim}" for claim in self.claims]
        lines += [str(f) for f in self.findings if f.verdict != "holds"]
        lines += [f"{f.verdict:<8}{f.rule}: {f.message}" for f in self.findings if f.verdict == "holds"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def cell(text: object) -> str:
            return f"<td style='text-align:left'>{html.escape(str(text))}</td>"

        rows = "".join("<tr>" + "".join(cell(x) for x in (f.verdict, f.rule, f.where, f.line or "", f.message, f.fix)) + "</tr>"
                       for f in self.findings)
        heads = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("verdict", "rule", "where", "line", "message", "fix"))
        head = html.escape(str(self).splitlines()[0])
        claims = "".join(f"<p>{html.escape(str(claim))}</p>" for claim in self.claims)
        return f"<p><b>{head}</b></p>{claims}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


@dataclass(frozen=True)
class Rule:
    """One clause: its name, where it comes from, and the function that yields findings."""

    name: str
    source: str
    apply: Callable[[_Check], Iterator[Finding]]
    holds: str = ""  # what to say when nothing is found


@dataclass
class _Check:
    """What the rules read, and where they leave claims."""

    netsor: Netsor
    structure: Structure
    calculus: Calculus
    claims: list[Claim] = field(default_factory=list)
    rule: Rule | None = None

    def text(self, position: int) -> str:
        return str(self.netsor.body[position].target)

    def finding(self, verdict: Says, positions: tuple[int, ...], message: str, fix: str = "", consequence: str = "",
                chain: tuple[int, ...] = ()) -> Finding:
        assert self.rule is not None
        line = self.netsor.body[positions[0]].span.line if positions else 0
        names = dict.fromkeys(self.text(p) for p in positions)
        nodes = tuple(dict.fromkeys([*names, *(self.text(p) for p in chain)]))
        return Finding(self.rule.name, verdict, ", ".join(names), line, message, fix, self.rule.source, nodes, consequence)

    @property
    def scored(self) -> bool:
        return bool(self.structure.scores)

    def chain_text(self, chain: tuple[int, ...]) -> str:
        return " -> ".join(self.text(p) for p in chain)

    def sinks(self) -> Iterator[int]:
        """Nonlins whose value a weight, a Dot or an output reads; the others are inlined into these."""
        outputs = set(self.netsor.outputs)
        for position in sorted(self.structure.relevant):
            statement = self.netsor.body[position]
            if not isinstance(statement, Nonlin):
                continue
            users = {user for user, definer, _ in self.structure.edges if definer == position}
            if statement.target.name in outputs or any(not isinstance(self.netsor.body[u], Nonlin) for u in users):
                yield position


# -- nonlinearities -------------------------------------------------------------------------------------------------------


def _nonlinearities(check: _Check) -> Iterator[Finding]:
    name = "pseudo-Lipschitz" if check.scored else "controlled"
    source = "Sakai et al. 2025, Theorem 1 and Def. 2" if check.scored else YANG
    seen = set()
    for position in check.sinks():
        profile = check.calculus.statement(position)
        fact = check.calculus.fact(name, position)
        if fact.verdict is not HOLDS:
            fault = check.calculus.blame(name, position)
            if (fault.position, fault.expr) in seen:
                continue
            seen.add((fault.position, fault.expr))
            yield _not_regular(check, position, fact)
        for text in profile.assumes:
            yield check.finding("warning", (position,), f"{text} is needed at the limiting value of the averages; the limit "
                                f"checks it when its numbers are known ({source})")


def _not_regular(check: _Check, position: int, fact: Fact) -> Finding:
    fault = check.calculus.blame(fact.name, position)
    chain = check.structure.chain(fault.position, position)
    is_not = f"is not {fact.name}" if fact.verdict is FAILS else f"cannot be shown to be {fact.name}"
    message = f"{check.text(fault.position)} {is_not}: {fault.reason}"
    if fact.witness:
        message += f"; {fact.witness}"
    if len(chain) > 1:
        message += f"; it reaches {check.text(position)} through {check.chain_text(chain)}"
    profile = check.calculus.statement(fault.position)
    if fact.name == "pseudo-Lipschitz" and profile.controlled:
        message += f". Without scores it would be admitted: it is controlled ({YANG})"
    elif fact.name == "controlled":
        message += f". Needed: |phi(x)| <= exp(C |x|**r + c) with r < 2 ({YANG})"
    verdict: Says = "fails" if fact.verdict is FAILS else "unknown"
    return check.finding(verdict, (fault.position,), message, _regular_fix(fault.expr), NOT_COVERED, chain)


def _regular_fix(expr: Expr) -> str:
    if isinstance(expr, Call):
        inner = ", ".join(map(str, expr.arguments))
        if expr.atom in ("step", "sign") or expr.atom in ("less", "greater", "less_equal", "greater_equal"):
            return f"a continuous function, e.g. clip(c * ({inner}), 0, 1) or sigmoid(c * ({inner}))"
        if expr.atom == "exp":
            return f"bound the argument above, e.g. exp(min({inner}, c)), or use softmax, sigmoid or softplus"
        if expr.atom in ("sqrt", "log"):
            return f"{expr.atom}({inner} + eps) with {inner} not negative and eps > 0"
        if expr.atom == "divide":
            return f"keep the denominator away from 0, e.g. ({expr.args[0]}) / (eps + abs({expr.args[1]}))"
        if expr.atom == "where":
            return "branches that agree where the condition changes, or a condition on indices"
    return "an expression made of pseudo-Lipschitz functions"


# -- scores ---------------------------------------------------------------------------------------------------------------


def _same_reference(check: _Check, dot: int) -> bool:
    statement = check.netsor.body[dot]
    assert isinstance(statement, Dot)
    return statement.left == statement.right


def _profile_of(check: _Check, operand: Operand) -> Profile:
    return check.calculus.vector(operand.reference, operand.dot)


def _operands(check: _Check) -> Iterator[Finding]:
    for dot in check.structure.scores:
        sides = [o for o in check.structure.operands if o.dot == dot]
        wrong = [o for o in sides if o.definer is None or not isinstance(check.netsor.body[o.definer], MatMul)]
        done = set()
        for operand in wrong:
            if operand.reference.name in done:
                continue
            done.add(operand.reference.name)
            what = "an initial vector" if operand.definer is None else "a Nonlin output"
            score = check.text(dot)
            message = f"{operand.reference} in the score {score} is {what}; a score takes two MatMul outputs"
            left, right = (next(o for o in sides if o.side == side) for side in ("left", "right"))
            profiles = _profile_of(check, left), _profile_of(check, right)
            positive = all(p.low >= 0 and p.high > 0 for p in profiles)
            consequence, fix = NOT_COVERED, f"multiply {operand.reference} by a weight of its own first, or use scale=1/n"
            if _same_reference(check, dot) or positive:
                consequence = DIVERGES
                e = f"E[Z^{left.reference} Z^{right.reference}]"
                message += f". Its mean sqrt(n) {e} is positive, so the score grows like sqrt(n)"
                fix = f"{score} = Dot({left.reference}, {right.reference}, scale=1/n), an average"
            elif operand.definer is not None and _linear(check, operand.definer):
                statement = check.netsor.body[operand.definer]
                message += (f". {statement} is linear in its vectors, so the score is a sum of scores by bilinearity, "
                            "exactly, at every n")
                fix = "write one Dot for each pair of summands and add them in a Nonlin"
            positions = (dot,) if operand.definer is None else (dot, operand.definer)
            yield check.finding("fails", positions, message, fix, consequence)


def _linear(check: _Check, position: int) -> bool:
    statement = check.netsor.body[position]
    return isinstance(statement, Nonlin) and _combination(check, statement.expr, position, frozenset(), plain=True)


def _bounded(check: _Check) -> Iterator[Finding]:
    done = set()
    for operand in check.structure.operands:
        if operand.definer is None or operand.definer in done:
            continue
        statement = check.netsor.body[operand.definer]
        if not isinstance(statement, MatMul):
            continue
        done.add(operand.definer)
        if check.calculus.vector(statement.vector, operand.definer).bounded:
            continue
        definers = check.structure.definers(operand.definer, statement.vector)
        culprit = next((d for d in definers if not check.calculus.statement(d).bounded), None)
        score = check.text(operand.dot)
        if culprit is None:
            yield check.finding("remark", (operand.definer,), f"the input {statement.vector} of the operand "
                                f"{statement.target} of {score} is an initial vector, Gaussian, so not bounded; the remark "
                                f"after Theorem 1 says that this condition can be dropped",
                                f"x = Nonlin(clip({statement.vector}, -C, C)), then MatMul({statement.weight}, x)")
            continue
        fact = check.calculus.fact("bounded", culprit)
        fault = check.calculus.blame("bounded", culprit)
        is_not = "is not bounded" if fact.verdict is FAILS else "cannot be shown to be bounded"
        at = f" (in {check.text(fault.position)})" if fault.position != culprit else ""
        chain = (*check.structure.chain(fault.position, operand.definer), operand.dot)
        yield check.finding(
            "remark", (culprit, operand.definer),
            f"{check.text(culprit)}, the input of the operand {statement.target} of {score}, {is_not}: {fault.reason}{at}; "
            f"the remark after Theorem 1 says that this condition can be dropped; the way to the score is "
            f"{check.chain_text(chain)}",
            _bounded_fix(check, culprit), chain=chain)


def _bounded_fix(check: _Check, position: int) -> str:
    statement = check.netsor.body[position]
    if isinstance(statement, Nonlin):
        return f"{statement.target} = Nonlin(clip({statement.expr}, -C, C))"
    return f"x = Nonlin(clip({statement.target}, -C, C)) in place of {statement.target}"


def _values(witness: dict[str, int]) -> str:
    shown = {name: value for name, value in witness.items() if not name.endswith("'")}
    return f" at {', '.join(f'{name}={value}' for name, value in sorted(shown.items()))}" if shown else ""


def _dedicated(check: _Check) -> Iterator[Finding]:
    makers = {o.definer: o.dot for o in check.structure.operands if o.definer is not None}
    done = set()
    for maker, dot in makers.items():
        statement = check.netsor.body[maker]
        if not isinstance(statement, MatMul):
            continue
        for other in check.structure.weight_uses(statement.weight.name):
            if other in makers or (statement.weight.name, other) in done:
                continue
            verdict, witness = check.structure.same_member(maker, other)
            if verdict is HOLDS:
                continue
            done.add((statement.weight.name, other))
            second = check.netsor.body[other]
            assert isinstance(second, MatMul)
            may = "makes" if verdict is FAILS else "may make"
            yield check.finding(
                "fails" if verdict is FAILS else "unknown", (other, maker),
                f"clause (a): {second.weight} {may} {second.target}, which is no operand of a score, and {statement.weight} "
                f"makes {statement.target}, an operand of the score {check.text(dot)}: the same matrix"
                f"{_values(witness)}. A weight that makes a score operand may make nothing else",
                f"give {second.target} a weight of its own: declare another weight with the indices of {second.weight}", NOT_COVERED,
                (maker, dot))


def _different(check: _Check) -> Iterator[Finding]:
    for dot in check.structure.scores:
        sides = [o for o in check.structure.operands if o.dot == dot and o.definer is not None
                 and isinstance(check.netsor.body[o.definer], MatMul)]
        for left in (o for o in sides if o.side == "left"):
            for right in (o for o in sides if o.side == "right"):
                verdict, witness = check.structure.same_weight_in_score(left, right)
                if verdict is not HOLDS:
                    yield _tied(check, left, right, verdict is FAILS, witness)


def _tied(check: _Check, left: Operand, right: Operand, certain: bool, witness: dict[str, int]) -> Finding:
    assert left.definer is not None
    assert right.definer is not None
    one, two = check.netsor.body[left.definer], check.netsor.body[right.definer]
    dot = check.netsor.body[left.dot]
    assert isinstance(one, MatMul)
    assert isinstance(two, MatMul)
    assert isinstance(dot, Dot)
    same, place = check.structure.same_weight_in_score(left, right, vectors=True)
    profiles = check.calculus.vector(one.vector, left.definer), check.calculus.vector(two.vector, right.definer)
    positive = all(p.low >= 0 and p.high > 0 for p in profiles)
    zero = any(p.constant and p.low == 0 for p in profiles)
    e = f"E[Z^{left.reference} Z^{right.reference}] = sigma^2 E[Z^{one.vector} Z^{two.vector}]"
    pair = f"{one.target} and {two.target}" if left.definer != right.definer else f"both operands, {left.reference} and {right.reference},"
    message = (f"clause (b): {pair} {'are' if certain else 'may be'} made by the same matrix, {one.weight}"
               + (f" and {two.weight}" if two.weight != one.weight else "") + f"{_values(witness)}, but the two weights of one "
               f"score must differ. The mean of {dot.target} is sqrt(n) times {e}, ")
    diverges = certain and not zero and (same is FAILS or positive)
    if diverges:
        why = "both functions are not negative" if same is not FAILS else (
            "it is the mean of a square" + (f"{_values(place)}" if place else ""))
        message += f"which is not zero ({why}), so the score grows like sqrt(n) and diverges"
    else:
        message += "so unless that is zero the score grows like sqrt(n); no theorem covers it"
    fix = (f"{dot.target} = Dot({dot.left}, {dot.right}, scale=1/n), an average; or separate weights, e.g. "
           f"{two.target} = MatMul(WK, {two.vector}) with a weight WK of its own")
    return check.finding("fails" if certain else "unknown", (left.definer, right.definer), message, fix,
                         DIVERGES if diverges else NOT_COVERED, (left.definer, right.definer, left.dot))


# -- one layer of scores ---------------------------------------------------------------------------------------------------


def _combination(check: _Check, expr: Expr, position: int, seen: frozenset[int], plain: bool = False) -> bool:
    """Whether an expression is linear in score-dependent vectors, with scalars as coefficients.

    With `plain` it must be linear in all vectors.
    """
    calculus = check.calculus
    if calculus.closed(expr) is not None or not variables(expr):
        return True
    if isinstance(expr, Variable):
        if check.netsor.families[expr.name].kind == "scalar":
            return True
        definers = check.structure.definers(position, expr)
        for definer in definers:
            statement = check.netsor.body[definer]
            if definer in seen or (not plain and definer not in check.structure.score_dependent):
                continue
            if isinstance(statement, Nonlin) and not _combination(check, statement.expr, definer, seen | {definer}, plain):
                return False
            if isinstance(statement, MatMul) and not plain and not _combination(check, statement.vector, definer,
                                                                                seen | {definer}):
                return False
        return True

    def scalar(part: Expr) -> bool:
        return all(check.netsor.families[v.name].kind == "scalar" for v in variables(part))

    def free(part: Expr) -> bool:
        return not plain and all(
            d not in check.structure.score_dependent for v in variables(part) for d in check.structure.definers(position, v))

    if scalar(expr) or free(expr):
        return True
    if isinstance(expr, Reduction):
        return expr.reducer in ("sum", "mean") and _combination(check, expr.arg, position, seen, plain)
    assert isinstance(expr, Call)
    if expr.atom in ("add", "subtract", "negative"):
        return all(_combination(check, arg, position, seen, plain) for arg in expr.args)
    if expr.atom == "multiply":
        left, right = expr.args
        return any(scalar(a) and _combination(check, b, position, seen, plain) for a, b in ((left, right), (right, left)))
    if expr.atom == "divide":
        return scalar(expr.args[1]) and _combination(check, expr.args[0], position, seen, plain)
    if expr.atom == "where" and not variables(expr.args[0]):
        return all(_combination(check, arg, position, seen, plain) for arg in expr.args[1:])
    return False


def _moved(check: _Check, position: int) -> str:
    """How the MatMul of a combination is written inside the sum."""
    statement = check.netsor.body[position]
    assert isinstance(statement, MatMul)
    definers = check.structure.definers(position, statement.vector)
    inner = check.netsor.body[definers[0]] if len(definers) == 1 else None
    if not isinstance(inner, Nonlin):
        return f"apply {statement.weight} to each vector of the combination, and combine the products in a Nonlin"
    taken = {s.target.name for s in check.netsor.body} | set(check.netsor.families)
    indices = [name for slot in statement.weight.slots for name in slot.indices]
    renamed: dict[Variable, Variable] = {}
    lines = []
    for vector in variables(inner.expr):
        if check.netsor.families[vector.name].kind == "scalar":
            continue
        base = f"{statement.target.name}_{vector.name}"
        while base in taken:
            base += "1"
        own = [*indices, *(name for slot in vector.slots for name in slot.indices if name not in indices)]
        slots = ",".join(dict.fromkeys(own))
        lines.append(f"{base}{f'[{slots}]' if slots else ''} = MatMul({statement.weight}, {vector})")
        renamed[vector] = Variable(f"{base}{f'[{slots}]' if slots else ''}")
    expr = rebuild(inner.expr, lambda node: renamed.get(node) if isinstance(node, Variable) else None)
    return "; ".join([*lines, f"{statement.target} = Nonlin({expr})"])


def _one_layer(check: _Check) -> Iterator[Finding]:
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if not isinstance(statement, MatMul):
            continue
        bad = [d for d in check.structure.definers(position, statement.vector) if d in check.structure.score_dependent]
        # blame the first weight on the way from a score
        if not bad or any(isinstance(check.netsor.body[d], MatMul) and d in check.structure.score_dependent for d in bad):
            continue
        score = next(p for p in check.structure.scores if p in check.structure.ancestors(position))
        chain = check.structure.chain(score, position)
        message = (f"{statement.weight} multiplies {statement.vector}, which depends on the score {check.text(score)} through "
                   f"{check.chain_text(chain)}; Theorem 1 covers one layer of scores")
        if _combination(check, statement.vector, position, frozenset()):
            message += (f". But {statement.vector} is linear in its vectors, with scalars as coefficients: moving the MatMul "
                        "inside the sum is exact at every n and brings this part under the theorem")
            yield check.finding("fails", (position,), message, _moved(check, position), NOT_COVERED, chain)
        else:
            yield check.finding("fails", (position,), message, "end the program here, or use an average (scale=1/n) in place of the score",
                                NOT_COVERED, chain)


# -- averages and widths ------------------------------------------------------------------------------------------------------


def _averages(check: _Check) -> Iterator[Finding]:
    good = []
    for position in sorted(check.structure.relevant):
        dot = check.netsor.body[position]
        if not (isinstance(dot, Dot) and dot.scale == "1/n"):
            continue
        if position in check.structure.score_dependent:
            score = next(p for p in check.structure.scores if p in check.structure.ancestors(position))
            chain = check.structure.chain(score, position)
            yield check.finding("fails", (position,), f"the average {dot.target} is taken over vectors that depend on the score "
                                f"{check.text(score)} through {check.chain_text(chain)}; its limit is random, a function of the "
                                "scores, and no theorem cited here covers it", "average vectors before the scores enter",
                                NOT_COVERED, chain)
        else:
            good.append(position)
    if good:
        names = ", ".join(check.text(p) for p in good)
        check.claims.append(Claim("averages", "proved", f"{names} converge to numbers ({NETSOR_PLUS})"))
        yield check.finding("holds", tuple(good), f"{names}: 1/n scale, so averages, which converge to numbers ({NETSOR_PLUS})")


def _widths(check: _Check) -> Iterator[Finding]:
    used = {check.netsor.families[v.name].width for p in check.structure.relevant for v in
            (check.netsor.body[p].target, *check.netsor.body[p].inputs)} - {""}
    fixed = [name for name, _ in check.netsor.fixed_widths if name in used]
    growing = used - set(fixed)
    if len(growing) > 1:
        names = ", ".join(sorted(growing))
        check.claims.append(Claim("several widths", "proved", f"the widths {names} go to infinity together, in fixed ratios "
                                                              "(Yang 2019, Theorem 5.4 with several widths)"))
        yield check.finding("holds", (), f"the widths {names} go to infinity together, in fixed ratios (Yang 2019)")
    if fixed:
        names = ", ".join(fixed)
        check.claims.append(Claim("fixed width", "exact", f"{names} stays finite: scores are products of Gaussians there"))
        yield check.finding("holds", (), f"the width {names} stays finite; scores are products of Gaussians there, exactly")


def _induction(check: _Check) -> Iterator[Finding]:
    yield check.finding("holds", (), "every vector is made of earlier ones; recurrences decrease along an index "
                                     "(Sakai et al. 2025, footnote 2)")


# -- warnings -----------------------------------------------------------------------------------------------------------------


def _unused(check: _Check) -> Iterator[Finding]:
    for position, statement in enumerate(check.netsor.body):
        if position not in check.structure.relevant:
            yield check.finding("warning", (position,), f"{statement.target} does not reach an output; leaving it out is exact, and "
                                "the other rules do", f"drop it, or add {statement.target.name} to the outputs")


def _variance(check: _Check) -> Iterator[Finding]:
    done = set()
    for operand in check.structure.operands:
        if operand.definer is None or operand.definer in done:
            continue
        statement = check.netsor.body[operand.definer]
        if not isinstance(statement, MatMul):
            continue
        done.add(operand.definer)
        score = check.text(operand.dot)
        variance = check.calculus.closed(check.netsor.weight[statement.weight.name].variance)
        profile = check.calculus.vector(statement.vector, operand.definer)
        if variance == (0.0, 0.0):
            yield check.finding("warning", (operand.definer,), f"the variance of {statement.weight} is 0, so the score {score} vanishes "
                                "(Theorem 1 speaks of scores of positive variance)")
        elif profile.constant and profile.low == 0:
            yield check.finding("warning", (operand.definer,), f"{statement.vector} is 0, so the score {score} vanishes (Theorem 1 "
                                "speaks of scores of positive variance)")


def _second_moment(check: _Check, vector: Variable, position: int, depth: int = 0) -> float:
    """Upper bound on E[Z^2], inf if none is cheap."""
    initial = check.structure.initial.get(vector.name)
    calculus = check.calculus
    if initial is not None:
        if not isinstance(initial.cov, Expr) or not isinstance(initial.mean, Expr) or initial.data is not None:
            return math.inf
        copies = rebuild(initial.cov, lambda node: type(node)(node.name[:-1])  # type: ignore[call-arg]
                         if getattr(node, "name", "").endswith("_") else None)
        cov, mean = calculus.closed(copies), calculus.closed(initial.mean)
        return math.inf if cov is None or mean is None else cov[1] + max(abs(mean[0]), abs(mean[1])) ** 2
    profile = calculus.vector(vector, position)
    bound = max(abs(profile.low), abs(profile.high))
    definers = check.structure.definers(position, vector)
    statement = check.netsor.body[definers[0]] if len(definers) == 1 and depth < 8 else None
    if not isinstance(statement, MatMul):
        return bound**2
    variance = calculus.closed(check.netsor.weight[statement.weight.name].variance)
    return math.inf if variance is None else variance[1] * _second_moment(check, statement.vector, definers[0], depth + 1)


def _clips(check: _Check) -> Iterator[Finding]:
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if not isinstance(statement, Nonlin):
            continue
        for node in walk(statement.expr):
            if not (isinstance(node, Call) and node.atom == "clip" and isinstance(node.args[0], Variable)):
                continue
            low, high = (check.calculus.closed(p) for p in node.params)
            if low is None or high is None or check.netsor.families[node.args[0].name].kind != "vector":
                continue
            deviation = math.sqrt(_second_moment(check, node.args[0], position))
            if 0 < 8 * deviation < min(-low[1], high[0]):
                yield check.finding("warning", (position,), f"{node} is never active: {node.args[0]} has standard deviation at most "
                                    f"{deviation:.3g} in the limit, and the bounds lie more than 8 of them away")


RULES: tuple[Rule, ...] = (
    Rule("nonlinearities", "Sakai et al. 2025, Theorem 1; Yang 2019, Theorem 5.4", _nonlinearities),
    Rule("score operands are MatMul outputs", ASSUMPTION, _operands,
         "both operands of every score are MatMul outputs"),
    Rule("operand inputs bounded", ASSUMPTION, _bounded, "the input of every score operand is bounded"),
    Rule("dedicated weights", f"{ASSUMPTION} (a)", _dedicated,
         "clause (a): the weights that make score operands make nothing else"),
    Rule("weights of one score differ", f"{ASSUMPTION} (b)", _different,
         "clause (b): the two weights of each score differ; sharing across scores is allowed"),
    Rule("inductive definitions", "Sakai et al. 2025, footnote 2", _induction),
    Rule("one layer of scores", "Sakai et al. 2025, Theorem 1", _one_layer,
         "no weight multiplies a vector that depends on a score"),
    Rule("averages", NETSOR_PLUS, _averages),
    Rule("widths", "Yang 2019", _widths),
    Rule("positive variance", "Sakai et al. 2025, Theorem 1 (remark)", _variance),
    Rule("active clips", "theory.md section 3", _clips),
    Rule("unused statements", "theory.md section 4", _unused),
)
_ONLY_WITH_SCORES = ("score operands are MatMul outputs", "operand inputs bounded", "dedicated weights",
                     "weights of one score differ", "one layer of scores")


def check(netsor: Netsor) -> Report:
    """Judge a program by Theorem 1, or by Yang's theorem if it has no scores.

    Scale     independent of the sizes of families
    Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
    """
    structure = Structure(netsor)
    state = _Check(netsor, structure, Calculus(netsor, structure))
    findings: list[Finding] = []
    for rule in RULES:
        state.rule = rule
        found = list(rule.apply(state))
        if not any(f.verdict in ("fails", "unknown", "remark") for f in found):
            if rule.name == "nonlinearities":
                name = "pseudo-Lipschitz" if state.scored else "controlled"
                found.append(Finding(rule.name, "holds", message=f"every Nonlin is {name} ({SAKAI if state.scored else YANG})",
                                     source=rule.source))
            elif rule.holds and not found and (state.scored or rule.name not in _ONLY_WITH_SCORES):
                found.append(Finding(rule.name, "holds", message=f"{rule.holds} ({rule.source})", source=rule.source))
        findings += found
    findings.sort(key=lambda f: ORDER.index(f.verdict))
    failing = [f for f in findings if f.verdict in ("fails", "unknown")]
    grade: Grade = "theorem"
    if failing:
        grade = "outside"
    elif state.claims:
        grade = "extension"
    elif any(f.verdict == "remark" for f in findings):
        grade = "remark"
    consequence = ""
    if failing:
        kinds = [f.consequence for f in failing]
        consequence = next((k for k in (DIVERGES, NO_LIMIT) if k in kinds), NOT_COVERED)
    source = SAKAI if state.scored else YANG
    if grade == "extension" and any(c.name == "averages" for c in state.claims):
        source = f"{SAKAI}, with {NETSOR_PLUS}" if state.scored else NETSOR_PLUS
    return Report(netsor.name, grade, source, tuple(findings), tuple(state.claims) if grade == "extension" else (), consequence,
                  "sqrt(n)" if consequence == DIVERGES else "")

