"""The settings of every port of the network: its rate, its delay and its queue."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from outcast import units
from outcast.experiment import (
    MTU_FRAME_BYTES,
    Experiment,
    Limit,
    Link,
    PacingFq,
    Pfifo,
    Queue,
)
from outcast.experiment.engine import candidates, properties
from outcast.experiment.limit import MOST_QUEUED, Unit
from outcast.experiment.links import FRAMINGS, Framing
from outcast.experiment.queues.base import BURST_ROUNDING_NS, DEFAULT_BURST_BYTES
from outcast.experiment.queues.drop_tail import Htb
from outcast.experiment.whole import QueueException
from outcast.handed_in import own_words
from outcast.plan.model import Plan
from outcast.plan.noise import Span

HOST_QUEUE = Limit(packets=1000)
"""A host's transmit queue: Linux's default of 1000 packets (ip-link(8), txqueuelen)."""
HOST_QUEUE_NS = 4_000_000
"""Above some 3 Gbps it holds what the link sends in so long a time. TCP small queues let a flow
have what its pacing rate gives in a millisecond there, and twice that in slow start
(tcp_small_queue_check). Linux counts units of up to 64 KB there, not frames."""
UNIT_BYTES = 65_536
"""The most that TCP hands over at once, as it does over short round trips, also with offloads off
(tcp_tso_autosize, GSO_LEGACY_MAX_SIZE). The shaper cuts it to frames."""
UNITS_OF_A_FLOW = 4
"""In its host's queue: two at any rate, and twice as many while it retransmits
(tcp_small_queue_check, tcp_xmit_retransmit_queue)."""

SEGMENT_HEADERS_BYTES = 86
"""What a further segment of a unit adds: Ethernet's, IPv6's and TCP's headers with timestamps."""

SYN_FRAME_BYTES = 74
"""The size of Linux's SYN over IPv4 in a frame: 14 + 20 + 40 B, with all options that it has."""


@dataclass(frozen=True, slots=True)
class PortQueue:
    """The requested settings of one port.

    Attributes:
        frame_bytes: the largest frame of its link, without the checksum.
        framing: what a frame takes on the link besides its bytes.
        changes_delay: whether an event changes the delay, so that a netem stands there from the
            beginning.
        asked: the limit as it was requested, where it is a time, bandwidth-delay products, or in
            another unit than the queue counts.
        jitter_seed: of the generator that draws the jitter; None for the kernel's own seed.
        noise_ns: the part of the delay that noise adds on average.
        sender: how long after the first packet all that a host sends leaves, at a host's port.
        has_cable: whether the delay and the sender's time come behind the shaper and its queue, by
            a qdisc of the guest's kernel (sch_cable.c in its patch 0015). Otherwise they come
            before, because no other kernel can put a qdisc behind another one.
        late_timers_ns: how late the shaper's timer may be without making it slower; 0 where another
            burst than the default is requested.
    """

    port: str
    rate_bps: int
    delay_ns: int
    jitter_ns: int
    queue: Queue
    frame_bytes: int = MTU_FRAME_BYTES
    framing: Framing = FRAMINGS["none"]
    changes_delay: bool = False
    jitter_seed: int | None = None
    noise_ns: int = 0
    sender: Span | None = None
    has_cable: bool = False
    asked: Limit | None = None
    late_timers_ns: int = 0

    @property
    def bucket_bytes(self) -> int:
        """What the shaper's bucket holds at the port's rate.

        A full bucket gains nothing. A shaper whose timer is late therefore sends more slowly than
        its rate, unless its bucket has room for what it gains meanwhile. That is a frame at most,
        so that no long train of frames leaves at once.
        """
        late_bytes = self.late_timers_ns * self.rate_bps // (8 * 10**9)
        return self.queue.burst_bytes + min(late_bytes, self.frame_bytes)

    @property
    def has_netem(self) -> bool:
        """Whether a netem stands above the shaper."""
        return self.delay_ns > 0 or self.changes_delay

    @property
    def lets_units_through(self) -> bool:
        """Whether segments that TCP hands over as one unit would cross the link as one frame.

        TBF cuts a unit that is more than its burst (tbf_enqueue in net/sched/sch_tbf.c), or more
        than a frame where the burst has little more room (`tbf_options`). HTB cuts none.
        """
        least_bytes = self.frame_bytes + SEGMENT_HEADERS_BYTES + self.framing.added_bytes
        return self.queue.shaper_kind == "htb" or self.bucket_bytes > least_bytes

    @property
    def limit_packets(self) -> int:
        """How many full frames its queue takes; 0 if nothing limits it."""
        limit = self.queue.wire_limit
        return limit.packets or (limit.size_bytes or 0) // self.frame_bytes

    @property
    def full_ns(self) -> int:
        """How long the port sends what a full queue holds."""
        wire_bytes = self.limit_packets * self.framing.wire_bytes(self.frame_bytes)
        return wire_bytes * 8 * 10**9 // self.rate_bps


