"""Changes of a run that was made again: fates of packets, and the seed of its noise.

The manifest of such a run has its `Interventions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Literal

from pydantic import Field

from outcast import handed_in
from outcast.errors import FeatureMissingError, RunError
from outcast.plan.addresses import with_port
from outcast.units import MOST_SPAN_NS, format_time

Fate = Literal["keep", "forward", "drop", "mark", "delay"]
MOST_FATES = 1024
"""The most fates of a run (MOST_FATES in net/core/packet_fate.c, patch 0019)."""
FATE_LINE, NOISE_LINE = "fate", "noise"
"""How lines of the kernel begin: what it did to a packet, and from which seed it drew."""

_Number = Annotated[int, Field(ge=0, lt=1 << 32)]
_TimeNs = Annotated[int, Field(ge=-MOST_SPAN_NS, le=MOST_SPAN_NS)]
_Port = Annotated[int, Field(ge=0, le=65535)]
_Word = Annotated[int, Field(ge=0, lt=1 << 64)]


class PacketFate(handed_in.Record):
    """A packet and what happens to it at its queue. The packet is known by all but `packet`."""

    packet: _Number = Field(description="its row of packets.parquet in the run intervened in")
    fate: Fate
    delay_ns: Annotated[int, Field(ge=0, le=10**9)] = Field(
        default=0, description="how long it is held before its queue; 0 for other fates"
    )
    port: str = Field(pattern=r"^[^\s,/]{1,15}$", description="the port by which it leaves")
    t_in_ns: _TimeNs = Field(description="when it came in, after the traffic's start")
    boot_ns: Annotated[int, Field(ge=0, le=1 << 62)] = Field(
        description="the same by the guest's clock, since its boot"
    )
    flow: _Number
    src: IPv4Address | IPv6Address
    sport: _Port
    dst: IPv4Address | IPv6Address
    dport: _Port
    ip_id: _Port
    seq: _Number
    queued_ns: _TimeNs | None = Field(
        default=None, description="when its queue got it, or dropped it, after the traffic's start"
    )

    @property
    def identity(self) -> tuple[object, ...]:
        """Words that name the packet among all of its run."""
        address = (self.src, self.sport, self.dst, self.dport)
        return (self.port, self.t_in_ns, *address, self.ip_id, self.seq)

    @property
    def words(self) -> str:
        """The fate as it is requested: `drop`, `delay=5us`."""
        return f"delay={format_time(self.delay_ns)}" if self.fate == "delay" else self.fate

    @property
    def name(self) -> str:
        """The packet as errors name it."""
        return (
            f"packet {self.packet} ({with_port(str(self.src), self.sport)} to "
            f"{with_port(str(self.dst), self.dport)}, "
            f"IP id {self.ip_id}, sequence number {self.seq}, at {self.port})"
        )

    def argument(self) -> str:
        """Words for the guest's kernel."""
        # Of an IPv6 address the kernel compares the last four bytes (patch 0010).
        ends = (f"{int(address) & 0xFFFFFFFF:x}" for address in (self.src, self.dst))
        words = (
            *(self.boot_ns, self.port, *ends),
            *(self.sport, self.dport, self.ip_id, self.seq, self.fate, self.delay_ns),
        )
        return f"packet-fate={','.join(map(str, words))}"

    def done(self, said: Sequence[int]) -> PacketFate:
        """The record with what the kernel did.

        Args:
            said: when its device got the packet and when its queue did, by the guest's clock; what
                the queue returned (NET_XMIT_SUCCESS is 0); and whether it was marked.

        Raises RunError: the packet did not come, or its fate is another one.
        """
        found_ns, queued_ns, returned, marked = said
        # Without an IP identification, as in IPv6, only the instant differs from a copy's.
        is_told = self.ip_id or (self.seq and self.src.version == 4)
        if not found_ns or (found_ns != self.boot_ns and not is_told):
            raise RunError(
                f"{self.name} did not come, so this is not the requested experiment "
                "(of several changes, an earlier one can keep a packet from coming)"
            )
        if not queued_ns:
            raise RunError(f"{self.name} did not reach its queue")
        if self.fate == "mark" and not marked:
            raise RunError(f"{self.name}: cannot be marked, because it is not ECN-capable")
        if self.fate == "forward" and returned:
            raise RunError(f"{self.name}: its queue refused it, though it was to be forwarded")
        return self.model_copy(update={"queued_ns": queued_ns - self.boot_ns + self.t_in_ns})


class NoiseFrom(handed_in.Record):
    """From an instant on, the run's noise is drawn from another seed."""

    t_ns: _TimeNs = Field(description="the instant, after the traffic's start")
    boot_ns: Annotated[int, Field(ge=0, le=1 << 62)] = Field(
        description="the same by the guest's clock, since its boot"
    )
    seed: Annotated[int, Field(gt=0, lt=1 << 63)]

    def argument(self) -> str:
        return f"noise-from={self.boot_ns},{self.kernel_seed}"

    @property
    def kernel_seed(self) -> int:
        """The seed, spread over 64 bits, because the kernel combines it with times by xor."""
        return (self.seed * 0x9E3779B97F4A7C15) % (1 << 64) or 1


class Interventions(handed_in.Record):
    """Changes of a run, in comparison with the run of its configuration and seed.

    Attributes:
        of: the run directory or archive in which somebody intervened last, as it was named.
        captures: the SHA-256 of that run's captures.
        fates: of packets, in the order of time.
    """

    of: str
    captures: dict[handed_in.FileName, str] = Field(default_factory=dict)
    fates: tuple[PacketFate, ...] = Field(default=(), max_length=MOST_FATES)
    noise: NoiseFrom | None = None

    @property
    def named(self) -> dict[str, str]:
        """Every fate by the name of its packet, and the seed of noise."""
        named = {fate.name: fate.words for fate in self.fates}
        return named if self.noise is None else {**named, "noise": str(self.noise.seed)}

    def arguments(self) -> Iterator[str]:
        """Words for the guest's kernel. Nothing in the guest can see them."""
        yield from (fate.argument() for fate in self.fates)
        if self.noise is not None:
            yield self.noise.argument()

    def done(self, said: Sequence[Sequence[str]]) -> Interventions:
        """The record with what the kernel did, by the words of each line that it wrote at its end.

        Raises:
            FeatureMissingError: the kernel knows no fates.
            RunError: the fate of a packet is not the requested one.
        """
        fates = [line[1:] for line in said if line[0] == FATE_LINE]
        is_reseeded = [line for line in said if line[0] == NOISE_LINE]
        if len(fates) != len(self.fates) or bool(self.noise) != bool(is_reseeded):
            raise FeatureMissingError(
                "the guest's kernel cannot change the fate of packets or the seed of noise; "
                "make the run again with the present kernel: outcast run"
            )
        done = [
            fate.done([int(word) for word in line])
            for fate, line in zip(self.fates, fates, strict=True)
        ]
        return self.model_copy(update={"fates": tuple(done)})
