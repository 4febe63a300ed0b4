"""The network: which nodes there are and how they are linked.

A kind is registered by its place in `Topology`. topologies/KIND.py builds it; its `build` takes the
same keys. The kinds of `OwnTopology` come from a file of the user's instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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

    def asked(self) -> dict[str, Any]:
        """The keys that decide the network."""
        return self.model_dump(mode="json", exclude={"kind", "network"})

    @property
    def origin(self) -> Origin | None:
        """The file that this network was just made from; None where it comes from a result."""
        return self._origin

    def built(self, network: Network | None, origin: Origin | None) -> OwnTopology:
        """A copy with the network, or without one."""
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
