"""The links: rates, delays, losses and frame sizes, of all links, by layers, and one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from outcast import units
from outcast.experiment.noise import MOST_PPM, Noise
from outcast.experiment.parts import (
    ETHERNET_HEADER_BYTES,
    LEAST_RATE_BPS,
    MOST_RATE_BPS,
    UNIT_SCHEMA,
    KernelRateBps,
    Part,
    SizeBytes,
    TimeNs,
    UserFile,
    described,
    key_of,
    optional,
)
from outcast.experiment.queues import Queue
from outcast.handed_in import first_problem

MOST_DELAY_NS = 10**9
MOST_LOSS = 0.5
"""With more, a TCP connection hardly comes up, and a run would end by a deadline."""


def _loss(value: object, share: ValidatorFunctionWrapHandler) -> float:
    """A link's loss. Says what a share is, because people write `1%`."""
    try:
        return float(share(value))
    except ValidationError:
        raise ValueError(
            f"{value!r} is not a loss; allowed is a share from 0 to {MOST_LOSS}, as 0.01 for 1 %"
        ) from None


Loss = Annotated[float, Field(ge=0, le=MOST_LOSS), WrapValidator(_loss)]
Share = Annotated[float, Field(ge=0, le=MOST_LOSS)]


class BurstLoss(Part):
    """Losses in a row: a chain of two states, of which one loses every packet (Gilbert 1960)."""

    p: float = described("the chance, at each packet, that a burst begins; at most r", gt=0, lt=1)
    r: float = described(
        "the chance, at each packet, that a burst ends: its mean is 1/r", gt=0, le=1
    )

    @property
    def share(self) -> float:
        return self.p / (self.p + self.r)

    def _require(self) -> None:
        if self.share > MOST_LOSS:
            raise ValueError(
                f"p / (p + r) = {self.share:.3g} of the packets would be lost; allowed is up to "
                f"{MOST_LOSS}"
            )


class Policer(Part):
    """A bucket of tokens that drops what finds it empty, and holds no packet."""

    rate_bps: KernelRateBps = described("of IP packets, without headers below")
    burst_bytes: SizeBytes = described("what the bucket holds", gt=0)


class Late(Part):
    """Packets that come late, so that those behind them overtake."""

    share: Share = described("of the packets, at random and independently")
    by_ns: TimeNs = described("how much later", gt=0, le=MOST_DELAY_NS)


class RandomDelay(Part):
    """A delay that is drawn for each packet, as tc-netem(8) draws it: never below 0."""

    mean_ns: TimeNs = Field(gt=0, le=MOST_DELAY_NS)
    spread_ns: TimeNs = described("what the distribution scales", gt=0)
    distribution: Literal["uniform", "normal", "pareto", "paretonormal"] = "normal"
    in_order: bool = described(
        "whether a packet that would overtake another waits for it", default=True
    )

    def _require(self) -> None:
        if self.spread_ns > self.mean_ns:
            raise ValueError(
                f"spread: {units.format_time(self.spread_ns)}: allowed is up to the mean, which "
                f"is {units.format_time(self.mean_ns)}"
            )


Overhead = Literal["ethernet", "none"]
"""`none`: a frame takes the time of the bytes that a qdisc counts, without its check sequence."""


@dataclass(frozen=True, slots=True)
class Framing:
    """The bytes that a link carries for a frame.

    On Ethernet a preamble with its start delimiter (8 bytes), a check sequence (4) and a gap before
    the next frame (12) go with every frame, and a frame has at least 64 bytes with its check
    sequence (IEEE 802.3, clauses 3.1.1 and 4.4.2). A frame that a qdisc counts as 1514 bytes takes
    the time of 1538, which at 1 Gbps is 12.304 us.

    The shaper counts them (`overhead` and `mpu` of struct tc_ratespec; psched_l2t_ns in the
    kernel's include/net/sch_generic.h). A queue's limit does not, because the length of a packet
    stays the same (qdisc_pkt_len). A size table (tc-stab(8)) would change that length, and so every
    limit in bytes.
    """

    added_bytes: int
    least_bytes: int

    def wire_bytes(self, frame_bytes: int) -> int:
        """The bytes' time that a frame takes, from its length as a qdisc counts it."""
        return max(frame_bytes + self.added_bytes, self.least_bytes)


FRAMINGS: Mapping[Overhead, Framing] = {
    "ethernet": Framing(added_bytes=8 + 4 + 12, least_bytes=8 + 64 + 12),
    "none": Framing(added_bytes=0, least_bytes=0),
}


