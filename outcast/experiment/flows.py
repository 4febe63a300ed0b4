"""Who sends to whom, and when."""

from __future__ import annotations

from pydantic import Field, model_validator

from outcast.experiment.parts import Part, SizeBytes, TimeNs
from outcast.experiment.transport import GroupTransport


class FlowGroup(Part):
    """Flows of one kind: from hosts of a class or by name, to one host."""

    source: str | list[str] = Field(
        alias="from", description="a class as '2-hop', a host's name, or a list of names"
    )
    to: str | list[str] | None = Field(
        default=None,
        description="a host's name, else the topology's receiver; or a list of as many names as "
        "`from` has: the first sends to the first, and so on",
    )
    hosts: int | None = Field(default=None, ge=1, description="how many of the class; else all")
    per_host: int = Field(default=1, ge=1, le=1000, description="flows of each host")
    start_ns: TimeNs = Field(default=0, alias="start", description="after the first flows' start")
    stagger_ns: TimeNs = Field(
        default=0, alias="stagger", description="from the start of one flow to the next one's"
    )
    duration_ns: TimeNs | None = Field(
        default=None, alias="duration", gt=0, description="else up to the experiment's end"
    )
    size_bytes: SizeBytes | None = Field(
        default=None, alias="bytes", gt=0, description="instead of a duration"
    )
    transport: GroupTransport | None = Field(
        default=None, description="per-group overrides of `transport`"
    )

    @model_validator(mode="after")
    def _one_end(self) -> FlowGroup:
        if self.duration_ns is not None and self.size_bytes is not None:
            raise ValueError("duration and bytes exclude each other")
        return self

    @model_validator(mode="after")
    def _pairs(self) -> FlowGroup:
        if isinstance(self.to, list) and (
            not isinstance(self.source, list) or len(self.source) != len(self.to)
        ):
            raise ValueError("to: a list is allowed where `from` is a list of the same length")
        return self
