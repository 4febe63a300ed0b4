"""Records events of the guest's kernel in the run directory, without an effect on any packet.

The kernel writes events into a ring buffer, which costs no virtual time. A thread empties it at
fixed instants. Everything is prepared and the thread wakes in every run, with events or without
them. So runs differ only in what the thread reads, and reading takes no time either. See
Documentation/trace/ftrace.rst and kernel/trace/ring_buffer.c in Linux.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from outcast.emulation import instants
from outcast.emulation.part import ThreadPart
from outcast.errors import (
    ConfigError,
    FeatureMissingError,
    ReadBackError,
    RunError,
    UntrustedError,
    did_you_mean,
)
from outcast.files import write_text
from outcast.records.run_directory import RunDirectory, write_record
from outcast.records.trace import Formats, Statistics

TRACEFS = Path("/sys/kernel/tracing")
SYMBOLS = Path("/proc/kallsyms")
CLOCK = "virtual"
"""The guest's trace clock: CLOCK_MONOTONIC, whose readings by the tracer take no time."""
BUFFER_KIB = 32 * 1024
"""It holds the events of EMPTIED_EVERY_NS. All events of figure 3(c) need less than a half."""
PAGE_KIB = 64
"""One reading of the ring buffer gives one page. Larger ones need fewer system calls."""
EMPTIED_EVERY_NS = 5_000_000
EMPTIED_AT_NS = 2_718_281
"""After a whole step, where no other process of the guest is likely to have a timer."""
_STOP_DEADLINE_S = 60.0
_PAGE_HEADER = struct.Struct("<QQ")
_BYTES_IN_PAGE = (1 << 30) - 1
_COUNTS = ("entries", "overrun", "commit overrun", "dropped events", "read events")


def statistics(text: str) -> Statistics:
    """The counts in `per_cpu/cpu0/stats` of tracefs."""
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return Statistics(**{name.replace(" ", "_"): int(values[name]) for name in _COUNTS})


def value_shown(text: str) -> str:
    """The value in a file of tracefs: the word in brackets where it lists all, else the first."""
    words = text.split()
    chosen = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    return (chosen or words or [""])[0]


def bytes_used(page: bytes | bytearray) -> int:
    """The bytes of a page's header and events; the rest of the page is zero."""
    commit: int = _PAGE_HEADER.unpack_from(page)[1]
    return min(_PAGE_HEADER.size + (commit & _BYTES_IN_PAGE), len(page))


