"""A packet at another captured port of its way than the one whose queue is studied.

Its row in packets.parquet names it. Captures show when it came to the other port's switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outcast.analysis import read_capture
from outcast.errors import ConfigError, RunError
from outcast.records import PacketFate, Run


def came_in_ns(run: Run, packet: Mapping[str, Any], port: str, where: str) -> int:
    """When a packet, given by its row, came to the switch of a captured port by which it left.

    Errors begin with `where`.

    Raises:
        ConfigError: it did not leave by the port, or no capture shows when it came.
        InputError: a capture cannot be read.
    """
    if not packet["ip_id"]:
        raise ConfigError(
            f"{where}: has no IP identification that tells it at {port}; allowed is the port of "
            f"its row, {packet['egress']}"
        )
    ends = run.directory.read_plan().ends
    inputs = [
        record.port
        for record in run.directory.read_manifest().captures
        if record.direction == "in" and ends[record.port][0] == ends[port][0]
    ]
    came = [t_ns for name in inputs for t_ns in _seen_ns(run, packet, name, "in")]
    if not came or not _seen_ns(run, packet, port, "out"):
        raise ConfigError(
            f"{where}: no capture shows that it leaves by {port}; allowed are ports of its way "
            "in runs with capture.ports: all"
        )
    return min(came, key=lambda t_ns: abs(t_ns - packet["t_in"]))


def require_done(run: Run, fate: PacketFate) -> None:
    """Raises RunError if the capture of a port shows another fate than the requested one."""
    has_left = bool(_seen_ns(run, fate.model_dump(mode="json"), fate.port, "out"))
    if has_left is (fate.fate == "drop") and fate.fate in ("drop", "forward"):
        raise RunError(f"{fate.name}: {'left' if has_left else 'did not leave'}, as captures show")


def _seen_ns(run: Run, packet: Mapping[str, Any], port: str, way: str) -> list[int]:
    """When a packet was seen in the capture of a port, by what no other packet has (epoch)."""
    found = []
    for record in run.directory.read_manifest().captures:
        if (record.port, record.direction) == (port, way):
            path = run.directory.path / record.file
            capture = read_capture(port, path, frozenset({packet["dst"]}), foreign=False)
            ends = [packet[name] for name in ("src", "sport", "dst", "dport")]
            keys = [[key.src, key.sport, key.dst, key.dport] for key in capture.flows]
            flows = [number for number, key in enumerate(keys) if key == ends]
            columns = capture.columns
            mine = np.isin(columns.flow, flows) & (columns.ip_id == packet["ip_id"])
            if packet["seq"]:
                mine &= columns.seq == packet["seq"]
            found += columns.stamp_ns[mine].tolist()
    return found
