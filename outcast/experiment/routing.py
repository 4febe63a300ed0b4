"""How paths are chosen."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from outcast.experiment.parts import Part


class Shortest(Part):
    """Fewest hops; ties by the destination's trailing bits (section 3.1 of the paper)."""

    kind: Literal["shortest"] = "shortest"


class SpanningTree(Part):
    """The only paths in one tree, as bridges of IEEE 802.1D have them."""

    kind: Literal["spanning_tree"]


class Hashed(Part):
    """Fewest hops; ties for each flow by a hash of its addresses and ports."""

    kind: Literal["hashed"]
    hash_seed: int = Field(default=0, ge=0, lt=2**32, description="another gives other paths")


class EqualLength(Part):
    """Every packet up to a core switch and down (section 5.4 of the paper)."""

    kind: Literal["equal_length"]
    core: Literal["destination", "random"] = Field(
        default="destination",
        description="which core switch: destination: by its address's trailing bits; random: for "
        "each flow, drawn from the experiment's seed",
    )


Routing = Annotated[
    Shortest | SpanningTree | Hashed | EqualLength,
    Field(discriminator="kind", description="how paths are chosen; see docs/routing.md"),
]
