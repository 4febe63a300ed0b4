"""`outcast topo`: nodes, links and every flow's path, without root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal

if TYPE_CHECKING:
    from outcast.experiment import Experiment
    from outcast.plan.whole import Plan


@click.command("topo")
@click.argument("config", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--dot", is_flag=True, help="Print Graphviz's dot language.")
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="Draw into a file.")
def command(config: Path, overrides: tuple[str, ...], dot: bool, png: Path | None) -> None:
    """Show what CONFIG would build: nodes, links, every flow's path, the bottleneck."""
    from outcast import experiment
    from outcast.plan.whole import make_plan
    from outcast.view.figures import topology as drawing

    source = experiment.read(config, overrides)
    wanted = source.experiment()
    plan = make_plan(wanted, where=source.where)
    if png is not None:
        drawing.draw(plan, png, wanted.name)
        terminal.echo_path(png)
    if dot:
        terminal.echo(drawing.to_dot(plan), nl=False)
    if png is None and not dot:
        terminal.echo("\n".join(describe(wanted, plan)))


def describe(experiment: Experiment, plan: Plan) -> list[str]:
    """The lines of the plain listing."""
    graph = plan.graph
    lines = [f"{experiment.name}: {len(plan.hosts)} hosts, {len(plan.switches)} switches"]
    lines += ["", "hosts"]
    lines += [f"  {host}  {plan.ip(host)}" for host in plan.hosts]
    lines += ["", "switches"]
    lines += [
        f"  {switch}  {graph.nodes[switch]['layer']}  {graph.degree(switch)} ports"
        for switch in plan.switches
    ]
    lines += ["", "links"]
    lines += [f"  {plan.port(one, two)} -- {plan.port(two, one)}" for one, two in graph.edges]
    lines += ["", "flows"]
    lines += [
        f"  {flow.flow}: {flow.hops}-hop  {' '.join(flow.path)}  "
        f"({flow.src_ip}:{flow.sport} to {flow.dst_ip}:{flow.dport})"
        for flow in plan.flows
    ]
    bottleneck = plan.bottleneck
    lines += ["", f"bottleneck: {bottleneck.egress}, fed by {', '.join(bottleneck.ingress)}"]
    return lines
