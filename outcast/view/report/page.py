"""Fills the templates: pages that load nothing, because they hold their style, scripts and figures.

Every text that a template prints is escaped, and a value that it lacks is an error.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcast.errors import InputError
from outcast.files import write_text
from outcast.records.run import Run
from outcast.view import summary_words
from outcast.view.listings import Listing

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Table:
    """A table of cells, which are texts unless the template writes them.

    Attributes:
        texts: the number of first columns that are aligned to the left.
        remarks: sentences below the table.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    texts: int = 1
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A drawing as a data URL, with its text; `width` is the most pixels it takes."""

    source: str
    words: str
    width: int | None = None


def listed(made: Listing | None, *, as_on_terminal: bool = False) -> Table | None:
    if made is None:
        return None
    head = [
        column.head.replace("-\n", "").replace("\n", " ") if as_on_terminal else column.label
        for column in made.columns
    ]
    remarks = [f"{summary_words.begun(text)}." for text in made.remarks]
    return Table(made.title, head, made.rows, sum(part.is_text for part in made.columns), remarks)


def picture(data: bytes, words: str, width: int | None = None, kind: str = "svg+xml") -> Picture:
    return Picture(f"data:image/{kind};base64,{b64encode(data).decode('ascii')}", words, width)


def drawn(run: Run, name: str) -> Picture | None:
    """One of the run's figures as an SVG; None if the run has no data for it."""
    # Imported here, because matplotlib takes a second to import.
    from outcast.view import figures
    from outcast.view.figures.style import as_svg, styled

    with styled():
        figure = figures.drawn(run, name)
        if figure is None:
            return None
        return picture(as_svg(figure), f"{figures.described()[name]}.", 960)


def render(template: str | Path, **values: object) -> str:
    if isinstance(template, Path):
        made = _environment().from_string(template.read_text(encoding="utf-8"))
    else:
        made = _environment().get_template(template)
    return made.render(values)


@cache
def _environment() -> Environment:
    # Imported here, because only writing a page needs it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("outcast.view.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["begun"] = summary_words.begun
    folder = files("outcast.view.report") / "assets"
    made.globals["asset"] = lambda name: (folder / name).read_text(encoding="utf-8")
    return made


def write(path: Path, text: str) -> Path:
    """Writes a page. Returns its path. Raises InputError if it cannot be written."""
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path
