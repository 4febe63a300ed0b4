"""`outcast whatif`: a run made again in which single packets have other fates."""

from pathlib import Path
from typing import Any

import click

from outcast import cli


@cli.verb(
    "whatif",
    "outcast whatif results/fig3c --packet 1232 --fate forward",
    "outcast whatif results/fig3c --packet 340 --fate forward --packet 342 --fate forward",
    "outcast whatif results/fig3c --fates fates.csv -o other",
)
@click.argument("source", type=click.Path(path_type=Path), metavar="RUN")
@cli.several(
    "--packet N",
    "A row of packets.parquet, from 0, as `outcast inspect` numbers it.",
    "packets",
    type=int,
)
@cli.option(
    "--fate FATE",
    "What happens to it: forward, drop, mark, delay=TIME or keep. One for each --packet.",
    "words",
    multiple=True,
)
@cli.path("--fates FILE.csv", "A file of fates, with the columns port, packet and fate.", "file")
@cli.option(
    "--noise TIME:SEED", "In place of fates: from this time on, draw the noise from another seed."
)
@cli.allow_programs
@cli.output("DIR", "The new run's folder [default: beside RUN, named by the first fate].")
def command(
    source: Path,
    packets: tuple[int, ...],
    words: tuple[str, ...],
    file: Path | None,
    noise: str | None,
    allow_programs: bool,
    output: Path | None,
) -> None:
    """Make RUN again with other fates of single packets, everything else the same.

    RUN is a run directory or an archive, of the virtual engine. All before the first of these
    packets is equal to the nanosecond. The new run has all tables, figures and the report;
    whatif.json says where the two runs part and what differs.

    Exit status 4 if they part before, or captures and counters of the new run do not agree.
    """
    from outcast.uses.whatif import counterfactual as whatif
    from outcast.uses.whatif import fates
    from outcast.uses.whatif import words as view

    cli.end_as_interrupted()
    wanted = fates.parse_fates(packets, words)
    wanted += [] if file is None else fates.read(file)
    how: dict[str, Any] = {"allow_programs": allow_programs, "noise": noise}
    made = whatif.what_if(source, wanted, output, progress=True, **how)
    record, changes = made.record, made.run.directory.read_manifest().interventions
    assert changes is not None
    cli.echo_lines((*view.change_lines(changes), *record.parts))
    console = cli.console()
    console.print(view.table(record.groups, "group"))
    console.print(view.table(record.flows, "flow"))
    cli.echo_lines(filter(None, (view.ratio_words(record), view.blast_words(record))))
    cli.echo(view.draw_words(made.run.directory.read_manifest().seed))
    cli.echo_lines(view.first_lines(record))
    cli.print_drawn(made.run.path)
