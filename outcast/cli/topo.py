"""`outcast topo`: the nodes, the links and the path of every flow, without root."""

from pathlib import Path

import click

from outcast.cli import shared, terminal


@shared.verb(
    "topo",
    "outcast topo configs/fig3c.yaml",
    "outcast topo configs/fig3c.yaml --set flows.1.hosts=6 --png fig3c.png",
)
@click.argument("config", type=click.Path(path_type=Path))
@shared.overrides
@shared.flag("--all", "Also every flow's path, all links and nodes.", "whole")
@shared.flag("--dot", "Print the network in Graphviz's dot language.")
@shared.option("--png FILE", "Draw the network to this file.", type=shared.PngPath())
def command(
    config: Path, overrides: tuple[str, ...], whole: bool, dot: bool, png: Path | None
) -> None:
    """Show what CONFIG would build: the bottleneck, who meets there, nodes, links and paths.

    Needs no root and builds nothing.
    """
    from outcast import experiment
    from outcast.api import experiments
    from outcast.experiment.engine import candidates
    from outcast.view.figures import topology as drawing
    from outcast.view.terminal.topology import describe

    planned = experiments.checked(experiment.read(config, overrides))
    # A run's plan has its engine's defaults, so this one does too.
    chosen, plan = planned.by(candidates(planned.experiment.engine)[0])
    if png is not None:
        drawing.draw(plan, png, chosen.name, chosen.analysis.group_by)
        terminal.echo_path(png)
    if dot:
        terminal.echo(drawing.to_dot(plan), nl=False)
    if png is None and not dot:
        terminal.echo("\n".join(describe(chosen, plan, whole)))
