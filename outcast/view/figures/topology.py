"""Draws the topology: switches by layer, hosts below, the flows' paths, and the bottleneck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from controllers.graph import LAYERS
from outcast import files
from outcast.experiment import GroupKind
from outcast.plan import grouping, link_words
from outcast.plan.model import Plan
from outcast.view.palette import BLUE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point: TypeAlias = tuple[float, float]

_MOST_COUNTS = 4
"""The most groups that the title counts."""
_MOST_UPRIGHT = 20
"""The most boxes in the hosts' row with level names. With more, all names are turned upwards."""
_MOST_HOSTS = 128
"""The most hosts that have a box each. If there are more, similar hosts share a box."""
_MOST_OWN = 8
"""The most links whose own settings are written beside them."""
_BEHIND_WORDS = {"boxstyle": "square,pad=0.1", "facecolor": "#ffffffd0", "edgecolor": "none"}
_MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}
_LAYER_HEIGHT = {layer: float(height) for height, layer in enumerate(("host", *LAYERS))}


def to_dot(plan: Plan) -> str:
    """The topology in the dot language of Graphviz, with flows and own settings at the links."""
    used, own = flows_on_links(plan), link_words.own(plan.links)
    lines = [f'graph "{plan.bottleneck.egress}" {{', "  node [shape=box];"]
    for host in plan.hosts:
        lines.append(
            f'  "{host}" [shape=ellipse, label="{host}\\n{", ".join(plan.addresses(host))}"];'
        )
    lines += [f'  "{switch}";' for switch in plan.switches]
    lines += [f'  "{router}" [shape=circle];' for router in plan.routers]
    for node, neighbour in plan.graph.edges:
        count = used[frozenset((node, neighbour))]
        label = "\\n".join(filter(None, [str(count or ""), own(node, neighbour)]))
        named = [*(["penwidth=2"] if count else []), *([f'label="{label}"'] if label else [])]
        style = f" [{', '.join(named)}]" if named else ""
        lines.append(f'  "{node}" -- "{neighbour}"{style};')
    return "\n".join([*lines, "}", ""])


def flows_on_links(plan: Plan) -> Counter[frozenset[str]]:
    """The number of flows over each link, by the set of its two ends."""
    return Counter(frozenset(link) for flow in plan.flows for link in pairwise(flow.path))


def positions(plan: Plan, boxes: Mapping[str, list[str]] | None = None) -> dict[str, Point]:
    """In a network of layers, a switch is above the middle of the nodes linked below it.

    Any other network is placed by outcast/view/figures/free_layout.py.
    """
    if boxes is None:
        boxes = {host: [host] for host in plan.hosts}
    if not is_layered(plan):
        return _free_positions(plan, boxes)
    attached = [next(iter(plan.graph.adj[host])) for host in plan.hosts]
    first = {switch: number for number, switch in reversed([*enumerate(attached)])}
    members = sorted(boxes.values(), key=lambda hosts: first[next(iter(plan.graph.adj[hosts[0]]))])
    ground = _LAYER_HEIGHT["host"]
    placed = {host: (float(at), ground) for at, hosts in enumerate(members) for host in hosts}
    for layer in LAYERS:
        switches = [name for name in plan.forwarders if plan.graph.nodes[name]["layer"] == layer]
        below = {
            name: [
                placed[other][0]
                for other in plan.graph.neighbors(name)
                if other in placed and placed[other][1] < _LAYER_HEIGHT[layer]
            ]
            for name in switches
        }
        centres = {name: (min(xs) + max(xs)) / 2 if xs else 0.0 for name, xs in below.items()}
        # Switches with the same centre (those of a pod, or the core) are spread side by side.
        groups: dict[float, list[str]] = {}
        for name in switches:
            centre = sum(centres.values()) / len(centres) if layer == LAYERS[-1] else centres[name]
            groups.setdefault(round(centre, 6), []).append(name)
        for centre, names in groups.items():
            spread = (max(below[names[0]], default=0) - min(below[names[0]], default=0)) or 1.0
            for index, name in enumerate(names):
                offset = (index - (len(names) - 1) / 2) * spread / max(1, len(names) - 1)
                x = centre + (offset if len(names) > 1 else 0.0)
                placed[name] = (x, _LAYER_HEIGHT[layer])
    return placed


