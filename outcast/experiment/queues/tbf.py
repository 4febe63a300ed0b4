"""Drop-tail below a token bucket."""

from __future__ import annotations

from typing import ClassVar, Literal

from outcast.experiment.limit import QueueLimit
from outcast.experiment.queues.base import Probe
from outcast.experiment.queues.drop_tail import DropTail


class Tbf(DropTail):
    """tc-tbf(8): a token bucket with a drop-tail queue, limited in bytes or packets."""

    probe: ClassVar[Probe] = {"tbf": "rate 1mbit burst 5kb limit 10kb"}

    kind: Literal["tbf"]
    limit: QueueLimit

    @property
    def shaper_kind(self) -> Literal["tbf", "htb"]:
        return "tbf"
