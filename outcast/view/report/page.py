"""The skeleton of a page that stands alone: style and scripts inside, nothing loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from outcast.view.report.markup import Element, element, render


def asset(name: str) -> str:
    """The text of a style sheet or script of this package."""
    return (files("outcast.view.report") / "assets" / name).read_text(encoding="utf-8")


def section(identity: str, title: str, *parts: Element | str | None) -> Element:
    """A part of the page with its heading, which the page's contents link to."""
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
) -> str:
    """A whole HTML document.

    Args:
        title: of the window.
        header: what stands above the contents, the page's heading among it.
        sections: made by `section`.
        data: script elements that hold data.
        scripts: names of scripts of this package, run in this order after all else is there.
        contents: identities and what the page's contents call them; without it every section
            by its heading.
    """
    if contents is None:
        contents = [(part.get("id") or "", part[0].text or "") for part in sections]
    links = (element("li", element("a", text, href=f"#{place}")) for place, text in contents)
    navigation = element("nav", element("ul", *links), aria_label="Contents")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content="outcast"),
        # An icon of nothing, else browsers ask for one.
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
