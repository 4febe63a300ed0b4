"""Requested fates: read, checked against a run, and turned into interventions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, cast, get_args

import polars as pl

from outcast import handed_in
from outcast.api import switch_queue
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.records import (
    MOST_FATES,
    Fate,
    Interventions,
    Manifest,
    PacketFate,
    Run,
    digests,
)
from outcast.units import format_time, parse_time_ns

FATES = get_args(Fate)
ALLOWED = "allowed are keep, forward, drop, mark and delay=TIME, as delay=5us"
LONGEST_DELAY_NS = 10**9
FORWARDING = frozenset({"bfifo", "pfifo", "red", "pie", "prio", "drr", "htb"})
"""Qdiscs that take a packet beyond their limit on the kernel's order (patch 0019), and those
that leave it to such a qdisc of one of their classes."""
_COLUMNS = ("port", "packet", "fate")
_IDENTITY = ("flow", "src", "sport", "dst", "dport", "ip_id", "seq")
_MOST_BYTES = 1 << 20
_PACKET = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class WantedFate:
    """A fate that somebody asks for, of the packet in a row of packets.parquet.

    `port` is the port by which the packet leaves, as a file names it; None where none does. Errors
    begin with `where`.
    """

    packet: int
    fate: Fate
    delay_ns: int = 0
    port: str | None = None
    where: str = ""


def parse_fate(packet: int, words: str, port: str | None = None, where: str = "") -> WantedFate:
    """Reads a fate as `drop` or `delay=5us`. Raises ConfigError."""
    where = where or f"--packet {packet} --fate {words}"
    _require_kinds(packet, words, where)
    name, has_time, time = words.strip().partition("=")
    if name not in FATES or bool(has_time) != (name == "delay"):
        raise ConfigError(f"{where}: {ALLOWED}{did_you_mean(name, FATES)}")
    try:
        delay_ns = parse_time_ns(time) if has_time else 0
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    if has_time and not 0 < delay_ns <= LONGEST_DELAY_NS:
        raise ConfigError(f"{where}: allowed is a delay of up to {format_time(LONGEST_DELAY_NS)}")
    return WantedFate(int(packet), cast(Fate, name), delay_ns, port, where)


def _require_kinds(packet: Any, words: Any, where: str) -> None:
    is_number = isinstance(packet, Integral) and not isinstance(packet, bool)
    if not (is_number and isinstance(words, str)):
        raise ConfigError(f"{where}: allowed are a whole number and a fate; {ALLOWED}")


def _each(given: Any) -> list[Any]:
    is_one = isinstance(given, str) or not isinstance(given, Iterable)
    return [given] if is_one else [*given]


def parse_fates(packet: int | Sequence[int] | None, words: str | Sequence[str]) -> list[WantedFate]:
    """Reads a fate for all of some packets, or one for each. Raises ConfigError."""
    if packet is None:
        return []
    packets = _each(packet)
    every = _each(words)
    if every == [words]:
        every *= len(packets)
    if packets and not every:
        raise ConfigError(f"--packet {packets[0]}: --fate is missing; {ALLOWED}")
    if len(packets) != len(every):
        raise ConfigError(
            f"{len(packets)} packets and {len(every)} fates; allowed is one fate for each packet"
        )
    return [parse_fate(*each) for each in zip(packets, every, strict=True)]


def read(file: Path) -> list[WantedFate]:
    """Reads a CSV file with the columns port, packet and fate.

    Raises:
        ConfigError: a line is refused; the error names it.
        InputError: the file cannot be read.
    """
    try:
        # Spreadsheet programs put a byte order mark in front.
        text = handed_in.read_bytes(file, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no text") from None
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ConfigError(f"{file}: {error}") from None
    if not rows or tuple(word.strip() for word in rows[0][1]) != _COLUMNS:
        raise ConfigError(f"{file}:1: the first line has to be {','.join(_COLUMNS)}")
    found = []
    for number, row in rows[1:]:
        where = f"{file}:{number}"
        if not row:
            continue
        if len(row) != len(_COLUMNS) or not _PACKET.fullmatch(row[1].strip()):
            raise ConfigError(f"{where}: allowed is a line as s1-eth1,17,drop")
        found.append(parse_fate(int(row[1]), row[2], row[0].strip(), where))
    if not found:
        raise ConfigError(f"{file}: names no packets")
    return found


def interventions(
    run: Run, named: str, wanted: Sequence[WantedFate], boot_ns: int
) -> tuple[Interventions, list[PacketFate]]:
    """The changes of a run: its own interventions, and those that are wanted now.

    A packet that had a fate of its own before gets the new one; `keep` gives it back its own.
    `boot_ns` is the traffic's start by the guest's clock, since its boot.

    Returns all that is changed, and of it the fates that are wanted now.

    Raises ConfigError if the run has no such packet or port, or the packet cannot have this fate.
    """
    if not wanted:
        raise ConfigError(
            "nothing is changed: --packet N --fate FATE, --fates FILE.csv, or --noise TIME:SEED"
        )
    manifest = cast(Manifest, run.manifest)
    with run.reading():
        packets = run.table("packets", whole=True)
        packets = packets.select(*_IDENTITY, "t_in", "egress", "flags", "verdict")
    earlier = manifest.interventions or Interventions(of=named)
    fates = {fate.identity: fate for fate in earlier.fates}
    new: dict[int, PacketFate] = {}
    for wanted_fate in wanted:
        if wanted_fate.packet in new:
            raise ConfigError(f"{wanted_fate.where}: packet {wanted_fate.packet} is named twice")
        with run.reading():
            fate = _fate(run, packets, wanted_fate, boot_ns)
        new[wanted_fate.packet] = fates[fate.identity] = fate
    if len(fates) > MOST_FATES:
        raise ConfigError(f"{len(fates)} packets: allowed are {MOST_FATES}")
    changes = Interventions(
        of=named,
        captures=digests(run.directory),
        fates=tuple(sorted(fates.values(), key=lambda fate: fate.boot_ns)),
        noise=earlier.noise,
    )
    return changes, [*new.values()]


def _fate(run: Run, packets: pl.DataFrame, wanted_fate: WantedFate, boot_ns: int) -> PacketFate:
    where = wanted_fate.where
    if not 0 <= wanted_fate.packet < packets.height:
        raise ConfigError(
            f"{where}: the run has no packet {wanted_fate.packet}; allowed are rows of "
            f"packets.parquet, 0 to {packets.height - 1}"
        )
    row = packets.row(wanted_fate.packet, named=True)
    if packets.filter(**{name: row[name] for name in (*_IDENTITY, "t_in", "egress")}).height > 1:
        raise ConfigError(f"{where}: comes twice at one instant; allowed are other packets")
    if wanted_fate.port not in (None, row["egress"]):
        raise ConfigError(
            f"{where}: packet {wanted_fate.packet} does not leave by {wanted_fate.port}; "
            f"allowed is {row['egress']}"
        )
    _require_possible(run, wanted_fate, row)
    if wanted_fate.fate == "delay":
        _require_steady(run, wanted_fate, row["egress"])
    since_ns = row["t_in"] - run.manifest.traffic.t_start_ns
    # The kernel knows sequence numbers of TCP alone, whose packets all have a flag.
    row["seq"] = row["seq"] if row["flags"] else 0
    return PacketFate(
        packet=wanted_fate.packet,
        fate=wanted_fate.fate,
        delay_ns=wanted_fate.delay_ns,
        port=row["egress"],
        t_in_ns=since_ns,
        boot_ns=boot_ns + since_ns,
        **{name: row[name] for name in _IDENTITY},
    )


def _require_possible(run: Run, wanted_fate: WantedFate, row: dict[str, Any]) -> None:
    """Raises ConfigError if the queue or the flow of a packet cannot give it this fate."""
    if wanted_fate.fate == "drop" and row["verdict"] == "dropped":
        raise ConfigError(
            f"{wanted_fate.where}: packet {wanted_fate.packet} was dropped anyway; "
            "allowed are the other fates"
        )
    if wanted_fate.fate == "delay" and not (row["flags"] or row["ip_id"]):
        raise ConfigError(
            f"{wanted_fate.where}: is a datagram without an IP identification, so captures cannot "
            "tell it from those that overtake it; allowed are the other fates"
        )
    if wanted_fate.fate == "forward":
        queue = switch_queue(run.experiment, run.directory.read_plan(), row["egress"]).queue
        if unable := {qdisc.kind for qdisc in queue.tc()} - FORWARDING:
            raise ConfigError(
                f"{wanted_fate.where}: a queue of kind {queue.kind} cannot be told to take "
                f"a packet, because {', '.join(sorted(unable))} chooses what to drop by itself; "
                "allowed are the other fates"
            )
    if wanted_fate.fate == "mark":
        able = [
            flow.transport.negotiates_ecn
            for flow in run.directory.read_plan().flows
            if flow.flow == row["flow"]
        ]
        if able == [False]:
            raise ConfigError(
                f"{wanted_fate.where}: flow {row['flow']} is not ECN-capable, so its packets "
                "cannot be marked; allowed are the other fates"
            )


def _require_steady(run: Run, wanted_fate: WantedFate, egress: str) -> None:
    """Raises ConfigError if an event changes the delay of a port's link, or lets it fail.

    A link that fails empties the port's qdiscs, and they lose count of a packet that is held. Where
    the delay changes, captures do not show which packets wait with it.
    """
    node, neighbour = run.directory.read_plan().ends[egress]
    for number, event in enumerate(run.experiment.events):
        is_unsteady = event.up is not None or event.delay_ns is not None
        if is_unsteady and event.concerns(node, neighbour):
            what = "changes the delay" if event.up is None else "is of the failure"
            raise ConfigError(
                f"{wanted_fate.where}: events.{number} {what} of the link from {node} to "
                f"{neighbour}, so no packet can be held there; allowed are the other fates"
            )
