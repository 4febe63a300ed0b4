"""One mutation: a rule of a module undone, and the tests that must notice."""

from dataclasses import dataclass
from pathlib import Path

OF_JOINS = (
    *("join", "join_doubts", "join_scenes", "join_golden", "join_clocks", "join_command", "queue"),
    *("blackout", "pcap", "pcap_against_dpkt", "bins", "tcp_side", "queue_estimates"),
    *("summary", "fairness_windows"),
)


@dataclass(frozen=True)
class Mutation:
    """One rule undone: a text in a module, and what replaces it.

    Attributes:
        room: the folder of `outcast` that the module is in.
        tests: the names of the unit tests that must fail.
    """

    name: str
    module: str
    text: str
    replacement: str
    room: str = "analysis"
    tests: tuple[str, ...] = OF_JOINS

    def path(self, root: Path) -> Path:
        """The file of the module below the project's root."""
        (path,) = (root / "outcast" / self.room).rglob(f"{self.module}.py")
        return path
