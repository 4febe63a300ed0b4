"""Builds HTML and SVG as trees, because the serialiser then escapes every text."""

from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

__all__ = ["Element", "Part", "attach", "element", "parsed", "render", "table"]

Part = Element | str | None


def element(tag: str, /, *parts: Part, **attributes: str | int | float | None) -> Element:
    """Returns an element with these attributes and children. A child may be text.

    `_` in an attribute's name becomes `-`, and `_` at its end is dropped: `class_` is `class`.
    Attributes and children that are None are left out.
    """
    built = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            built.set(name.rstrip("_").replace("_", "-"), text)
    return attach(built, *parts)


def attach(parent: Element, *parts: Part) -> Element:
    """Appends children and text to `parent`. Returns `parent`."""
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


def parsed(text: str) -> Element:
    """Returns the element that a file of ours holds, without the space between its parts."""
    root = fromstring(text)
    for node in root.iter():
        for name in ("text", "tail"):
            if not (getattr(node, name) or "").strip():
                setattr(node, name, None)
    return root


def render(root: Element) -> str:
    """Returns the tree as HTML. Raises ValueError for `</` in a script or style."""
    for node in root.iter():
        if node.tag in ("script", "style") and "</" in (node.text or ""):
            raise ValueError(f"`</` within {node.tag} would end it")
    return tostring(root, encoding="unicode", method="html")


def table(caption: str, head: list[str], rows: list[list[Part]], numbers_from: int = 1) -> Element:
    """Returns a table that scrolls sideways. Columns from `numbers_from` on stand at the right."""
    whole = Element("table")
    SubElement(whole, "caption").text = caption
    line = SubElement(SubElement(whole, "thead"), "tr")
    for place, text in enumerate(head):
        line.append(
            element("th", text, scope="col", class_="number" if place >= numbers_from else None)
        )
    body = SubElement(whole, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        for place, part in enumerate(row):
            line.append(
                element("th", part, scope="row")
                if place == 0
                else element("td", part, class_="number" if place >= numbers_from else None)
            )
    return element("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)
