"""Packets that a file has twice, as from a mirror of both directions of a port."""

from __future__ import annotations

import numpy as np

from outcast.analysis.capture.headers import Columns
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import Bool

COPIED_WITHIN_NS = 1_000_000_000
"""A packet with the same IP id and contents within this time is a copy, because a sender numbers
what it sends again."""
UNNUMBERED_WITHIN_NS = 100_000
"""The same for data without an IP id, because no round trip is as short."""
_SAMPLES, _SAMPLED = 4, 4_096


def copies_in(columns: Columns, within_ns: int = COPIED_WITHIN_NS) -> Bool:
    """Which packets are copies of earlier ones, by IP ids of at most `within_ns` before."""
    fields = (columns.flow, columns.identity, columns.tsval, columns.tsecr)
    order = np.lexsort((columns.stamp_ns, *fields))
    same = np.logical_and.reduce([field[order][1:] == field[order][:-1] for field in fields])
    numbered = columns.ip_id[order][1:] > 0
    same &= np.diff(columns.stamp_ns[order]) <= np.where(numbered, within_ns, UNNUMBERED_WITHIN_NS)
    same &= numbered | (columns.payload_bytes[order][1:] > 0)
    copies = np.zeros(columns.flow.size, np.bool_)
    copies[order[1:]] = same
    return copies


def remove_few(capture: PortCapture, most_share: float) -> list[str]:
    """Takes copies of TCP segments out of a capture if they are few, and says how many they were.

    The join finds more, and is refused then. Stretches of a large capture are looked at
    first, because copies are spread over it.
    """
    columns = capture.columns
    apart = max(_SAMPLED, columns.flow.size // _SAMPLES)
    if not any(
        copies_in(
            Columns.of(part[start : start + _SAMPLED] for part in columns), UNNUMBERED_WITHIN_NS
        ).any()
        for start in range(0, columns.flow.size, apart)
    ):
        return []
    copies = copies_in(columns, UNNUMBERED_WITHIN_NS) & (columns.flags > 0)
    count = int(copies.sum())
    if not 0 < count <= most_share * columns.flow.size:
        return []
    capture.columns = Columns.of(column[~copies] for column in columns)
    return [
        f"{capture.path}: {count:,} packets of {capture.port} are there twice, as from a mirror of "
        "both directions of a port. Each counts once"
    ]