class Recorder(ThreadPart):
    """Records events from `record` until the block ends well; see the module.

    Args:
        events: the tracepoints; without any, nothing is stored.
        directory: gets the files of `outcast.records.trace`.
        symbols: the kernel's functions and their addresses, as /proc/kallsyms.
    """

    def __init__(
        self,
        events: Sequence[str],
        directory: RunDirectory,
        tracefs: Path = TRACEFS,
        symbols: Path = SYMBOLS,
        sleep_until: Callable[[int], None] = instants.sleep_until,
    ) -> None:
        what, last = "recording the kernel's events", "the kernel's events to be read"
        super().__init__("events", what, last, _STOP_DEADLINE_S)
        self._events = tuple(events)
        self._directory = directory
        self._tracefs = tracefs
        self._symbols = symbols
        self._sleep_until = sleep_until
        self._is_here = (tracefs / "trace_clock").exists()
        self._raw = self._stored = -1
        self._page = bytearray(PAGE_KIB * 1024)
        self._stored_bytes = 0
        self._next_ns = 0

    def prepare(self) -> None:
        """Prepares the ring buffer. Raises ConfigError where the kernel has no such event."""
        try:
            if self._is_here:
                self._set_up()
        except OSError as error:
            self._is_here = False
            if self._events:
                raise _cannot_record(str(error)) from None
        if self._events and not self._is_here:
            raise _cannot_record("tracefs is missing")
        for event in self._events:
            if not (self._tracefs / self._format_file(event)).exists():
                known = self._text("available_events").split()
                raise ConfigError(
                    f"trace.events: the guest's kernel has no event {event}"
                    f"{did_you_mean(event, known)}; allowed is what available_events of tracefs has"
                )

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None:
        try:
            # An error of the block says more.
            with contextlib.suppress(*([RunError] if failed else [])):
                self.stop()
            if failed is None and self._thread.ident is not None:
                self._keep_rest()
        finally:
            for descriptor in (self._raw, self._stored):
                if descriptor >= 0:
                    os.close(descriptor)

    def record(self, instant_step_ns: int) -> None:
        """Begins to record. Events are read from the next instant on."""
        if not self._is_here:
            return
        for event in self._events:
            self._write("set_event", event)
            self._require_shown(f"events/{event.replace(':', '/')}/enable", "1")
        if self._events:
            self._directory.trace.mkdir()
            self._stored = os.open(self._directory.trace_events, os.O_CREAT | os.O_WRONLY, 0o666)
        # Before that instant nothing is sent, so there is little to record.
        self._next_ns = instants.following(time.monotonic_ns(), instant_step_ns)
        self._set("tracing_on", "1")
        self._thread.start()

    def _set_up(self) -> None:
        self._set("tracing_on", "0")
        # Without it new events would overwrite old ones, and pages would end up out of order.
        self._set("options/overwrite", "0")
        self._set("trace_clock", CLOCK)
        self._set("buffer_subbuf_size_kb", str(PAGE_KIB))
        self._write("buffer_size_kb", str(BUFFER_KIB))
        size = value_shown(self._text("buffer_size_kb"))
        # The kernel rounds up to whole pages of the ring buffer.
        if int(size or 0) < BUFFER_KIB:
            raise ReadBackError("tracefs", "buffer_size_kb", BUFFER_KIB, size)
        raw = self._tracefs / "per_cpu/cpu0/trace_pipe_raw"
        self._raw = os.open(raw, os.O_RDONLY | os.O_NONBLOCK)

    def _set(self, file: str, text: str) -> None:
        self._write(file, text)
        self._require_shown(file, text)

    def _require_shown(self, file: str, text: str) -> None:
        read_back = value_shown(self._text(file))
        if read_back != text:
            raise ReadBackError("tracefs", file, text, read_back)

    def _write(self, file: str, text: str) -> None:
        # Truncating set_event switches all events off.
        descriptor = os.open(self._tracefs / file, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def _text(self, file: str) -> str:
        return (self._tracefs / file).read_text(encoding="utf-8")

    def _format_file(self, event: str) -> str:
        return f"events/{event.replace(':', '/')}/format"

    def work(self) -> None:
        while not self._stopped.is_set():
            self._sleep_until(self._next_ns)
            self._empty()
            self._next_ns = instants.following(time.monotonic_ns(), EMPTIED_EVERY_NS, EMPTIED_AT_NS)

    def _empty(self) -> None:
        """Stores the rest of the page that was read last, the full pages, and the next one.

        It goes no further: reading and storing make events themselves, so the buffer may never be
        empty. The unused rest of a page becomes a hole of the file.
        """
        for number in itertools.count():
            try:
                count = os.readv(self._raw, [self._page])
            except BlockingIOError:
                return
            if count == 0:
                return
            used = bytes_used(self._page)
            os.pwrite(self._stored, memoryview(self._page)[:used], self._stored_bytes)
            self._stored_bytes += len(self._page)
            if number > 0 and used <= len(self._page) // 2:
                return

    def _keep_rest(self) -> None:
        """Reads what is left, and writes how to read it. Raises UntrustedError for lost events."""
        self._set("tracing_on", "0")
        self._empty()
        if not self._events:
            return
        os.ftruncate(self._stored, self._stored_bytes)
        counted = statistics(self._text("per_cpu/cpu0/stats"))
        formats = Formats(
            clock=CLOCK,
            to_captures_ns=time.time_ns() - time.monotonic_ns(),
            page_bytes=len(self._page),
            header_page=self._text("events/header_page"),
            events={event: self._text(self._format_file(event)) for event in self._events},
            statistics=counted,
        )
        write_record(self._directory.trace_formats, formats)
        with self._symbols.open(encoding="utf-8") as lines:
            functions = "".join(line for line in lines if line.split(" ", 2)[1] in "tTwW")
        write_text(self._directory.trace_symbols, functions)
        if counted.lost or counted.entries:
            raise UntrustedError(
                f"trace: {counted.lost + counted.entries} events were lost, because the ring "
                f"buffer of {BUFFER_KIB // 1024} MiB was full; allowed are fewer events at a time"
            )


def _cannot_record(why: str) -> FeatureMissingError:
    return FeatureMissingError(
        f"the guest's kernel cannot record events ({why}); build it with: scripts/guest/build"
    )
