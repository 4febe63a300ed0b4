"""Drop-tail with a limit in bytes."""

from __future__ import annotations

from typing import ClassVar, Literal

from outcast.experiment.queues.base import CountsBytes, Probe
from outcast.experiment.queues.drop_tail import DropTail


class Bfifo(CountsBytes, DropTail):
    """tc-bfifo(8): drop-tail with a limit in bytes, under a shaper at the link's rate."""

    probe: ClassVar[Probe] = {"bfifo": "limit 10000"}

    kind: Literal["bfifo"]
