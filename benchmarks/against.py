"""Says what runs cost here, against another commit in the same hour, and against ns-3.

    .venv/bin/python benchmarks/against.py [COMMIT] [--repetitions 5] [--runs 100]
        [--only PART]... [--config CONFIG] [--write]

Parts, all of them by default: `single` (one run, by phase), `sweep` (--runs runs, one and two at a
time), `k4` to `k16` (fat-trees), and `ns3` where it is installed (benchmarks/ns3.py says how).

The commit, by default the one before this, is unpacked into a folder of its own and runs with this
environment's packages. Both states are made in turns, so that a busy machine disturbs both alike.
One run of each comes before, which compiles and is not counted. Printed are medians and the median
of the ratios of neighbours, for processor time (of outcast and the guest together), wall time, and
the memory of the largest process. Exit status 1 if captures of the two states differ, or datasets
with one and two runs at a time.

`--write` puts the table into docs/results/measured.json, from which `python -m
scripts.fill_numbers` fills docs/design/cost.md. Parts that were written for the same two states
stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import ns3, single  # noqa: E402
from benchmarks.stored import Entry, machine, read, store  # noqa: E402
from outcast import experiment  # noqa: E402
from outcast.files import sha256  # noqa: E402

NAME = "cost"
DEADLINE_S = 3600.0
HEAD = [
    "",
    "processor s, before",
    "after",
    "ratio",
    "wall s, before",
    "after",
    "ratio",
    "largest process MB, before",
    "after",
]
NETWORKS = {
    "k4": (4, 12, "500ms"),
    "k6": (6, 40, "500ms"),
    "k8": (8, 112, "500ms"),
    "k12": (12, 200, "200ms"),
    "k16": (16, 200, "200ms"),
}
"""Pods of a fat-tree, 6-hop flows besides the 2-hop flow, and the duration."""
PARTS = ("single", "sweep", *NETWORKS, "ns3")
COMPUTED_STEPS = 100_000_000
NO_VALUE, NONE_DIFFERS = "-", "none"
TWO_AT_A_TIME, NS3, FAULTS, DIFFERENT = "two at a time", "ns-3", "page faults", "different"
COMPUTING = "computing at a time"
VALUES = (
    "",
    ".state",
    ".command",
    *(f".{name}" for name in (TWO_AT_A_TIME, COMPUTING, NS3, FAULTS, DIFFERENT)),
)
"""What pages can take, behind NAME: the table, what made it, and single values."""


@dataclass(frozen=True)
class Cost:
    """What a command took, with all that it started; None where it was not measured."""

    wall_s: float | None = None
    processor_s: float | None = None
    memory_bytes: int | None = None


Pair = tuple[Cost | None, Cost | None]
"""What neighbours took, before and after; None where a state cannot do it."""


@dataclass
class Findings:
    """What was measured.

    Attributes:
        rows: by the text of a row, the pairs; those of a sweep are of one run.
        values: by name, single values for the docs.
        wrong: what differed that must not.
    """

    rows: dict[str, list[Pair]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def unpack(commit: str, folder: Path) -> Path:
    """A commit's files in a folder."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def outcast(checkout: Path, *words: str, program: Sequence[str] = ("-m", "outcast")) -> Cost | None:
    """Runs an `outcast` of a checkout. None where it fails, which is said on standard error.

    `program` are the interpreter's arguments that start it.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", *program, *words],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        while time.monotonic() < began + DEADLINE_S:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(0.02)
        else:
            process.terminate()
            sys.exit(f"{checkout}: outcast {' '.join(words)}: no end within {DEADLINE_S:g} s")
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines() or [""]
            print(f"{checkout}: outcast {' '.join(words)}: {said[-1]}", file=sys.stderr, flush=True)
            return None
    # wait4(2) counts a child with those that it has waited for; memory is of the largest.
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def captures(run: Path) -> dict[str, str]:
    """The hash of each capture of a run."""
    return {path.name: sha256(path) for path in sorted((run / "captures").glob("*"))}


def phases(run: Path) -> dict[str, float]:
    """The wall-clock seconds of each phase of a run."""
    seconds: dict[str, float] = json.loads((run / "manifest.json").read_text())["wall_s"]
    return seconds


def compile_first(states: Sequence[Path], arguments: argparse.Namespace) -> None:
    """Makes a run with each state, so that none that counts has to compile."""
    with tempfile.TemporaryDirectory(prefix="outcast-against-") as name:
        for place, checkout in enumerate(states):
            outcast(
                checkout, "run", arguments.config, "--engine", "virtual", "-o", f"{name}/{place}"
            )


def measure_single(states: Sequence[Path], arguments: argparse.Namespace, found: Findings) -> None:
    """One run with its figures, and its phases from the command to its end."""
    inside: list[tuple[single.Inside, single.Inside]] = []
    _measure_run("a single run, with figures", [], states, arguments, found, inside)
    for name, title in single.PHASES.items():
        pairs = [(_of_phase(name, before), _of_phase(name, after)) for before, after in inside]
        if any(cost is not None for pair in pairs for cost in pair):
            found.rows[f"of it {title}"] = pairs
    if inside:
        found.rows["of it outcast's own process"] = [
            (Cost(processor_s=before.own_s), Cost(processor_s=after.own_s))
            for before, after in inside
        ]
        before, after = (median(pair[place].faults for pair in inside) for place in range(2))
        found.values[FAULTS] = f"{before:,.0f} before, {after:,.0f} after"


def _of_phase(name: str, inside: single.Inside) -> Cost | None:
    return Cost(*inside.phases[name]) if name in inside.phases else None


def measure_network(
    part: str, states: Sequence[Path], arguments: argparse.Namespace, found: Findings
) -> None:
    """One run in a fat-tree."""
    k, flows, duration = NETWORKS[part]
    settings = [f"topology.k={k}", f"flows.1.hosts={flows}", f"duration={duration}"]
    settings += ["analysis.windows=[]"]
    what = f"fat-tree of {k} pods, {flows + 1} flows, {duration}"
    _measure_run(what, settings, states, arguments, found)


def _measure_run(
    what: str,
    settings: Sequence[str],
    states: Sequence[Path],
    arguments: argparse.Namespace,
    found: Findings,
    inside: list[tuple[single.Inside, single.Inside]] | None = None,
) -> None:
    """Makes runs. With `inside`, what was noted of both states' runs is added to it."""
    options = [word for setting in settings for word in ("--set", setting)]
    for _ in range(arguments.repetitions):
        with tempfile.TemporaryDirectory(prefix="outcast-against-") as name:
            runs = [Path(name, str(place)) for place in range(len(states))]
            argv = ("run", arguments.config, *options, "--engine", "virtual", "-o")
            began_s, costs = [], []
            for checkout, run in zip(states, runs, strict=True):
                noting = (str(Path(single.__file__).resolve()), f"{run}.json")
                program = ("-m", "outcast") if inside is None else noting
                began_s.append(time.monotonic())
                costs.append(outcast(checkout, *argv, str(run), program=program))
            before, after = costs
            if before and after and captures(runs[0]) != captures(runs[1]):
                found.wrong.append(f"{what}: the captures of the two states differ")
            found.rows.setdefault(what, []).append((before, after))
            if inside is not None and before and after:
                noted = zip(runs, began_s, strict=True)
                old, new = (single.read(Path(f"{run}.json"), at_s) for run, at_s in noted)
                inside.append((old, new))


