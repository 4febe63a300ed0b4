"""What commands measured for the documentation: docs/results/measured.json, its reader and writer.

Each entry says which command makes it again, and of which state it is. `python -m
scripts.fill_numbers` takes the pages' numbers from here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

from outcast.files import write_text
from outcast.records.run import Run
from outcast.uses.papers import state

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs/results/measured.json"

Table = Sequence[Sequence[str]]
"""Rows of cells; the first row is the head."""


@dataclass(frozen=True)
class Entry:
    """What a command measured.

    Attributes:
        command: what makes it again.
        state: what made it: commit, code, kernel and root, or the machine.
        table: what a page takes by the entry's name; empty if there is none.
        values: single numbers by name, as pages show them.
    """

    command: str
    state: str
    table: Table = ()
    values: Mapping[str, str] = field(default_factory=dict)

    def markdown(self) -> str:
        """The table as a page shows it."""
        head, *rows = self.table
        lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
        return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def read(path: Path = PATH) -> dict[str, Entry]:
    """All entries by name."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: Entry(**entry) for name, entry in content.items()}


def store(name: str, entry: Entry, path: Path = PATH) -> None:
    """Puts an entry among the others, where it replaces that of the same name."""
    content = {
        known: {key: value for key, value in asdict(other).items() if value}
        for known, other in {**read(path), name: entry}.items()
    }
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options of a command that measures for the documentation; `about` is its docstring."""
    options = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    options.add_argument("--write", action="store_true", help="store the tables for the docs")
    return options


def tell(name: str, entry: Entry, *, write: bool) -> None:
    """Prints what was measured, and stores it if that is asked for."""
    print(entry.markdown())
    if write:
        store(name, entry)


def made(
    config: str,
    settings: Mapping[str, object],
    target: Path,
    machine: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Run:
    """A run of one of our configurations, which is made if it is not there yet.

    `machine` gives what the machine does while the run is made.
    """
    # Not sooner, because who reads what is stored makes no run.
    import outcast
    from outcast.api.making import execute
    from outcast.plan.model import Planned

    if not (target / "summary.json").exists():
        with machine():
            execute(Planned(outcast.load(ROOT / config, settings)), target, draw=False)
    return Run(target)


def state_of(runs: Iterable[Run], made_by: state.MadeBy | None = None) -> str:
    """What made these runs. Raises ConfigError where different states did.

    `made_by` is the outcast that made them; if left out, this checkout.
    """
    manifests = [run.directory.read_manifest() for run in runs]
    return str(state.of_runs(made_by or state.present(), manifests))


def state_of_code() -> str:
    """The state of a computation: this checkout, and no kernel."""
    return str(state.State(**state.present().model_dump(), kernel=None, root=None))


def machine() -> str:
    """The processor, cores and kernel of this machine, on which real time depends."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    processor = names[0] if names else platform.machine()
    version = platform.release().partition("-")[0]
    return f"{os.cpu_count()} cores of {processor}, Linux {version}"
