"""`outcast trace`: the events of the kernel in a run that has ended."""

from pathlib import Path

import click

from outcast import cli


@cli.verb(
    "trace",
    "outcast trace results/fig3c",
    "outcast trace results/fig3c --flow 0 --between 120ms 121ms",
    "outcast trace results/fig3c --events tcp:tcp_probe",
)
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE")
@cli.option(
    "--events NAME,...",
    "Which events to record, as tcp:tcp_probe [default: those of TCP and of queues].",
)
@cli.option("--flow NUMBER", "List only the events of this flow.", type=int)
@cli.option(
    "--between FROM TO", "List only the events between these times, as 10ms 12.5ms.", nargs=2
)
@cli.form
@cli.allow_programs
@cli.output("DIR", "Keep the run that is made again in this folder, which an archive needs.")
def command(
    source: Path,
    events: str | None,
    flow: int | None,
    between: tuple[str, str] | None,
    form: str,
    allow_programs: bool,
    output: Path | None,
) -> None:
    """Record events of the kernel in the run of DIR or FILE, which is made again for it.

    The captures of the run made again have to be equal to the byte; otherwise the exit status is 4
    and there are no tables. A run that recorded the events already is not made again. Tables are in
    DIR/trace. With --flow, --between or --format events are listed too.
    """
    from outcast.records import Run
    from outcast.uses.why import recorded_events, recording
    from outcast.uses.why.recorded_events import Wanted, require_flow

    cli.end_as_interrupted()
    span = None if between is None else cli.span_between(between)
    names = None if events is None else tuple(name.strip() for name in events.split(","))
    if source.is_dir():
        require_flow(Run(source), flow)
    outcome = recording.trace(source, names, output, allow_programs=allow_programs, progress=True)
    if outcome.captures is not None:
        cli.note(f"the same run: {outcome.captures} captures are equal to the byte")
    wanted = Wanted(names, flow, span)
    if flow is not None or span is not None or form != "table":
        cli.echo_lines(recorded_events.lines(outcome.run, wanted, form))
    else:
        for event, rows in outcome.events.items():
            cli.echo_path(outcome.table_file(event), f": {rows} events")