def measure_sweep(states: Sequence[Path], arguments: argparse.Namespace, found: Findings) -> None:
    """Sweeps with one run and with two runs at a time; costs are of one run."""
    quotients, computing = [], []
    for _ in range(arguments.repetitions):
        computing.append(computing_throughput())
        took: dict[int, Pair] = {}
        with tempfile.TemporaryDirectory(prefix="outcast-against-") as name:
            for jobs in (1, 2):
                before, after = (
                    outcast(
                        *(checkout, "sweep", arguments.config, "--jobs", str(jobs)),
                        *("--set", "engine=virtual", "--set", f"repetitions={arguments.runs}"),
                        *("--set", "sweep.captures=drop", "-o", f"{name}/{place}-{jobs}"),
                    )
                    for place, checkout in enumerate(states)
                )
                took[jobs] = (_of_one(before, arguments.runs), _of_one(after, arguments.runs))
            for place in range(len(states)):
                tables = [Path(name, f"{place}-{jobs}", "runs.parquet") for jobs in (1, 2)]
                if all(table.exists() for table in tables) and (
                    tables[0].read_bytes() != tables[1].read_bytes()
                ):
                    found.wrong.append("the datasets with one and two runs at a time differ")
        for jobs, pair in took.items():
            what = f"a run of a sweep of {arguments.runs}, {jobs} at a time"
            found.rows.setdefault(what, []).append(pair)
        alone, together = took[1][1], took[2][1]
        if alone and together and alone.wall_s and together.wall_s:
            quotients.append(alone.wall_s / together.wall_s)
    if quotients:
        found.values[TWO_AT_A_TIME] = two_at_a_time(median(quotients))
        found.values[COMPUTING] = f"{median(computing):.2f}"


