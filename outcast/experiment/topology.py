"""The network: which nodes there are and how they are linked.

A kind is registered by its place in `Topology`. topologies/KIND.py builds it; its `build` takes the
same keys.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from outcast.experiment.parts import Part


class Linear(Part):
    """Two switches: a lone sender at the receiver's switch, its rivals at the other."""

    kind: Literal["linear"]
    rivals: int = Field(ge=1, le=250, description="senders at the second switch")


class FatTree(Part):
    """The k-ary fat-tree."""

    kind: Literal["fattree"]
    k: int = Field(ge=2, le=32, multiple_of=2, description="ports of each switch; even")


class Vl2(Part):
    """The Clos network of VL2 (Greenberg et al., SIGCOMM 2009, section 4.1)."""

    kind: Literal["vl2"]
    aggregation_ports: int = Field(
        default=4,
        ge=2,
        le=64,
        multiple_of=2,
        description="D_A, ports of an aggregation switch; even",
    )
    intermediate_ports: int = Field(
        default=4,
        ge=2,
        le=64,
        multiple_of=2,
        description="D_I, ports of an intermediate switch; even",
    )
    hosts_per_rack: int = Field(
        default=4, ge=1, le=64, description="hosts in each rack; 20 in the VL2 paper"
    )


class ThreeSender(Part):
    """Senders s1, s2 and s4, at 2, 4 and 6 links from r (the TCPRand paper's testbed)."""

    kind: Literal["three_sender"]


class Star(Part):
    """One switch, for incast; the first host is the receiver."""

    kind: Literal["star"]
    hosts: int = Field(ge=2, le=250, description="hosts, the receiver among them")


Topology = Annotated[
    Linear | FatTree | Vl2 | ThreeSender | Star,
    Field(discriminator="kind"),
]
