"""How a figure looks: its size, title and axes. All else is matplotlib's: see `Run.figure`."""

import re
from dataclasses import dataclass
from typing import Any, TypedDict

from matplotlib.axes import Axes
from matplotlib.cbook import is_math_text
from matplotlib.figure import FigureBase
from matplotlib.mathtext import MathTextParser

from outcast.errors import ConfigError
from outcast.view.figures.style import OWN, STYLE, Canvas

COLUMN = "column"
"""The size of a figure in one column of a paper with two: no title, because the caption says what
is shown, and letters of 7 points."""
_COLUMN_INCHES, _COLUMN_POINTS = (3.33, 2.4), 7.0
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
LEAST_INCHES, MOST_INCHES = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """What to change of a figure; None leaves it as the figure draws it.

    Attributes:
        narrow: whether a run's figure is drawn for a column, as high as it has to be.
        title: the text above all; an empty one takes it away.
    """

    size_inches: tuple[float, float] | None = None
    title: str | None = None
    log_x: bool = False
    log_y: bool = False
    narrow: bool = False

    @property
    def letters(self) -> float:
        """By how much letters are larger than a figure draws them."""
        usual: float = STYLE["font.size"]
        return _COLUMN_POINTS / usual if self.narrow else 1.0


def parse_size(text: str) -> tuple[float, float]:
    """Reads `3.5x2.2in`, `89x56mm`, `8.9x5.6cm` or `column` as inches. Raises ConfigError."""
    if text == COLUMN:
        return _COLUMN_INCHES
    match = re.fullmatch(r"\s*([0-9.]+)\s*x\s*([0-9.]+)\s*(in|cm|mm)\s*", text)
    try:
        if match is None:
            raise ValueError
        width, height = (float(match[place]) * _INCHES[match[3]] for place in (1, 2))
    except ValueError:
        raise ConfigError(
            f"size {text}: allowed is WIDTHxHEIGHT with a unit, as 3.5x2.2in or 89x56mm, or "
            f"{COLUMN}"
        ) from None
    return _required_size((width, height))


def _required_size(inches: tuple[float, float]) -> tuple[float, float]:
    """Returns the size. Raises ConfigError if it is no size of a figure."""
    try:
        fits = len(inches) == 2 and all(LEAST_INCHES <= part <= MOST_INCHES for part in inches)
    except TypeError:
        fits = False
    if not fits:
        raise ConfigError(
            f"size {_as_text(inches)}: allowed are {LEAST_INCHES:g} to {MOST_INCHES:g} inches each "
            "way"
        )
    return inches


def _as_text(inches: object) -> str:
    """A size for an error, which also has to name what is none."""
    if isinstance(inches, tuple) and len(inches) == 2:
        return "x".join(
            f"{part:g}" if isinstance(part, float | int) else str(part) for part in inches
        )
    return str(inches)


MOST_LETTERS = 300
_FRAMES = 200
"""Drawing calls matplotlib's reader of formulas, which calls itself, from deeper than here."""


def _require_title(title: str | None) -> None:
    """Raises ConfigError for a title that cannot be drawn: matplotlib sets $...$ as a formula."""
    if title is None:
        return
    if len(title) > MOST_LETTERS:
        raise ConfigError(f"title: {len(title)} letters; allowed are {MOST_LETTERS}")
    if is_math_text(title):
        try:
            _read_formulas(title, _FRAMES)
        except (ValueError, RecursionError) as error:
            why = "is no formula" if isinstance(error, ValueError) else "is nested too deeply"
            raise ConfigError(
                f"title: {title[:40]!a}: what stands between $ {why}; \\$ is a dollar sign"
            ) from None


def _read_formulas(text: str, frames: int) -> None:
    if frames:
        _read_formulas(text, frames - 1)
    else:
        MathTextParser("path").parse(text)


class Options(TypedDict, total=False):
    """What a caller of the API can say of a figure's look; see `Run.figure`."""

    size: tuple[float, float] | str | None
    title: str | None
    log_x: bool
    log_y: bool


def look_of(size: tuple[float, float] | str | None = None, **others: Any) -> Look:
    """Returns what Options say. Raises ConfigError, which says what is allowed."""
    if size == COLUMN:
        others = {**others, "title": others.get("title") or "", "narrow": True}
    if size is not None:
        size = parse_size(size) if isinstance(size, str) else _required_size(size)
    _require_title(others.get("title"))
    return Look(size_inches=size, **others)


def narrowed(look: Look | None, on: Canvas) -> Canvas:
    """Where a run's figure is drawn: as wide as leaves the column when its letters are smaller."""
    if look is None or not look.narrow or on != OWN:
        return on
    return Canvas(wide_inches=_COLUMN_INCHES[0] / look.letters)


def canvas(axes: Axes | None, figure: FigureBase | None) -> Canvas:
    """Returns where a caller of the API wants to draw. Raises ConfigError if that is two places."""
    if axes is not None and figure is not None:
        raise ConfigError("ax=, figure=: allowed is one of the two")
    return OWN if axes is None and figure is None else Canvas(axes, figure)
