"""The style of all pictures, and how a picture is stored."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from outcast import files
from outcast.errors import InputError
from outcast.view.palette import GREY

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "savefig.dpi": 150,
}


_one_at_a_time = threading.RLock()


@contextmanager
def styled(more: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Sets our style and `more` settings of matplotlib, and then restores the user's settings.

    A lock is needed, because the settings belong to the whole process. Without it, a second thread
    would save our style as the user's and restore that.
    """
    with _one_at_a_time, matplotlib.rc_context({**STYLE, **(more or {})}):
        yield


class ShownFigure(Figure):
    """A figure that a notebook displays by itself, even if pyplot is not loaded."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        with styled():
            self.savefig(stream, format="png", dpi=100)
        return stream.getvalue()


def save(figure: Figure, path: Path) -> Path:
    """Stores a picture whole or not at all. Its name's ending says the format."""
    kind = path.suffix[1:]
    with files.writing(path) as stream:
        metadata = {"Software": None} if kind == "png" else None
        figure.savefig(stream, format=kind, metadata=metadata)
    return path


def lighter(path: Path) -> bytes:
    """Returns a stored PNG with 128 colours, which has a quarter to a third of the bytes.

    Raises InputError if the file is no picture.
    """
    try:
        with Image.open(path) as picture:
            fewer = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    stream = io.BytesIO()
    fewer.save(stream, "PNG")
    return stream.getvalue()


def nothing(axes: Axes, text: str) -> None:
    """Writes, in place of a picture, why there is nothing to show."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)


def heading(figure: Figure, text: str) -> None:
    """Writes what a picture shows above it, at the left."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, fontweight="bold")


def time_unit(span_ns: int) -> tuple[float, str]:
    """Returns the unit in which to show a span of time: its nanoseconds and its name."""
    if span_ns >= 5 * 10**9:
        return 1e9, "s"
    return (1e6, "ms") if span_ns >= 5 * 10**6 else (1e3, "µs")
