"""Ports whose queue is not that of all the others."""

from __future__ import annotations

from pydantic import Field, model_validator

from outcast.experiment.parts import Part
from outcast.experiment.queues import Queue


class QueueException(Part):
    """Another queue at some switch ports; of several exceptions the last that fits counts."""

    at: str | list[str] = Field(
        description="a layer as `edge`, all of whose switches' ports are meant; `bottleneck`; a "
        "port as `e0_0-eth1`; or a list of ports"
    )
    queue: Queue = Field(description="as the key `queue` above")

    @model_validator(mode="after")
    def _says_where_once(self) -> QueueException:
        if not self.at:
            raise ValueError("at: names no port; allowed is one or more")
        if self.queue.where != "every_port":
            raise ValueError("queue.where: `at` says where")
        return self
