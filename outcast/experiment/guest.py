"""What the virtual engine's guest runs from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outcast.experiment.parts import Part


class Guest(Part):
    """The guest's file system."""

    root: Literal["locked", "host"] = Field(
        default="locked",
        description="locked: programs of pinned versions, the same on every machine; host: this "
        "machine's own programs, with which a run repeats only here",
    )
