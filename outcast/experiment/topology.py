"""The network: which nodes there are and how they are linked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from outcast.experiment.parts import Part


class Linear(Part):
    """Two switches; a lone sender at the receiver's switch, rivals behind the other."""

    kind: Literal["linear"]
    rivals: int = Field(ge=1, le=250, description="senders behind the second switch")


class FatTree(Part):
    """The k-ary fat-tree."""

    kind: Literal["fattree"]
    k: int = Field(ge=2, le=32, multiple_of=2, description="ports of every switch; even")


Topology = Annotated[Linear | FatTree, Field(discriminator="kind")]
