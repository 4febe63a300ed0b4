"""By what flows are summed up together: name, hop count, congestion control, input port, sender.

A grouping gives every flow a label. Flows with the same label are a group. `GROUPINGS` has all
kinds; a further kind is one more line there. Everything that shows groups asks this module, so the
plan, a live run, its tables and its figures have the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from outcast.errors import did_you_mean, some_of
from outcast.experiment.measure import GroupKind
from outcast.experiment.parts import UNNAMED

TCP = "TCP"
UDP = "UDP"
"""The label of flows without a congestion control."""
UNKNOWN = "unknown"
"""The congestion control of a flow whose sender is not known."""
NO_PORT = "no port"
"""The label of flows that come in by no port of a bottleneck."""
NO_CLASS = "no class"
"""The label, among the hop classes, of flows that are compared with no other."""


class Member(Protocol):
    """What a grouping asks of a flow; a manifest's flow record has it."""

    @property
    def name(self) -> str | None: ...
    @property
    def hops(self) -> int | None: ...
    @property
    def congestion_control(self) -> str | None: ...
    @property
    def ingress(self) -> str | None: ...
    @property
    def src(self) -> str: ...


_Flow = TypeVar("_Flow", bound=Member)
Groups = Mapping[GroupKind, Mapping[str, list[_Flow]]]
"""The flows of every group: by kind of grouping, then by label."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """One kind of grouping.

    Attributes:
        noun: what one of its groups is called.
        key: groups are sorted by it, and else stand in the order of their first flows.
    """

    noun: str
    label: Callable[[Member], str]
    key: Callable[[str], tuple[int | str, ...]] = lambda _label: ()


def control_of(flow: Member) -> str:
    return flow.congestion_control or UDP


def _by_numbers(label: str) -> tuple[int | str, ...]:
    """Sorts `s1-eth10` behind `s1-eth2`."""
    parts = re.split(r"([0-9]+)", label)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


GROUPINGS: Mapping[GroupKind, Grouping] = {
    "name": Grouping("group", lambda flow: flow.name or UNNAMED),
    "hops": Grouping("class", lambda flow: f"{flow.hops}-hop", _by_numbers),
    "congestion_control": Grouping("congestion control", control_of),
    "port": Grouping("input port", lambda flow: flow.ingress or NO_PORT, _by_numbers),
    "sender": Grouping("sender", lambda flow: flow.src),
}
"""Every kind of grouping, by the value of `analysis.group_by`."""


def every(flows: Sequence[_Flow], compared: Sequence[_Flow] | None = None) -> Groups[_Flow]:
    """The groups of every kind, by its name and then by their labels in the order of display.

    `name` is there only if any flow has one. Hop classes and congestion controls are there only if
    they are known. Without flows there are no kinds.

    Args:
        flows: all flows.
        compared: the flows that form hop classes, if these are not all, because a page load is no
            competitor of a bulk transfer. The others are one group more of that kind.
    """
    if not flows:
        return {}
    groups = {
        kind: _grouped(grouping, flows)
        for kind, grouping in GROUPINGS.items()
        if _is_told(kind, flows)
    }
    if "hops" in groups and compared is not None and len(compared) < len(flows):
        groups["hops"] = _grouped(GROUPINGS["hops"], compared)
        of_classes = {id(flow) for flow in compared}
        groups["hops"][NO_CLASS] = [flow for flow in flows if id(flow) not in of_classes]
    return groups


def _is_told(kind: GroupKind, flows: Sequence[Member]) -> bool:
    match kind:
        case "name":
            return any(flow.name is not None for flow in flows)
        case "hops":
            return all(flow.hops is not None for flow in flows)
        case "congestion_control":
            return all(flow.congestion_control != UNKNOWN for flow in flows)
        case _:
            return True


def _grouped(grouping: Grouping, flows: Iterable[_Flow]) -> dict[str, list[_Flow]]:
    groups: dict[str, list[_Flow]] = {}
    for flow in flows:
        groups.setdefault(grouping.label(flow), []).append(flow)
    return dict(sorted(groups.items(), key=lambda item: grouping.key(item[0])))


def chosen(group_by: GroupKind | None, groups: Collection[str]) -> GroupKind:
    """The kind in use: the requested one, else `name` if any flow has one, else `hops`.

    Where hops are not known, as in joined captures, it is the input port.
    """
    if group_by is not None or not groups:
        return group_by or "hops"
    return next(kind for kind in _USUAL if kind in groups)


_USUAL: tuple[GroupKind, ...] = ("name", "hops", "port")


def controls(flows: Iterable[Member]) -> tuple[str, ...]:
    """The known congestion controls of these flows, each once, in the order of the flows.

    Of TCP with an unknown one beside UDP, `TCP` and `UDP`, because `UDP` alone would name all.
    """
    of_flows = dict.fromkeys(control_of(flow) for flow in flows)
    known = tuple(control for control in of_flows if control != UNKNOWN)
    return (TCP, UDP) if known == (UDP,) and UNKNOWN in of_flows else known


def title(label: str, used: Sequence[str]) -> str:
    """A group's label with the congestion controls that its flows use: `2-hop (cubic)`.

    A label that is its own congestion control stands alone.
    """
    return label if tuple(used) in ((), (label,)) else f"{label} ({', '.join(used)})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two groups whose mean goodput the headline compares: the first over the second."""

    kind: GroupKind
    groups: tuple[str, str]


