"""Probes leave a record each in the manifest, and a file with every packet's times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from outcast import handed_in
from outcast.errors import InputError


class ProbeRecord(handed_in.Record):
    """A series of small packets, each of which is answered."""

    probe: int
    kind: Literal["icmp", "udp"]
    src: str
    src_ip: str
    dst: str
    dst_ip: str
    sport: int = Field(description="of ICMP the identifier of its echo requests")
    dport: int = Field(description="0 for ICMP")
    dscp: int = Field(default=0, description="of its packets, and of their answers")
    payload_bytes: int
    start_ns: int = Field(description="when the first packet was due, after the traffic's start")
    every_ns: int
    packets: int = Field(description="how many packets were due")
    base_rtt_ns: int = Field(description="what a packet and its answer take without any queue")


def result_file(flows: Path, probe: int) -> Path:
    """The file of a probe's times in a run's folder of flows."""
    return flows / f"probe.{probe}.out"


def read_times(flows: Path, record: ProbeRecord) -> Iterator[tuple[int, int | None]]:
    """When each packet was sent and when its answer came in, in nanoseconds of the run's clock.

    Raises InputError if the file cannot be read, or is not of this probe.
    """
    path = result_file(flows, record.probe)
    try:
        lines = handed_in.read_text(path).split("ready\n", 1)[-1].splitlines()
        rows = [(int(sent), int(answered)) for _, sent, answered in map(str.split, lines)]
        if len(rows) != record.packets:
            raise ValueError(f"{len(rows)} packets; the manifest has {record.packets}")
    except (FileNotFoundError, ValueError) as error:
        raise InputError(f"{path}: no times of a probe: {error}") from None
    for sent_ns, answered_ns in rows:
        yield sent_ns, answered_ns or None
