"""What the pictures share: panels, colours, means with their reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.analysis.statistics import Interval
from outcast.reproduce import measures
from outcast.reproduce.measures import Run
from outcast.reproduce.recipe import Measure, Point, Recipe
from outcast.reproduce.verdict import estimate
from outcast.view.figures.style import CLASS_COLOURS

Runs = Mapping[str, Sequence[Run]]
"""The runs of every point, by its label."""
Size = tuple[float, float]
"""Of a picture, in inches: width and height."""


def panels(recipe: Recipe, runs: Runs) -> list[Point]:
    """The points that are drawn and have runs."""
    named = recipe.picture.panels or [point.label for point in recipe.points]
    return [point for point in recipe.points if point.label in named and runs.get(point.label)]


def grid(
    figure: FigureBase, recipe: Recipe, runs: Runs, panel: Callable[[Axes, Point], None]
) -> Size:
    """A panel for each point, at most three side by side."""
    points = panels(recipe, runs)
    columns = min(3, len(points))
    rows = -(-len(points) // columns)
    for number, point in enumerate(points):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.set_title(f"({chr(97 + number)}) {point.label}")
        panel(axes, point)
    return max(4.0, 3.0 * columns), 2.6 * rows


def class_colours(hops: Sequence[int]) -> dict[int, str]:
    """A colour for each class; the one with the fewest hops is vermilion."""
    return {each: CLASS_COLOURS[n % len(CLASS_COLOURS)] for n, each in enumerate(sorted(hops))}


def hops_of(run: Run) -> list[int]:
    """The hop counts of a run's classes."""
    return sorted(int(each) for each in run.summary.classes)


def label_of(hops: int) -> str:
    """A class as the sources name it."""
    return f"{hops}-hop"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and how far its interval reaches down and up; no reach of a single value."""
    found = estimate(values, logarithmic=False)
    if found.value is None:
        return 0.0, 0.0, 0.0
    if found.low is None or found.high is None:
        return found.value, 0.0, 0.0
    return found.value, found.value - found.low, found.high - found.value


def values(runs: Runs, point: Point, measure: Measure) -> list[float]:
    """The measure of every run of a point."""
    return [measures.take(run, measure) for run in runs.get(point.label, [])]


def interval(runs: Sequence[Run], measure: Measure) -> Interval:
    """Its mean over runs with the interval."""
    values = [measures.take(run, measure) for run in runs]
    return estimate(values, logarithmic=measures.is_logarithmic(measure))


def measure_of(recipe: Recipe) -> Measure:
    """The picture's measure, or else the main claim's."""
    return recipe.picture.measure or recipe.claims[0].measure


def series_of(recipe: Recipe) -> list[str]:
    """The names of the curves, in their order."""
    return list(dict.fromkeys(point.series for point in recipe.points))
