"""Events change a link's rate or delay, or a queue's limit, during a run, or let a link fail."""

from __future__ import annotations

from typing import Literal

from outcast.experiment.limit import QueueLimit
from outcast.experiment.links import BurstLoss, Late, Loss, Policer, Share
from outcast.experiment.parts import KernelRateBps, Part, TimeNs, described, optional

FAULTS = ("loss", "burst_loss", "late", "duplicate")
"""What an event changes on the wire."""


class Event(Part):
    """A change at one time of the run, of a link or of the queue that sends into it."""

    at_ns: TimeNs = described("when, after the traffic's start")
    between: list[str] | None = optional("the two nodes of a link, as [s1, s2]: both directions")
    source: str | None = optional(
        "one direction only: the node that sends, with `to`", alias="from"
    )
    to: str | None = optional("the node that receives, with `from`")
    rate_bps: KernelRateBps | None = optional("the link's rate from now on")
    delay_ns: TimeNs | None = optional("the link's delay from now on")
    loss: Loss | None = optional("the share of packets that the link loses from now on")
    burst_loss: BurstLoss | Literal["none"] | None = optional(
        "losses in a row from now on, in place of `loss`"
    )
    late: Late | Literal["none"] | None = optional("packets that come late from now on")
    duplicate: Share | None = optional("the share of packets that come twice from now on")
    policer: Policer | None = optional("what the link's policer lets through from now on")
    limit: QueueLimit | None = optional("the limit of the queue that sends into the link")
    up: bool | None = optional("false: the link fails; true: it is back")

    @property
    def place(self) -> str:
        return "between" if self.between is not None else "from"

    def concerns(self, node: str, neighbour: str) -> bool:
        """Whether it is of the direction from one node to another."""
        if self.between is not None:
            return {node, neighbour} == set(self.between)
        return (node, neighbour) == (self.source, self.to)

    @property
    def changes_faults(self) -> bool:
        return any(getattr(self, name) is not None for name in FAULTS)

    def _require(self) -> None:
        if self.between is not None:
            if self.source is not None or self.to is not None:
                raise ValueError("allowed is either `between`, or `from` and `to`")
            if len(set(self.between)) != 2 or len(self.between) != 2:
                raise ValueError("between: allowed are two nodes that a link joins, as [s1, s2]")
        elif self.source is None or self.to is None:
            raise ValueError("names no link; allowed are between: [s1, s2], or from: s1 and to: s2")
        changes = [
            name
            for name in ("rate_bps", "delay_ns", *FAULTS, "policer", "limit", "up")
            if getattr(self, name) is not None
        ]
        if not changes:
            raise ValueError(
                f"changes nothing; allowed are rate, delay, {', '.join(FAULTS)}, policer, limit, up"
            )
        if self.loss is not None and self.burst_loss is not None:
            raise ValueError("burst_loss: allowed is either loss or burst_loss")
        if "up" in changes and (len(changes) > 1 or self.between is None):
            raise ValueError(
                "up: allowed is an event of its own with `between`, because a link fails as a whole"
            )
