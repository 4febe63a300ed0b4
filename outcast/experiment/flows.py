"""Groups of flows: who sends to whom, and when."""

from __future__ import annotations

from outcast.experiment.parts import (
    SENT_DSCP,
    Dscp,
    Duration,
    GroupName,
    OwnFamily,
    Part,
    Senders,
    SizeBytes,
    TimeNs,
    described,
    optional,
)
from outcast.experiment.transport import GroupTransport


class FlowGroup(Part):
    """Flows with the same settings, from hosts that are named or of a class."""

    name: GroupName | None = optional(
        "what tables and figures call these flows; entries with the same name form one group. See "
        "docs/groups.md"
    )
    source: Senders
    to: str | list[str] | None = optional(
        "a host's name; if left out, the topology's receiver; or a list with as many names as "
        "`from`: the first sends to the first, and so on"
    )
    hosts: int | None = optional(
        "how many hosts of the class; if left out, all. Those that another entry names, or an "
        "earlier class has, do not count",
        ge=1,
    )
    per_host: int = described("flows from each host", default=1, ge=1, le=1000)
    start_ns: TimeNs = described("time after the start of the first flows", default=0)
    stagger_ns: TimeNs = described("time between the starts of two flows", default=0)
    duration_ns: Duration = None
    size_bytes: SizeBytes | None = optional(
        "bytes to send, instead of a duration", alias="bytes", gt=0
    )
    addressing: OwnFamily = None
    dscp: Dscp = described(SENT_DSCP, default=0)
    transport: GroupTransport | None = optional(
        "this group's settings that differ from `transport`"
    )

    def _require(self) -> None:
        if self.duration_ns is not None and self.size_bytes is not None:
            raise ValueError("duration and bytes: allowed is one of the two")
        if isinstance(self.to, list) and (
            not isinstance(self.source, list) or len(self.source) != len(self.to)
        ):
            raise ValueError("to: a list is allowed where `from` is a list of the same length")
