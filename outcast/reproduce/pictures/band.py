"""The picture of rows under several profiles of noise: how much of an effect is the noise's."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from outcast.reproduce import measures
from outcast.reproduce.claims import Claim, OrderClaim
from outcast.reproduce.pictures.parts import Size, in_mbps
from outcast.reproduce.recipe import Recipe
from outcast.reproduce.together import Row, in_order
from outcast.reproduce.verdict import Verdict, verdict_text
from outcast.view.figures.style import log_scale, save, styled
from outcast.view.palette import BLUE, GREEN, GREY, PURPLE, VERMILION

FILE = "over-noise.png"
MARKS: Mapping[Verdict | None, tuple[str, str]] = {
    Verdict.REPRODUCED: ("o", GREEN),
    Verdict.UNCONTROLLED: ("v", GREEN),
    Verdict.OTHER_SIZE: ("^", BLUE),
    Verdict.VACUOUS: ("s", GREY),
    Verdict.CONTRADICTED: ("X", VERMILION),
    Verdict.INCONCLUSIVE: ("D", GREY),
    None: ("_", PURPLE),
}
"""The marker and the colour of a main claim's verdict."""
_BEYOND = 10.0
"""By this factor a logarithmic axis reaches beyond the values; intervals are cut off there."""


def draw_band(
    bands: Mapping[str, Sequence[Row]], recipes: Mapping[str, Recipe], path: Path
) -> None:
    """Draws `over_noise` into a PNG file, which is written whole or not at all."""
    with styled():
        figure = Figure(layout="constrained")
        figure.set_size_inches(*over_noise(figure, bands, recipes))
        save(figure, path)


def over_noise(
    figure: FigureBase, bands: Mapping[str, Sequence[Row]], recipes: Mapping[str, Recipe]
) -> Size:
    """A row of two panels for each recipe, with a place for each profile of noise.

    The left panel has the main claim's measure with its interval, by verdict, and a line where it
    would be without the effect. The right one has the burst ratio of the flows with the fewest
    hops; at 1 drops have no memory.
    """
    noises = in_order({row.result.noise for band in bands.values() for row in band})
    panels = figure.subplots(len(bands), 2, sharex=True, squeeze=False)
    for (effect, burst), (name, band) in zip(panels, bands.items(), strict=True):
        places = {row.result.noise: noises.index(row.result.noise) for row in band}
        _effect(effect, recipes[name].claims[0], band, places)
        _burst(burst, band, places)
        effect.set_title(f"{name}: {band[0].result.claims[0].text}", fontsize=7)
    for axes in panels[-1]:
        axes.set_xticks(range(len(noises)), noises, rotation=20, ha="right", fontsize=7)
        axes.set_xlim(-0.5, len(noises) - 0.5)
    panels[0][1].set_title("burst ratio of the nearest flows' drops", fontsize=7)
    used = {row.claims[0].verdict for band in bands.values() for row in band}
    for verdict, (marker, colour) in MARKS.items():
        if verdict in used:
            panels[0][0].plot([], [], marker, color=colour, label=verdict_text(verdict))
    figure.legend(loc="outside upper center", ncols=min(4, len(used)), fontsize=7)
    return 4.2 + 0.8 * len(noises), 0.9 + 1.1 * len(bands)


def _effect(axes: Axes, claim: Claim, band: Sequence[Row], places: Mapping[str, int]) -> None:
    quotient = not isinstance(claim, OrderClaim) and claim.over is not None
    logarithmic = measures.is_logarithmic(claim.measure)
    scale = 1.0 if quotient or logarithmic else in_mbps(claim.measure)
    none = claim.without_effect(logarithmic) / scale
    reached = [none]
    axes.axhline(none, color=GREY, lw=0.8)
    for row in band:
        main_claim = row.claims[0]
        record, place = main_claim.record, places[row.result.noise]
        if record.mean is None:
            continue
        marker, colour = MARKS[main_claim.verdict]
        if record.low is not None and record.high is not None:
            axes.plot([place] * 2, [record.low / scale, record.high / scale], color=colour, lw=1.2)
        axes.plot([place], [record.mean / scale], marker, color=colour, markersize=5)
        reached.append(record.mean / scale)
    kind = claim.measure.kind.removesuffix("_bps").replace("_", " ")
    label = f"{kind}, Mbps" if scale > 1 else kind
    axes.set_ylabel(textwrap.fill(label, 16), fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
    if logarithmic:
        log_scale(axes, "y")
        positive = [value for value in reached if value > 0 and math.isfinite(value)]
        axes.set_ylim(min(positive) / _BEYOND, max(positive) * _BEYOND)


def _burst(axes: Axes, band: Sequence[Row], places: Mapping[str, int]) -> None:
    axes.axhline(1, color=GREY, lw=0.8)
    axes.tick_params(axis="y", labelsize=7)
    for row in band:
        burst, place = row.result.burst, places[row.result.noise]
        if burst is None or burst.mean is None:
            continue
        if burst.low is not None and burst.high is not None:
            axes.plot([place] * 2, [burst.low, burst.high], color=BLUE, lw=1.2)
        axes.plot([place], [burst.mean], "o", color=BLUE, markersize=4)
