"""SVG pictures inside pages: black becomes the ink of the page, white its ground, and colours follow light and dark.

A colour c is written `var(--c123456, #123456)`: a page that has a dark side gives its variables other values there
(`palette`), and elsewhere the colour stays as it is.  Pale fills become transparent ones of the same look on white.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from xml.etree import ElementTree

from tensorprog.blocks.markup import Html, joined, tag

__all__ = ["embedded", "palette"]

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
VARIABLE = re.compile(r"var\(--c([0-9a-f]{6}),")
REFERENCE = re.compile(r"#([\w-]+)")
FONT = re.compile(r"font-family:[^;]*(;|$)")
PALE = 0.5  # the least of red, green and blue from which a fill counts as pale

Colour = tuple[float, float, float]


def embedded(text: str, name: str, label: str, *, scroll: bool = False, fixed: Collection[str] = ()) -> Html:
    """A picture in place, with what it shows in words for those who do not see it.

    `name` makes its identifiers different from those of other pictures; a picture that may `scroll` keeps its letters
    readable on narrow screens; colours in `fixed` stay as they are.
    """
    root = ElementTree.fromstring(text)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    used = {
        found
        for node in root.iter()
        for key, value in node.attrib.items()
        if _refers(key, value)
        for found in REFERENCE.findall(value)
    }
    for node in root.iter():
        _restyle(node, name, used, {colour.lower() for colour in fixed})
    *_, width, _ = (float(part) for part in root.attrib["viewBox"].split())
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    least = f"min-width:min({width:.0f}px,42em);" if scroll else ""
    root.attrib |= {
        "role": "img",
        "aria-label": label,
        "fill": root.get("fill", "currentColor"),
        "style": f"width:{width:.0f}px;max-width:100%;{least}height:auto",
    }
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", LINK)
    box = tag(
        "div",
        Html(ElementTree.tostring(root, encoding="unicode")),
        style="overflow-x:auto",
        class_="picture",
        **({"tabindex": 0, "role": "region", "aria_label": label} if scroll else {}),
    )
    return joined([box])


def _refers(key: str, value: str) -> bool:
    return key.endswith("href") or "url(#" in value


def _restyle(node: ElementTree.Element, name: str, used: Collection[str], fixed: Collection[str]) -> None:
    identifier = node.attrib.pop("id", None)
    if identifier in used:
        node.set("id", f"{name}-{identifier}")
    for key, value in list(node.attrib.items()):
        if _refers(key, value):
            node.set(key, value.replace("#", f"#{name}-", 1) if not value.startswith("data:") else value)
    style = FONT.sub("", node.attrib.pop("style", ""))
    for entry in filter(None, map(str.strip, style.split(";"))):
        key, _, value = entry.partition(":")
        node.set(key.strip(), value.strip())
    for key in ("fill", "stroke"):
        colour = node.get(key, "").lower()
        if COLOUR.fullmatch(colour) and colour not in fixed:
            _repaint(node, key, colour)


def _repaint(node: ElementTree.Element, key: str, colour: str) -> None:
    red, green, blue = _channels(colour)
    least = min(red, green, blue)
    if red == green == blue:
        if least == 1.0:  # letters stand on a colour
            node.set(key, f"var(--c{colour[1:]}, {colour})" if node.tag == f"{{{SVG}}}text" else "none")
        elif least < 1.0:
            node.set(key, "currentColor")
            if least:
                node.set(f"{key}-opacity", f"{(1 - least) * float(node.get(f'{key}-opacity', '1')):.2f}")
    elif key == "fill" and least > PALE:
        share = 1 - least  # of the strongest colour that looks the same on white
        node.set(key, _hex((red - least) / share, (green - least) / share, (blue - least) / share))
        node.set("fill-opacity", f"{share:.2f}")
    else:
        node.set(key, f"var(--c{colour[1:]}, {colour})")


def _channels(colour: str) -> Colour:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return red, green, blue


def _hex(*channels: float) -> str:
    return "#" + "".join(f"{round(255 * min(max(channel, 0.0), 1.0)):02x}" for channel in channels)


# ---- light and dark --------------------------------------------------------------------------------------------------


def palette(page: str, dark: bool) -> str:
    """Declarations of the colours that pictures of a page use; those for a dark ground are lighter in OKLab.

    White letters stand on colours, which are lighter then, so they are black.

    Source    B. Ottosson 2020, "A perceptual color space for image processing"
    """
    names = sorted(set(VARIABLE.findall(page)))
    return "".join(f"--c{name}:{_lighter(f'#{name}') if dark else f'#{name}'};" for name in names)


def _lighter(colour: str) -> str:
    if colour == "#ffffff":
        return "#000000"
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour))
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    brief = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    light = 0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * brief
    # the same shift of all three cones makes a colour lighter at equal hue; between 0.5 and 0.95 all read on black
    shift = 0.5 + 0.45 * light - light
    long, middle, brief = ((value + shift) ** 3 for value in (long, middle, brief))
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * brief,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * brief,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * brief,
    )
    return _hex(*(12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in linear))
