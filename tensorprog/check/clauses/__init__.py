"""Does a theorem apply?  One rule per clause of Assumption 1, each with findings that say why and what to change.

`check(netsor)` gives a `Report` with one of four grades:

    theorem     Assumption 1 as written (Sakai et al. 2025, Theorem 1), or Yang's theorem for programs without scores
    remark      all but the boundedness of operand inputs, which the paper says can be dropped
    extension   covered by a result elsewhere, or exact; `claims` says which
    outside     no limit is claimed; `consequence` says what follows

Source    theory.md section 3; Sakai et al. 2025 (arXiv 2506.00846), Yang 2019 (arXiv 1910.12478), Theorem 5.4
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorprog.check.certificates import Calculus
from tensorprog.check.clauses.advice import clips, rounded, unused, variance
from tensorprog.check.clauses.compiled import compiled
from tensorprog.check.clauses.context import (
    ASSUMPTION,
    DIVERGES,
    NETSOR_PLUS,
    NO_LIMIT,
    NOT_COVERED,
    SAKAI,
    YANG,
    Context,
    Degenerate,
    Numbers,
    Rule,
)
from tensorprog.check.clauses.declared import declared
from tensorprog.check.clauses.extensions import averages, induction, widths
from tensorprog.check.clauses.functions import nonlinearities
from tensorprog.check.clauses.layers import one_layer
from tensorprog.check.clauses.limiting import limiting_values
from tensorprog.check.clauses.report import Claim, Finding, Grade, Report
from tensorprog.check.clauses.scales import scales
from tensorprog.check.clauses.scores import bounded, dedicated, different, operands
from tensorprog.check.clauses.transposes import transposes
from tensorprog.check.graph import Structure
from tensorprog.check.rewrites import normalize
from tensorprog.language.ir import Netsor

__all__ = ["RULES", "Claim", "Degenerate", "Finding", "Numbers", "Report", "Rule", "check"]

ORDER = ("fails", "unknown", "remark", "warning", "holds")
RULES: tuple[Rule, ...] = (
    Rule("nonlinearities", "Sakai et al. 2025, Theorem 1; Yang 2019, Theorem 5.4", nonlinearities),
    Rule("score operands are MatMul outputs", ASSUMPTION, operands, "both operands of every score are MatMul outputs"),
    Rule("operand inputs bounded", ASSUMPTION, bounded, "the input of every score operand is bounded"),
    Rule(
        "dedicated weights",
        f"{ASSUMPTION} (a)",
        dedicated,
        "clause (a): the weights that make score operands make nothing else",
    ),
    Rule(
        "weights of one score differ",
        f"{ASSUMPTION} (b)",
        different,
        "clause (b): the two weights of each score differ; sharing across scores is allowed",
    ),
    Rule("scales", "Sakai et al. 2025, Definition 1 (iv): scores have mean zero", scales),
    Rule("inductive definitions", "Sakai et al. 2025, footnote 2", induction),
    Rule(
        "one layer of scores",
        "Sakai et al. 2025, Theorem 1",
        one_layer,
        "no weight multiplies a vector that depends on a score",
    ),
    Rule("transposes", "Yang 2020 (arXiv 2006.14548), NetsorT", transposes),
    Rule("averages", NETSOR_PLUS, averages),
    Rule("limiting values", NETSOR_PLUS, limiting_values),
    Rule("widths", "Yang 2019", widths),
    Rule("positive variance", "Sakai et al. 2025, Theorem 1 (remark)", variance),
    Rule("declared functions", "tp.atom", declared),
    Rule("active clips", "advice, no clause of Assumption 1", clips),
    Rule("given covariances", "advice, no clause of Assumption 1", rounded),
    Rule("unused statements", "advice, no clause of Assumption 1", unused),
    Rule("compiled limit", "this version of tensorprog", compiled),
)


def check(netsor: Netsor, numbers: Numbers | None = None) -> Report:
    """Judge a program by Theorem 1, or by Yang's theorem if it has no scores, after exact rewrites.

    `numbers` may know numbers of the limit: means of scores, limits of averages.

    Scale     independent of the sizes of families
    Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
    """
    rewritten = normalize(netsor)
    structure = Structure(rewritten.netsor)
    state = Context(netsor, rewritten, structure, Calculus(rewritten.netsor, structure), numbers or Numbers())
    findings: list[Finding] = []
    for rule in RULES:
        state.rule = rule
        found = _once(rule.apply(state))
        if rule.holds and state.scores and not found:
            found.append(state.finding("holds", (), rule.holds))
        findings += found
        state.failing |= any(f.verdict in ("fails", "unknown") for f in found)
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
    return Report(
        netsor.name,
        grade,
        source,
        tuple(findings),
        tuple(state.claims) if grade == "extension" else (),
        consequence,
        "sqrt(n)" if consequence == DIVERGES else "",
        rewritten.steps,
    )


def _once(found: Iterable[Finding]) -> list[Finding]:
    """One finding for each place: parts of one score may all have the same fault."""
    kept: dict[tuple[str, str, str], Finding] = {}
    for finding in found:
        first = kept.setdefault((finding.verdict, finding.where, finding.consequence), finding)
        if first is not finding and finding.message not in first.message and finding.verdict == "warning":
            kept[finding.verdict, finding.where, finding.message] = finding
    return list(kept.values())