def switch_queue(experiment: Experiment, plan: Plan, port: str) -> PortQueue:
    """The settings of a switch's port; `port` is a name such as `s1-eth1`."""
    _, queue = asked_of_switch(experiment, plan, port)
    return _port_queue(experiment, plan, port, queue)


def asked_of_switch(experiment: Experiment, plan: Plan, port: str) -> tuple[str, Queue]:
    """The requested queue of a switch's port, and its key in the configuration."""
    own = plan.links[plan.ends[port]].queue
    if own is not None:
        return "links", own
    if (number := exception_at(experiment, plan, port)) is not None:
        return f"queues.{number}.queue", experiment.queues[number].queue
    if experiment.queue.where == "bottleneck" and port != plan.bottleneck.egress:
        return "queue", _host_queue(experiment)
    return "queue", experiment.queue


def exception_at(experiment: Experiment, plan: Plan, port: str) -> int | None:
    """The number of the entry of `queues` that counts at a switch's port, or None without one."""
    names = {port, plan.graph.nodes[plan.ends[port][0]]["layer"]}
    names |= {"bottleneck"} if port == plan.bottleneck.egress else set()
    for number, exception in reversed([*enumerate(experiment.queues)]):
        if not names.isdisjoint(places(exception)):
            return number
    return None


def places(exception: QueueException) -> list[str]:
    return [exception.at] if isinstance(exception.at, str) else exception.at


def rounds_of_handshakes(experiment: Experiment, plan: Plan) -> int:
    """How many times some flow may have to send its SYN, if all flows connect at one instant.

    They do in virtual time, and those whose SYN is lost try again at one instant. So a queue takes
    as many in each round as it can hold. 1 if every switch's queue has room for all.
    """
    flows = len(plan.flows)
    rounds = 1
    for port in plan.switch_ports():
        limit = switch_queue(experiment, plan, port).queue.wire_limit
        if limit.packets is not None:
            rounds = max(rounds, math.ceil(flows / limit.packets))
        if limit.size_bytes is not None:
            rounds = max(rounds, math.ceil(flows * SYN_FRAME_BYTES / limit.size_bytes))
    return rounds


def red_idle(queue: Queue) -> str | None:
    """What the kernel's red has to do while it is empty, as `idle` says it; None without red.

    `ecn_threshold` is red without an average (a weight of 1), and after a pause red would halve the
    last one.
    """
    return {"red": getattr(queue, "idle", None), "ecn_threshold": "stock"}.get(queue.kind)


def queue_of(experiment: Experiment, plan: Plan, port: str) -> PortQueue:
    node = plan.ends[port][0]
    if plan.graph.nodes[node]["kind"] == "host":
        return host_queue(experiment, plan, node)
    return switch_queue(experiment, plan, port)


