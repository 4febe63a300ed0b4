"""HTML and SVG as trees, so that every text is escaped by the serialiser."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

__all__ = ["Element", "Part", "attach", "element", "render", "table"]

Part = Element | str | None


def element(tag: str, /, *parts: Part, **attributes: str | int | float | None) -> Element:
    """An element with children, text among them, and attributes.

    An attribute's `_` becomes `-`, and one at its end falls away (`class_`); those that are None
    are left out, as are parts that are None.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            made.set(name.rstrip("_").replace("_", "-"), text)
    return attach(made, *parts)


def attach(parent: Element, *parts: Part) -> Element:
    """Appends children and text to `parent`, which is returned."""
    for part in parts:
        if part is None:
            continue
        if isinstance(part, Element):
            parent.append(part)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + part
        else:
            parent.text = (parent.text or "") + part
    return parent


def render(root: Element) -> str:
    """The tree as HTML. Text of `script` and `style` stands as it is, so `</` must not be in it."""
    for one in root.iter():
        if one.tag in ("script", "style") and "</" in (one.text or ""):
            raise ValueError(f"`</` within {one.tag} would end it")
    return tostring(root, encoding="unicode", method="html")


def table(caption: str, head: list[str], rows: list[list[Part]], numbers_from: int = 1) -> Element:
    """A table in a box that scrolls sideways; columns from `numbers_from` on are right-aligned."""
    made = Element("table")
    SubElement(made, "caption").text = caption
    line = SubElement(SubElement(made, "thead"), "tr")
    for place, text in enumerate(head):
        line.append(
            element("th", text, scope="col", class_="number" if place >= numbers_from else None)
        )
    body = SubElement(made, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        for place, part in enumerate(row):
            line.append(
                element("th", part, scope="row")
                if place == 0
                else element("td", part, class_="number" if place >= numbers_from else None)
            )
    return element("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)
