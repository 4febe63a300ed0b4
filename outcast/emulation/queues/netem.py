"""Sets link delays to the nanosecond.

This module sets up netem by rtnetlink(7), because tc(8) is too coarse. tc of iproute2 6.1 cuts a
delay to whole microseconds and passes it in units of 64 ns, so 5 us become 4992 ns. The kernel
itself takes nanoseconds (TCA_NETEM_LATENCY64 in linux/pkt_sched.h).

With jitter alone, netem lets a packet overtake the one before it, which no cable does. With a rate,
netem sends no packet before the last one has gone (net/sched/sch_netem.c, netem_enqueue). So a
qdisc with jitter also gets a rate, one at which every packet takes 0 ns.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from outcast import netlink
from outcast.errors import ReadBackError
from outcast.experiment.links import BurstLoss, Late, Link, RandomDelay
from outcast.plan.noise import Span

LATENCY64, JITTER64, RATE64, SLOT, PRNG_SEED = 10, 11, 8, 12, 14
_RATE, _LOSS, _REORDER, _DISTRIBUTION, _GILBERT_ELLIOTT = 6, 5, 3, 2, 2
_TABLE_VALUES, _SCALE = 4096, 8192
"""The number of entries in a table (at most 16384), and the entry for 1.0 (NETEM_DIST_SCALE in
linux/pkt_sched.h)."""
LIMIT_PACKETS = 100_000
"""The packets that can wait: larger than any backlog."""
IN_ORDER_RATE = 1 << 62
"""In bytes per second. At this rate a packet of any size takes less than a nanosecond."""
# struct tc_netem_rate: rate, packet_overhead, cell_size, cell_overhead
_RATE_PARAMETERS = struct.Struct("=IiIi")
# struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
_PARAMETERS = struct.Struct("=6I")
# struct tc_netem_reorder, and struct tc_netem_gemodel: p, r, h, k1
_PAIR, _CHAIN = struct.Struct("=2I"), struct.Struct("=4I")
# struct tc_netem_slot: min_delay, max_delay, max_packets, max_bytes, dist_delay, dist_jitter
_SLOT_PARAMETERS = struct.Struct("=qqiiqq")


@dataclass(frozen=True, slots=True)
class Loss:
    """A link's random faults: packets are lost, come late, or come twice.

    Attributes:
        share: of the packets that are lost, from 0 to 1.
        seed: of netem's own generator. Kernels before Linux 6.6 ignore it.
        bursts: losses in a row, in place of `share`.
    """

    share: float
    seed: int
    bursts: BurstLoss | None = None
    late: Late | None = None
    duplicate: float = 0.0
    delay: RandomDelay | None = None

    @classmethod
    def of(cls, link: Link, seed: int) -> Loss:
        return cls(link.loss, seed, link.burst_loss, link.late, link.duplicate, link.random_delay)

    @property
    def in_kernel(self) -> int:
        return _in_kernel(self.share)

    def encoded(self) -> bytes:
        """The attributes of netem besides its delay. A late packet is one that netem delays."""
        encoded = b""
        if self.late:
            # The others are "reordered": they do not wait (netem_enqueue in sch_netem.c).
            encoded += netlink.encode(_REORDER, _PAIR.pack(_in_kernel(1 - self.late.share), 0))
        if self.bursts:
            chances = (self.bursts.p, self.bursts.r, 0.0, 0.0)
            chain = _CHAIN.pack(*map(_in_kernel, chances))
            encoded += netlink.nest(_LOSS, netlink.encode(_GILBERT_ELLIOTT, chain))
        if self.delay and self.delay.distribution != "uniform":
            encoded += netlink.encode(_DISTRIBUTION, table(self.delay.distribution))
        return encoded


def table(distribution: str) -> bytes:
    """The quantiles of a distribution with the scale 1, in netem's units (tabledist).

    They are those of iproute2's tables (netem/*.c there): the normal distribution; 4/3 of Pareto's
    with the exponent 3, moved to a mean of 0 and cut at 4; and a quarter of the first with three
    quarters of the second.
    """
    # Imported here, because runs without such delays do not need it.
    from statistics import NormalDist

    values = []
    for place in range(_TABLE_VALUES):
        share = (place + 0.5) / _TABLE_VALUES
        normal = NormalDist().inv_cdf(share)
        pareto = min(4, 4 / 3 * ((1 - share) ** (-1 / 3) - 1.5))
        both = {"normal": normal, "pareto": pareto, "paretonormal": normal / 4 + pareto * 3 / 4}
        values.append(max(-32768, min(32767, round(_SCALE * both[distribution]))))
    return struct.pack(f"={_TABLE_VALUES}h", *values)


def _in_kernel(share: float) -> int:
    """The share as the kernel keeps it, in 2^-32 less one."""
    return round(share * (2**32 - 1))


class Shown:
    """What a netem's TCA_OPTIONS say, from the kernel or as requested.

    Attributes:
        loss: the share as the kernel keeps it.
        seed: None in kernels before Linux 6.6.
        faults: all random faults of the wire except loss.
        slot: the length of slots; None where they have other limits, or where there are none.
    """

    def __init__(self, raw: bytes) -> None:
        _, _, self.loss, gap, duplicate, _ = _PARAMETERS.unpack_from(raw)
        numbers = netlink.numbers(raw[_PARAMETERS.size :])
        kinds = dict(netlink.attributes(raw[_PARAMETERS.size :]))
        self.delay_ns, self.jitter_ns = numbers.get(LATENCY64, 0), numbers.get(JITTER64, 0)
        self.seed = numbers.get(PRNG_SEED)
        rate = numbers.get(RATE64, 0)
        self.keeps_order = rate == IN_ORDER_RATE
        chain = netlink.attribute(kinds.get(_LOSS, b""), _GILBERT_ELLIOTT)
        late = kinds.get(_REORDER) if gap else None
        self.faults = (duplicate, chain, late, self.delay_ns, self.jitter_ns, rate)
        self.slot = None
        if SLOT in kinds:
            least_ns, most_ns, *others = _SLOT_PARAMETERS.unpack(kinds[SLOT])
            self.slot = None if any(others) else Span(least_ns, most_ns)


def check_loss(where: str, loss: Loss, raw: bytes) -> tuple[float, int | None]:
    """The share and the seed of the loss in TCA_OPTIONS.

    Raises ReadBackError: these show another loss, or other faults.
    """
    wanted, shown = Shown(options(loss=loss)), Shown(raw)
    share = shown.loss / (2**32 - 1)
    if wanted.faults != shown.faults:
        name = "burst_loss, late, duplicate and random_delay"
        raise ReadBackError(where, name, wanted.faults, shown.faults)
    if wanted.loss != shown.loss:
        raise ReadBackError(where, "loss", loss.share, share)
    return share, shown.seed


def options(
    *,
    delay_ns: int = 0,
    jitter_ns: int = 0,
    limit_packets: int = LIMIT_PACKETS,
    in_order: bool = False,
    loss: Loss | None = None,
    seed: int | None = None,
    slot: Span | None = None,
) -> bytes:
    """TCA_OPTIONS of a netem. With `in_order` no packet overtakes another.

    Each packet waits for `delay_ns`, which varies by up to `jitter_ns`, up or down, uniformly.

    With `slot`, packets leave in batches: the first packet that finds no slot begins one, and all
    packets that wait leave at its end. The kernel's own generator draws a slot's length.
    """
    share, twice, gap = 0, 0, 0
    if loss:
        share, twice, gap = loss.in_kernel, _in_kernel(loss.duplicate), int(loss.late is not None)
        delay_ns = loss.late.by_ns if loss.late else delay_ns
        if loss.delay:
            delay_ns, jitter_ns = loss.delay.mean_ns, loss.delay.spread_ns
            in_order = loss.delay.in_order
    encoded = _PARAMETERS.pack(0, limit_packets, share, gap, twice, 0)
    encoded += netlink.encode_number(LATENCY64, delay_ns, "q")
    encoded += netlink.encode_number(JITTER64, jitter_ns, "q")
    if in_order:
        encoded += netlink.encode(_RATE, _RATE_PARAMETERS.pack(2**32 - 1, 0, 0, 0))
        encoded += netlink.encode_number(RATE64, IN_ORDER_RATE, "Q")
    if slot:
        parameters = _SLOT_PARAMETERS.pack(slot.least_ns, slot.most_ns, 0, 0, 0, 0)
        encoded += netlink.encode(SLOT, parameters)
    if loss:
        encoded += loss.encoded()
    seed = loss.seed if loss else seed
    if seed is not None:
        encoded += netlink.encode_number(PRNG_SEED, seed, "Q")
    return encoded
