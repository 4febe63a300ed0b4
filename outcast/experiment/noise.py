"""The noise of real machines: what keeps packets of different hosts from marching in step.

A virtual clock is perfect, and nodes take no time. With equal rates and constant delays, packets of
two inputs then arrive in the same order for thousands of frames (phase effects: Floyd and Jacobson,
"On Traffic Phase Effects in Packet-Switched Gateways", 1992). Real machines have oscillators that
differ, network cards that hold arrivals back, and switches whose inputs wait for one another.

A profile names a testbed, and gives each of its numbers beside the source. Nothing here was chosen
by what a run shows with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, field_validator, model_validator

from outcast import units
from outcast.experiment.engine import EngineName, properties
from outcast.experiment.parts import Part, TimeNs, described, optional

ProfileName = Literal["exact", "oscillators", "hosts-2011", "hosts-modern", "jitter"]

MOST_PPM = 1000
MOST_INTERVAL_NS = 10**7
"""Ten milliseconds. The slowest setting of a driver is 100 interrupts a second."""
LEAST_PER_SECOND, MOST_PER_SECOND = 3_000, 70_000
"""Within these bounds the kernel can have a number to within 2 % (outcast/plan/noise.py). Intel's
drivers choose from 4,000 to 70,000."""
MOST_VARIATION_NS = 10**6


class Interval(Part):
    """A time that is drawn each time, uniformly from `least` to `most`."""

    least_ns: TimeNs = described("the shortest time", default=0, ge=0)
    most_ns: TimeNs = described("the longest time; 0us turns it off", ge=0, le=MOST_INTERVAL_NS)

    def _require(self) -> None:
        if self.least_ns > self.most_ns:
            raise ValueError(
                f"least: allowed is up to most, which is {units.format_time(self.most_ns)}"
            )

    def __bool__(self) -> bool:
        return self.most_ns > 0

    def __str__(self) -> str:
        return f"{units.format_time(self.least_ns)} to {units.format_time(self.most_ns)}"


def between(least: str, most: str) -> Interval:
    return Interval.model_validate({"least": least, "most": most})


NEVER = between("0us", "0us")


class Throttled(Part):
    """The most interrupts in a second, counted from the last one.

    A packet that comes later than an interval after the last interrupt interrupts at once.
    """

    per_second: int = described(
        "where a host's link has 1 Gbps or more", ge=LEAST_PER_SECOND, le=MOST_PER_SECOND
    )
    below_gigabit: int | None = optional(
        "where it has less; default: `per_second`", ge=LEAST_PER_SECOND, le=MOST_PER_SECOND
    )

    def __str__(self) -> str:
        below = f", {self.below_gigabit:,} below 1 Gbps" if self.below_gigabit is not None else ""
        return f"{self.per_second:,} a second{below}"


_HELD, _THROTTLED = "[Interval]", "[Throttled]"


def _form(given: Any) -> str:
    if isinstance(given, dict):
        return _HELD if {"per_second", "below_gigabit"}.isdisjoint(given) else _THROTTLED
    return _THROTTLED if isinstance(given, Throttled) else _HELD


Interrupts = Annotated[
    Annotated[Interval, Tag(_HELD)] | Annotated[Throttled, Tag(_THROTTLED)], Discriminator(_form)
]


@dataclass(frozen=True)
class Profile:
    """The noise of a testbed.

    Attributes:
        oscillators_ppm: by how much a port's clock is off at most.
        interrupts: after how long a network card tells its host of arrivals.
        sender: how long what a host sends waits before it leaves.
        switch_latency_ns: by how much a switch's latency varies, up and down.
        greatest_jitter: whether a switch's latency varies as much as it can without making packets
            wait for one another, in place of `switch_latency_ns`.
        offloads: whether hosts segment and merge in large units (TSO, GSO, GRO).
        sources: where each number comes from, by the part's key.
    """

    about: str
    oscillators_ppm: float = 0.0
    interrupts: Interval | Throttled = NEVER
    sender: Interval = NEVER
    switch_latency_ns: int = 0
    greatest_jitter: bool = False
    offloads: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


_OSCILLATORS = (
    "IEEE 802.3, 40.6.1.2.6: a 1000BASE-T port sends 125 million symbols a second, give or take "
    "0.01 %"
)
_NO_SENDER = "off, because no source has a number for these hosts; they had some"

PROFILES: Mapping[ProfileName, Profile] = MappingProxyType(
    {
        "exact": Profile("no noise at all, as a simulator without any"),
        "oscillators": Profile(
            "exact machines, each with a clock of its own",
            oscillators_ppm=100.0,
            sources={"oscillators": _OSCILLATORS},
        ),
        "hosts-2011": Profile(
            "the Outcast paper's testbed: NetFPGA switches, and Linux hosts of 2006 to 2012",
            oscillators_ppm=100.0,
            interrupts=Throttled(per_second=20_000, below_gigabit=4_000),
            switch_latency_ns=760,
            sources={
                "oscillators": _OSCILLATORS,
                "interrupts": (
                    "Linux, e1000_main.c, e1000_set_itr and e1000_update_itr, of e1000 and e1000e "
                    "(since 2006, commit 835bb1298311), by default (InterruptThrottleRate=3): "
                    "20,000 a second; 4,000 after an interrupt that brings over 10,000 bytes, "
                    "which do not fit into 50 us of 1 Gbps; always 4,000 at less than 1 Gbps. The "
                    "paper does not name the cards"
                ),
                "sender": _NO_SENDER,
                "switch_latency": (
                    "Naous et al., NetFPGA: Reusable Router Architecture (PRESTO 2008): one "
                    "arbiter serves the inputs in turn, 8 bytes in each cycle of 8 ns. A frame "
                    "that finds it busy waits for up to 1.52 us, the time of another full frame"
                ),
                "offloads": "off, because the paper does not say",
            },
        ),
        "hosts-modern": Profile(
            "Linux hosts and switches of today",
            oscillators_ppm=100.0,
            interrupts=between("2us", "64us"),
            offloads=True,
            sources={
                "oscillators": _OSCILLATORS,
                "interrupts": (
                    "Linux, lib/dim/net_dim.c, NET_DIM_RX_CQE_PROFILES: 2 to 64 us, chosen by the "
                    "traffic (mlx5 and others)"
                ),
                "sender": _NO_SENDER,
                "switch_latency": (
                    "off, because no source has a number; Zilberman et al., Where Has My Time "
                    "Gone? (PAM 2017), look for latency in hosts instead"
                ),
                "offloads": "Linux: TSO, GSO and GRO are on by default (ethtool -k)",
            },
        ),
        "jitter": Profile(
            "no machine: a delay at each switch port that varies as much as it can while packets "
            "keep their order, up to 64 us, as the virtual engine had before there were profiles",
            greatest_jitter=True,
            sources={"switch_latency": "none; the number is the largest that can be had"},
        ),
    }
)

DEFAULTS: Mapping[EngineName, ProfileName] = MappingProxyType(
    {"virtual": "hosts-modern", "realtime": "exact"}
)
"""The profile where none is given; docs/noise.md says why. Real machines have noise anyway."""


class Noise(Part):
    """The noise of hosts and switches. A part that is left out is as in the profile."""

    profile: ProfileName | None = optional(
        "whose noise; docs/noise.md has each number with its source. Default: "
        f"{DEFAULTS['virtual']}. In real time the machine's own noise is all"
    )
    oscillators_ppm: float | None = optional(
        "every port's rate is off by up to this, in ppm; drawn from the seed. The kernel counts "
        "whole nanoseconds of a frame, so at 1 Gbps the steps are 81 ppm. `links.clock_offset_ppm` "
        "wins",
        ge=0,
        le=MOST_PPM,
        alias="oscillators",
    )
    interrupts: Interrupts | None = optional(
        "a host gets its arrivals in batches: at most `per_second` in a second, and the first "
        "packet after a quiet time at once; by `most` so long after the first packet"
    )
    sender: Interval | None = optional(
        "what a host sends leaves this long after its first packet, all of it at once"
    )
    switch_latency_ns: TimeNs | None = optional(
        "a packet takes up to twice this longer at a switch's port than its delay. Allowed is up "
        "to the shortest delay of a link; a profile's number is cut to that of each link. "
        "`links.jitter` wins",
        ge=0,
        le=MOST_VARIATION_NS,
    )

    @model_validator(mode="before")
    @classmethod
    def _no_name_alone(cls, given: object) -> object:
        if isinstance(given, str) and given in PROFILES:
            raise ValueError(
                f'"{given}": allowed is a mapping of keys, as {{profile: {given}}}; on the command '
                f"line noise.profile={given}"
            )
        return given

    @field_validator("oscillators_ppm", mode="before")
    @classmethod
    def _in_ppm(cls, given: object) -> object:
        if (
            isinstance(given, str)
            and (number := given.lower().removesuffix("ppm")) != given.lower()
        ):
            raise ValueError(f'"{given}": allowed is a number in ppm without a unit, as {number}')
        return given

    def resolved(self, engine: EngineName) -> Noise:
        """A copy that leaves nothing to the profile, but for the jitter that depends on a link.

        In real time noise is what the machine has. A profile stands for other machines, so there
        it adds nothing, and only the parts that are named count.
        """
        imitated = self.profile if properties(engine).virtual_clock else None
        name = imitated or DEFAULTS[engine]
        profile = PROFILES[name]
        latency_ns = None if profile.greatest_jitter else profile.switch_latency_ns
        defaults = {
            "profile": name,
            "oscillators_ppm": profile.oscillators_ppm,
            "interrupts": profile.interrupts,
            "sender": profile.sender,
            "switch_latency_ns": latency_ns,
        }
        given = {key: getattr(self, key) for key in defaults if getattr(self, key) is not None}
        return self.model_copy(update={**defaults, **given})

    @property
    def has_switch_latency_of_profile(self) -> bool:
        of_profile = PROFILES[self.profile].switch_latency_ns if self.profile is not None else None
        return self.switch_latency_ns == of_profile

    @property
    def greatest_jitter(self) -> bool:
        """Whether a switch's latency varies as much as each link lets it."""
        return (
            self.switch_latency_ns is None
            and self.profile is not None
            and PROFILES[self.profile].greatest_jitter
        )
