"""The network: which nodes there are and how they are linked.

A kind is registered by its place in `Topology`. topologies/KIND.py builds it; its `build` takes the
same keys. The kinds of `OwnTopology` come from a file of the user's instead.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import AfterValidator, Field, JsonValue, PrivateAttr

from outcast.experiment.network import Network
from outcast.experiment.parts import Part, described


class Linear(Part):
    """Two switches: a lone sender at the receiver's switch, its rivals at the other."""

    kind: Literal["linear"]
    rivals: int = described("senders at the second switch", ge=1, le=250)


class FatTree(Part):
    """The k-ary fat-tree."""

    kind: Literal["fattree"]
    k: int = described("ports of each switch; even", ge=2, le=32, multiple_of=2)


class Vl2(Part):
    """The Clos network of VL2 (Greenberg et al., SIGCOMM 2009, section 4.1)."""

    kind: Literal["vl2"]
    aggregation_ports: int = described(
        "D_A, ports of an aggregation switch; even", default=4, ge=2, le=64, multiple_of=2
    )
    intermediate_ports: int = described(
        "D_I, ports of an intermediate switch; even", default=4, ge=2, le=64, multiple_of=2
    )
    hosts_per_rack: int = described(
        "hosts in each rack; 20 in the VL2 paper", default=4, ge=1, le=64
    )


class ThreeSender(Part):
    """Senders s1, s2 and s4, at 2, 4 and 6 links from r (the TCPRand paper's testbed)."""

    kind: Literal["three_sender"]


class Star(Part):
    """One switch, for incast; the first host is the receiver."""

    kind: Literal["star"]
    hosts: int = described("hosts, the receiver among them", ge=2, le=250)


@dataclass(frozen=True)
class Origin:
    """The file that a network was just made from.

    `folder` is what the configuration's path is relative to.
    """

    folder: Path
    name: str
    content: bytes


def _without_null(path: str) -> str:
    if "\0" in path:
        raise ValueError("a null character; allowed is the path of a file")
    return path


_Path = Annotated[
    str,
    AfterValidator(_without_null),
    Field(
        min_length=1,
        max_length=1000,
        description="the file; a relative path is relative to the configuration's own file",
    ),
]
_Network = Annotated[
    Network | None,
    Field(
        description="what came of the file; outcast writes it into a run's config.yaml, so that a "
        "result needs no file"
    ),
]


class OwnTopology(Part):
    """A network from a file of the user's.

    Outcast reads the file once, where a configuration is read to be run (outcast/networks), and
    then carries what came of it as `network`.
    """

    if TYPE_CHECKING:
        # Each kind has them among its own keys, in the order in which people read them.
        kind: str
        path: str
        network: Network | None

    _origin: Origin | None = PrivateAttr(default=None)

    def requested(self) -> dict[str, Any]:
        """The keys that decide the network."""
        return self.model_dump(mode="json", exclude={"kind", "network"})

    @property
    def origin(self) -> Origin | None:
        """The file that this network was just made from; None where it comes from a result."""
        return self._origin

    def built(self, network: Network | None, origin: Origin | None) -> OwnTopology:
        copy = self.model_copy(update={"network": network})
        copy._origin = origin
        return copy

    def __eq__(self, other: object) -> bool:
        # Pydantic would compare the origin too, which is no part of the request.
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


class FromFile(OwnTopology):
    """Any Mininet `Topo`, from the Python file that `mn --custom` takes.

    The file is code: `run`, `sweep`, `topo` and the API run it, and nothing that reads results.
    """

    kind: Literal["file"]
    path: _Path
    topo: str = described("a key of the file's `topos`", min_length=1, max_length=200)
    args: dict[str, JsonValue] = described(
        "arguments of its `build`, by name", default={}, max_length=50
    )
    network: _Network = None


class FromGraph(OwnTopology):
    """A graph in GraphML, which networkx reads."""

    kind: Literal["graph"]
    path: _Path
    hosts_per_switch: int = described(
        "hosts that are added to every switch: h1, h2, ...", default=0, ge=0, le=250
    )
    network: _Network = None


Topology = Annotated[
    Linear | FatTree | Vl2 | ThreeSender | Star | FromFile | FromGraph,
    Field(discriminator="kind"),
]


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
