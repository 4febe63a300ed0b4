"""Colours of the report: told apart by the colour-blind, and dark enough on white.

After Okabe and Ito, with the light ones darkened to a contrast of 3:1 or more against white (WCAG
2.2, 1.4.11); nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from outcast.records.run_directory import FlowRecord

FEWEST_HOPS = "#C44E00"
OTHERS = (
    *("#0072B2", "#00815F", "#7B4FA3", "#9A6B00", "#2B8CC4", "#B3528F", "#8C564B", "#5A5A5A"),
    *("#6E7200", "#12788A", "#C2185B", "#1B2A8A"),
)
PALETTE = (FEWEST_HOPS, *OTHERS)


def class_colours(hops: Sequence[int]) -> dict[int, str]:
    """A colour for every class; that with the fewest hops has one of its own."""
    ordered = sorted(set(hops))
    return {
        each: FEWEST_HOPS if not place else OTHERS[(place - 1) % len(OTHERS)]
        for place, each in enumerate(ordered)
    }


def flow_colours(flows: Sequence[FlowRecord]) -> dict[int, int]:
    """Every flow's place in PALETTE. A lone flow of the fewest hops has the first to itself."""
    least = min((flow.hops for flow in flows), default=0)
    fewest = [flow.flow for flow in flows if flow.hops == least]
    lone = fewest[0] if len(fewest) == 1 and len(flows) > 1 else None
    places: dict[int, int] = {}
    for flow in flows:
        if flow.flow == lone:
            places[flow.flow] = 0
        elif lone is not None:
            places[flow.flow] = 1 + (len(places) - (lone in places)) % len(OTHERS)
        else:
            places[flow.flow] = len(places) % len(PALETTE)
    return places
