"""How paths are chosen."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outcast.experiment.parts import Part


class Routing(Part):
    """How paths are chosen; see controllers/routes.py."""

    kind: Literal["shortest", "spanning_tree"] = Field(
        default="shortest",
        description="shortest: ties by the destination's trailing bits (section 3.1 of the paper); "
        "spanning_tree: the only paths in one tree",
    )
