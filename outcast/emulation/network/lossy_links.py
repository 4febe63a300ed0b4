"""Links that lose packets, and the switch of the synthetic blackout.

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

The blackout's switch (blackout_switch.c) stands between a switch port's link and the switch. The
port keeps its name, its queue and its captures. The switch itself has the inner end of a veth pair
in the port's place.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from outcast.emulation import c_programs
from outcast.emulation.commands import SystemCommands
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.kernel.sampling import NetlinkSocket
from outcast.emulation.part import Context, Part, Record
from outcast.emulation.queues import netem
from outcast.errors import CommandError, FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Experiment
from outcast.experiment.links import Policer
from outcast.files import write_text
from outcast.plan.links import Direction
from outcast.plan.model import BLACKOUT_ENDS, Plan
from outcast.records.effective import loss_settings
from outcast.records.run_directory import BlackoutRecord

LOSS_HANDLE = 1


def names(plan: Plan) -> list[str]:
    """The inner ends of all links that lose packets."""
    return [name for wire in plan.wires.values() for name in wire.interfaces]


def policer_index(wire: str) -> int:
    """The number of the policer at an inner end of a link, as wire3-1: 31."""
    return int("".join(filter(str.isdigit, wire)))


def connect(plan: Plan, commands: SystemCommands) -> None:
    """Makes each inner end send what arrives at the other one."""
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
    # Imported here, because runs without policers do not need it.
    from outcast.emulation.queues import reconfigure

    name = plan.wires[frozenset(direction)].facing(direction[0])
    _, question = reconfigure.policer_requests(policer_index(name), policer)
    with contextlib.closing(NetlinkSocket(socket.NETLINK_ROUTE, None)) as kernel:
        (answer,) = kernel.ask(question, 1)
    rate_bps, burst_bytes = reconfigure.checked_policer(" to ".join(direction), policer, answer)
    return {"rate": rate_bps, "burst": burst_bytes}


def start_losing(experiment: Experiment, plan: Plan) -> dict[str, Any]:
    """Makes every link lose its share of packets from now on; returns what is in effect."""
    settings: dict[str, Any] = {}
    for direction, loss in losses(experiment, plan).items():
        name = plan.wires[frozenset(direction)].facing(direction[1])
        options = netem.options(loss=loss)
        rtnetlink.replace_qdisc(name, "netem", major=LOSS_HANDLE, options=options)
        with rtnetlink.Kernel() as kernel:
            shown = kernel.options(socket.if_nametoindex(name), "netem")
        policer = plan.links[direction].policer
        policed = _read_policer(plan, direction, policer) if policer else None
        settings |= _read_back(direction, loss, shown, policed)
    return settings


def losses(experiment: Experiment, plan: Plan) -> dict[Direction, netem.Loss]:
    """The loss of each direction that has some, seeded from the run's seed and its two nodes."""
    return {
        (node, neighbour): netem.Loss.of(
            link, random.Random(f"{experiment.seed} loss {node} {neighbour}").getrandbits(63)
        )
        for (node, neighbour), link in plan.links.items()
        if link.has_faults
    }


def _read_back(
    direction: Direction,
    loss: netem.Loss,
    shown: Sequence[bytes],
    policed: Mapping[str, int] | None,
) -> dict[str, Any]:
    where = f"{direction[0]} to {direction[1]}"
    if len(shown) != 1:
        raise ReadBackError(where, "loss", loss.share, "no netem")
    share, seed = netem.check_loss(where, loss, shown[0])
    if seed not in (None, loss.seed):
        raise ReadBackError(where, "seed of the loss", loss.seed, seed)
    # The kernel does not show the table of a random delay's distribution.
    return loss_settings(
        direction,
        round(share, 9),
        seed,
        burst_loss=loss.bursts and loss.bursts.model_dump(),
        late=loss.late and loss.late.model_dump(mode="json", by_alias=True),
        duplicate=loss.duplicate,
        policer=policed,
        random_delay=loss.delay and loss.delay.model_dump(mode="json", by_alias=True),
    )


def lost(plan: Plan, messages: Mapping[str, Sequence[Any]]) -> dict[Direction, int]:
    """The packets lost so far, in both directions of every link that loses packets."""
    counted = {}
    for wire in plan.wires.values():
        for node, neighbour in (wire.nodes, wire.nodes[::-1]):
            counted[node, neighbour] = _drops("netem", messages.get(wire.facing(neighbour), ()))
            if plan.links[node, neighbour].policer:
                counted[node, neighbour] += _drops("ingress", messages.get(wire.facing(node), ()))
    return counted


def _drops(kind: str, messages: Sequence[Any]) -> int:
    message = _qdisc(kind, messages)
    if message is None:
        return 0
    return int(message.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])


def _qdisc(kind: str, messages: Sequence[Any]) -> Any:
    return next((m for m in messages if m.get_attr("TCA_KIND") == kind), None)


BLACKOUT_START_S = 15.0
BLACKOUT_STOP_S = 10.0


class BlackoutSwitch(Part):
    def __init__(self, run: Context) -> None:
        super().__init__(run)
        self._result = run.scratch / "blackout.json"
        self.record: BlackoutRecord | None = None

    def prepare(self) -> None:
        run, blackout = self._run, self._run.experiment.blackout
        if blackout is None:
            return
        program = c_programs.provide(c_programs.BLACKOUT, run.scratch, run.commands)
        seed = random.Random(f"{run.experiment.seed} blackout").getrandbits(64)
        process = run.commands.spawn(
            "the blackout's switch",
            [
                *(str(program), blackout.at, BLACKOUT_ENDS[0], str(blackout.drops)),
                *(
                    str(blackout_on_ns(run.experiment, run.plan)),
                    str(blackout.off_mean_ns),
                    str(seed),
                ),
                str(self._result),
            ],
            stdout=run.scratch / "blackout.out",
            stderr=run.scratch / "blackout.err",
        )
        self.lasting.append(process)
        process.await_word("ready", f"{process.name} to start", BLACKOUT_START_S)

    def finish(self) -> Record:
        """Makes it drop no more packets from now on."""
        self.require_alive()
        for process in self.lasting:
            process.popen.send_signal(signal.SIGUSR1)
        return Record()

    def end(self) -> None:
        """Writes every ON period into blackout.json. Raises RunError where it lost frames."""
        blackout = self._run.experiment.blackout
        if blackout is None:
            return
        (process,) = self.lasting
        if process.end(signal.SIGTERM, BLACKOUT_STOP_S):
            raise process.failure()
        text = self._result.read_text(encoding="ascii")
        result = json.loads(text)
        if result["lost"]:
            raise RunError(f"{process.name}: lost {result['lost']} frames on the way")
        write_text(self._run.directory.blackout, text)
        self.record = BlackoutRecord(
            port=blackout.at,
            packets=result["packets"],
            dropped=result["dropped"],
            periods=len(result["periods"]),
        )


def blackout_on_ns(experiment: Experiment, plan: Plan) -> int:
    """The length of an ON period: the time of `drops` full frames on the link to the port.

    It is 0 where the period counts packets instead.
    """
    blackout = experiment.blackout
    if blackout is None or blackout.by == "packets":
        return 0
    port, before = plan.ends[blackout.at]
    link = plan.links[before, port]
    wire_bytes = link.framing.wire_bytes(link.frame_bytes)
    return blackout.drops * wire_bytes * 8 * 10**9 // link.rate_bps
