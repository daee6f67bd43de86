"""Formulas in the LaTeX that this package writes, as MathML: browsers show it without scripts or fonts of their own.

The grammar is that of mathematics in LaTeX: a row of atoms with subscripts and superscripts, where an atom is a letter,
a number, a command with its arguments, an environment, or a row in braces or between \\left and \\right.  What is not
known is shown as it is written, so nothing gets lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from html.entities import html5

from tensorprog.blocks.markup import PARAGRAPH, Html, joined, tag

__all__ = ["displayed", "mathml"]

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
MATHEMATICS = re.compile(r"\\\[(?P<one>.*?)\\\]|\\begin\{multline\*\}(?P<many>.*?)\\end\{multline\*\}", re.DOTALL)
INLINE = re.compile(r"\$([^$]+)\$")

# names of HTML, which are those of LaTeX, and below where LaTeX has another name or means another sign
NAMED_LETTERS = (
    "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon chi psi omega ell "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
NAMED_OPERATORS = (
    "times sim le leq ge geq ne wedge vee pm in lfloor rfloor lceil rceil lbrace rbrace langle rangle vert Vert prime "
    "top perp subsetneq"
)
LETTERS = {name: html5[f"{name};"] for name in NAMED_LETTERS.split()} | {
    "infty": "\u221e",
    "partial": "\u2202",
    "varepsilon": "\u03b5",
    "epsilon": "\u03f5",
    "varphi": "\u03c6",
    "phi": "\u03d5",
}
OPERATORS = {name: html5[f"{name};"] for name in NAMED_OPERATORS.split()} | {
    "cdot": "\u22c5",
    "to": "\u2192",
    "neq": "\u2260",
    "neg": "\u00ac",
    "ldots": "\u2026",
    "dots": "\u2026",
    "mid": "|",
    "circ": "\u2218",
}
SIDES = {"lvert": "prefix", "rvert": "postfix"}  # of an absolute value
BLACKBOARD = {"E": "\U0001d53c", "P": "\u2119", "R": "\u211d", "N": "\u2115", "Z": "\u2124"}
LARGE = {"sum": "\u2211", "prod": "\u220f", "int": "\u222b"}
FUNCTIONS = frozenset(
    (
        "min",
        "max",
        "exp",
        "log",
        "ln",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sinh",
        "cosh",
        "arcsin",
        "arccos",
        "arctan",
        "sign",
    )
)
SPACES = {",": ".17em", ":": ".22em", ";": ".28em", "!": "0", " ": ".3em", "quad": "1em", "qquad": "2em"}
ACCENTS = {"mathring": "\u02da", "tilde": "~", "hat": "^", "bar": "\u00af", "overline": "\u00af"}
SCROLLS = {
    "class_": "formula",
    "style": "overflow-x:auto;padding:.2em 0",
    "tabindex": 0,
    "role": "group",
    "aria_label": "formula",
}
STYLES = {"mathit": "font-style:italic", "mathbf": "font-weight:bold"}
UPRIGHT = {"operatorname", "mathrm", "text", "textrm", "mbox"}
SIZED = ("middle", "bigl", "bigr", "Bigl", "Bigr")  # before a bracket
LOOKS = {key: {"stretchy": "false"} for key in "()[]|"} | {"/": {"lspace": "0", "rspace": "0"}}  # as in LaTeX
SEPARATORS = ("&", r"\\")


def displayed(text: str) -> Html:
    """Paragraphs of prose with mathematics in $ $, and displayed formulas."""
    parts, last = [], 0
    for found in MATHEMATICS.finditer(text):
        parts.append(_prose(text[last : found.start()]))
        formula = found["one"] if found["one"] is not None else rf"\begin{{lines}}{found['many']}\end{{lines}}"
        parts.append(tag("div", mathml(formula, block=True), **SCROLLS))
        last = found.end()
    return joined([*parts, _prose(text[last:])])


def _prose(text: str) -> Html:
    shown = []
    for line in filter(None, map(str.strip, text.splitlines())):
        pieces = INLINE.split(line)  # text and formulas by turns
        shown.append(tag("p", *(mathml(piece) if k % 2 else piece for k, piece in enumerate(pieces)), style=PARAGRAPH))
    return joined(shown)


def mathml(formula: str, block: bool = False) -> Html:
    """One formula."""
    reader = _Formula(formula)
    content = []
    while reader.token:  # closing braces without an opening one are shown
        content += [*reader.row(()), *([_operator(reader.take())] if reader.token else [])]
    if block:
        return tag("math", tag("mrow", *content), display="block", style="width:max-content")
    return tag("math", tag("mrow", *content))


def _operator(text: str) -> Html:
    return tag("mo", {"-": "\u2212", "*": "\u2217"}.get(text, text), **LOOKS.get(text, {}))


class _Formula:
    """One walk over the tokens of a formula."""

    def __init__(self, formula: str) -> None:
        self.tokens = TOKEN.findall(formula)
        self.place = 0

    @property
    def token(self) -> str:
        """The next token, or nothing at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        """The next token, and go on."""
        token, self.place = self.token, self.place + 1
        return token

    def skip(self) -> None:
        """Leave out blanks."""
        while self.token.isspace():
            self.place += 1

    def row(self, stops: Collection[str]) -> list[Html]:
        """Atoms with their scripts up to one of `stops`, or a brace that closes."""
        found = []
        self.skip()
        while self.token and self.token != "}" and self.token not in stops:
            found.append(self.scripts())
            self.skip()
        return found

    def scripts(self) -> Html:
        """An atom with what stands below and above it; large operators have it under and over themselves."""
        large = self.token.removeprefix("\\") in ("sum", "prod")
        base = self.atom()
        below: Html | None = None
        above: list[Html] = []
        self.skip()
        while self.token in ("_", "^", "'"):
            mark = self.take()
            if mark == "'" and not above:  # beside the letter: raised and small, fonts without mathematics lose it
                base = tag("mrow", base, tag("mo", "\u2032", lspace="0", rspace="0"))
            elif mark == "'":
                above.append(tag("mo", "\u2032"))
            elif mark == "^":
                above.append(self.argument())
            else:
                below = self.argument()
            self.skip()
        if below is None and not above:
            return base
        names = ("munder", "mover", "munderover") if large else ("msub", "msup", "msubsup")
        top = tag("mrow", *above)
        if below is None:
            return tag(names[1], base, top)
        return tag(names[2], base, below, top) if above else tag(names[0], base, below)

    def argument(self) -> Html:
        """What a script or command takes: a row in braces, or one atom."""
        self.skip()
        if self.token == "{":
            return self.braces()
        return tag("mrow") if self.token in ("", "}") else self.atom()

    def braces(self) -> Html:
        """A row in braces."""
        self.take()
        content = self.row(())
        self.take()
        return tag("mrow", *content)

    def raw(self) -> str:
        """An argument in braces as it is written."""
        self.skip()
        if self.token != "{":
            return self.take()
        depth, text = 0, ""
        while self.token:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if not depth:
                break
            text += token
        return re.sub(r"\\(.)", r"\1", text[1:])

    def atom(self) -> Html:
        """One atom."""
        token = self.token
        if token == "{":
            return self.braces()
        self.take()
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return tag("mn", token)
        if token[0].isalpha():
            return tag("mi", token)
        return _operator(token)

    def command(self, name: str) -> Html:
        """A command with its arguments."""
        special: dict[str, Callable[[], Html]] = {
            "frac": self.fraction,
            "tfrac": self.fraction,
            "left": self.fence,
            "begin": self.environment,
            "sqrt": lambda: tag("msqrt", self.argument()),
        } | dict.fromkeys(SIZED, lambda: tag("mo", self.delimiter(), stretchy="true"))
        if name in special:
            return special[name]()
        if name in LETTERS:
            return tag("mi", LETTERS[name])
        if name in LARGE:
            return tag("mo", LARGE[name], largeop="true", movablelimits="false")
        if name in OPERATORS:
            return tag("mo", OPERATORS[name])
        if name in SIDES:
            return tag("mo", "|", form=SIDES[name], stretchy="false")
        if name in SPACES:
            return tag("mspace", width=SPACES[name])
        if name in ACCENTS:
            return tag("mover", self.argument(), tag("mo", ACCENTS[name], stretchy="false"), accent="true")
        if name in UPRIGHT:
            return tag("mtext" if "text" in name else "mi", self.raw(), mathvariant="normal")
        if name in STYLES:
            return tag("mi", self.raw(), style=STYLES[name])
        if name == "mathbb":
            text = self.raw()
            return tag("mi", BLACKBOARD.get(text, text))
        if name in FUNCTIONS:
            return tag("mi", name, mathvariant="normal")
        return tag("mo", name) if len(name) == 1 and not name.isalpha() else tag("mtext", f"\\{name}")

    def fraction(self) -> Html:
        """Numerator and denominator."""
        return tag("mfrac", self.argument(), self.argument())

    def delimiter(self) -> str:
        """A bracket, or nothing."""
        self.skip()
        token = self.take()
        name = token.removeprefix("\\")
        return "" if token == "." else "\u2016" if token == r"\|" else OPERATORS.get(name, name)

    def fence(self) -> Html:
        """A row between brackets as high as it is."""
        opening = self.delimiter()
        content = self.row((r"\right",))
        while self.token == "}":  # not ours
            content += [_operator(self.take()), *self.row((r"\right",))]
        self.take()
        closing = self.delimiter()
        before, after = (
            tag("mo", side, fence="true", stretchy="true", form=form) if side else ""
            for side, form in ((opening, "prefix"), (closing, "postfix"))
        )
        return tag("mrow", before, *content, after)

    def environment(self) -> Html:
        """Cells in rows: matrices, cases, and lines of one formula."""
        kind = self.raw()
        rows: list[list[Html]] = [[]]
        while self.token:
            rows[-1].append(
                tag(
                    "mtd",
                    *self.row((*SEPARATORS, r"\end")),
                    style=f"text-align:{'center' if 'matrix' in kind else 'left'};padding:.15em .4em",
                )
            )
            mark = self.take()
            if mark == r"\\":
                rows.append([])
            elif mark == r"\end":
                self.raw()
                break
        whole = "true" if kind == "lines" else "false"
        grid = tag("mtable", *(tag("mtr", *cells) for cells in rows if cells), displaystyle=whole)
        brace = tag("mo", "{", fence="true", stretchy="true", form="prefix")
        return tag("mrow", brace, grid) if kind == "cases" else grid
