"""`outcast debug`: stops a run's kernel at a nanosecond, with gdb attached to it."""

from pathlib import Path

import click

from outcast.cli import selecting, shared, terminal


@shared.verb(
    "debug",
    "outcast debug results/fig3c --at 0.6292ms",
    "outcast debug results/fig3c --at 30ms --command 'tcp-sock h0_0_3 5001' --command bt",
    "outcast debug results/fig3c --break tcp_retransmit_skb --print '$tcp->snd_cwnd' --count 9",
)
@click.argument("source", type=click.Path(path_type=Path), metavar="FILE|DIR")
@shared.option(
    "--at TIME",
    "When the kernel stops, since the traffic's start: 0.6292ms, or in seconds.",
    default="0ms",
)
@shared.option(
    "--host HOST",
    "The host that commands mean if they name none. With --break, only its hits count.",
)
@shared.option(
    "--break FUNCTION",
    "Print at each hit of this function of the kernel, and go on. As gdb writes a place: "
    "also FILE:LINE, and 'FUNCTION if CONDITION'.",
    "place",
    default="",
)
@shared.several("--print EXPRESSION", "Print this at each hit, as gdb's print does.", "expressions")
@shared.option(
    "--count N", "After so many hits, let the run go on without gdb.", type=click.IntRange(min=1)
)
@shared.several(
    "-x, --command COMMAND",
    "Run this command of gdb's or of ours: once, or with --break at each hit.",
    "commands",
)
@shared.allow_programs
def command(
    source: Path,
    at: str,
    host: str | None,
    place: str,
    expressions: tuple[str, ...],
    count: int | None,
    commands: tuple[str, ...],
    allow_programs: bool,
) -> None:
    """Make the run in DIR or in FILE, an archive, again, and stop its kernel with gdb attached.

    Without --break and --command, gdb reads your commands. Ours are now, tcp-sock, queue and
    run-to. With quit the run goes on to its end. Virtual time stands still while the kernel does,
    so it stays the same run.

    Exit status 4 if the captures differ from the earlier run's.
    """
    from outcast.api import debugging

    shared.end_as_interrupted()
    done = debugging.debug(
        source,
        selecting.instant_ns(at, "--at"),
        host=host,
        breakpoint=place,
        expressions=expressions,
        count=count,
        commands=commands,
        allow_programs=allow_programs,
        progress=False,
    )
    hits = f"{done.hits} hits; " if place else ""
    terminal.tell(f"{hits}the run is the same: {done.captures} captures are equal")
