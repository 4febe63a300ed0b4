"""A part of a run: what one feature does while the run goes on, and what it tells of that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Record:
    """A part's share of the manifest.

    Attributes:
        manifest: fields of `records.run_directory.Manifest`.
        effective: fields of `records.effective.Effective`.
    """

    manifest: dict[str, Any] = field(default_factory=dict)
    effective: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, other: Record) -> None:
        """Adds what another part tells."""
        self.manifest |= other.manifest
        self.effective |= other.effective
        self.warnings += other.warnings


class Part:
    """A block of which each step is taken in its turn; by itself a step does nothing.

    A part is prepared where the block is entered, before the flows connect. Where the block fails,
    its programs are left to `SystemCommands.end_all`.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None: ...

    def start(self, t_start_ns: int) -> None:
        """Goes on when the flows have connected; the traffic starts at this epoch time."""

    def require_alive(self) -> None:
        """Raises RunError where what it does has ended by itself."""

    def running(self) -> list[str]:
        """The names of programs that must end and have not. Raises RunError where one failed."""
        return []

    def finish(self) -> Record:
        """Ends what ends with the flows. Raises RunError where it went wrong."""
        return Record()
