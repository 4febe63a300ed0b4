"""Drop-tail with a limit in bytes."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from outcast.experiment.parts import ByteLimit
from outcast.experiment.queues.base import Probe, Shaped
from outcast.experiment.queues.drop_tail import DropTail


class Bfifo(Shaped, DropTail):
    """tc-bfifo(8): drop-tail with a limit in bytes, under a shaper at the link's rate."""

    probe: ClassVar[Probe] = {"bfifo": "limit 10000"}

    kind: Literal["bfifo"]
    limit: ByteLimit

    @model_validator(mode="after")
    def _counts_bytes(self) -> Bfifo:
        if self.limit.size_bytes is None:
            raise ValueError("bfifo counts bytes; allowed is a limit as 16KB")
        return self
