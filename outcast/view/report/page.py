"""The skeleton of a page that loads nothing, because it holds its style and scripts itself."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from outcast.errors import InputError
from outcast.files import write_text
from outcast.view.listings import Listing
from outcast.view.report.markup import Element, Part, element, render, table


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
