"""`Report`: the grade of a program, the findings behind it, and what to change, all plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tensorprog.blocks import Block, Judgement, Judgements, Paragraph, badge, judgement_text, paragraph, strong, to_text
from tensorprog.blocks.html import Shown
from tensorprog.check.rewrites import Rewrite

Grade = Literal["theorem", "remark", "extension", "outside"]
ASSUMED = "assumed"  # the name of claims that nothing proves
GRADES: tuple[Grade, ...] = ("theorem", "remark", "extension", "outside")
Standing = Literal["proved", "exact", "conjecture", "not shown"]
Says = Literal["holds", "fails", "unknown", "warning", "remark"]


@dataclass(frozen=True)
class Finding:
    """What one clause says about one place of the program, in the user's names."""

    rule: str
    verdict: Says
    where: str = ""  # statements, separated by ", "
    line: int = 0
    message: str = ""
    fixes: tuple[str, ...] = ()  # what to change, each enough
    source: str = ""
    nodes: tuple[str, ...] = ()  # of the graph: the statements at fault and the chain between them
    consequence: str = ""  # what follows if it fails

    @property
    def failing(self) -> bool:
        """Whether it puts the program outside."""
        return self.verdict in ("fails", "unknown")

    @property
    def fix(self) -> str:
        """What to change, as text."""
        return "; or ".join(self.fixes)

    def to_json(self) -> dict[str, Any]:
        """Return the public fields."""
        return {
            "rule": self.rule,
            "verdict": self.verdict,
            "where": self.where,
            "line": self.line,
            "message": self.message,
            "fix": self.fix,
            "source": self.source,
            "nodes": list(self.nodes),
        }

    @property
    def judgement(self) -> Judgement:
        """What is shown: verdict, rule and place, why, from where unless that is said already, and what to try."""
        known = self.verdict != "holds" and self.source in self.message
        texts = ("why", self.message), ("from", "" if known else self.source), ("try", self.fix)
        return Judgement(self.verdict, self.rule, self.where, self.line, tuple(pair for pair in texts if pair[1]))

    def __str__(self) -> str:
        return judgement_text(self.judgement)


@dataclass(frozen=True)
class Claim:
    """A result used beyond Assumption 1, with the standing of its proof, or what is assumed of a function."""

    name: str
    standing: Standing
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.name == ASSUMED else f"{self.name} ({self.standing}): {self.text}"


@dataclass(frozen=True)
class Report(Shown):
    """The grade of a program and the findings behind it, worst first."""

    program: str
    grade: Grade
    source: str
    findings: tuple[Finding, ...]
    claims: tuple[Claim, ...] = ()
    consequence: str = ""  # of `outside`: diverges | not covered
    rate: str = ""  # of `diverges`
    rewrites: tuple[Rewrite, ...] = ()  # exact, made before judging

    @property
    def failing(self) -> tuple[Finding, ...]:
        """Findings that put the program outside."""
        return tuple(finding for finding in self.findings if finding.failing)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What is not shown, and the grade rests on, as text."""
        return tuple(str(claim) for claim in self.claims if claim.name == ASSUMED)

    def to_json(self) -> dict[str, Any]:
        """Return plain data: grade, source, consequence, claims and findings."""
        return {
            "grade": self.grade,
            "source": self.source,
            "consequence": self.consequence,
            "rate": self.rate,
            "claims": [{"name": c.name, "standing": c.standing, "text": c.text} for c in self.claims],
            "rewrites": [rewrite.to_json() for rewrite in self.rewrites],
            "findings": [finding.to_json() for finding in self.findings],
        }

    @property
    def says(self) -> str:
        """What the grade means."""
        unbounded = any(finding.verdict == "remark" for finding in self.findings)
        remark = ", with its remark on unbounded inputs" if unbounded else ""
        assumed = "".join(f"; {claim}" for claim in self.assumed)
        how = "after exact rewrites" if self.rewrites else "as written"
        return {
            "theorem": f"the theorem applies {how} ({self.source})",
            "remark": f"the theorem applies with its remark on unbounded inputs ({self.source})",
            "extension": f"covered beyond the theorem{remark} ({self.source}){assumed}",
            "outside": f"no limit is claimed: {self.consequence}" + (f" like {self.rate}" if self.rate else ""),
        }[self.grade]

    @property
    def summary(self) -> Paragraph:
        """The grade and what it means, in a line."""
        return paragraph(badge(self.grade), " - ", self.says)

    def blocks(self) -> list[Block]:
        """The grade, what it rests on besides the clauses, and the findings."""
        return [paragraph(strong(self.program), ": ", *self.summary.words), *self.basis]

    @property
    def basis(self) -> list[Block]:
        """Results beyond Assumption 1 and exact rewrites that the grade rests on, then the findings."""
        claims = (paragraph(claim, label="claim") for claim in self.claims)
        rewrites = (paragraph(f"{rewrite}   [line {rewrite.line}]", label="rewrite") for rewrite in self.rewrites)
        return [*claims, *rewrites, Judgements(tuple(finding.judgement for finding in self.findings))]

    def __str__(self) -> str:
        return to_text(self.blocks())