def computing_throughput() -> float:
    """The throughput of two processes that only compute over that of one.

    Where two cores of a machine share parts of a processor, nothing that computes reaches 2.
    """
    took = []
    for count in (1, 2):
        began = time.monotonic()
        argv = [sys.executable, "-I", "-S", "-c", f"for _ in range({COMPUTED_STEPS}): pass"]
        processes = [subprocess.Popen(argv) for _ in range(count)]
        for process in processes:
            process.wait(DEADLINE_S)
        took.append(time.monotonic() - began)
    return 2 * took[0] / took[1]


def two_at_a_time(quotient: float) -> str:
    """The throughput of two runs at a time over that of one, and whether it can be true."""
    text = f"{quotient:.2f}"
    if quotient <= 2:
        return text
    return f"{text} (two cannot do more than double, so the machine's speed changed meanwhile)"


def _of_one(cost: Cost | None, runs: int) -> Cost | None:
    if cost is None or cost.wall_s is None or cost.processor_s is None:
        return cost
    return Cost(cost.wall_s / runs, cost.processor_s / runs, cost.memory_bytes)


def measure_ns3(states: Sequence[Path], arguments: argparse.Namespace, found: Findings) -> None:
    """The time of both states' traffic against ns-3's for the same experiment."""
    if not ns3.is_installed():
        print(f"left out: ns-3 is missing; install it with: {ns3.RECIPE}", file=sys.stderr)
        return
    tried = experiment.load(ROOT / arguments.config, [])
    quotients: list[float] = []
    with tempfile.TemporaryDirectory(prefix="outcast-against-") as name:
        program, lines = ns3.compiled(Path(name)), ns3.lines_of(tried)
        for number in range(arguments.repetitions):
            there = Cost(ns3.simulate(program, lines, Path(name)).wall_s)
            for place, (state, whose) in enumerate(zip(states, ("before", "after"), strict=True)):
                run = Path(name, f"{number}.{place}")
                if not outcast(
                    state, "run", arguments.config, "--engine", "virtual", "-o", str(run)
                ):
                    continue
                took = ns3.seconds(run)
                for what, here_s in took.items():
                    row = found.rows.setdefault(f"{what} of ns-3 (before) and {whose} (after)", [])
                    row.append((there, Cost(here_s)))
                if whose == "after":
                    quotients.append(took[ns3.WHOLE] / (there.wall_s or 1.0))
    if quotients:
        found.values[NS3] = f"{median(quotients):.2f}"


