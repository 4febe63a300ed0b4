"""Drawn figures within a page: their bytes stand in it."""

from __future__ import annotations

from base64 import b64encode
from typing import Literal

from outcast.view.report.markup import Element, element

MediaType = Literal["image/svg+xml", "image/png"]


def picture(
    title: str, description: str, data: bytes, media_type: MediaType, width: int | None = None
) -> Element:
    """A figure with its title.

    Args:
        title: above the figure.
        description: what there is to see, for those who do not see it.
        data: the whole file.
        media_type: of the file.
        width: of the figure at most, in CSS pixels; without it as wide as the page has room.
    """
    return element(
        "figure",
        element("figcaption", title),
        element(
            "img",
            src=f"data:{media_type};base64,{b64encode(data).decode('ascii')}",
            alt=description,
            style=None if width is None else f"max-width:min(100%,{width}px)",
        ),
    )
