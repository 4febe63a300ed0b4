"""Draws the topology as inline SVG: switches by layer, hosts below, flows and the bottleneck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outcast.experiment import GroupKind
from outcast.plan import link_words
from outcast.plan.grouping import Member, controls, title
from outcast.plan.model import Plan
from outcast.view.figures import topology as drawing
from outcast.view.palette import group_colours
from outcast.view.report.markup import Element, element

COLUMN, LAYER, MARGIN, FOOT = 62, 92, 40, 18
"""Distances in the drawing's own units: between hosts, between layers, and the margins at the sides
and at top and bottom."""

MOST_KEYS = 20
"""The most groups in the legend; there is one for each sender where they are grouped so."""


def draw(plan: Plan, group_by: GroupKind, marked: str | None) -> Element:
    """Draws the network with its flows. A link with more flows is thicker.

    Args:
        plan: what was built.
        group_by: the kind of the groups that senders are coloured by.
        marked: the group that has vermilion.
    """
    placed = drawing.positions(plan)
    left = min(x for x, _ in placed.values())
    right = max(x for x, _ in placed.values())
    top = max(y for _, y in placed.values())
    column = max(COLUMN, 420 / max(1.0, right - left))
    width = (right - left) * column + 2 * MARGIN
    height = top * LAYER + 2 * FOOT

    def at(name: str) -> tuple[float, float]:
        x, y = placed[name]
        return (x - left) * column + MARGIN, (top - y) * LAYER + FOOT

    links: list[Element] = []
    marks: list[Element] = []
    used = drawing.flows_on_links(plan)
    most = max(used.values(), default=1)
    bottleneck = _behind(plan)
    own = link_words.own(plan.links)
    for one, two in plan.graph.edges:
        (x1, y1), (x2, y2) = at(one), at(two)
        count = used[frozenset((one, two))]
        line = element(
            "line",
            element("title", _of_link(one, two, count, own(one, two))),
            x1=round(x1, 1),
            y1=round(y1, 1),
            x2=round(x2, 1),
            y2=round(y2, 1),
            class_="used" if count else "unused",
            stroke_width=round(1.5 + 4.5 * count / most, 1) if count else None,
        )
        (marks if count else links).append(line)
        if {one, two} == {plan.bottleneck.switch, bottleneck}:
            line.set("class", "bottleneck")
            line.set("stroke-width", "8")
    groups = plan.groups.get(group_by, {})
    receivers = {flow.dst for flow in plan.flows}
    colours = group_colours([*groups], marked)
    # A host that sends for several groups has the colour of the first one.
    of_sender = {
        flow.src: colours[label] for label, flows in reversed([*groups.items()]) for flow in flows
    }
    nodes = [
        _node(plan, name, *at(name), of_sender.get(name), receives=name in receivers)
        for name in placed
    ]
    x1, y1 = at(plan.bottleneck.switch)
    x2, y2 = at(bottleneck)
    label = element(
        "text",
        f"bottleneck {plan.bottleneck.egress}",
        x=round((x1 + x2) / 2 - 8, 1) if x2 > MARGIN + 130 else round((x1 + x2) / 2 + 8, 1),
        y=round((y1 + y2) / 2 + 14, 1),
        text_anchor="end" if x2 > MARGIN + 130 else "start",
        class_="bottleneck-label",
    )
    least = max(min(width, 640), 0.8 * width)
    drawn = element(
        "svg",
        *links,
        *marks,
        *nodes,
        *([label] if drawing.is_layered(plan) else []),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=describe(plan, group_by),
        class_="topology",
        style=f"max-width:{max(width * 1.25, 480):.0f}px;min-width:{least:.0f}px",
    )
    return element(
        "figure",
        element(
            "div",
            drawn,
            class_="wide",
            tabindex="0",
            role="region",
            aria_label="Drawing of the topology",
        ),
        _key(plan, groups, colours),
        class_="chart",
    )


def _of_link(one: str, two: str, flows: int, own: str) -> str:
    """What a pointer at a link tells: its flows, and its own settings."""
    return f"{one} to {two}: {flows} flow{'' if flows == 1 else 's'}{own and f'; {own}'}"


def _behind(plan: Plan) -> str:
    """Returns the node that the bottleneck's output leads to."""
    switch = plan.bottleneck.switch
    return next(
        other
        for other in plan.graph.neighbors(switch)
        if plan.port(switch, other) == plan.bottleneck.egress
    )


def _node(
    plan: Plan, name: str, x: float, y: float, colour: str | None, *, receives: bool
) -> Element:
    """Returns a box with the node's name. `colour` is that of the flows it sends; None if none."""
    is_switch = plan.graph.nodes[name]["kind"] == "switch"
    role = "switch" if is_switch else "receiver" if receives else "sender" if colour else "idle"
    wide = max(26.0, 6.6 * len(name) + 8)
    kind = f"{name}: {role}" + ("" if is_switch else f", {', '.join(plan.addresses(name))}")
    return element(
        "g",
        element("title", kind),
        element(
            "rect",
            x=round(x - wide / 2, 1),
            y=round(y - 11, 1),
            width=round(wide, 1),
            height=22,
            rx=2 if is_switch else 10,
            class_=role,
            style=f"stroke:{colour}" if colour else None,
        ),
        element("text", name, x=round(x, 1), y=round(y + 4, 1), text_anchor="middle"),
    )


def _key(plan: Plan, groups: Mapping[str, Sequence[Member]], colours: Mapping[str, str]) -> Element:
    items = [
        element(
            "li",
            element("span", class_="swatch", style=f"border-color:{colours[label]}"),
            f"{title(label, controls(flows))}: {len(flows)} flow{'' if len(flows) == 1 else 's'}",
        )
        for label, flows in groups.items()
    ]
    if len(items) > MOST_KEYS:
        items[MOST_KEYS:] = [element("li", f"and {len(items) - MOST_KEYS} more")]
    if plan.flows:
        items.append(element("li", element("span", class_="swatch receiver"), "receiver"))
    named = "" if drawing.is_layered(plan) else f", {plan.bottleneck.egress}"
    output = f"bottleneck's output{named}"
    items.append(element("li", element("span", class_="swatch line"), output))
    return element("ul", *items, class_="legend")


def describe(plan: Plan, group_by: GroupKind) -> str:
    """Describes the drawing in words."""
    classes = " and ".join(
        f"{len(flows)} of {title(label, controls(flows))}"
        for label, flows in list(plan.groups.get(group_by, {}).items())[:MOST_KEYS]
    )
    return (
        f"{len(plan.hosts)} hosts and {len(plan.switches)} switches; {len(plan.flows)} flows, "
        f"{classes}; the bottleneck is the output {plan.bottleneck.egress} of "
        f"{plan.bottleneck.switch}, fed by {', '.join(plan.bottleneck.ingress)}"
    )
