"""Programs in C: compiled where a run needs them, or ready in the guest.

The guest has no compiler. `outcast.engines.guest.code` compiles for it beforehand.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from outcast.emulation.commands import SystemCommands

READY = "OUTCAST_PROGRAMS"
"""The variable that names the folder where programs lie ready."""

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class CProgram:
    """A program or a library; `name` is the file that the compiler makes."""

    name: str
    sources: tuple[Path, ...]
    headers: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()

    def arguments(self, target: str) -> list[str]:
        shared = ["-shared", "-fPIC"] if self.name.endswith(".so") else []
        return ["-O2", *shared, "-o", target, *map(str, self.sources), *self.libraries]


_PAYLOADS = _HERE / "senders/tcprand.c"
_HEADERS = (_HERE / "senders/start.h", _HERE / "senders/tcprand.h")

STREAM = CProgram("stream", (_HERE / "senders/stream.c", _PAYLOADS), _HEADERS, ("-lm",))
"""Sends one flow, or receives many."""
TCPRAND = CProgram("tcprand.so", (_PAYLOADS,), _HEADERS, ("-lm",))
"""TCPRand's payloads, for the generator of traffic."""
HELD_START = CProgram("held_start.so", (_HERE / "senders/held_start.c",), _HEADERS, ("-ldl",))
"""Makes iperf wait for its start, in real time."""
PROBE = CProgram("probe", (_HERE / "senders/probe.c",), _HEADERS[:1])
"""Measures round trips, or answers."""
BLACKOUT = CProgram("blackout_switch", (_HERE / "blackout_switch.c",), (), ("-lm",))
"""Drops packets in a row."""
BROADCASTS_ONLY = CProgram("broadcasts_only.so", (_HERE / "broadcasts_only.c",), (), ("-ldl",))
"""Keeps Open vSwitch from forwarding what bridges forward, in real time."""

IN_GUEST = (STREAM, TCPRAND, PROBE, BLACKOUT)
"""The programs that run in the virtual engine's guest."""


def provide(program: CProgram, folder: Path, commands: SystemCommands) -> Path:
    """The program's path: where it lies ready, or in `folder`, where it is compiled."""
    ready = os.environ.get(READY)
    if ready is not None:
        return Path(ready, program.name)
    target = folder / program.name
    commands.run(["cc", *program.arguments(str(target))])
    return target
