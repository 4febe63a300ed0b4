"""The style of all pictures, and how a picture is stored."""

import io
import logging
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, LogFormatter
from PIL import Image

from outcast import files
from outcast.errors import ConfigError, InputError
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
"""What has more is stored as pixels within a vector file, which would otherwise take megabytes."""
_PIXELS_PER_INCH = 300
_SHORT = 14
_NO_GLYPH = "Glyph .* missing"
"""A box stands for a letter that the font lacks."""


# Of the fonts for formulas Debian's matplotlib has few, and no figure uses others.
logging.getLogger("matplotlib.font_manager").addFilter(lambda said: "findfont" not in said.msg)

_one_at_a_time = threading.RLock()


@contextmanager
def styled(settings: Mapping[Any, Any] = STYLE) -> Iterator[None]:
    """Sets matplotlib's defaults with these settings, and then restores the user's settings.

    A matplotlibrc of the user's would change our pictures. The settings are of the whole process,
    so that without a lock a second thread would save our style as the user's.
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
    """A figure that a notebook displays by itself, even if pyplot is not loaded."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=100)
        return stream.getvalue()

    def savefig(self, *args: Any, **options: Any) -> None:
        """Stores the figure in our style, so that a PDF has TrueType letters here too."""
        with styled():
            super().savefig(*args, **options)


class _Borrowed(Figure):
    """Stands for the caller's axes as a figure of one panel, without a heading of its own."""

    def __init__(self, axes: Axes) -> None:
        super().__init__()
        self._borrowed = axes

    # matplotlib's own Figure overrides the attribute of artists in this way.
    @property  # type: ignore[misc]
    def axes(self) -> list[Axes]:  # type: ignore[override]
        """The caller's axes."""
        return [self._borrowed] if hasattr(self, "_borrowed") else []

    def subplots(self, nrows: int = 1, ncols: int = 1, **options: Any) -> Any:
        """Returns the caller's axes. Raises ConfigError if the picture has several panels."""
        if nrows * ncols != 1:
            raise _several_panels()
        return self._borrowed if options.get("squeeze", True) else np.array([[self._borrowed]])

    def subfigures(self, *_args: Any, **_options: Any) -> Any:
        """Raises ConfigError, because a picture of subfigures has several panels."""
        raise _several_panels()

    def suptitle(self, *_args: Any, **_options: Any) -> Any:
        """Does nothing, because the caller's figure has its own heading."""

    def legend(self, *args: Any, **options: Any) -> Any:
        """Puts the legend into the axes, because what is outside belongs to the caller."""
        return self._borrowed.legend(*args, **{**options, "loc": "best", "ncols": 1})


def _several_panels() -> ConfigError:
    return ConfigError(
        "ax=: this figure has several panels; allowed are figures of one panel, and figure= takes "
        "a matplotlib figure or subfigure for any"
    )


@dataclass(frozen=True)
class Canvas:
    """Where a picture is drawn: on a figure of its own, if need be so wide, or on the caller's."""

    axes: Axes | None = None
    figure: FigureBase | None = None
    wide_inches: float | None = None

    def new(self, inches: tuple[float, float]) -> Figure:
        """Returns the figure to draw on, which has no panels yet; a new one has this size."""
        if self.axes is not None:
            return _Borrowed(self.axes)
        if self.figure is not None:
            if self.figure.axes:
                raise ConfigError("figure=: it has axes already; allowed is an empty one")
            if isinstance(self.figure, Figure) and self.figure.get_layout_engine() is None:
                # Legends outside of the panels need it.
                self.figure.set_layout_engine("constrained")
            # A SubFigure has every method of a Figure that pictures use.
            return cast(Figure, self.figure)
        return ShownFigure(figsize=(self.wide_inches or inches[0], inches[1]), layout="constrained")

    def beside(self, figure: Figure, count: int) -> list[Axes]:
        """Returns panels side by side; where the width is given, one below another."""
        if self.wide_inches is None:
            return list(figure.subplots(1, count, squeeze=False)[0])
        whole = figure.get_figure(root=True)
        assert whole is not None
        # Of a part of a figure the bounding box tells its share.
        more = figure.bbox.height / whole.bbox.height * (count - 1)
        whole.set_figheight(whole.get_figheight() * (1 + more))
        return list(figure.subplots(count, 1, squeeze=False)[:, 0])


OWN = Canvas()


def save(figure: Figure, path: Path, dpi: float | None = None) -> Path:
    """Stores a picture whole or not at all. Its name's ending says the format.

    `dpi` is that of a PNG, and of what a vector file holds as pixels, which has 300 or more.

    Raises:
        ValueError: the ending is none of FORMATS, or the figure is too small for what it shows.
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
        warnings.filterwarnings("error", "constrained_layout not applied", UserWarning)
        warnings.filterwarnings("ignore", _NO_GLYPH, UserWarning)
        try:
            if kind == "svg":
                stream.write(as_svg(figure, dpi, outlines=True))
            else:
                how: dict[str, Any] = {"pil_kwargs": _PNG} if kind == "png" else {}
                figure.savefig(stream, format=kind, metadata=_METADATA[kind], dpi=dpi, **how)
        except UserWarning:
            width, height = figure.get_size_inches()
            raise ValueError(
                f"{width:.2g} x {height:.2g} inches are too small for this figure; allowed is a "
                "larger size, or no title (title off)"
            ) from None
    return path


def shorten_labels(figure: Figure) -> None:
    """Cuts off what a figure's labels have beyond _SHORT letters in a line."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        names = axis.get_major_formatter()
        if isinstance(names, FixedFormatter):
            axis.set_ticks(axis.get_majorticklocs(), [_shortened(text) for text in names.seq])
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(_shortened(text.get_text()))


def _shortened(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(f"{line[: _SHORT - 1]}…" if len(line) > _SHORT else line for line in lines)


def as_svg(figure: Figure, dpi: float = _PIXELS_PER_INCH, *, outlines: bool = False) -> bytes:
    """Returns a figure as the bytes of an SVG file; the same figure always gives the same."""
    _rasterize(figure)
    drawn = io.BytesIO()
    how = {**STYLE, "svg.fonttype": "path" if outlines else "none"}
    with styled(how), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _NO_GLYPH, UserWarning)
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


def lighter(path: Path) -> bytes:
    """Returns a stored PNG with 128 colours: a third of its bytes. Raises InputError."""
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


HEADING: dict[str, Any] = {"x": 0.01, "ha": "left", "fontsize": 10, "fontweight": "bold"}


def heading(figure: Figure, text: str) -> None:
    """Writes what a picture shows above it, at the left; a line too long for it is broken."""
    # Text that matplotlib wraps is measured as a formula even where none is drawn.
    figure.suptitle(text.replace("$", r"\$"), **HEADING, wrap=True, parse_math=True)


def time_unit(span_ns: int) -> tuple[float, str]:
    """Returns the unit in which to show a span of time: its nanoseconds and its name."""
    if span_ns >= 5 * 10**9:
        return 1e9, "s"
    return (1e6, "ms") if span_ns >= 5 * 10**6 else (1e3, "µs")
