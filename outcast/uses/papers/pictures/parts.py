"""The pictures share these: panels, and a measure over runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.analysis import Interval, Measure, measures
from outcast.records import Run
from outcast.uses.papers.recipe import Point, Recipe
from outcast.uses.papers.verdict import median

Runs = Mapping[str, Sequence[Run]]
"""The runs of every point, by its label."""
Size = tuple[float, float]
"""The width and height of a picture, in inches."""


def panels(recipe: Recipe, runs: Runs) -> list[Point]:
    named = recipe.picture.panels or [point.label for point in recipe.points]
    return [point for point in recipe.points if point.label in named and runs.get(point.label)]


def grid(
    figure: FigureBase, recipe: Recipe, runs: Runs, panel: Callable[[Axes, Point], None]
) -> Size:
    """Draws a panel for each point, at most three side by side. Returns the size."""
    points = panels(recipe, runs)
    columns = min(3, len(points))
    rows = -(-len(points) // columns)
    for number, point in enumerate(points):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.set_title(f"({chr(97 + number)}) {point.label}")
        panel(axes, point)
    return max(4.0, 3.0 * columns), 2.6 * rows


def hops_of(run: Run) -> list[int]:
    return sorted(int(hops) for hops in run.summary.classes)


def flows_of_port(run: Run, port: str) -> str:
    """Names the flows that come in by a port as the sources do; the port itself if none does."""
    return ", ".join(run.port_groups(port)) or port


def name_lanes(axes: Axes, run: Run, lanes: Sequence[str]) -> None:
    """Writes the flows of each lane's port beside it, the output's name as it is."""
    axes.set_yticks(range(len(lanes)), [flows_of_port(run, lane) for lane in reversed(lanes)])


def in_mbps(measure: Measure) -> float:
    """By what a picture divides a measure: rates are shown in Mbps."""
    return 1e6 if measure.kind.endswith("_bps") else 1.0


def label_of(hops: int) -> str:
    return f"{hops}-hop"


def interval(runs: Sequence[Run], measure: Measure) -> Interval:
    """The measure's median over runs with its interval, as in the verdicts."""
    return median([measures.take(run, measure) for run in runs])


def measure_of(recipe: Recipe) -> Measure:
    return recipe.picture.measure or recipe.claims[0].measure


def series_of(recipe: Recipe) -> list[str]:
    """The names of the curves, in their order."""
    return list(dict.fromkeys(point.series for point in recipe.points))