def host_queue(experiment: Experiment, plan: Plan, host: str) -> PortQueue:
    """The settings of a host's port: its link's rate, and room for all it may send.

    It has no jitter, because TCP hands over a burst at one instant. Packets keep their order, so
    each would wait for the one before it with the longest delay.
    """
    (switch,) = plan.graph.adj[host]
    paced = any(flow.src == host and flow.transport.pacing == "fq" for flow in plan.flows)
    queue = _host_queue(experiment, paced=paced)
    link = plan.links[host, switch]
    units = UNITS_OF_A_FLOW * sum(flow.src == host for flow in plan.flows)
    packets = max(
        HOST_QUEUE_NS * link.rate_bps // (8 * 10**9 * link.frame_bytes),
        min(units, HOST_QUEUE.packets or 0) * UNIT_BYTES // link.frame_bytes,
    )
    if packets > (HOST_QUEUE.packets or 0):
        more = {"flow_limit": packets} if queue.kind == "fq" else {}
        queue = queue.model_copy(update={"limit": Limit(packets=packets), **more})
    settings = _port_queue(experiment, plan, plan.port(host, switch), link.queue or queue)
    return replace(
        settings,
        delay_ns=settings.delay_ns - settings.noise_ns,
        jitter_ns=0,
        jitter_seed=None,
        noise_ns=0,
        sender=plan.host_noise.sender,
    )


def _port_queue(experiment: Experiment, plan: Plan, port: str, queue: Queue) -> PortQueue:
    node, neighbour = plan.ends[port]
    link = plan.links[node, neighbour]
    rate_bps = port_rate_bps(experiment, port, link.rate_bps)
    limit = queue.limits.get("limit")
    if not queue.is_counted:
        queue = counted(queue, link, plan.base_rtts_ns[node, neighbour])
    if (node, neighbour) in plan.traced:
        queue = _below_htb(queue)
    noise_ns = _added_by_noise_ns(experiment, link)
    late_ns = properties(candidates(experiment.engine)[0]).late_timers_ns
    return PortQueue(
        port,
        rate_bps,
        (link.delay_ns or 0) + noise_ns,
        link.jitter_ns or 0,
        _with_room(queue, rate_bps, link.frame_bytes),
        frame_bytes=link.frame_bytes,
        framing=link.framing,
        changes_delay=any(
            event.delay_ns is not None and event.concerns(node, neighbour)
            for event in experiment.events
        ),
        jitter_seed=_jitter_seed(experiment, port) if link.jitter_ns else None,
        noise_ns=noise_ns,
        asked=None if limit == queue.limits.get("limit") else limit,
        late_timers_ns=late_ns if queue.burst_bytes == DEFAULT_BURST_BYTES else 0,
    )


def counted(queue: Queue, link: Link, base_rtt_ns: int) -> Queue:
    """The queue at a link's sending port, with its limits in bytes or packets as the kernel counts.

    Raises ValueError: a limit does not fit the link, or the queue.
    """
    if queue.is_counted:
        return queue
    limits = queue.limits
    own = {key: str(counted_limit(limits[key], queue.counts, link, base_rtt_ns)) for key in limits}
    try:
        fitting: Queue = type(queue).model_validate(
            {**queue.model_dump(mode="json", by_alias=True), **own}
        )
    except ValidationError as error:
        words = ", ".join(f"{limit} is {own[key]}" for key, limit in limits.items())
        raise ValueError(f"{words}: {own_words(error.errors()[0])}") from None
    return fitting


def counted_limit(limit: Limit, counts: Collection[Unit], link: Link, base_rtt_ns: int) -> Limit:
    """The limit in a unit that a queue counts. Where it counts both, a time becomes bytes.

    It is rounded down, so that a queue never lasts longer than the requested time.

    Raises ValueError: it holds no full frame there, or more than a kernel counts.
    """
    if any(getattr(limit, unit) is not None for unit in counts):
        return limit
    frame_bytes = link.frame_bytes
    if limit.packets is not None:
        frames = Fraction(limit.packets)
    elif limit.size_bytes is not None:
        frames = Fraction(limit.size_bytes, frame_bytes)
    else:
        time_ns = (limit.time_ns or 0) + Fraction(f"{limit.bdp or 0:.12f}") * base_rtt_ns
        frames = time_ns * link.rate_bps / (8 * 10**9 * link.framing.wire_bytes(frame_bytes))
    at = f"at {units.format_rate(link.rate_bps)}"
    if limit.bdp is not None:
        at += f" and a base RTT of {base_rtt_ns / 1e6:.4g} ms"
    if frames < 1:
        raise ValueError(
            f"{limit} is {float(frames * frame_bytes):.0f} B {at}, which holds no full frame of "
            f"{frame_bytes} B; allowed is more, or a limit of this port's own"
        )
    if frames * frame_bytes > MOST_QUEUED:
        raise ValueError(
            f"{limit} is {float(frames * frame_bytes):.3g} B {at}, more than the 1GB that a kernel "
            "counts; allowed is less"
        )
    if "size_bytes" in counts:
        return Limit(size_bytes=int(frames * frame_bytes))
    return Limit(packets=int(frames))


