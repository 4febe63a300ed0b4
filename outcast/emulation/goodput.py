"""How fast the groups of flows are while a run goes on, from the receivers' sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from outcast.emulation import multipath, sockets
from outcast.experiment import GroupKind
from outcast.plan import grouping
from outcast.plan.flows import families_of
from outcast.plan.model import Plan


class Goodput:
    """Reports each group's mean goodput since its last report.

    `group_by` is what the experiment groups flows by; classes are reported in any case.
    """

    def __init__(self, plan: Plan, group_by: GroupKind | None, netns: Callable[[str], int]) -> None:
        self._plan, self._netns = plan, netns
        self._kind = grouping.chosen(group_by, plan.groups)
        self._received: dict[int, tuple[float, int]] = {}

    def event(self, t_s: float, subflows: multipath.Subflows) -> dict[str, Any]:
        """The event of an instant, in seconds after the traffic's start; rates in bit/s."""
        by_port = {
            sample.peer_port: sample.bytes_received
            for host in sorted({flow.dst for flow in self._plan.flows})
            for sample in sockets.sample_sockets(self._netns(host), families_of(self._plan.flows))
        }
        rates_bps: dict[int, float] = {}
        for flow in self._plan.flows:
            last_t_s, last_bytes = self._received.get(flow.sport, (0.0, 0))
            now_bytes = by_port.get(flow.sport, last_bytes) + sum(
                by_port.get(sport, 0) for sport, *_ in subflows.get(flow.flow, ())
            )
            if t_s > last_t_s:
                rates_bps[flow.flow] = (now_bytes - last_bytes) * 8 / (t_s - last_t_s)
            self._received[flow.sport] = (t_s, now_bytes)
        classes = self._means("hops", rates_bps)
        event = {"event": "goodput", "t_s": round(t_s, 3), "classes": classes}
        return (
            event
            if self._kind == "hops"
            else event | {"groups": self._means(self._kind, rates_bps)}
        )

    def _means(self, kind: GroupKind, rates_bps: Mapping[int, float]) -> dict[str, int]:
        """The mean of each group's flows, by its label; that of a class by its number of hops."""
        means = {}
        for label, flows in self._plan.groups[kind].items():
            mine = [rates_bps[flow.flow] for flow in flows if flow.flow in rates_bps]
            if mine:
                key = label.removesuffix("-hop") if kind == "hops" else label
                means[key] = round(sum(mine) / len(mine))
        return means
