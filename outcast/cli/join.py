"""`outcast join`: joins the captures of a switch's ports, from any source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from outcast.cli import shared, terminal
from outcast.errors import ConfigError, UntrustedError

LISTS = ("--in", "--out", "--chain")
_NAMED = "allowed is NAME=PCAP, as s1-eth2=captures/s1-eth2.in.pcap"


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


def _ports(role: str, texts: tuple[str, ...], file: Path | None = None) -> dict[str, Path]:
    """The ports by name. A name without a file is an interface of `file`."""
    ports: dict[str, Path] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if not separator and file is not None:
            name, separator, path = f"if{text}" if text.isdecimal() else text, "=", str(file)
        if not separator or not name or not path:
            raise ConfigError(f"{text}: {_NAMED}")
        if name in ports:
            raise ConfigError(f"{role and f'{role} '}port {name} is given twice")
        ports[name] = Path(path)
    return ports


@shared.verb(
    "join",
    "outcast join eth1=eth1.pcap eth2=eth2.pcap.gz eth3=eth3.pcap -o results/mine",
    "outcast join --in in1=a.pcap in2=b.pcap.gz --out out=c.pcap --to 10.0.0.1",
    "outcast join any.pcap --in eth1 eth2 --out eth3 --routed",
    "outcast join --chain a=a.pcap if2=router.pcap if4=router.pcap b=b.pcap",
    cls=_Lists,
)
@click.argument("ports", nargs=-1, metavar="[FILE | PORT=FILE...]")
@shared.option(
    "--in NAME=PCAP...",
    "Input ports: a name that you choose, and the capture.",
    "inputs",
    multiple=True,
)
@shared.option(
    "--out NAME=PCAP...",
    "Output ports, likewise.",
    "outputs",
    multiple=True,
)
@shared.option(
    "--chain NAME=PCAP...",
    "Instead, points of a path in the order of the way: print loss and delay of each segment. "
    "Points of one file are its interfaces, as if2=FILE if4=FILE.",
    "points",
    multiple=True,
)
@shared.output(
    "DIR|FILE",
    "Write the whole analysis to this new folder, or a row for each packet to this .parquet "
    "or .csv file.",
)
@shared.option(
    "--to ADDRESS",
    "Only packets to this address [default: every address to which packets leave].",
    "addresses",
    multiple=True,
)
@shared.flag("--routed", "The switch is a router: let the TTL change.")
@shared.flag("--one-clock", "One clock stamped all captures: correct none of them.")
@shared.option(
    "--max-sojourn TIME", "The longest time that a packet can spend in the switch.", default="1s"
)
@shared.option(
    "--dropped N", "The drops by the queue's own counter (tc -s qdisc), to compare with.", type=int
)
@shared.option("--rate RATE", "The outputs' rate [default: estimated].")
@shared.option("--limit SIZE", "The limit of the outputs' queues [default: estimated].")
def command(
    ports: tuple[str, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    points: tuple[str, ...],
    output: Path | None,
    addresses: tuple[str, ...],
    dropped: int | None,
    **how: Any,
) -> None:
    """Match the packets that entered a switch with those that left it.

    A capture is a pcap or pcapng file, which gzip or zstd may have compressed. Plain captures of
    the switch's ports are enough: the ports where a packet is seen show where it came in and left.
    You choose the names of ports. With --in and --out, the named files count as inputs or outputs
    only. FILE is one capture of several interfaces (pcapng, or tcpdump -i any): each is a port, and
    --in and --out can name them.

    Prints for each input port how many packets were forwarded and dropped. Exit status 4, a table
    and a line with a reason if more than 1 % of the packets cannot be explained.
    """
    folder = output if output is not None and _is_folder(output) else None
    table = None if output is folder else output
    if table is not None and table.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{table}: allowed are names that end in .parquet or .csv")
    if points:
        if any((ports, inputs, outputs, output, dropped is not None, how["rate"], how["limit"])):
            raise ConfigError("--chain: allowed beside it are --to, --one-clock and --max-sojourn")
        given = {name: how[name] for name in ("one_clock", "max_sojourn")}
        _chain(_ports("chain", points), destinations=addresses, **given)
        return
    if folder is not None:
        from outcast import workflow

        workflow.require_free(folder)
    sides = _sides(ports, inputs, outputs)

    from outcast.analysis.join.doubts import RefusedJoin
    from outcast.api import joins
    from outcast.view.terminal import joined as view

    try:
        result = joins.join_captures(**sides, destinations=addresses, **how)
    except RefusedJoin as error:
        for text in error.remarks:
            shared.note(text)
        for line in view.refused(error.ports):
            terminal.echo(line, err=True)
        raise
    for text in result.remarks:
        shared.note(text)
    if table is not None:
        result.write("packets", table)
    for part in view.parts(result):
        terminal.console().print(part, highlight=False, soft_wrap=isinstance(part, str))
    if folder is not None:
        shared.print_drawn(result.save(folder).path)
    inferred = result.joined.counts.dropped
    if dropped is not None and inferred != dropped:
        raise UntrustedError(
            f"--dropped: {inferred:,} drops inferred, but the counter says {dropped:,}. A counter "
            "also has what the hop itself sent, what is not IP, and drops while nobody captured"
        )
    if dropped is not None:
        shared.note(f"{dropped:,} drops inferred, as the counter says")


def _sides(
    ports: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> dict[str, Any]:
    """The captures as `join_captures` takes them."""
    where = ""
    if not ports:
        # The options take all arguments that follow them, also FILE.
        ports = tuple(text for text in inputs + outputs if "=" not in text and Path(text).is_file())
        where = "--in: " if set(inputs) & set(ports) else "--out: "
        inputs = tuple(text for text in inputs if text not in ports)
        outputs = tuple(text for text in outputs if text not in ports)
    file = Path(ports[0]) if len(ports) == 1 and "=" not in ports[0] else None
    ports_in, ports_out = _ports("input", inputs, file), _ports("output", outputs, file)
    ports_both = {} if file is not None else _ports("", ports)
    named = [*ports_in.values(), *ports_out.values()]
    if named and file is not None and file not in named:
        raise ConfigError(f"{where}{file}: {_NAMED}")
    if not (ports_both or ports_in or ports_out or file):
        raise ConfigError("no captures; allowed is PORT=FILE for each port, or one FILE of several")
    alone = None if ports_in or ports_out else file
    return {"inputs": ports_in, "outputs": ports_out, "ports": ports_both, "file": alone}


def _chain(points: dict[str, Path], **how: Any) -> None:
    """Prints a row for each segment and direction; times in milliseconds."""
    from outcast.api.joins import join_chain
    from outcast.view.terminal import forms, joined

    segments, remarks = join_chain(points, **how)
    for text in remarks:
        shared.note(text)
    heads = ("packets", "lost", "lost (%)", "unknown", "median", "90 %", "99 %", "longest")
    table = forms.table("delays (ms)", *heads, wrapped=None)
    for part in segments:
        table.add_row(
            f"{part.begins} to {part.ends}",
            f"{part.packets:,}",
            f"{part.lost:,}",
            f"{100 * part.lost / part.packets:.3f}",
            f"{part.unknown:,}",
            *joined.percentiles_ms(part.delays_ns)[1:],
        )
    terminal.console().print(table)
    if not how["one_clock"]:
        terminal.echo("Where the points' clocks disagree, the sum of both directions holds alone.")


def _is_folder(path: Path) -> bool:
    """Whether -o names a folder: it is one, or its name has no suffix."""
    return path.is_dir() or re.fullmatch(r"\.[A-Za-z]\w{0,8}", path.suffix) is None