def _added_by_noise_ns(experiment: Experiment, link: Link) -> int:
    """What noise adds to a link's delay on average, so that no packet takes less than the delay."""
    jitter_ns, noise = link.jitter_ns or 0, experiment.noise
    if noise.greatest_jitter:
        return jitter_ns if jitter_ns == link.greatest_noise_ns() else 0
    # A jitter of the configuration's own varies up and down.
    own = experiment.links.jitter_ns is not None
    of_switch_ns = min(noise.switch_latency_ns or 0, link.delay_ns or 0)
    return jitter_ns if not own and jitter_ns == of_switch_ns else 0


def _jitter_seed(experiment: Experiment, port: str) -> int | None:
    """The seed of a port's jitter where `noise` gives it.

    A jitter of `links`, or the greatest one, is drawn with a seed of the kernel's own, so that the
    captures of configurations that have it stay as they were.
    """
    if experiment.links.jitter_ns is not None:
        return None
    return random.Random(f"{experiment.seed} jitter {port}").getrandbits(63)


def _below_htb(queue: Queue) -> Queue:
    """The queue with a class of HTB above it, whose rate a trace can change often.

    TBF fills its bucket at each change of its rate (tbf_change in net/sched/sch_tbf.c), so it would
    send up to one frame more with each step of a trace. HTB's debt stays what it is.
    """
    if queue.kind == "tbf":
        htb: Queue = Htb(**{**queue.model_dump(mode="json", by_alias=True), "kind": "htb"})
        return htb
    return queue if queue.kind == "htb" else queue.model_copy(update={"shaper": "htb"})


def _with_room(queue: Queue, rate_bps: int, frame_bytes: int) -> Queue:
    """The queue with a burst that lets a jumbo frame through.

    A token bucket that holds less than a frame drops it. A burst that was chosen for frames of the
    usual size is therefore raised to one frame, with what is lost by rounding.
    """
    rounded_off = -(-BURST_ROUNDING_NS * rate_bps // (8 * 10**9))
    least_bytes = frame_bytes + rounded_off
    if frame_bytes <= MTU_FRAME_BYTES or queue.burst_bytes >= least_bytes:
        return queue
    return queue.model_copy(update={"burst_bytes": least_bytes})


def require_fits(port_queue: PortQueue) -> None:
    """Raises ValueError where the queue holds no full frame of the port's link."""
    port_queue.queue.check_burst(port_queue.rate_bps, port_queue.frame_bytes)
    limit_bytes = port_queue.queue.wire_limit.size_bytes
    if limit_bytes is not None and limit_bytes < port_queue.frame_bytes:
        raise ValueError(
            f"{units.format_size(limit_bytes)} hold no full frame of {port_queue.frame_bytes} B; "
            "allowed is a larger limit, or a smaller mtu"
        )


def port_rate_bps(experiment: Experiment, port: str, rate_bps: int) -> int:
    """A port's rate by its own oscillator, drawn from the seed and the port's name."""
    offset_ppm = experiment.links.clock_offset_ppm
    if not offset_ppm:
        return rate_bps
    draw = random.Random(f"{experiment.seed} {port}").uniform(-1.0, 1.0)
    # The kernel keeps rates in whole bytes per second.
    return round(rate_bps * (1 + draw * offset_ppm * 1e-6) / 8) * 8


def _host_queue(experiment: Experiment, *, paced: bool = False) -> Queue:
    keys: dict[str, Any] = {
        "limit": HOST_QUEUE,
        "where": "every_port",
        "shaper": "tbf",
        "burst_bytes": experiment.queue.burst_bytes,
    }
    if not paced:
        return Pfifo.model_construct(kind="pfifo", **keys)
    return PacingFq.model_construct(kind="fq", flow_limit=HOST_QUEUE.packets, **keys)
