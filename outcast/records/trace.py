"""The folder trace/ of a run: what the guest's kernel recorded, and the tables made from it.

```
formats.json        this module's Formats: how the events are laid out, and the kernel's own counts
events.raw          whole pages of the kernel's ring buffer (trace_pipe_raw), in order
symbols.txt         the kernel's functions and their addresses, as /proc/kallsyms has them
traced.json         this module's Traced: which tables there are
<event>.parquet     a row per event (outcast.uses.why.sender_tables)
```

The guest writes the first three. Pages and symbols are removed once there are tables. Nothing here
imports polars, because the guest imports this.
"""

from __future__ import annotations

from pydantic import Field

from outcast import handed_in
from outcast.experiment.measure import EventName

FOLDER = "trace"
EVENTS_FILE = "events.raw"
FORMATS_FILE = "formats.json"
SYMBOLS_FILE = "symbols.txt"
TRACED_FILE = "traced.json"


class Statistics(handed_in.Record):
    """The ring buffer's own counts after the run (per_cpu/cpu0/stats in tracefs)."""

    entries: int = Field(description="events that were still in the buffer")
    overrun: int = Field(description="events that newer ones overwrote")
    commit_overrun: int = Field(default=0, description="events dropped in a nested interrupt")
    dropped_events: int = Field(description="events for which there was no room")
    read_events: int = Field(description="events that were read")

    @property
    def lost(self) -> int:
        """Events that happened and were not recorded."""
        return self.overrun + self.commit_overrun + self.dropped_events


class Formats(handed_in.Versioned):
    """formats.json: how to read events.raw."""

    clock: str = Field(description="trace_clock, as tracefs names it")
    to_captures_ns: int = Field(
        description="what is added to a time of the ring buffer to give one of the captures",
    )
    page_bytes: int = Field(description="bytes of a page of events.raw")
    header_page: str = Field(description="events/header_page of tracefs")
    events: dict[EventName, str] = Field(
        description="each recorded event with its file `format` of tracefs"
    )
    statistics: Statistics


class Traced(handed_in.Versioned):
    """traced.json: the tables of this folder."""

    outcast: str
    events: dict[EventName, int] = Field(description="rows of each event's table")


def table_name(event: str) -> str:
    """The name of an event's table in the folder, without its ending: the event's own name."""
    return event.partition(":")[2]