def comparison(
    group_by: GroupKind | None,
    compare: tuple[str, str] | None,
    groups: Groups[_Flow],
    further: Iterable[str] = (),
) -> Comparison | None:
    """The groups to compare.

    The labels may be of any kind of grouping. The kind in use comes first. Without `compare` these
    are the hop classes with the most and the fewest hops, and None if there is only one class.

    Args:
        group_by: the requested kind; None if it is left out.
        compare: the requested labels.
        groups: what `every` returns.
        further: names of groups that may have no flows, as those of programs.

    Raises ValueError: no kind of grouping has both labels, or several have and mean different
    flows.
    """
    if compare is None:
        classes = [label for label in groups.get("hops", ()) if label != NO_CLASS]
        return Comparison("hops", (classes[-1], classes[0])) if len(classes) > 1 else None
    possible = {kind: dict(labels) for kind, labels in groups.items()}
    for name in further:
        possible.setdefault("name", {}).setdefault(name, [])
    in_use = chosen(group_by, possible)
    ordered = sorted(possible, key=lambda kind: kind != in_use)
    fitting = [kind for kind in ordered if possible[kind].keys() >= set(compare)]
    if not fitting:
        raise ValueError(_unfit(compare, {kind: possible[kind] for kind in ordered}))
    if fitting[0] != in_use:
        means = [
            [{id(flow) for flow in possible[kind][label]} for label in compare] for kind in fitting
        ]
        if any(other != means[0] for other in means[1:]):
            raise ValueError(
                f"{compare[0]!r} and {compare[1]!r} are groups by {' and by '.join(fitting)}, of "
                "different flows; allowed is one of these as analysis.group_by"
            )
    return Comparison(fitting[0], compare)


def _unfit(compare: tuple[str, str], groups: Mapping[str, Mapping[str, object]]) -> str:
    every = {label for kind in groups.values() for label in kind}
    unknown = next((label for label in compare if label not in every), None)
    there = ", or ".join(
        f"by {kind}: {some_of(labels)}" for kind, labels in groups.items() if len(labels) > 1
    )
    what = (
        f"{unknown!r} is no group of flows"
        if unknown is not None
        else f"{compare[0]!r} and {compare[1]!r} are groups of different kinds"
    )
    near = "" if unknown is None else did_you_mean(unknown, every)
    return f"{what}; allowed are two {there}{near}" if there else f"{what}; there are no two groups"
