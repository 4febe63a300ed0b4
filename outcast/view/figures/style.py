"""The style of all pictures, and how a picture is stored."""

import io
import logging
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from outcast import files
from outcast.view.palette import GREY

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "savefig.dpi": 150,
    # Glyphs as TrueType outlines, because publishers refuse Type 3 fonts (42 is Type 42).
    "pdf.fonttype": 42,
    # Names in an SVG would otherwise be drawn at random.
    "svg.hashsalt": "outcast",
}
_PLAIN: dict[Any, Any] = {"text.parse_math": False}
"""Names of strangers may hold a `$`, and no figure has formulas."""

FORMATS = ("png", "svg", "pdf")
_METADATA: Mapping[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Neither a time nor a version, so that the same figure gives the same file."""
_PNG = {"compress_level": 3}
"""The usual 6 takes a third longer for a fourteenth less."""
_MOST_MARKS, _MOST_VERTICES = 2_000, 20_000
"""Curves and marks with more points are pixels in a vector file, which would take megabytes."""
_PIXELS_PER_INCH = 300
_BENIGN = "Glyph .* missing|constrained_layout not applied"
"""A box stands for a letter that the font lacks; names of strangers can be wider than a figure."""


# Of the fonts for formulas Debian's matplotlib has few, and no figure uses others.
logging.getLogger("matplotlib.font_manager").addFilter(lambda said: "findfont" not in said.msg)

_one_at_a_time = threading.RLock()


@contextmanager
def styled(settings: Mapping[Any, Any] = STYLE) -> Iterator[None]:
    """Sets matplotlib's defaults with these settings, and then restores the user's settings.

    The user's matplotlibrc would change the pictures. Settings belong to the whole process, so
    without a lock a second thread would restore these in place of the user's.
    """
    with _one_at_a_time, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**settings, **_PLAIN})
        yield


class _PlainLog(LogFormatter):
    """Labels of a logarithmic axis as numbers, because powers of ten would be formulas."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,g}" if super().__call__(x, pos) else ""


def log_scale(axes: Axes, which: str, scale: str = "log", **how: Any) -> None:
    """Makes axes logarithmic: `x`, `y` or `xy`. `how` goes to the scale."""
    for name in which:
        getattr(axes, f"set_{name}scale")(scale, **how)
        axis = getattr(axes, f"{name}axis")
        threshold = how.get("linthresh")
        axis.set_major_formatter(_PlainLog(linthresh=threshold))
        if threshold is None:
            axis.set_minor_formatter(_PlainLog())


class ShownFigure(Figure):
    """A figure that a notebook shows by itself, even without pyplot."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=100)
        return stream.getvalue()

    def savefig(self, *args: Any, **options: Any) -> None:
        """Stores the figure in this style, so that a PDF has TrueType letters here too."""
        with styled():
            super().savefig(*args, **options)


def new(inches: tuple[float, float]) -> Figure:
    return ShownFigure(figsize=inches, layout="constrained")


def save(figure: Figure, path: Path, dpi: float | None = None) -> Path:
    """Stores a picture whole or not at all. Its name's ending says the format.

    `dpi` is that of a PNG, and of what a vector file holds as pixels, which has 300 or more.

    Raises:
        ValueError: the ending is not in FORMATS.
        OSError: the file cannot be written.
    """
    kind = path.suffix[1:].lower()
    if kind not in FORMATS:
        raise ValueError(f"its name ends in {path.suffix or 'nothing'}; {ENDINGS}")
    dpi = dpi or STYLE["savefig.dpi"]
    if kind != "png":
        _rasterize(figure)
        dpi = max(dpi, _PIXELS_PER_INCH)
    with files.writing(path) as stream, styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _BENIGN, UserWarning)
        if kind == "svg":
            stream.write(as_svg(figure, dpi, outlines=True))
        else:
            how: dict[str, Any] = {"pil_kwargs": _PNG} if kind == "png" else {}
            figure.savefig(stream, format=kind, metadata=_METADATA[kind], dpi=dpi, **how)
    return path


def as_svg(figure: Figure, dpi: float = _PIXELS_PER_INCH, *, outlines: bool = False) -> bytes:
    """A figure as the bytes of an SVG file; the same figure always gives the same bytes."""
    _rasterize(figure)
    drawn = io.BytesIO()
    how = {**STYLE, "svg.fonttype": "path" if outlines else "none"}
    with styled(how), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _BENIGN, UserWarning)
        Figure.savefig(figure, drawn, format="svg", metadata=_METADATA["svg"], dpi=dpi)
    return _without_noise(drawn.getvalue())


def _without_noise(svg: bytes) -> bytes:
    """The same SVG with four decimals at most in numbers from 1 on, and with numbered clip paths.

    The solver of matplotlib's layout adds in another order each time, so that the last digit of a
    length varies. A clip path is named by a hash of its lengths.
    """
    numbers: dict[bytes, int] = {}

    def numbered(match: re.Match[bytes]) -> bytes:
        return b"%sp%d" % (match[1], numbers.setdefault(match[2], len(numbers)))

    svg = re.sub(rb'(id="|#)(p[0-9a-f]{10})(?=["\)])', numbered, svg)
    return re.sub(rb"\b[1-9][0-9]*\.[0-9]{5,}", lambda match: b"%.4f" % float(match[0]), svg)


ENDINGS = f"allowed endings are {', '.join(f'.{kind}' for kind in FORMATS)}"


def _rasterize(figure: Figure) -> None:
    for marks in figure.findobj(PathCollection):
        if np.shape(marks.get_offsets())[0] > _MOST_MARKS:
            marks.set_rasterized(True)
    for line in figure.findobj(Line2D):
        if np.size(line.get_xdata()) > _MOST_VERTICES:
            line.set_rasterized(True)


def nothing(axes: Axes, text: str) -> None:
    """Writes, in place of a picture, why there is nothing to show."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)


_EM_INCHES = 0.62 * 10 / 72
"""The width of a letter of 10 points; few texts have wider letters on average."""
_HANDLE_INCHES = 0.6
"""The width of a legend's entry without its letters."""


def heading(figure: Figure | SubFigure, text: str) -> None:
    """Writes a title above a picture, at the left; long lines are broken."""
    most = int(figure.bbox.width / figure.dpi / _EM_INCHES)
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, most)]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10, fontweight="bold")


