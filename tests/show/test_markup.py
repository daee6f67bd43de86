"""HTML from text, formulas and pictures: everything is escaped, nothing is lost."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import pytest

import tensorprog as tp
from tensorprog.blocks import Grid
from tensorprog.blocks.html import to_html
from tensorprog.blocks.markup import Html, joined, tag
from tensorprog.blocks.mathml import displayed, mathml
from tensorprog.blocks.svg import embedded, palette

EVIL = "<script>alert('x')</script> & \""


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", EVIL, Html("<b>x</b>"), title=EVIL, hidden=True, class_="a", aria_label="b", lang=None) == (
        '<p title="&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;" hidden="" class="a" aria-label="b">'
        "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;<b>x</b></p>"
    )
    assert joined(["a", None, "", 0], "<") == "a<0"
    assert tag("br") == "<br>"


def test_tables_have_captions_and_headings() -> None:
    shown = ElementTree.fromstring(
        to_html([Grid(EVIL, ("name", EVIL), ((EVIL, "1"), ("", "2")), marked=(1,), shades={(0, 1): -0.5})])
    )
    assert shown.findtext(".//caption") == EVIL
    assert [cell.get("scope") for cell in shown.iter("th")] == ["col", "col", "row"]
    assert [cell.text for cell in shown.iter("td")] == ["1", None, "2"]
    assert "rgba(213,94,0,0.25)" in (shown.find(".//td").get("style") or "")  # type: ignore[union-attr]


def content(formula: str) -> str:
    return "".join(ElementTree.fromstring(mathml(formula)).itertext())


@pytest.mark.parametrize(
    ("formula", "inner"),
    [
        (r"\frac{a}{2}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        (r"x_{i}'", '<msub><mrow><mi>x</mi><mo lspace="0" rspace="0">\u2032</mo></mrow><mrow><mi>i</mi></mrow></msub>'),
        (r"x^{2}'", "<msup><mi>x</mi><mrow><mrow><mn>2</mn></mrow><mo>\u2032</mo></mrow></msup>"),
        (r"\sqrt{H}", "<msqrt><mrow><mi>H</mi></mrow></msqrt>"),
        (r"\mathring{p}", '<mover accent="true"><mrow><mi>p</mi></mrow><mo stretchy="false">\u02da</mo></mover>'),
        (r"\mathit{WQ}", '<mi style="font-style:italic">WQ</mi>'),
        (r"\operatorname{a\_b}", '<mi mathvariant="normal">a_b</mi>'),
        (r"2.5 - \rho", "<mn>2.5</mn><mo>\u2212</mo><mi>\u03c1</mi>"),
    ],
)
def test_formulas(formula: str, inner: str) -> None:
    assert mathml(formula) == f"<math><mrow>{inner}</mrow></math>"


def test_formulas_stand_over_sums_and_inside_brackets_and_cases() -> None:
    assert mathml(r"\sum_{j=0}^{3} j").startswith("<math><mrow><munderover>")
    fenced = mathml(r"\left(x \,\middle|\, y\right)")
    assert fenced.count('stretchy="true"') == 3
    cases = ElementTree.fromstring(mathml(r"\begin{cases} 1 & i = j \\ 0 & \text{otherwise} \end{cases}"))
    rows = [["".join(cell.itertext()) for cell in row] for row in cases.iter("mtr")]
    assert rows == [["1", "i=j"], ["0", "otherwise"]]


TORN = ("}", "{", r"\left(", r"\frac{a", "^", "_{", r"x_}", r"\begin{cases} a & b", "<&>", r"\nope", "")


@pytest.mark.parametrize("formula", TORN)
def test_formulas_that_are_none_are_shown_all_the_same(formula: str) -> None:
    shown = content(formula)
    for letter in re.findall(r"[a-z<&>]", re.sub(r"\\(frac|left|begin\{cases\})", "", formula)):
        assert letter in shown or letter == "&"


@pytest.mark.parametrize("name", ["attention", "attention_gelu", "layernorm_mlp", "attention_relpos"])
def test_no_sign_of_a_derivation_is_lost(name: str) -> None:
    source = tp.load(name).limit(symbolic=True).latex()
    shown = "".join(ElementTree.fromstring(f"<div>{displayed(source)}</div>").itertext())
    assert "\\" not in shown
    assert Counter(re.findall(r"\d", shown)) == Counter(re.findall(r"\d", source))
    for sign, symbol in ((r"\kappa", "\u03ba"), (r"\sum", "\u2211"), (r"\delta", "\u03b4"), (r"\sim", "\u223c")):
        assert shown.count(symbol) == len(re.findall(re.escape(sign) + r"(?![A-Za-z])", source))


PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" width="40" viewBox="0 0 40 20"><style>*{color:red}</style>
<defs><marker id="tip"/></defs><rect id="box" fill="#ffffff" stroke="#000000"/><rect fill="#d9eefa" stroke="#56b4e9"/>
<path marker-end="url(#tip)" style="fill: none; stroke: #777777"/>
<text fill="#ffffff">url(#tip) id="tip" &lt;b&gt;</text>
<text style="font: 10px; font-family: 'DejaVu Sans', sans-serif; fill: #111111">x</text></svg>"""


def test_pictures_take_the_ink_of_the_page() -> None:
    shown = embedded(PICTURE, "one", EVIL, fixed=["#111111"])
    assert "<style" not in shown and 'id="box"' not in shown
    assert 'id="one-tip"' in shown and 'marker-end="url(#one-tip)"' in shown
    assert 'url(#tip) id="tip" &lt;b&gt;' in shown
    first, second = re.findall("<rect[^>]*>", shown)
    assert 'fill="none"' in first and 'stroke="currentColor"' in first
    assert 'stroke="var(--c56b4e9, #56b4e9)"' in second
    colour, share = re.search(r'fill="(#\w+)" [^>]*fill-opacity="([\d.]+)"', second).groups()  # type: ignore[union-attr]
    for k, channel in zip((1, 3, 5), (0xD9, 0xEE, 0xFA), strict=True):  # the same on white
        value = 255 * (1 - float(share)) + float(share) * int(colour[k : k + 2], 16)
        assert abs(value - channel) < 1
    assert 'stroke-opacity="0.53"' in shown and 'fill="#111111"' in shown
    assert '<text fill="var(--cffffff, #ffffff)">' in shown
    assert "DejaVu" not in shown
    assert palette(shown, dark=False) == "--c56b4e9:#56b4e9;--cffffff:#ffffff;"
    assert palette(shown, dark=True).endswith("--cffffff:#000000;")
