"""How paths are chosen.

A kind of routing is registered by its place in `Routing`. It names the function of
controllers/routes.py that computes the paths; see `KINDS` there.
"""

from __future__ import annotations

import random
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import Field

from outcast.experiment.parts import Part, described

MOST_WAYS = 1000


class RoutingKind(Part):
    """A kind of routing. A class with a `kind` that does not say `by_address_alone` is refused.

    `by_address_alone` says whether a switch needs nothing but a packet's destination address. Linux
    bridges can then forward where the kernel has no Open vSwitch module.
    """

    by_address_alone: ClassVar[bool]

    kind: str

    @property
    def routes_kind(self) -> str:
        """The name in `KINDS` of controllers/routes.py."""
        return self.kind

    @property
    def per_packet(self) -> bool:
        """Whether switches draw a port for each packet, which only our own kernel does."""
        return False

    def hash_seed_of(self, experiment_seed: int) -> int:
        """The seed of the choice among several ports; 0 where no such choice is made."""
        return 0

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        """Raises TypeError where a kind is incomplete."""
        super().__pydantic_init_subclass__(**more)
        is_a_kind = get_origin(cls.model_fields["kind"].annotation) is Literal
        if is_a_kind and not hasattr(cls, "by_address_alone"):
            raise TypeError(f"routing kind {cls.__name__}: no by_address_alone")


class Shortest(RoutingKind):
    """Fewest hops; the destination's trailing bits break ties (section 3.1 of the paper)."""

    by_address_alone: ClassVar[bool] = True

    kind: Literal["shortest"] = "shortest"
    ways: tuple[tuple[str, ...], ...] = described(
        "paths that packets take instead, each from host to host by way of the nodes between, as "
        "[h2, s3, s1, h1]; each of these nodes sends all packets for the last one so",
        default=(),
        max_length=MOST_WAYS,
    )


class SpanningTree(RoutingKind):
    """The paths of one spanning tree, as bridges of IEEE 802.1D compute it."""

    by_address_alone: ClassVar[bool] = True

    kind: Literal["spanning_tree"]


class Hashed(RoutingKind):
    """Fewest hops; for each flow a hash of its addresses and ports breaks ties."""

    by_address_alone: ClassVar[bool] = False

    kind: Literal["hashed"]
    hash_seed: int = described("another seed gives other paths", default=0, ge=0, lt=2**32)

    def hash_seed_of(self, experiment_seed: int) -> int:
        return self.hash_seed


class EqualLength(RoutingKind):
    """Every packet goes up to a core switch and down (section 5.4 of the paper)."""

    by_address_alone: ClassVar[bool] = False

    kind: Literal["equal_length"]
    core: Literal["destination", "random", "packet"] = described(
        "how the core switch is chosen; destination: by the trailing bits of the destination's "
        "address; random: drawn for each flow from the experiment's seed; packet: drawn for each "
        "packet, by the virtual engine alone",
        default="destination",
    )

    @property
    def routes_kind(self) -> str:
        return self.kind if self.core == "destination" else f"{self.kind}_{self.core}"

    @property
    def per_packet(self) -> bool:
        return self.core == "packet"

    def hash_seed_of(self, experiment_seed: int) -> int:
        if self.core != "random":
            return 0
        return random.Random(f"{experiment_seed} core switches").getrandbits(32)


Routing = Annotated[
    Shortest | SpanningTree | Hashed | EqualLength,
    Field(discriminator="kind", description="how paths are chosen; see docs/routing.md"),
]

KINDS: tuple[type[RoutingKind], ...] = get_args(get_args(Routing)[0])
"""The classes of all kinds."""
