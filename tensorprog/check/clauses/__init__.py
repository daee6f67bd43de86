"""Does a theorem apply?  One rule per clause of Assumption 1, each with findings that say why and what to change.

`check(netsor)` gives a `Report` with one of four grades:

    theorem     Assumption 1 as written (Sakai et al. 2025, Theorem 1), or Yang's theorem for programs without scores
    remark      all but the boundedness of operand inputs, which the paper says can be dropped
    extension   covered by a result elsewhere, or exact; `claims` says which
    outside     no limit is claimed; `consequence` says what follows

Source    the theory page, "When it holds"; Sakai et al. 2025 (arXiv 2506.00846); Yang 2019 (arXiv 1910.12478),
          Theorem 5.4
"""

from __future__ import annotations

from tensorprog.check.clauses.context import (
    DIVERGES,
    GRADIENTS,
    NETSOR_PLUS,
    NOT_COVERED,
    SAKAI,
    YANG,
    Context,
    LimitNumbers,
    Rule,
)
from tensorprog.check.clauses.extensions import averages, coordinates, one_layer, widths
from tensorprog.check.clauses.functions import declared, limiting_values, nonlinearities
from tensorprog.check.clauses.report import GRADES, Claim, Finding, Grade, Report, Standing
from tensorprog.check.clauses.scores import bounded, dedicated, different, operands, scales, transposes, variance
from tensorprog.check.facts import Calculus
from tensorprog.check.graph import Structure
from tensorprog.check.rewrites import normalize
from tensorprog.language.ir import Netsor

__all__ = ["GRADES", "RULES", "Claim", "Finding", "Report", "Rule", "check"]

RULES: tuple[Rule, ...] = (
    nonlinearities,
    operands,
    bounded,
    dedicated,
    different,
    scales,
    one_layer,
    transposes,
    averages,
    coordinates,
    limiting_values,
    widths,
    variance,
    declared,
)
ORDER = ("fails", "unknown", "remark", "warning", "holds")


def check(netsor: Netsor, numbers: LimitNumbers | None = None) -> Report:
    """Judge a program by Theorem 1, or by Yang's theorem if it has no scores, after exact rewrites.

    `numbers` may know numbers of the limit: means of scores, limits of averages.

    Scale     independent of the sizes of families
    Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
    """
    rewritten = normalize(netsor)
    structure = Structure.of(rewritten.netsor)
    context = Context(netsor, rewritten, structure, Calculus(rewritten.netsor), numbers or LimitNumbers())
    findings: list[Finding] = []
    texts: dict[tuple[str, Standing], list[str]] = {}  # of claims, those of one name and standing together
    for rule in RULES:
        context.rule = rule
        kept: dict[tuple[str, ...], Finding] = {}  # one for each place: parts of one score may all have the same fault
        for said in rule.apply(context):
            if isinstance(said, Claim):
                texts.setdefault((said.name, said.standing), []).append(said.text)
            else:
                warning = said.message if said.verdict == "warning" else ""
                kept.setdefault((said.verdict, said.where, said.consequence, warning), said)
        if rule.holds and context.sides and not kept:
            kept["holds",] = context.finding("holds", (), rule.holds)
        findings += kept.values()
    findings.sort(key=lambda f: ORDER.index(f.verdict))
    follows = {finding.consequence for finding in findings if finding.failing}
    consequence = next((k for k in (DIVERGES, NOT_COVERED) if k in follows), "")
    remarked = any(f.verdict == "remark" for f in findings)
    grade: Grade = "outside" if follows else "extension" if texts else "remark" if remarked else "theorem"
    claims = tuple(Claim(*key, "; ".join(found)) for key, found in texts.items()) if grade == "extension" else ()
    claimed = {claim.name for claim in claims}
    beside = {
        NETSOR_PLUS: averages.name in claimed,
        GRADIENTS: any(f.source == GRADIENTS for f in findings),
        transposes.source: transposes.name in claimed,
    }
    main = SAKAI if structure.scores else "" if averages.name in claimed else YANG
    source = ", with ".join(filter(None, (main, *(name for name, used in beside.items() if used))))
    rate = "sqrt(n)" if consequence == DIVERGES else ""
    return Report(netsor.name, grade, source, tuple(findings), claims, consequence, rate, rewritten.steps)
