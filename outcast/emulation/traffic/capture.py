"""tcpdump on the switches' ports: it is started and checked, ended, and its counters are read."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from outcast.emulation.commands import Process, wait_until
from outcast.emulation.part import Context, Part
from outcast.errors import RunError
from outcast.experiment.engine import EngineName, properties
from outcast.records.counters import CaptureRecord

if TYPE_CHECKING:
    from outcast.experiment.parts import Family

SNAPLEN_BYTES = 128
"""Holds Ethernet, IP and TCP headers with all options that Linux sends: 14 + 20 + 60, or
14 + 40 + 60 with IPv6. In theory they can be 14 + 60 + 60."""
FILE_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
"""Sizes of the headers of a capture's file and of each packet in it (pcap-savefile(5))."""
BUFFER_KIB_TOTAL = 1024 * 1024
START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 60.0
RING_TIMEOUT_S = 1.0
"""tcpdump reads a partly filled block of its ring after this time (pcap_set_timeout(3PCAP)). If it
is ended earlier, the packets in that block are lost without being counted."""


_WANTED = {"ipv4": "ip", "ipv6": "(ip6 and not dst host ff02::16)"}
"""The captured packets, by pcap-filter(7). Hosts report to ff02::16 the groups that they belong to
(RFC 3810), and no switch passes that on."""


def wanted(families: Sequence[Family]) -> str:
    return " or ".join(_WANTED[family] for family in families)


@dataclass(frozen=True, slots=True)
class Capture:
    port: str
    direction: Literal["in", "out"]
    file: Path
    process: Process


def ring_kib(engine: EngineName, captures: int) -> int:
    """The size of each tcpdump's ring, where there are that many."""
    return min(properties(engine).ring_kib, BUFFER_KIB_TOTAL // max(1, captures))


class Captures(Part):
    """A tcpdump for each captured (port, direction).

    The block ends RING_TIMEOUT_S or more after the last packet. `records` are there once it has
    ended well.
    """

    def __init__(self, run: Context) -> None:
        super().__init__(run)
        self._captures: list[Capture] = []
        self.records: list[CaptureRecord] = []

    def prepare(self) -> None:
        run, ports = self._run, self._run.plan.capture_ports
        buffer_kib, usual = ring_kib(run.engine, len(ports)), wanted(run.plan.families)
        for port, direction in ports:
            file = run.directory.captures / f"{port}.{direction}.pcap"
            process = run.commands.spawn(
                f"tcpdump on {port} ({direction})",
                [
                    # To standard output: it would give a file to another user, which fails in the
                    # guest, where the folder is an ordinary user's.
                    *("tcpdump", "-i", port, "-Q", direction, "-w", "-"),
                    *("-s", str(SNAPLEN_BYTES), "-B", str(buffer_kib), "-n", "-Z", "root"),
                    "--time-stamp-precision=nano",
                    usual,
                ],
                stdout=file,
                stderr=run.scratch / f"tcpdump.{port}.{direction}.err",
                netns=run.place(run.plan.ends[port][0]),
            )
            self.lasting.append(process)
            capture = Capture(port, cast(Literal["in", "out"], direction), file, process)
            self._captures.append(capture)
        for process in self.lasting:

            def listens(process: Process = process) -> bool:
                process.require_alive()
                return "listening on" in process.errors()

            what = f"{process.name} to listen"
            wait_until(listens, what, START_DEADLINE_S, detail=process.errors)

    def end(self) -> None:
        self.records = stop(self._captures, self._run.directory.path)


def stop(captures: Sequence[Capture], run_directory: Path) -> list[CaptureRecord]:
    """Ends all captures with SIGINT, RING_TIMEOUT_S or more after the last packet.

    Raises RunError: one ended badly, or what it captured was not stored.
    """
    for capture in captures:
        capture.process.require_alive()
        capture.process.popen.send_signal(signal.SIGINT)
    records = []
    for capture in captures:
        status = capture.process.wait(STOP_DEADLINE_S)
        text = capture.process.errors()
        if status:
            raise capture.process.failure()
        captured, received, dropped = parse_closing_counters(text, capture.process.name)
        _require_stored(capture, captured)
        records.append(
            CaptureRecord(
                port=capture.port,
                direction=capture.direction,
                file=str(capture.file.relative_to(run_directory)),
                captured=captured,
                received_by_filter=received,
                dropped_by_kernel=dropped,
            )
        )
    return records


def _require_stored(capture: Capture, packets: int) -> None:
    """Raises RunError where a file is too short for the packets that tcpdump has captured.

    tcpdump does not notice a full disk, because pcap_dump(3PCAP) returns nothing.
    """
    stored_bytes = capture.file.stat().st_size
    if stored_bytes < FILE_HEADER_BYTES + packets * RECORD_HEADER_BYTES:
        raise RunError(
            f"{capture.file}: has {stored_bytes} bytes, too few for the {packets} packets that "
            f"{capture.process.name} captured: the disk is full"
        )


def parse_closing_counters(text: str, name: str) -> tuple[int, int, int]:
    """The counts in tcpdump(1)'s closing lines: captured, received by filter, dropped by kernel.

    Raises RunError: a line is missing.
    """
    numbers = []
    for what in ("captured", "received by filter", "dropped by kernel"):
        match = re.search(rf"^([0-9]+) packets? {what}$", text, re.MULTILINE)
        if match is None:
            raise RunError(f"{name}: no line 'packets {what}' at its end: {' '.join(text.split())}")
        numbers.append(int(match[1]))
    captured, received, dropped = numbers
    return captured, received, dropped
