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

from collections.abc import Iterable

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
from tensorprog.check.clauses.extensions import averages, compiled, coordinates, induction, one_layer, unused, widths
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
    induction,
    one_layer,
    transposes,
    averages,
    coordinates,
    limiting_values,
    widths,
    variance,
    declared,
    unused,
    compiled,
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
    claims: list[Claim] = []
    for rule in RULES:
        context.rule = rule
        said = list(rule.apply(context))
        found = _once(entry for entry in said if isinstance(entry, Finding))
        if rule.holds and context.sides and not found:
            found.append(context.finding("holds", (), rule.holds))
        findings += found
        claims += (entry for entry in said if isinstance(entry, Claim))
        context.failing |= any(finding.failing for finding in found)
    findings.sort(key=lambda f: ORDER.index(f.verdict))
    follows = {finding.consequence for finding in findings if finding.failing}
    consequence = next((k for k in (DIVERGES, NOT_COVERED) if k in follows), "")
    remarked = any(f.verdict == "remark" for f in findings)
    grade: Grade = "outside" if follows else "extension" if claims else "remark" if remarked else "theorem"
    scored = bool(structure.scores)
    source = SAKAI if scored else YANG
    if grade == "extension" and any(c.name == averages.name for c in claims):
        source = f"{SAKAI}, with {NETSOR_PLUS}" if scored else NETSOR_PLUS
    if any(f.source == GRADIENTS for f in findings):
        source = f"{source}, with {GRADIENTS}"
    if grade == "extension" and any(c.name == transposes.name for c in claims):
        source = f"{source}, with {transposes.source}"
    together = _together(claims) if grade == "extension" else ()
    rate = "sqrt(n)" if consequence == DIVERGES else ""
    return Report(netsor.name, grade, source, tuple(findings), together, consequence, rate, rewritten.steps)


def _together(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Claims, those of one name and standing as one."""
    texts: dict[tuple[str, Standing], list[str]] = {}
    for claim in claims:
        texts.setdefault((claim.name, claim.standing), []).append(claim.text)
    return tuple(Claim(*key, "; ".join(found)) for key, found in texts.items())


def _once(found: Iterable[Finding]) -> list[Finding]:
    """One finding for each place, but for warnings: parts of one score may all have the same fault."""
    kept: dict[tuple[str, ...], Finding] = {}
    for f in found:
        kept.setdefault((f.verdict, f.where, f.consequence, f.message if f.verdict == "warning" else ""), f)
    return list(kept.values())
