"""Links that lose packets: what stands between their ends, and how many were lost there.

A cable loses packets behind the sender's queue and before the receiver's port. No qdisc of either
port is there: one at the sender loses packets before they are queued, and captures at the receiver
see a packet before any qdisc does. So a link that loses packets is two veth pairs. What arrives at
the inner end of one leaves by the inner end of the other (tc-mirred(8)), whose root qdisc is netem.

So a lost packet has left by the sender's port: it was queued, took its time on the link, and stands
in that port's outgoing capture. It stands in no capture of the receiver. The queue's counters know
nothing of it, and netem's counter has exactly the lost packets.

Connections are made before packets are lost, because a lost SYN waits a second for its next copy.

netem's generator is seeded from the run's seed. Before Linux 6.6 it had no seed. There the kernel's
own generator decides, which is seeded in the virtual engine too, but not in real time.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from outcast import netlink
from outcast.emulation.commands import SystemCommands
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.kernel.sampling import NetlinkSocket
from outcast.emulation.queues import netem
from outcast.errors import CommandError, FeatureMissingError, ReadBackError
from outcast.experiment import Experiment
from outcast.experiment.faults import Policer
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.records.effective import LossSettings

LOSS_HANDLE = 1


def names(plan: Plan) -> list[str]:
    """The inner ends of all links that lose packets."""
    return [name for wire in plan.wires.values() for name in wire.interfaces]


def policer_index(wire: str) -> int:
    """The number of the policer at an inner end of a link, as wire3-1: 31."""
    return int("".join(filter(str.isdigit, wire)))


def connect(plan: Plan, commands: SystemCommands) -> None:
    """Makes each inner end send what arrives at the other one.

    Raises FeatureMissingError: the kernel cannot redirect packets.
    """
    lines = []
    for wire in plan.wires.values():
        for node, neighbour in (wire.nodes, wire.nodes[::-1]):
            name, policer = wire.facing(node), plan.links[node, neighbour].policer
            passes = f"action mirred egress redirect dev {wire.facing(neighbour)}"
            if policer is not None:
                bucket = f"rate {policer.rate_bps}bit burst {policer.burst_bytes}b mtu 65535"
                number = f"index {policer_index(name)}"
                passes = f"action police {number} {bucket} conform-exceed drop/pipe {passes}"
            lines += [
                f"qdisc add dev {name} ingress",
                f"filter add dev {name} ingress matchall {passes}",
            ]
    if not lines:
        return
    try:
        commands.run(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")
    except CommandError as error:
        raise FeatureMissingError(
            "links.loss: this kernel cannot redirect a link's packets (it needs sch_ingress, "
            f"cls_matchall and act_mirred): {' '.join(error.stderr.split())}; use a kernel that "
            "has them, or --engine virtual"
        ) from None


def _read_policer(plan: Plan, direction: Direction, policer: Policer) -> dict[str, int]:
    """Reads what the kernel shows: rate in bit/s, burst in bytes. Raises ReadBackError."""
    # Imported here, because runs without policers do not need it.
    from outcast.emulation.queues import reconfigure

    name = plan.wires[frozenset(direction)].facing(direction[0])
    _, question = reconfigure.policer_requests(policer_index(name), policer)
    with contextlib.closing(NetlinkSocket(socket.NETLINK_ROUTE, None)) as kernel:
        (answer,) = kernel.ask(question, 1)
    rate_bps, burst_bytes = reconfigure.checked_policer(" to ".join(direction), policer, answer)
    return {"rate": rate_bps, "burst": burst_bytes}


def start_losing(experiment: Experiment, plan: Plan) -> tuple[LossSettings, ...]:
    """Makes every link lose its share of packets from now on; returns what is in effect.

    Raises:
        ReadBackError: the kernel shows another setting than requested.
        RunError: the kernel refused.
    """
    settings = []
    for direction, loss in losses(experiment, plan).items():
        name = plan.wires[frozenset(direction)].facing(direction[1])
        options = netem.options(loss=loss)
        rtnetlink.replace_qdisc(name, "netem", major=LOSS_HANDLE, options=options)
        # Imported here, because runs without losses do not need it.
        from pyroute2.iproute import IPRoute

        with IPRoute() as kernel:
            (index,) = kernel.link_lookup(ifname=name)
            messages = [m for m in kernel.get_qdiscs(index=index) if m["index"] == index]
        told = _read_back(direction, loss, messages)
        if policer := plan.links[direction].policer:
            told = replace(told, policer=_read_policer(plan, direction, policer))
        settings.append(told)
    return tuple(settings)


def losses(experiment: Experiment, plan: Plan) -> dict[Direction, netem.Loss]:
    """The loss of each direction that has some, seeded from the run's seed and its two nodes."""
    return {
        (node, neighbour): netem.Loss.of(
            link, random.Random(f"{experiment.seed} loss {node} {neighbour}").getrandbits(63)
        )
        for (node, neighbour), link in plan.links.items()
        if link.has_faults
    }


def _read_back(direction: Direction, loss: netem.Loss, messages: Sequence[Any]) -> LossSettings:
    where = f"{direction[0]} to {direction[1]}"
    message = _netem(messages)
    if message is None:
        raise ReadBackError(where, "loss", loss.share, "no netem")
    raw = netlink.raw_bytes(message.get_attr("TCA_OPTIONS"))
    share, seed = netem.check_loss(where, loss, raw)
    if seed not in (None, loss.seed):
        raise ReadBackError(where, "seed of the loss", loss.seed, seed)
    return LossSettings(
        *direction,
        round(share, 9),
        seed,
        None if loss.bursts is None else loss.bursts.model_dump(),
        None if loss.late is None else loss.late.model_dump(mode="json", by_alias=True),
        loss.duplicate,
        random_delay=loss.delay.model_dump(mode="json", by_alias=True) if loss.delay else None,
    )


def lost(plan: Plan, messages: Mapping[str, Sequence[Any]]) -> dict[Direction, int]:
    """The packets lost so far, in both directions of every link that loses packets."""
    counted = {}
    for wire in plan.wires.values():
        for node, neighbour in (wire.nodes, wire.nodes[::-1]):
            message = _netem(messages.get(wire.facing(neighbour), ()))
            counted[node, neighbour] = 0 if message is None else _drops(message)
            if plan.links[node, neighbour].policer:
                policed = _qdisc("ingress", messages.get(wire.facing(node), ()))
                counted[node, neighbour] += 0 if policed is None else _drops(policed)
    return counted


def _drops(message: Any) -> int:
    return int(message.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])


def _netem(messages: Sequence[Any]) -> Any:
    return _qdisc("netem", messages)


def _qdisc(kind: str, messages: Sequence[Any]) -> Any:
    return next((m for m in messages if m.get_attr("TCA_KIND") == kind), None)