def legend_below(figure: Figure, title: str | None = None) -> None:
    """Names each labelled curve, bar and mark once below all panels; the figure gets higher."""
    shown: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    if shown:
        wide = figure.bbox.width / figure.dpi
        fit = int(wide / (max(map(len, shown)) * 0.9 * _EM_INCHES + _HANDLE_INCHES))
        columns = max(1, min(len(shown), fit))
        names: Any = {"loc": "outside lower center", "ncols": columns, "title": title or None}
        figure.legend([*shown.values()], [*shown], **names)
        lines = -(-len(shown) // columns) + bool(title)
        figure.set_figheight(figure.get_figheight() + 0.2 * lines)


def name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Names the places 0, 1, ... along the x axis; names too long for a row are turned."""
    grid = axes.get_subplotspec()
    whole = axes.get_figure(root=True)
    assert whole is not None
    wide = 0.8 * whole.get_figwidth() / (1 if grid is None else grid.get_gridspec().ncols)
    letters = sum(max(map(len, name.split("\n"))) + 1 for name in names)
    turns: dict[str, Any] = {}
    if letters * 0.9 * _EM_INCHES > wide:
        turns = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), names, **turns)


def time_unit(span_ns: int) -> tuple[float, str]:
    """The unit for a span of time: its nanoseconds and its name."""
    if span_ns >= 5 * 10**9:
        return 1e9, "s"
    return (1e6, "ms") if span_ns >= 5 * 10**6 else (1e3, "µs")
