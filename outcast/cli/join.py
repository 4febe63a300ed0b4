"""`outcast join`: joins the captures of a switch's ports, whoever made them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import ConfigError, UntrustedError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outcast.analysis.join.findings import QueueEstimate
    from outcast.analysis.join.join import Joined
    from outcast.analysis.measure.blackout import Chains

LISTS = ("--in", "--out")


class _Lists(click.Command):
    """Lets a repeatable option take several values at once: `--in A B` for `--in A --in B`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        current: str | None = None
        for argument in args:
            if argument.startswith("-"):
                current = argument if argument in LISTS else None
                if current is None:
                    spread.append(argument)
            elif current is not None:
                spread += [current, argument]
            else:
                spread.append(argument)
        return super().parse_args(ctx, spread)


def _ports(role: str, texts: tuple[str, ...]) -> dict[str, Path]:
    ports: dict[str, Path] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if not separator or not name or not path:
            raise ConfigError(f"{text}: allowed is NAME=PCAP, as s1-eth2=captures/s1-eth2.in.pcap")
        if name in ports:
            raise ConfigError(f"{role and f'{role} '}port {name} is given twice")
        ports[name] = Path(path)
    return ports


@click.command(
    "join",
    cls=_Lists,
    epilog=shared.examples(
        "outcast join eth1=eth1.pcap eth2=eth2.pcap.gz eth3=eth3.pcap -o results/mine",
        "outcast join --in in1=a.pcap in2=b.pcap.gz --out out=c.pcap --to 10.0.0.1",
    ),
)
@click.argument("ports", nargs=-1, metavar="[PORT=FILE]...")
@click.option(
    "--in",
    "inputs",
    multiple=True,
    metavar="NAME=PCAP...",
    help="Input ports: a name of yours and the capture of what came in.",
)
@click.option(
    "--out",
    "outputs",
    multiple=True,
    metavar="NAME=PCAP...",
    help="Output ports: a name of yours and the capture of what left.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="Write the whole analysis to this new folder, or a row for each packet to this .parquet "
    "or .csv file.",
)
@click.option(
    "--copy",
    is_flag=True,
    help="Copy the captures into the folder of -o, so that it can be handed on.",
)
@click.option(
    "--queue",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every change of the queue to this .parquet or .csv file.",
)
@click.option(
    "--blackouts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the chains of consecutive drops to this .parquet or .csv file.",
)
@click.option(
    "--to",
    "addresses",
    multiple=True,
    metavar="ADDRESS",
    help="Only packets to this address [default: every address to which packets leave].",
)
@click.option("--routed", is_flag=True, help="The switch is a router: let the TTL change.")
@click.option(
    "--one-clock", is_flag=True, help="One clock stamped all captures: correct none of them."
)
@click.option(
    "--max-sojourn",
    default="1s",
    show_default=True,
    metavar="TIME",
    help="The longest time that a packet can spend in the switch.",
)
@click.option(
    "--dropped",
    type=click.IntRange(min=0),
    metavar="N",
    help="What the queue's own counter says (tc -s, nft), to compare with.",
)
@click.option("--rate", metavar="RATE", help="The outputs' rate [default: estimated].")
@click.option(
    "--limit", metavar="SIZE", help="The limit of the outputs' queues [default: estimated]."
)
def command(
    ports: tuple[str, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    output: Path | None,
    copy: bool,
    queue: Path | None,
    blackouts: Path | None,
    addresses: tuple[str, ...],
    routed: bool,
    one_clock: bool,
    max_sojourn: str,
    dropped: int | None,
    rate: str | None,
    limit: str | None,
) -> None:
    """Match the packets that entered a switch with those that left it.

    A capture is a pcap or pcapng file, which gzip or zstd may have compressed. Plain captures of
    the switch's ports are enough: PORT is a name of yours. Which packets came in and which left is
    told by where they are seen. With --in and --out, the named files count as inputs or outputs
    only.

    Prints for each input port how many packets were forwarded and dropped. Exit status 4 and a
    sentence say what is probably missing if more than 1 % of the packets cannot be explained.
    """
    folder = output if output is not None and _is_folder(output) else None
    files = {"packets": output, "queue": queue, "blackouts": blackouts}
    written = {
        name: path for name, path in files.items() if path is not None and path is not folder
    }
    if copy and folder is None:
        raise ConfigError("--copy: only together with -o DIR, a folder")
    if len(set(written.values())) < len(written):
        raise ConfigError("-o, --queue and --blackouts: allowed are three different files")
    for path in written.values():
        if path.suffix not in (".parquet", ".csv"):
            raise ConfigError(
                f"{path}: allowed are names that end in .parquet or .csv"
                + (", and folders without such an ending" if path is output else "")
            )
    if folder is not None:
        from outcast import workflow

        workflow.require_free(folder)
    ports_in, ports_out = _ports("input", inputs), _ports("output", outputs)
    ports_both = _ports("", ports)
    if not (ports_both or ports_in or ports_out):
        raise ConfigError("no captures; allowed is PORT=FILE for each port, as eth1=eth1.pcap")

    from outcast.api.joins import join_captures, parse_max_sojourn_ns, parse_queue

    parse_max_sojourn_ns(max_sojourn, "--max-sojourn")
    parse_queue(rate, limit, "--rate", "--limit")
    result = join_captures(
        ports_in,
        ports_out,
        ports=ports_both,
        destinations=addresses,
        routed=routed,
        one_clock=one_clock,
        max_sojourn=max_sojourn,
        rate=rate,
        limit=limit,
    )
    for text in result.remarks:
        terminal.tell(f"outcast: {text}")
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(lambda name: result.write(name, written[name]), written))
    _print(result.joined, result.chains)
    for estimate in result.estimates:
        text = _queue_text(estimate)
        if text:
            terminal.console().print(text, highlight=False, soft_wrap=True)
    if folder is not None:
        from outcast.view.terminal import tables

        run = result.save(folder, copy=copy)
        for line in tables.noise_lines(run):
            terminal.echo(line)
        shared.print_drawn(run.path)
    if dropped is not None:
        _require_counter(result.joined, dropped)


