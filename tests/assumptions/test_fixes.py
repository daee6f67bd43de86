"""What findings propose, all typed in at once, is a program that loads and has a better grade: one round is enough."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tensorprog.check.clauses import Finding
from tensorprog.check.clauses.report import GRADES
from tensorprog.language.ir import MatMul, Netsor
from tensorprog.results.judge import judge
from tests.corpus import CASES, Case

AVERAGE = re.compile(r"^(?P<target>[^=]+) = (?P<right>Dot\(.*?, scale=1/n\)), an average")
SEPARATE = re.compile(r"separate weights, e.g. (?P<target>[^=]+) = (?P<right>MatMul\((?P<weight>\w+).*?\)) with a "
                      r"weight \S.* of its own(?:, and (?P<dot>Dot\(.*\))|, and .* in what makes \w+)?$")
OWN = re.compile(r"^give (?P<target>\S.*) a weight of its own: declare another weight with the indices of "
                 r"(?P<weight>\w+)")
EACH = re.compile(r"^(?P<target>[^=]+) = (?P<right>MatMul\(.*\)), with a weight (?P<weight>\S+) for each \w+$")
CLIPPED = re.compile(r"^(?P<target>[^=]+) = (?P<right>Nonlin\(clip\(.*, -10, 10\)\))")
WITHIN = re.compile(r"^(?P<new>clip\((?P<old>\S+), -10, 10\)) in place of (?P=old) in (?P<target>\S+)$")
INSTEAD = re.compile(r", and (?P<new>\w+) in place of (?P<old>\w+) in (?:what makes (?P<maker>\w+)|the operand)$")
COPIED = re.compile(r"separate weights, e.g. (?P<target>\S+) = (?P<right>MatMul\(.*?\)) with a weight (?P<weight>\S+) "
                    r"of its own, (?P<copy>\S+) = (?P<made>Nonlin\(.*\)), and (?P<score>\S+) = (?P<dot>Dot\(.*\))$")
OPERANDS = re.compile(r"^(?P<made>\S+(?:\[[^]]*\])? = MatMul\(.*\)), with (?:a weight|weights) (?P<weights>.*) of "
                      r"(?:its|their) own, and (?P<target>\S.*) = (?P<right>Dot\(.*\))$")
WHOLE = re.compile(r", e\.g\. (?P<target>\w[^=]*) = (?P<right>Nonlin\(.*\))$")
OTHER = re.compile(r", e\.g\. (?P<new>.*) in place of (?P<old>.*)$")


@dataclass
class Edited:
    """A program whose statements can be replaced."""

    case: Case
    netsor: Netsor
    body: list[str]
    weights: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case) -> Edited:
        netsor = case.load()
        weights = {weight.name + _slots(weight.indices): {"variance": str(weight.variance), "shape": list(weight.shape)}
                   for weight in netsor.weights}
        return cls(case, netsor, list(map(str, netsor.body)), weights)

    def line(self, target: str) -> int:
        """Where a target is defined."""
        return next(k for k, line in enumerate(self.body) if _plain(line.split("=")[0]) == _plain(target))

    def instead(self, finding: Finding) -> None:
        """Read one vector in place of another, where a finding says so."""
        found = INSTEAD.search(finding.fix)
        if found:
            maker = rf"{found['maker']}\b.*" if found["maker"] else re.escape(finding.where.split(", ")[-1])
            at = next(k for k, line in enumerate(self.body) if re.match(maker, line))
            left, right = self.body[at].split("=", 1)
            self.body[at] = left + "=" + re.sub(rf"\b{found['old']}\b", found["new"], right)

    def put(self, target: str, right: str) -> None:
        """Put another right side, or a new statement in front of those that read it."""
        try:
            self.body[self.line(target)] = f"{target} = {right}"
        except StopIteration:
            name = re.compile(rf"\b{target.split('[')[0].strip()}\b")
            at = next((k for k, line in enumerate(self.body) if name.search(line)), len(self.body))
            self.body.insert(at, f"{target} = {right}")

    def copy(self, weight: str, name: str) -> None:
        """Declare another weight like one that there is."""
        old = next(key for key in self.weights if key.split("[")[0] == weight)
        self.weights[old.replace(weight, name, 1)] = deepcopy(self.weights[old])

    def grade(self) -> str:
        """The grade of the program as it is now."""
        case = replace(self.case, base="nothing", replace={}, then="\n".join(self.body), weights=self.weights)
        return judge(case.load()).grade


def _slots(indices: tuple[str, ...]) -> str:
    return f"[{','.join(indices)}]" if indices else ""


def _plain(text: str) -> str:
    return re.sub(r"\s", "", text)


def _maker(edited: Edited, target: str) -> MatMul:
    return next(s for s in edited.netsor.body if isinstance(s, MatMul) and _plain(str(s.target)) == _plain(target))


def average(edited: Edited, finding: Finding) -> bool:
    found = AVERAGE.search(finding.fix)
    if found:
        edited.put(found["target"], found["right"])
    return bool(found)


def weight(edited: Edited, finding: Finding) -> bool:
    found = COPIED.search(finding.fix)
    if found:
        edited.put(found["score"], found["dot"])
        edited.put(found["copy"], found["made"])
        edited.put(found["target"], found["right"])
        edited.copy(_maker(edited, finding.where.split(", ")[-1]).weight.name, found["weight"])
        return True
    found = SEPARATE.search(finding.fix)
    if found:
        made = _maker(edited, finding.where.split(", ")[-1])
        if found["dot"]:
            left = _plain(found["dot"])[: _plain(found["dot"]).index(made.target.name + "_key")]
            score = next(line for line in edited.body if left in _plain(line))
            edited.put(score.split("=")[0].strip(), found["dot"])
        edited.instead(finding)
        edited.put(found["target"], found["right"])
        edited.copy(made.weight.name, found["weight"])
        return True
    found = EACH.search(finding.fix)
    if found:
        old = _maker(edited, found["target"]).weight.name
        edited.put(found["target"], found["right"])
        like = next(entry for key, entry in edited.weights.items() if key.split("[")[0] == old)
        edited.weights[found["weight"]] = deepcopy(like)
        return True
    found = OWN.search(finding.fix)
    if found:
        made = _maker(edited, found["target"])
        edited.copy(found["weight"], "Own")
        edited.put(found["target"], str(replace(made, weight=replace(made.weight, name="Own"))).split(" = ")[1])
    return bool(found)


def clipped(edited: Edited, finding: Finding) -> bool:
    found = CLIPPED.search(finding.fix)
    if found:
        edited.instead(finding)
        edited.put(found["target"], found["right"])
        return True
    found = WITHIN.search(finding.fix)
    if found:
        at = edited.line(found["target"])
        edited.body[at] = edited.body[at].replace(found["old"], found["new"])
    return bool(found)


def operands(edited: Edited, finding: Finding) -> bool:
    found = OPERANDS.search(finding.fix)
    if found:
        edited.put(found["target"], found["right"])
        for made, name in zip(found["made"].split(" and "), found["weights"].split(" and "), strict=True):
            target, right = made.split(" = ")
            edited.put(target, right)
            read = re.split(r"[\[)]", right.split(", ", 1)[1])[0]
            width = edited.netsor.families[read].width
            edited.weights[name] = {"variance": "1", "shape": [width, width]}
    return bool(found)


def function(edited: Edited, finding: Finding) -> bool:
    found = WHOLE.search(finding.fix)
    if found:
        edited.put(found["target"], found["right"])
        return True
    found = OTHER.search(finding.fix)
    if found:
        at = [k for k, line in enumerate(edited.body) if found["old"] in line]
        assert at, found["old"]
        for k in at:
            edited.body[k] = edited.body[k].replace(found["old"], found["new"])
    return bool(found)


FIXES: tuple[Callable[[Edited, Finding], bool], ...] = (average, weight, operands, clipped, function)
ELSEWHERE = "independent initial vectors of mean 0 in the two operands"  # a matter of what the program declares
DECIDING = {"outside": ("fails", "unknown"), "remark": ("remark",)}
FAULTY = [case for case in CASES.values() if case.grade in DECIDING]


@pytest.mark.turns(10)
@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_what_is_proposed_helps_in_one_round(case: Case) -> None:
    findings = [f for f in judge(case.load()).findings if f.verdict in DECIDING[case.grade]]
    proposed = [finding for finding in findings if finding.fix]
    assert all("nothing is proposed" in finding.message for finding in findings if not finding.fix)
    for which in (0, -1) if any("; or " in finding.fix for finding in proposed) else (0,) if proposed else ():
        edited = Edited.of(case)
        for finding in proposed:
            said = finding.fix.split("; or ")
            one = replace(finding, fix=said[0] if said[which] == ELSEWHERE else said[which])
            assert any(fix(edited, one) for fix in FIXES), one.fix
        assert GRADES.index(edited.grade()) < GRADES.index(case.grade), edited.body
