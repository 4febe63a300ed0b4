"""The skeleton of a page that loads nothing, because it holds its style and scripts itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from outcast.view.report.markup import Element, element, render


def asset(name: str) -> str:
    """Returns the text of a style sheet or script of this package."""
    return (files("outcast.view.report") / "assets" / name).read_text(encoding="utf-8")


def section(identity: str, title: str, *parts: Element | str | None) -> Element:
    """Returns a section of the page with its heading. The page's contents link to it."""
    return element(
        "section",
        element("h2", title, id=f"{identity}-title"),
        *parts,
        id=identity,
        aria_labelledby=f"{identity}-title",
    )


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

    Args:
        title: the window's title.
        header: elements above the contents, with the page's heading among them.
        sections: what `section` returned.
        data: script elements that hold data.
        scripts: names of scripts of this package. They run in this order, after the page is built.
        contents: the ids that the page's contents link to, each with its text; None lists every
            section by its heading.
        more: further sections, which open below the others. A link to one opens them.
    """
    if contents is None:
        contents = [(part.get("id") or "", part[0].text or "") for part in (*sections, *more)]
    if more:
        headings = ", ".join((part[0].text or "").lower() for part in more)
        sections = [*sections, element("details", element("summary", f"More: {headings}"), *more)]
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