def _is_folder(path: Path) -> bool:
    """Whether -o names a folder: its name has no ending as files have, or it is one."""
    return path.is_dir() or re.fullmatch(r"\.[A-Za-z]\w{0,8}", path.suffix) is None


def _queue_text(estimate: QueueEstimate) -> str:
    """What is known of an output's queue, as a line; empty if nothing is."""
    parts = []
    if estimate.rate_bps is not None and estimate.rate_high_bps is not None:
        error = (estimate.rate_high_bps - estimate.rate_bps) / 1e6
        parts.append(f"sends {estimate.rate_bps / 1e6:.3f} Mbps, within {error:.3f}")
    if estimate.limit_at_least is not None:
        below = estimate.limit_below
        high = "" if below is None else f" and below {below:,}"
        parts.append(f"its queue's limit is at least {estimate.limit_at_least:,}{high} "
                     f"{estimate.limit_unit}")  # fmt: skip
    return f"{estimate.port}: {'; '.join(parts)}" if parts else ""


def _waits(joined: Joined) -> RenderableType:
    """A table of how long packets spent in the switch, by input and output, in milliseconds."""
    import numpy as np
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("waits (ms)")
    for column in ("packets", "median", "90 %", "99 %", "longest"):
        table.add_column(column, justify="right")
    waits_ns = joined.t_out_ns - joined.arrivals.stamp_ns
    left = joined.t_out_ns >= 0
    for row, ingress in enumerate(joined.inputs):
        for output, egress in enumerate(joined.outputs):
            mine = waits_ns[left & (joined.arrivals.port == row) & (joined.egress == output)]
            if not mine.size:
                continue
            shown = [float(np.percentile(mine, share)) / 1e6 for share in (50, 90, 99, 100)]
            table.add_row(
                f"{ingress} to {egress}", f"{mine.size:,}", *(f"{value:.3f}" for value in shown)
            )
    return table


def _require_counter(joined: Joined, counted: int) -> None:
    """Raises UntrustedError if the queue's own counter says something else."""
    inferred = joined.counts.dropped
    if inferred != counted:
        raise UntrustedError(
            f"--dropped: {inferred:,} drops inferred, but the counter says {counted:,}. A counter "
            "also has what the hop itself sent, what is not IP, and what was dropped while nobody "
            "captured"
        )
    terminal.tell(f"outcast: {inferred:,} drops inferred, as the counter says")


def _print(joined: Joined, chains: Chains) -> None:
    from rich.table import Table

    from outcast.analysis.join.join import Verdict

    table = Table(box=None, pad_edge=False)
    table.add_column("input")
    for column in ("packets", "forwarded", "dropped", "unknown", "chains", "longest", "blackouts"):
        table.add_column(column, justify="right")
    for index, name in enumerate(joined.inputs):
        verdict = joined.verdict[joined.arrivals.port == index]
        of_port = chains.ingress == index
        table.add_row(
            name,
            str(verdict.size),
            *(str(int((verdict == code).sum())) for code in Verdict),
            str(int(of_port.sum())),
            str(int(chains.drops[of_port].max(initial=0))),
            str(int((chains.others_through[of_port] > 0).sum())),
        )
    console = terminal.console()
    console.print(table)
    console.print(_waits(joined))
    counts = joined.counts
    console.print(
        f"in {counts.entered} = forwarded {counts.forwarded} + dropped {counts.dropped} + "
        f"in flight {counts.in_flight} + before the output's capture {counts.before_output}; "
        f"reordered {counts.reordered}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"out {counts.left} = forwarded {counts.forwarded} + queued before the capture "
        f"{counts.early} + duplicates {counts.duplicates} + unexplained {counts.unexplained}",
        highlight=False,
        soft_wrap=True,
    )
