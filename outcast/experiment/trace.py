"""Which of the guest kernel's events are recorded while the run goes on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from outcast.experiment.parts import Part

MOST_EVENTS = 2000
"""More kinds of events than the guest's kernel has."""

EVENT_PATTERN = r"^[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_-]{1,128}$"
EventName = Annotated[str, StringConstraints(pattern=EVENT_PATTERN)]
"""A tracepoint as the kernel lists it in tracefs's available_events: `system:event`."""


class Trace(Part):
    """Tracepoints of the guest's kernel, whose events the run records."""

    events: tuple[EventName, ...] = Field(
        min_length=1,
        max_length=MOST_EVENTS,
        description="tracepoints, as tcp:tcp_probe; the captures stay the same to the byte",
    )

    @field_validator("events")
    @classmethod
    def _no_event_twice(cls, events: tuple[str, ...]) -> tuple[str, ...]:
        for name in events:
            if events.count(name) > 1:
                raise ValueError(f"{name} is there twice; allowed is each event once")
        return events
