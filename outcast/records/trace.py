"""The folder trace/ of a run: what the guest's kernel recorded, and the tables made from it.

```
formats.json        this module's Formats: how the events are laid out, and the kernel's own counts
events.raw          whole pages of the kernel's ring buffer (trace_pipe_raw), in order
symbols.txt         the kernel's functions and their addresses, as /proc/kallsyms has them
traced.json         this module's Traced: which tables there are
<event>.parquet     a row per event (outcast.records.sender_tables)
```

The guest writes the first three. Pages and symbols are removed once there are tables. Nothing here
imports polars, because the guest imports this.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from outcast import handed_in
from outcast.experiment.measure import EventName

FOLDER = "trace"
EVENTS_FILE = "events.raw"
FORMATS_FILE = "formats.json"
SYMBOLS_FILE = "symbols.txt"
TRACED_FILE = "traced.json"

MOST_PAGE_BYTES = 1 << 22
"""No sub-buffer of a ring buffer is larger (kernel/trace/ring_buffer.c, subbuf_size)."""
_MOST_TEXT = 1 << 16

_Count = Annotated[int, Field(ge=0, le=1 << 62)]
_Text = Annotated[str, Field(max_length=_MOST_TEXT)]


class Statistics(handed_in.Record):
    """The ring buffer's own counts after the run (per_cpu/cpu0/stats in tracefs)."""

    entries: _Count = Field(description="events that were still in the buffer")
    overrun: _Count = Field(description="events that newer ones overwrote")
    commit_overrun: _Count = Field(default=0, description="events dropped in a nested interrupt")
    dropped_events: _Count = Field(description="events for which there was no room")
    read_events: _Count = Field(description="events that were read")

    @property
    def lost(self) -> int:
        """Events that happened and were not recorded."""
        return self.overrun + self.commit_overrun + self.dropped_events


class Formats(handed_in.Versioned):
    """formats.json: how to read events.raw."""

    clock: str = Field(max_length=64, description="trace_clock, as tracefs names it")
    to_captures_ns: int = Field(
        ge=-(1 << 62),
        le=1 << 62,
        description="what is added to a time of the ring buffer to give one of the captures",
    )
    page_bytes: int = Field(ge=64, le=MOST_PAGE_BYTES, description="bytes of a page of events.raw")
    header_page: _Text = Field(description="events/header_page of tracefs")
    events: dict[EventName, _Text] = Field(
        description="each recorded event with its file `format` of tracefs"
    )
    statistics: Statistics


class Traced(handed_in.Versioned):
    """traced.json: the tables of this folder."""

    outcast: str
    events: dict[EventName, _Count] = Field(description="rows of each event's table")


def table_name(event: str) -> str:
    """The name of an event's table in the folder, without its ending: the event's own name."""
    return event.partition(":")[2]
