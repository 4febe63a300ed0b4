"""Drop-tail below a class of HTB."""

from __future__ import annotations

from typing import ClassVar, Literal

from outcast.experiment.limit import QueueLimit
from outcast.experiment.queues.base import Probe
from outcast.experiment.queues.drop_tail import DropTail


class Htb(DropTail):
    """tc-htb(8): a class at the link's rate with a drop-tail queue, limited in bytes or packets."""

    probe: ClassVar[Probe] = {"htb": "default 1"}

    kind: Literal["htb"]
    limit: QueueLimit

    @property
    def shaper_kind(self) -> Literal["tbf", "htb"]:
        return "htb"