def line(what: str, pairs: Sequence[Pair]) -> list[str]:
    """A row of the table: medians, and the median of the ratios of neighbours."""
    before = [pair[0] for pair in pairs if pair[0] is not None]
    after = [pair[1] for pair in pairs if pair[1] is not None]
    both = [(old, new) for old, new in pairs if old is not None and new is not None]
    cells = [what]
    for name in ("processor_s", "wall_s"):
        cells += [_median(before, name), _median(after, name)]
        ratios = [
            getattr(new, name) / getattr(old, name)
            for old, new in both
            if getattr(new, name) is not None and getattr(old, name)
        ]
        cells.append(f"{median(ratios):.2f}" if ratios else NO_VALUE)
    return [*cells, _median(before, "memory_bytes", 1e6), _median(after, "memory_bytes", 1e6)]


def _median(costs: Sequence[Cost], name: str, unit: float = 1.0) -> str:
    known = [getattr(cost, name) / unit for cost in costs if getattr(cost, name) is not None]
    if not known:
        return NO_VALUE
    return f"{median(known):.0f}" if unit > 1 else f"{median(known):.2f}"


def merged(known: Entry | None, new: Entry) -> Entry:
    """The new entry, with the known one's rows and values that were not measured again.

    They belong to another page if other states were measured; then they are gone.
    """
    if known is None or known.state != new.state:
        return new
    rows = {row[0]: row for row in (*known.table[1:], *new.table[1:])}
    commands = dict.fromkeys([*known.command.split("; "), new.command])
    values = {**known.values, **new.values}
    differences = [entry.values.get(DIFFERENT, NONE_DIFFERS) for entry in (known, new)]
    if real := [text for text in differences if text != NONE_DIFFERS]:
        values[DIFFERENT] = "; ".join(dict.fromkeys(real))
    return Entry("; ".join(commands), new.state, [HEAD, *rows.values()], values)


def revision(commit: str) -> str:
    """The short hash of a commit."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", commit]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Measures both states in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", nargs="?", default="HEAD^")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--runs", type=int, default=100, help="of each sweep")
    parser.add_argument("--only", action="append", choices=PARTS, help="can be given again")
    parser.add_argument("--config", default="configs/fig3c.yaml")
    parser.add_argument("--write", action="store_true", help="store the table for the docs")
    parser.add_argument("--table", default=NAME, help="the name under which --write stores it")
    arguments = parser.parse_args()
    found = Findings()
    parts = arguments.only or PARTS
    with tempfile.TemporaryDirectory(prefix="outcast-against-") as name:
        states = (unpack(arguments.commit, Path(name)), ROOT)
        compile_first(states, arguments)
        for part in parts:
            if part in NETWORKS:
                measure_network(part, states, arguments, found)
            elif part == "sweep":
                measure_sweep(states, arguments, found)
            elif part == "ns3":
                measure_ns3(states, arguments, found)
            else:
                measure_single(states, arguments, found)
            print(f"{part} is measured; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    rows = [line(what, pairs) for what, pairs in found.rows.items()]
    widths = [max(len(row[column]) for row in (HEAD, *rows)) for column in range(len(HEAD))]
    for row in (HEAD, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    for what, value in found.values.items():
        print(f"{what}: {value}")
    print(f"medians of {arguments.repetitions}; load {os.getloadavg()[0]:.1f} at the end")
    if arguments.write:
        words = [f"--only {part}" for part in arguments.only or ()]
        words += [f"--repetitions {arguments.repetitions}", f"--runs {arguments.runs}"]
        words += [f"--table {arguments.table}"] if arguments.table != NAME else []
        entry = Entry(
            f"benchmarks/against.py {revision(arguments.commit)} {' '.join(words)}",
            f"commit {revision('HEAD')} against {revision(arguments.commit)}, {machine()}",
            [HEAD, *rows],
            {**found.values, DIFFERENT: "; ".join(dict.fromkeys(found.wrong)) or NONE_DIFFERS},
        )
        store(arguments.table, merged(read().get(arguments.table), entry))
    for what in dict.fromkeys(found.wrong):
        print(what)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
