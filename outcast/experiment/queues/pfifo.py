"""Drop-tail with a limit in packets."""

from __future__ import annotations

from typing import ClassVar, Literal

from outcast.experiment.queues.base import CountsPackets, Probe
from outcast.experiment.queues.drop_tail import DropTail


class Pfifo(CountsPackets, DropTail):
    """tc-pfifo(8): drop-tail with a limit in packets, under a shaper at the link's rate."""

    probe: ClassVar[Probe] = {"pfifo": "limit 10"}

    kind: Literal["pfifo"]
