"""Figures whose bytes are inside the page."""

from base64 import b64encode
from typing import Literal

from outcast.records.run import Run
from outcast.view.report.markup import Element, element

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
