"""The topology as a picture: switches by layer, hosts below, the flows' paths, the bottleneck."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

from outcast.plan import Plan

_LAYER_HEIGHT = {"host": 0.0, "edge": 1.0, "aggregation": 2.0, "core": 3.0}


def to_dot(plan: Plan) -> str:
    """Graphviz's dot language; links that flows use are drawn bold, with their number of flows."""
    used = flows_on_links(plan)
    lines = [f'graph "{plan.bottleneck.egress}" {{', "  node [shape=box];"]
    for host in plan.hosts:
        lines.append(f'  "{host}" [shape=ellipse, label="{host}\\n{plan.ip(host)}"];')
    lines += [f'  "{switch}";' for switch in plan.switches]
    for one, two in plan.graph.edges:
        count = used[frozenset((one, two))]
        style = f' [penwidth=2, label="{count}"]' if count else ""
        lines.append(f'  "{one}" -- "{two}"{style};')
    return "\n".join([*lines, "}", ""])


def flows_on_links(plan: Plan) -> Counter[frozenset[str]]:
    """How many flows cross each link, which is named by its two ends."""
    return Counter(frozenset(link) for flow in plan.flows for link in pairwise(flow.path))


def positions(plan: Plan) -> dict[str, tuple[float, float]]:
    """Hosts in a row in their order; a switch above the middle of what hangs below it."""
    placed = {host: (float(index), _LAYER_HEIGHT["host"]) for index, host in enumerate(plan.hosts)}
    for layer in ("edge", "aggregation", "core"):
        switches = [name for name in plan.switches if plan.graph.nodes[name]["layer"] == layer]
        below = {
            name: [
                placed[other][0]
                for other in plan.graph.neighbors(name)
                if other in placed and placed[other][1] < _LAYER_HEIGHT[layer]
            ]
            for name in switches
        }
        centres = {name: sum(xs) / len(xs) if xs else 0.0 for name, xs in below.items()}
        # Switches above the same hosts (a pod's, the core's) stand side by side there.
        groups: dict[float, list[str]] = {}
        for name in switches:
            centre = sum(centres.values()) / len(centres) if layer == "core" else centres[name]
            groups.setdefault(round(centre, 6), []).append(name)
        for centre, names in groups.items():
            spread = (max(below[names[0]], default=0) - min(below[names[0]], default=0)) or 1.0
            for index, name in enumerate(names):
                offset = (index - (len(names) - 1) / 2) * spread / max(1, len(names) - 1)
                x = centre + (offset if len(names) > 1 else 0.0)
                placed[name] = (x, _LAYER_HEIGHT[layer])
    return placed


def draw(plan: Plan, file: Path, title: str) -> None:
    """Draws the topology into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    placed = positions(plan)
    used = flows_on_links(plan)
    figure = Figure(figsize=(max(7.0, len(plan.hosts) * 0.62), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    most = max(used.values())
    for one, two in plan.graph.edges:
        count = used[frozenset((one, two))]
        (x1, y1), (x2, y2) = placed[one], placed[two]
        axes.plot(
            [x1, x2],
            [y1, y2],
            color="#0072b2" if count else "#c8c8c8",
            linewidth=1.2 + 4 * count / most if count else 0.7,
            zorder=1,
        )
    egress_to = next(
        other
        for other in plan.graph.neighbors(plan.bottleneck.switch)
        if plan.port(plan.bottleneck.switch, other) == plan.bottleneck.egress
    )
    (x1, y1), (x2, y2) = placed[plan.bottleneck.switch], placed[egress_to]
    axes.plot([x1, x2], [y1, y2], color="#d55e00", linewidth=6, zorder=2)
    axes.annotate(
        f"bottleneck {plan.bottleneck.egress}",
        ((x1 + x2) / 2, (y1 + y2) / 2),
        xytext=(-4, 16),
        textcoords="offset points",
        ha="right",
        color="#a04000",
        fontsize=9,
    )
    senders = {flow.src for flow in plan.flows}
    receivers = {flow.dst for flow in plan.flows}
    for name, (x, y) in placed.items():
        is_switch = name in plan.switches
        colour = "#ffffff"
        if name in receivers:
            colour = "#f5c9a6"
        elif name in senders:
            colour = "#bfdcf0"
        axes.text(
            x,
            y,
            name,
            ha="center",
            va="center",
            fontsize=8,
            rotation=0 if is_switch or len(plan.hosts) <= 20 else 90,
            zorder=3,
            bbox={
                "boxstyle": "square,pad=0.3" if is_switch else "round,pad=0.3",
                "facecolor": colour,
                "edgecolor": "#404040",
            },
        )
    hops = Counter(flow.hops for flow in plan.flows)
    classes = ", ".join(f"{count} of {each} hops" for each, count in sorted(hops.items()))
    axes.set_title(f"{title}: {len(plan.flows)} flows ({classes})", fontsize=11)
    axes.margins(0.04, 0.12)
    axes.set_axis_off()
    temporary = file.with_name(f".{file.name}.tmp")
    figure.savefig(temporary, dpi=110, format="png")
    temporary.replace(file)
