"""The skeleton of a page that loads nothing, because it holds its style, scripts and figures.

HTML and SVG are built as trees, because the serialiser then escapes every text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from outcast.errors import InputError
from outcast.files import write_text
from outcast.records.run import Run
from outcast.view.listings import Listing

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


def note(text: str) -> Element:
    """Returns a remark in small letters."""
    return element("p", text, class_="note")


def code(text: str, **attributes: str) -> Element:
    """Returns a command or a file, in lines of its own."""
    return element("pre", element("code", text), **attributes)


def bullets(lines: Sequence[str]) -> Element | None:
    """Returns a list of the lines; None if there are none."""
    return element("ul", *(element("li", line) for line in lines)) if lines else None


def details(summary: str, *parts: Part, opened: bool = False) -> Element:
    """Returns what opens by a click on its summary."""
    return element("details", element("summary", summary), *parts, open="" if opened else None)


def listed(made: Listing | None) -> Element | None:
    """Returns a table of a run with its remarks; None where it is missing."""
    if made is None:
        return None
    texts = sum(column.is_text for column in made.columns)
    rows: list[list[Part]] = [[*row] for row in made.rows]
    shown = table(made.title, [column.label for column in made.columns], rows, texts)
    remarks = (note(f"{text[0].upper()}{text[1:]}.") for text in made.remarks)
    return element("div", shown, *remarks) if made.remarks else shown


def main_numbers(numbers: Iterable[tuple[Part, str]]) -> Element:
    """Returns the main numbers, each below its name."""
    pairs = (element("div", element("dt", name), element("dd", text)) for name, text in numbers)
    return element("dl", *pairs, class_="key")


def trust(verdict: str, how: str, *parts: Part) -> Element:
    """Returns the section that says whether captures and counters agree: good, doubtful or bad."""
    return section("trust", verdict, *parts, class_=f"trust {how}")


def write(path: Path, text: str) -> Path:
    """Writes a page. Returns its path. Raises InputError if it cannot be written."""
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path


def asset(name: str) -> str:
    """Returns the text of a style sheet or script of this package."""
    return (files("outcast.view.report") / "assets" / name).read_text(encoding="utf-8")


def section(identity: str, title: str, *parts: Part, class_: str | None = None) -> Element:
    """Returns a section of the page with its heading. The page's contents link to it."""
    named = f"{identity}-title"
    labels = {"id": identity, "class_": class_, "aria_labelledby": named}
    return element("section", element("h2", title, id=named), *parts, **labels)


def document(
    title: str,
    header: Sequence[Element],
    sections: Sequence[Element],
    data: Sequence[Element] = (),
    scripts: Sequence[str] = (),
    contents: Sequence[tuple[str, str]] | None = None,
    more: Sequence[Element] = (),
) -> str:
    """Returns a whole HTML document.

    `scripts` names scripts of this package, which run in this order after the page is built.
    `contents` has the ids that the page's contents link to, each with its text; None lists every
    section by its heading. `more` are further sections, which open below the others.
    """
    if contents is None:
        contents = [(part.get("id") or "", part[0].text or "") for part in (*sections, *more)]
    if more:
        headings = ", ".join((part[0].text or "").lower() for part in more)
        sections = [*sections, details(f"More: {headings}", *more)]
        scripts = [*scripts, "more.js"]
    links = (element("li", element("a", text, href=f"#{place}")) for place, text in contents)
    navigation = element("nav", element("ul", *links), aria_label="Contents")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content="outcast"),
        # An empty icon, because browsers ask for one if the page names none.
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", asset("style.css")),
    )
    body = element(
        "body",
        element("a", "To the content", class_="skip", href="#content"),
        element("header", *header),
        navigation,
        element("main", *sections, id="content"),
        *data,
        *(element("script", asset(name)) for name in scripts),
    )
    return "<!doctype html>\n" + render(element("html", head, body, lang="en")) + "\n"


MediaType = Literal["image/svg+xml", "image/png"]


def picture(
    title: str, description: str, data: bytes, media_type: MediaType, width: int | None = None
) -> Element:
    """Returns a figure; without a title it has its own, without CSS pixels it fills the page."""
    style = None if width is None else f"max-width:min(100%,{width}px)"
    source = f"data:{media_type};base64,{b64encode(data).decode('ascii')}"
    image = element("img", src=source, alt=description, style=style)
    return element("figure", element("figcaption", title) if title else None, image)


def drawn(run: Run, name: str) -> Element | None:
    """Returns one of the run's figures as an SVG; None if the run has no data for it."""
    # Imported here, because matplotlib takes a second to import.
    from outcast.view import figures
    from outcast.view.figures.style import as_svg, styled

    with styled():
        figure = figures.drawn(run, name)
        if figure is None:
            return None
        return picture("", f"{figures.described()[name]}.", as_svg(figure), "image/svg+xml", 960)