class RateTrace(Part):
    """A rate that changes during the run, as a file says."""

    trace: UserFile = described("a CSV of times and rates, or a mahimahi trace; see docs/events.md")
    repeat: bool = described(
        "whether a CSV begins again at its last row's time; else its last rate goes on. A mahimahi "
        "trace always begins again",
        default=False,
    )


def _rate_or_trace(value: object, _handler: object, info: ValidationInfo) -> object:
    """`{trace: FILE}` is a trace, anything else a rate."""
    if isinstance(value, RateTrace):
        return value
    if not isinstance(value, dict):
        return _RATE.validate_python(value)
    try:
        return RateTrace.model_validate(value, context=info.context)
    except ValidationError as error:
        raise ValueError(f"{first_problem(error)}; allowed are trace and repeat") from None


def _written_rate(value: object) -> object:
    if isinstance(value, RateTrace):
        return value.model_dump(mode="json")
    return units.format_rate(value) if isinstance(value, int) else value


_RATE = TypeAdapter(KernelRateBps)
_RATE_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": UNIT_SCHEMA["rate"]},
        {
            "type": "object",
            "properties": {"trace": {"type": "string"}, "repeat": {"type": "boolean"}},
            "required": ["trace"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}


RateOrTrace = Annotated[
    int | RateTrace | None,
    WrapValidator(_rate_or_trace),
    PlainSerializer(_written_rate),
    WithJsonSchema(_RATE_SCHEMA),
]


MOST_NOISE_NS = 64_000
"""The longest time that a profile of machines has (hosts-modern)."""
LEAST_MTU_BYTES, MOST_MTU_BYTES = 576, 9216
"""Every host must accept the least (RFC 1122, section 3.3.3), and switches carry the most."""
STANDARD_MTU_BYTES = 1500
Mtu = Annotated[int, Field(ge=LEAST_MTU_BYTES, le=MOST_MTU_BYTES)]
DelayNs = Annotated[int, Field(ge=0, le=MOST_DELAY_NS)]
_LOSS = "share of the packets that are lost on the wire, at random: 0.01 is 1 %"
_BURST_LOSS = "losses in a row instead of `loss`; see docs/links.md"
_LATE = "packets that come late, so that others overtake them"
_RANDOM_DELAY = "a further delay on the wire, drawn for each packet; see docs/links.md"
_POLICER = "drops what comes faster than a rate, after a burst"
_DUPLICATE = "share of the packets that come twice"
_MTU = "the largest IP packet in bytes: 9000 for jumbo frames"


@dataclass(frozen=True, slots=True)
class Link:
    """The settings of one direction of a link.

    Attributes:
        rate_bps: bits per second, of which `overhead` says what they carry.
        delay_ns, jitter_ns: None stands for the engine's default.
        mtu_bytes: the largest IP packet; both directions have the same.
        queue: the queue at the sending port; None where `queue` and `queues` decide.
        loss_changes: whether an event changes what happens on the wire.
        overhead: what counts besides the frame.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    rate_bps: Annotated[int, Field(ge=LEAST_RATE_BPS, le=MOST_RATE_BPS)]
    delay_ns: DelayNs | None
    jitter_ns: DelayNs | None
    loss: Loss = 0.0
    mtu_bytes: Mtu = STANDARD_MTU_BYTES
    queue: Queue | None = None
    loss_changes: bool = False
    burst_loss: BurstLoss | None = None
    late: Late | None = None
    duplicate: Share = 0.0
    policer: Policer | None = None
    random_delay: RandomDelay | None = None
    overhead: Overhead = "none"

    @property
    def has_faults(self) -> bool:
        faults = (self.loss, self.loss_changes, self.burst_loss, self.late, self.duplicate)
        return any((*faults, self.policer, self.random_delay))

    @property
    def framing(self) -> Framing:
        return FRAMINGS[self.overhead]

    @property
    def frame_bytes(self) -> int:
        """The largest frame without its checksum, as a qdisc counts it."""
        return self.mtu_bytes + ETHERNET_HEADER_BYTES

    @property
    def frame_ns(self) -> int:
        return self.framing.wire_bytes(self.frame_bytes) * 8 * 10**9 // self.rate_bps

    @property
    def half_frame_ns(self) -> int:
        return self.frame_ns // 2

    def changed(self, own: LinkKeys) -> Link:
        """A copy with other values for the keys that `own` has."""
        keys = {name: getattr(own, name) for name in type(own).model_fields if hasattr(self, name)}
        return replace(self, **{name: key for name, key in keys.items() if key is not None})

    def greatest_jitter_ns(self) -> int:
        """The largest jitter that reorders no full frames and makes no delay negative."""
        return min(self.delay_ns or 0, self.half_frame_ns)

    def greatest_noise_ns(self) -> int:
        """The greatest jitter that noise adds by itself. On a slow link a frame's time is long."""
        return min(self.greatest_jitter_ns(), MOST_NOISE_NS)

    def check(self) -> None:
        """Raises ValueError where the delay is too long to try paths, or the jitter is too large.

        Packets keep their order (outcast/emulation/queues/netem.py): a packet that would overtake
        another waits. With a larger jitter the delays would therefore have another distribution.
        """
        if self.burst_loss and self.loss:
            raise ValueError("burst_loss: allowed is either loss or burst_loss")
        if self.late and self.random_delay:
            raise ValueError("random_delay: allowed is either late or random_delay")
        if self.policer and self.policer.burst_bytes < self.mtu_bytes:
            raise ValueError(
                f"policer.burst {self.policer.burst_bytes}B: allowed is a packet of "
                f"{self.mtu_bytes} B at least"
            )
        if self.delay_ns is not None and self.delay_ns > MOST_DELAY_NS:
            raise ValueError(
                f"delay {units.format_time(self.delay_ns)}: allowed is up to "
                f"{units.format_time(MOST_DELAY_NS)}"
            )
        jitter_ns = self.jitter_ns or 0
        if jitter_ns and (self.delay_ns is None or jitter_ns > self.greatest_jitter_ns()):
            raise ValueError(
                f"jitter {units.format_time(jitter_ns)}: allowed is up to the delay, which has to "
                f"be given, and up to half a full frame's time "
                f"({units.format_time(self.half_frame_ns)}), because with more, packets would "
                "wait for the ones before them"
            )


class LinkKeys(Part):
    """The keys of some links. A key that is left out has the value of the links around them."""

    rate_bps: KernelRateBps | None = optional("in each direction")
    delay_ns: TimeNs | None = optional("in each direction")
    jitter_ns: TimeNs | None = optional("the delay varies by up to this, up and down")
    loss: Loss | None = optional(_LOSS)
    burst_loss: BurstLoss | None = optional(_BURST_LOSS)
    late: Late | None = optional(_LATE)
    duplicate: Share | None = optional(_DUPLICATE)
    policer: Policer | None = optional(_POLICER)
    random_delay: RandomDelay | None = optional(_RANDOM_DELAY)
    mtu_bytes: Mtu | None = optional(_MTU)


class LayerLinks(LinkKeys):
    """The links between two layers. A key that is left out has the value of all links."""


class OwnKeys(LinkKeys):
    """The keys of one link, or of one of its directions."""

    queue: Queue | None = optional(
        "of the sending ports, as the key `queue` above; it wins over `queue` and `queues`"
    )

    def _require(self) -> None:
        if self.queue is not None and self.queue.where != "every_port":
            raise ValueError("queue.where: not allowed here, because the link says where")


class LinkOverride(OwnKeys):
    """One link's own settings, for both directions (`between`) or for one (`from` and `to`)."""

    rate_bps: RateOrTrace = optional(  # type: ignore[assignment]
        "in each direction; or `{trace: FILE}`, a rate that changes during the run"
    )
    between: tuple[str, str] | None = optional(
        "the two ends; the settings are those of both directions"
    )
    source: str | None = optional("the sending end of the only direction meant", alias="from")
    to: str | None = optional("the receiving end of that direction")

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """The directions that this is about, each as sending node and neighbour."""
        if self.between is not None:
            return self.between, self.between[::-1]
        assert self.source is not None
        assert self.to is not None
        return ((self.source, self.to),)

    def _require(self) -> None:
        super()._require()
        one_way = (self.source is not None, self.to is not None)
        if (self.between is None) != all(one_way) or (self.between is not None and any(one_way)):
            raise ValueError("allowed is either between: [A, B], or from: A with to: B")
        ends = self.directions[0]
        if ends[0] == ends[1]:
            raise ValueError(f"a link has two ends; allowed is another node than {ends[0]} twice")
        if self.mtu_bytes is not None and self.between is None:
            raise ValueError("mtu: both ends of a link have the same; allowed is between: [A, B]")
        if not any(getattr(self, name) is not None for name in OwnKeys.model_fields):
            keys = ", ".join(map(key_of, OwnKeys.model_fields))
            raise ValueError(f"it changes nothing; allowed are {keys}")


class Layers(Part):
    """Links that differ from the rest, by the two layers that they join."""

    # A key names both layers, the lower one first (LAYERS of controllers/graph.py).

    host_edge: LayerLinks | None = optional("hosts and their switches", alias="host-edge")
    edge_edge: LayerLinks | None = optional(
        "between the switches of `linear`, or of your own topology", alias="edge-edge"
    )
    edge_aggregation: LayerLinks | None = optional(
        "below 1 to 1: over-subscribed", alias="edge-aggregation"
    )
    aggregation_core: LayerLinks | None = optional(
        "below 1 to 1: over-subscribed", alias="aggregation-core"
    )

    def given(self) -> Iterator[tuple[str, LayerLinks]]:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                yield str(field.alias), value


class Links(Part):
    """The settings of all links."""

    rate_bps: KernelRateBps = described("both directions of every link")
    delay_ns: TimeNs | None = optional(
        "of every link in each direction; it includes the processing of the sending node. Default: "
        "25us in the virtual engine, where nodes take no time of their own, else 0"
    )
    jitter_ns: TimeNs | None = optional(
        "the delay varies by up to this, up and down. Default: as `noise` says"
    )
    overhead: Overhead = described(
        "what takes time on a link besides the frame. ethernet: preamble, check sequence and gap, "
        "so that a full frame takes that of 1538 bytes; none: nothing, so that it takes that of "
        "1514. Queues' limits are in bytes of frames either way",
        default="ethernet",
    )
    clock_offset_ppm: float | None = optional(
        "every port's rate is off by up to this, as an oscillator; drawn from the seed. Default: "
        "as `noise` says",
        ge=0,
        le=MOST_PPM,
    )
    loss: Loss = described(_LOSS, default=0.0)
    burst_loss: BurstLoss | None = optional(_BURST_LOSS)
    late: Late | None = optional(_LATE)
    duplicate: Share = described(_DUPLICATE, default=0.0)
    policer: Policer | None = optional(_POLICER)
    random_delay: RandomDelay | None = optional(_RANDOM_DELAY)
    mtu_bytes: Mtu = described(_MTU, default=STANDARD_MTU_BYTES)
    layers: Layers = described("other settings by layer", default=Layers())
    overrides: tuple[LinkOverride, ...] = described(
        "other settings link by link; see docs/links.md", default=()
    )

    def _require(self) -> None:
        self.everywhere.check()
        for name, _ in self.layers.given():
            try:
                self.between(name).check()
            except ValueError as error:
                raise ValueError(f"layers.{name}: {error}") from None

    @property
    def everywhere(self) -> Link:
        """The settings of links that no layer and no override changes."""
        names = [field.name for field in fields(Link) if hasattr(self, field.name)]
        return Link(**{name: getattr(self, name) for name in names})

    def between(self, layers: str) -> Link:
        """The settings of the links between two layers, as `edge-aggregation`."""
        own = dict(self.layers.given()).get(layers, LayerLinks())
        return self.everywhere.changed(own)

    def resolved(self, default_delay_ns: int, noise: Noise) -> Links:
        """A copy that leaves nothing to the engine's defaults.

        Args:
            default_delay_ns: the delay where none is given.
            noise: gives the clock offset and the jitter where none is given. The jitter stays
                None where each link takes as much of the switches' variation as its delay lets it.
        """

        def filled(link: Link) -> dict[str, int | None]:
            delay_ns = default_delay_ns if link.delay_ns is None else link.delay_ns
            jitter_ns = link.jitter_ns
            if jitter_ns is None and noise.greatest_jitter:
                jitter_ns = replace(link, delay_ns=delay_ns).greatest_noise_ns()
            elif jitter_ns is None and not noise.switch_latency_ns:
                jitter_ns = 0
            return {"rate_bps": link.rate_bps, "delay_ns": delay_ns, "jitter_ns": jitter_ns}

        layers = {
            name.replace("-", "_"): own.model_copy(update=filled(self.between(name)))
            for name, own in self.layers.given()
        }
        offset_ppm = self.clock_offset_ppm
        return self.model_copy(
            update={
                **filled(self.everywhere),
                "clock_offset_ppm": noise.oscillators_ppm if offset_ppm is None else offset_ppm,
                "layers": self.layers.model_copy(update=layers),
            }
        )
