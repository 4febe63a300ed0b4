"""The links: their rates and delays, and how much these vary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field, model_validator

from outcast import units
from outcast.experiment.parts import MTU_FRAME_BYTES, KernelRateBps, Part, TimeNs

MOST_DELAY_NS = 10**9


@dataclass(frozen=True, slots=True)
class Link:
    """The settings of one direction of a link. None stands for the engine's default."""

    rate_bps: int
    delay_ns: int | None
    jitter_ns: int | None

    @property
    def half_frame_ns(self) -> int:
        """Half the transmission time of a full frame."""
        return MTU_FRAME_BYTES * 8 * 10**9 // self.rate_bps // 2

    def greatest_jitter_ns(self) -> int:
        """The largest jitter that reorders no full frames and makes no delay negative."""
        return min(self.delay_ns or 0, self.half_frame_ns)

    def check(self) -> None:
        """Raises ValueError where the delay is too long to try paths, or the jitter is too large.

        Packets keep their order (outcast/emulation/netem.py): a packet that would overtake another
        waits. With a larger jitter the delays would therefore have another distribution.
        """
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
    """The keys of some links. A key that is left out has the value of all links."""

    rate_bps: KernelRateBps | None = Field(default=None, alias="rate", description="both ways")
    delay_ns: TimeNs | None = Field(default=None, alias="delay", description="in each direction")
    jitter_ns: TimeNs | None = Field(
        default=None, alias="jitter", description="the delay varies by up to this, up and down"
    )


class LayerLinks(LinkKeys):
    """The links between two layers. A key that is left out has the value of all links."""


class Layers(Part):
    """Links that differ from the rest, by the two layers that they join."""

    # A key names both layers, the lower one first (LAYERS of controllers/graph.py).

    host_edge: LayerLinks | None = Field(
        default=None, alias="host-edge", description="hosts and their switches"
    )
    edge_edge: LayerLinks | None = Field(
        default=None, alias="edge-edge", description="between the switches of `linear`"
    )
    edge_aggregation: LayerLinks | None = Field(
        default=None, alias="edge-aggregation", description="below 1 to 1: over-subscribed"
    )
    aggregation_core: LayerLinks | None = Field(
        default=None, alias="aggregation-core", description="below 1 to 1: over-subscribed"
    )

    def given(self) -> Iterator[tuple[str, LayerLinks]]:
        """The keys that the configuration has, with their values."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                yield str(field.alias), value


class Links(Part):
    """The settings of all links."""

    rate_bps: KernelRateBps = Field(alias="rate", description="both directions of every link")
    delay_ns: TimeNs | None = Field(
        default=None,
        alias="delay",
        description="of every link in each direction; it includes the processing of the sending "
        "node. Default: 25us in the virtual engine, where nodes take no time of their own, else 0",
    )
    jitter_ns: TimeNs | None = Field(
        default=None,
        alias="jitter",
        description="the delay varies by up to this, up and down. Default: in the virtual engine "
        "the largest value that cannot reorder packets (docs/virtual.md says why), else 0",
    )
    clock_offset_ppm: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="every port's rate is off by up to this, as an oscillator; drawn from the seed",
    )
    layers: Layers = Field(default=Layers(), description="other rates, delays and jitters by layer")

    @model_validator(mode="after")
    def _jitter_keeps_order(self) -> Links:
        Link(self.rate_bps, self.delay_ns, self.jitter_ns).check()
        for name, _ in self.layers.given():
            try:
                self.between(name).check()
            except ValueError as error:
                raise ValueError(f"layers.{name}: {error}") from None
        return self

    def between(self, layers: str) -> Link:
        """The settings of the links between two layers, as `edge-aggregation`."""
        own = dict(self.layers.given()).get(layers, LayerLinks())
        return Link(
            rate_bps=self.rate_bps if own.rate_bps is None else own.rate_bps,
            delay_ns=self.delay_ns if own.delay_ns is None else own.delay_ns,
            jitter_ns=self.jitter_ns if own.jitter_ns is None else own.jitter_ns,
        )

    def resolved(self, default_delay_ns: int, *, greatest_jitter: bool) -> Links:
        """A copy that leaves nothing to the engine's defaults.

        Args:
            default_delay_ns: the delay where none is given.
            greatest_jitter: whether the jitter, where none is given, is `greatest_jitter_ns`
                instead of 0.
        """

        def filled(link: Link) -> dict[str, int]:
            delay_ns = default_delay_ns if link.delay_ns is None else link.delay_ns
            jitter_ns = link.jitter_ns
            if jitter_ns is None:
                greatest_ns = Link(link.rate_bps, delay_ns, None).greatest_jitter_ns()
                jitter_ns = greatest_ns if greatest_jitter else 0
            return {"rate_bps": link.rate_bps, "delay_ns": delay_ns, "jitter_ns": jitter_ns}

        layers = {
            name.replace("-", "_"): own.model_copy(update=filled(self.between(name)))
            for name, own in self.layers.given()
        }
        every = filled(Link(self.rate_bps, self.delay_ns, self.jitter_ns))
        return self.model_copy(update={**every, "layers": self.layers.model_copy(update=layers)})