def is_layered(plan: Plan) -> bool:
    """Whether each layer has a row: no link joins nodes of one layer, or there are two switches."""
    layer = {switch: plan.graph.nodes[switch]["layer"] for switch in plan.forwarders}
    return len(layer) <= 2 or all(
        layer[node] != layer[neighbour]
        for node, neighbour in plan.graph.edges
        if node in layer and neighbour in layer
    )


def _free_positions(plan: Plan, boxes: Mapping[str, list[str]]) -> dict[str, Point]:
    # Imported here, because a layered layout does not need numpy.
    from outcast.view.figures import free_layout

    representative = {host: hosts[0] for hosts in boxes.values() for host in hosts}
    subgraph = plan.graph.subgraph([*plan.forwarders, *dict.fromkeys(representative.values())])
    labels = {switch: switch for switch in plan.forwarders}
    labels |= {hosts[0]: label for label, hosts in boxes.items()}
    placed = free_layout.place(subgraph, labels)
    return placed | {host: placed[first] for host, first in representative.items()}


def _boxes(plan: Plan) -> dict[str, list[str]]:
    """The boxes in the row of hosts, with their hosts; many similar hosts share a box."""
    if len(plan.hosts) <= _MOST_HOSTS:
        return {host: [host] for host in plan.hosts}
    senders, receivers = _ends(plan)
    alike: dict[tuple[str, bool, bool], list[str]] = {}
    for host in plan.hosts:
        (switch,) = plan.graph.neighbors(host)
        alike.setdefault((switch, host in senders, host in receivers), []).append(host)
    return {
        hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more": hosts
        for hosts in alike.values()
    }


def _ends(plan: Plan) -> tuple[set[str], set[str]]:
    return {flow.src for flow in plan.flows}, {flow.dst for flow in plan.flows}


def picture(plan: Plan, title: str, group_by: GroupKind | None = None) -> Figure:
    """Draws the topology. Links in use are blue, and thicker with more flows.

    The bottleneck is orange. The title counts the flows of each group; `group_by` is the kind of
    the groups, None for the default.
    """
    from outcast.view.figures.style import styled

    with styled({}):
        return _picture(plan, title, group_by)


def _picture(plan: Plan, title: str, group_by: GroupKind | None) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from outcast.view.figures.style import ShownFigure

    boxes = _boxes(plan)
    placed = positions(plan, boxes)
    layered = is_layered(plan)
    upright = not layered or len(boxes) <= _MOST_UPRIGHT
    size = (max(7.0, len(boxes) * (0.62 if upright else 0.24)), 4.6 if upright else 7.0)
    if not layered:
        right, top = (max(place) for place in zip(*placed.values(), strict=True))
        size = min(40.0, max(7.0, 0.72 * right + 1.6)), min(40.0, max(3.0, 0.9 * top + 1.6))
    figure = ShownFigure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines = {frozenset(edge): (placed[edge[0]], placed[edge[1]]) for edge in plan.graph.edges}
    _draw_links(axes, plan, lines, 0.7 if upright else 0.3)
    words_of = link_words.own(plan.links)
    own = {frozenset(edge): words for edge in plan.graph.edges if (words := words_of(*edge))}
    own = own if len(own) <= _MOST_OWN else {}
    _write_settings(axes, plan, own, lines)
    of_bottleneck = own.get(frozenset(plan.ends[plan.bottleneck.egress]), "")
    named = [f"bottleneck {plan.bottleneck.egress}", *filter(None, [of_bottleneck])]
    heading = f"{title}{_flows(plan, group_by)}"
    if layered:
        start, end = (placed[node] for node in plan.ends[plan.bottleneck.egress])
        _name_bottleneck(axes, start, end, "\n".join(named))
    else:
        # Where links run in all directions, a separate label has no space.
        heading += f"\n{', '.join(named)} (orange)"
    _draw_nodes(axes, plan, boxes, placed, 0 if upright else 90)
    axes.set_title(heading, fontsize=11)
    axes.margins(0.04, 0.12)
    axes.autoscale_view()
    axes.set_axis_off()
    return figure


