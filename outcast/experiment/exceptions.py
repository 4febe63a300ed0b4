"""Ports that have another queue than the rest."""

from __future__ import annotations

from pydantic import Field, model_validator

from outcast.experiment.parts import Part
from outcast.experiment.queues import Queue


class QueueException(Part):
    """Another queue at some switch ports. If several exceptions name a port, the last counts."""

    at: str | list[str] = Field(
        description="a layer as `edge`, which means all ports of its switches; `bottleneck`; a "
        "port as `e0_0-eth1`; or a list of ports"
    )
    queue: Queue = Field(description="as the key `queue` above")

    @model_validator(mode="after")
    def _says_where_once(self) -> QueueException:
        if not self.at:
            raise ValueError("at: the list is empty; allowed is one port or more")
        if self.queue.where != "every_port":
            raise ValueError("queue.where: not allowed here, because `at` says where")
        return self
