"""A recipe's figure, drawn like the source's: the same axes, panels and order.

Curves over time and drops are those of the first seed, because the sources show one run. Bars and
lines are medians over all seeds with their exact 95 % intervals, as in the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure, FigureBase

from outcast.uses.papers.pictures import curves, drops, findings, goodput
from outcast.uses.papers.pictures.parts import Runs, Size
from outcast.uses.papers.recipe import Recipe
from outcast.view import save, styled


def draw(recipe: Recipe, runs: Runs, path: Path) -> None:
    """Draws the recipe's figure into a PNG file, which is written whole or not at all."""
    with styled():
        figure = Figure(layout="constrained")
        figure.set_size_inches(*PICTURES[recipe.picture.kind](figure, recipe, runs))
        save(figure, path)


PICTURES: dict[str, Callable[[FigureBase, Recipe, Runs], Size]] = {
    function.__name__: function
    for function in (
        goodput.window_bars,
        goodput.host_bars,
        goodput.figure3,
        goodput.flow_curves,
        goodput.chains,
        goodput.bars_and_chains,
        drops.blackout_panels,
        drops.queue_in_blackout,
        drops.trace,
        curves.lines,
        curves.bars,
        curves.goodput_and_rtt,
        curves.window_curves,
        curves.enqueue_probabilities,
        findings.by_place,
        findings.spread,
        findings.gains,
    )
}
"""The kinds of pictures, by name."""