def _draw_links(
    axes: Axes, plan: Plan, lines: Mapping[frozenset[str], tuple[Point, Point]], thin: float
) -> None:
    from matplotlib.collections import LineCollection

    used = flows_on_links(plan)
    most = max(used.values(), default=1)
    unused = [line for edge, line in lines.items() if edge not in used]
    axes.add_collection(LineCollection(unused, colors="#c8c8c8", linewidths=thin, zorder=1))
    widths = [1.2 + 4 * count / most for count in used.values()]
    taken = [lines[edge] for edge in used]
    axes.add_collection(LineCollection(taken, colors=BLUE, linewidths=widths, zorder=2))
    (x1, y1), (x2, y2) = lines[frozenset(plan.ends[plan.bottleneck.egress])]
    axes.plot([x1, x2], [y1, y2], color=VERMILION, linewidth=6, zorder=3)


def _name_bottleneck(axes: Axes, start: Point, end: Point, words: str) -> None:
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    place: dict[str, Any] = {"xytext": (-6, 0), "ha": "right", "va": "center"}
    if start[1] == end[1]:
        place = {"xytext": (0, 8), "ha": "center", "va": "bottom"}
    look: dict[str, Any] = {"color": "#a04000", "fontsize": 9, "zorder": 5, "bbox": _BEHIND_WORDS}
    axes.annotate(words, middle, textcoords="offset points", **place, **look)


def _draw_nodes(
    axes: Axes,
    plan: Plan,
    boxes: Mapping[str, list[str]],
    placed: Mapping[str, Point],
    rotation: int,
) -> None:
    labels = [(name, name, "square") for name in plan.switches]
    labels += [(name, name, "circle") for name in plan.routers]
    labels += [(label, hosts[0], "round") for label, hosts in boxes.items()]
    senders, receivers = _ends(plan)
    for label, node, shape in labels:
        colour = "#bfdcf0" if node in senders else "#ffffff"
        if node in receivers:
            colour = "#f5c9a6"
        box = {"boxstyle": f"{shape},pad=0.3", "facecolor": colour, "edgecolor": "#404040"}
        axes.text(
            *placed[node], label, rotation=rotation, fontsize=8, zorder=4, bbox=box, **_MIDDLE
        )


def _write_settings(
    axes: Axes,
    plan: Plan,
    own: Mapping[frozenset[str], str],
    lines: Mapping[frozenset[str], tuple[Point, Point]],
) -> None:
    """Writes the own settings of links beside them; the bottleneck's label has its settings."""
    layered = is_layered(plan)
    bottleneck = frozenset(plan.ends[plan.bottleneck.egress])
    others = [ends for ends in own if ends != bottleneck]
    for number, ends in enumerate(others):
        (x1, y1), (x2, y2) = lines[ends]
        # In a row of hosts, the links of neighbours come near one another in the middle.
        share = 0.5 + (0.15 * (number % 3 - 1) if layered else 0)
        place = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
        words = own[ends].replace("; " if layered else ", ", "\n")
        axes.text(
            *place, words, color="#303030", fontsize=7, zorder=5, bbox=_BEHIND_WORDS, **_MIDDLE
        )


def _flows(plan: Plan, group_by: GroupKind | None) -> str:
    groups = plan.groups.get(grouping.chosen(group_by, plan.groups), {})
    counts = [
        f"{len(flows)} of {grouping.title(label, grouping.controls(flows))}"
        for label, flows in groups.items()
    ]
    if len(counts) > _MOST_COUNTS:
        counts = [*counts[:_MOST_COUNTS], "..."]
    return f": {len(plan.flows)} flows ({', '.join(counts)})" if counts else ""


def draw(plan: Plan, file: Path, title: str, group_by: GroupKind | None = None) -> None:
    with files.writing(file) as stream:
        picture(plan, title, group_by).savefig(stream, dpi=110, format="png")
