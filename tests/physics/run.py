"""Runs cases and judges them: `python -m tests.physics.run [--quick] [-o FOLDER] [--write]`.

What is in the folder already is not run again. `--write` makes docs/envelope.md of all cases.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

import yaml

import outcast
from outcast import files
from outcast.api import making
from outcast.errors import OutcastError
from outcast.plan.hints import BOUNDS
from outcast.plan.model import Planned
from outcast.records.run import Run
from tests.physics.cases import CASES, Case

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "envelope.md"


_HEAD = """\
# Where the instrument holds

Experiments whose answer is known without outcast: a closed form, or what the kernel's own
documentation says. Each runs in the virtual engine with an exact clock and one seed.
`python -m tests.physics.run -o FOLDER --write` makes this page, and `scripts/test.sh physics` runs
some of them. In every case the drops agree with the queue's counter, and no sender's own queue lost
a packet.

A run outside these bounds says so before it starts, with the bound:

<bounds>

Two free cores carried 100 Mbps in real time, and a run with a faster path says so
([limits](limits.md)). Outside are also lone frames in real time and with a `burst` of two full
frames or more: they take no time of their own on a link.

Each number behind an experiment is that of its law below.

| experiment | expected | measured | within |
|---|---|---|---|"""


WRITING = Lock()
"""Two cases run at a time, and a file that is being written has its process's number alone."""


@dataclass(frozen=True)
class Outcome:
    """What a case gave.

    Attributes:
        measured: in the case's unit; None if the run failed.
        trusted: whether the run was.
        lost_at_senders: packets that senders' own queues lost.
        wall_s: how long the run took on the wall clock.
        error: why there is no number; empty otherwise.
    """

    measured: float | None
    trusted: bool = False
    lost_at_senders: int = 0
    wall_s: float = 0.0
    error: str = ""

    def faults(self, case: Case) -> list[str]:
        """Why the case is not as expected; empty if it is."""
        if self.measured is None:
            return [self.error]
        faults = [] if self.trusted else ["captures and counters do not agree"]
        low, high = case.bounds
        if not low <= self.measured <= high:
            faults.append(f"{self.measured:.4g} {case.unit}; allowed is {low:.4g} to {high:.4g}")
        if self.lost_at_senders:
            faults.append(f"{self.lost_at_senders} packets lost in senders' own queues")
        return faults


def experiments(cases: Iterable[Case]) -> list[list[Case]]:
    """The cases that have one configuration, and so one run, together."""
    together: dict[str, list[Case]] = {}
    for case in cases:
        together.setdefault(json.dumps(case.keys, sort_keys=True), []).append(case)
    return list(together.values())


def configuration(case: Case, folder: Path) -> Path:
    """Writes the configuration of a case into a folder, with the files that it names."""
    slug = re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    with WRITING:
        for name in ("dumbbell.py", "steps.csv"):
            # At once, because other cases read them.
            files.write_text(folder / name, (HERE / name).read_text(encoding="utf-8"))
    config = folder / f"{slug}.yaml"
    tree = {"name": slug[:40], "seed": 1, **case.keys}
    config.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return config


def run_cases(cases: Sequence[Case], folder: Path) -> list[Outcome]:
    """Runs cases of one configuration in a folder; a run with all as expected is removed."""
    config = configuration(cases[0], folder)
    directory, stored = config.with_suffix(""), config.with_suffix(".json")
    known = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    if not all(case.name in known for case in cases):
        shutil.rmtree(directory, ignore_errors=True)
        began_s = time.monotonic()
        try:
            making.execute(Planned(outcast.load(config)), directory, progress=False, draw=False)
        except OutcastError as error:
            failed = Outcome(None, error=f"{type(error).__name__}: {error}")
            return [failed] * len(cases)
        wall_s = time.monotonic() - began_s
        run = outcast.open_run(directory)
        known = {case.name: asdict(_outcome(case, run, wall_s)) for case in cases}
        stored.write_text(json.dumps(known) + "\n", encoding="utf-8")
    outcomes = [Outcome(**known[case.name]) for case in cases]
    if not any(made.faults(case) for made, case in zip(outcomes, cases, strict=True)):
        shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def _outcome(case: Case, run: Run, wall_s: float) -> Outcome:
    losses = run.summary.losses
    lost = 0
    for port in losses.ports.values() if losses else ():
        if not port.node.startswith(("s", "m")):
            lost += port.lost.get("queue", 0) + port.lost.get("delay", 0)
    try:
        return Outcome(case.measured(run), run.trusted, lost, wall_s)
    except (ArithmeticError, IndexError, TypeError, ValueError, OSError) as error:
        return Outcome(None, run.trusted, lost, wall_s, f"{type(error).__name__}: {error}")


def page(outcomes: dict[str, Outcome]) -> str:
    """docs/envelope.md."""
    bounds = ["| what | least | most |", "|---|---|---|"]
    bounds += [
        f"| {name} | {words(least)} | {words(most)} |"
        for name, (least, most, words) in BOUNDS.items()
    ]
    lines = [_HEAD.replace("<bounds>", "\n".join(bounds))]
    laws: dict[str, int] = {}
    for case in CASES:
        outcome = outcomes[case.name]
        measured = "-" if outcome.measured is None else f"{outcome.measured:.4g}"
        faults = outcome.faults(case)
        within = f"no: {faults[0]}" if faults else f"{case.tolerance:.1%}" if case.tolerance else ""
        why = f"{case.why[0].upper()}{case.why[1:]}"
        law = laws.setdefault(f"{case.formula} ({case.source}). {why}.", len(laws) + 1)
        lines.append(f"| {case.name} ({law}) | {case.answer} | {measured} | {within} |")
    lines += ["", "The laws, their sources, and why the bounds are what they are:", ""]
    lines += [f"{number}. {law}" for law, number in laws.items()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Exit status 1 if a case is not as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.physics.run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    folder = asked.output or Path(tempfile.mkdtemp(prefix="physics-"))
    chosen = [c for c in CASES if (c.quick or not asked.quick) and asked.only in c.name]
    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(2) as pool:
        running = [(cases, pool.submit(run_cases, cases, folder)) for cases in experiments(chosen)]
        for cases, made in running:
            for case, outcome in zip(cases, made.result(), strict=True):
                outcomes[case.name] = outcome
                faults = outcome.faults(case)
                got = "-" if outcome.measured is None else f"{outcome.measured:.4g}"
                print(
                    f"{'FAULT' if faults else 'ok':6}{case.name}: {got}; expected {case.answer} "
                    f"within {case.tolerance:.1%}; {outcome.wall_s:.0f} s",
                    *faults,
                    sep="  ",
                    flush=True,
                )
    if asked.write:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    return int(any(outcomes[case.name].faults(case) for case in chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
