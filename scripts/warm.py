"""Compiles the analysis ahead of its first use, as scripts/install.sh does.

The cache on disk keeps the compiled code beside the modules, for every later process.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np

from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join import directions, packets
from outcast.analysis.join.join import join
from outcast.analysis.machine_code import FOLDER, code_folder
from outcast.analysis.measure import (
    blackout,
    latency,
    queue,
    segments,
    tcp,
)
from outcast.records.trace import Formats, Statistics
from outcast.uses.why.event_tables import nearest
from outcast.uses.why.pages import open_events

_SEGMENT = bytes.fromhex(
    "020000000001 020000000002 0800 45000028 0001 4000 40 06 0000 0a000002 0a000001"
    "4e21 1389 00000000 00000001 5010 01f6 0000 0000"
)
_ARP = bytes.fromhex("ffffffffffff 020000000002 0806").ljust(60, b"\0")


def _pcap(stamp_us: int) -> bytes:
    head = bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000")
    for frame in (_SEGMENT, _ARP):
        fields = (0, stamp_us, len(frame), len(frame))
        head += b"".join(field.to_bytes(4, "little") for field in fields) + frame
    return head


def _pcapng() -> bytes:
    section = bytes.fromhex("0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffffffffffff 1c000000")
    return section + bytes.fromhex("01000000 14000000 01000000 00000400 14000000")


_FORMATS = Formats(
    clock="mono",
    to_captures_ns=0,
    page_bytes=64,
    header_page="\tfield: u64 timestamp;\toffset:0;\tsize:8;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\n\tfield: char data;\toffset:16;\tsize:48;\n",
    events={
        "a:b": "ID: 1\n\tfield:short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
        "\tfield:char name[4];\toffset:4;\tsize:4;\tsigned:0;\n"
    },
    statistics=Statistics(entries=0, overrun=0, dropped_events=0, read_events=1),
)


def warm() -> None:
    """Runs every compiled function once, on captures of two frames and a page of one event.

    Code of other states of the analysis is removed.
    """
    for other in code_folder().parent.glob(f"{FOLDER}*"):
        if other != code_folder():
            shutil.rmtree(other, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").write_bytes(_pcap(10))
        (folder / "out").write_bytes(_pcap(20))
        (folder / "ng").write_bytes(_pcapng())
        read_capture("ng", folder / "ng")
        (folder / "events").write_bytes(struct.pack("<QQIQ", 0, 12, 2, 1).ljust(64, b"\0"))
        list(open_events(folder / "events", _FORMATS).blocks())
        came = read_capture("in", folder / "in")
        output = read_capture("out", folder / "out")
    directions.find_directions([came, output], packets.sample([came, output]), [None, None], 1)
    joined = join([came], [output])
    queue.replay(joined)
    latency.latency(joined)
    blackout.port_chains(joined)
    blackout.flow_chains(joined)
    segments.fresh_bytes(joined.departures, joined.flows)
    tcp.resent(joined, 1)
    segments.segments(
        np.zeros(2, np.int64),
        np.array([10, 0], np.uint32),
        np.array([10, 20]),
        np.ones(2, np.uint8),
        np.array([True, False]),
        np.arange(2, dtype=np.uint16),
    )
    nearest(*[np.zeros(1, np.int64)] * 9)


if __name__ == "__main__":
    warm()
