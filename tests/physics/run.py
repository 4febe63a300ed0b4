"""Runs cases and judges them: `python -m tests.physics.run [--quick] [-o FOLDER] [--write]`.

What is in the folder already is not run again. `--write` makes docs/envelope.md of all cases.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

import outcast
from outcast.errors import OutcastError
from tests.physics.cases import CASES, Case

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "envelope.md"


_HEAD = """\
# Where the instrument holds

Experiments whose answer is known without outcast: a closed form, or what the kernel's own
documentation says. Each runs in the virtual engine with an exact clock and one seed.
`python -m tests.physics.run -o FOLDER --write` makes this page, and `scripts/test.sh physics` runs
some of them. In every case the drops agree with the queue's counter. No sender's own queue lost a
packet, but for that of 500 flows.

Outside: in real time, and with a `burst` of two full frames or more, a lone frame takes no time of
its own on a link, because a shaper's bucket is full while it is idle. A real link of 1 Mbps holds a
full frame for 12 ms.

| experiment | expected | measured | within | formula | source |
|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Outcome:
    """What a case gave.

    Attributes:
        measured: in the case's unit; None if the run failed.
        trusted: whether the run was.
        lost_at_senders: packets that senders' own queues lost.
        error: why there is no number; empty otherwise.
    """

    measured: float | None
    trusted: bool = False
    lost_at_senders: int = 0
    error: str = ""

    def faults(self, case: Case) -> list[str]:
        """Why the case is not as expected; empty if it is."""
        if self.measured is None:
            return [self.error]
        faults = [] if self.trusted else ["not to be trusted"]
        if abs(self.measured - case.expected) > case.tolerance * abs(case.expected) + 1e-9:
            faults.append(
                f"{self.measured:.4g} {case.unit}; expected {case.expected:.4g} within "
                f"{case.tolerance:.1%}"
            )
        if self.lost_at_senders and not case.losses_at_senders:
            faults.append(f"{self.lost_at_senders} packets lost in senders' own queues")
        return faults


def run_case(case: Case, folder: Path) -> Outcome:
    """Runs a case in a new folder, which is removed if the case is as expected."""
    slug = re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / f"{slug}.json"
    if stored.exists():
        return Outcome(**json.loads(stored.read_text(encoding="utf-8")))
    config = folder / f"{slug}.yaml"
    shutil.copy(HERE / "dumbbell.py", folder)
    tree = {"name": slug[:40], "seed": 1, **case.keys}
    config.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    directory = folder / slug
    shutil.rmtree(directory, ignore_errors=True)
    try:
        run = outcast.run(outcast.load(config), directory, progress=False)
        losses = run.summary.losses
        lost = 0
        for port in losses.ports.values() if losses else ():
            if port.node.startswith(("l", "r")):
                lost += port.lost.get("queue", 0) + port.lost.get("delay", 0)
        outcome = Outcome(case.measured(run), run.trusted, lost)
    except (OutcastError, ArithmeticError, IndexError, TypeError, OSError) as error:
        outcome = Outcome(None, error=f"{type(error).__name__}: {error}")
    stored.write_text(json.dumps(asdict(outcome)) + "\n", encoding="utf-8")
    if not outcome.faults(case):
        shutil.rmtree(directory, ignore_errors=True)
    return outcome


def page(outcomes: dict[str, Outcome]) -> str:
    """docs/envelope.md."""
    lines = [_HEAD]
    for case in CASES:
        outcome = outcomes[case.name]
        measured = "-" if outcome.measured is None else f"{outcome.measured:.4g}"
        faults = outcome.faults(case)
        within = f"{case.tolerance:.1%}, because {case.why}" if not faults else f"no: {faults[0]}"
        lines.append(
            f"| {case.name} | {case.expected:.4g} {case.unit} | {measured} | {within} "
            f"| {case.formula} | {case.source} |"
        )
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
        running = [(case, pool.submit(run_case, case, folder)) for case in chosen]
        for case, made in running:
            outcomes[case.name] = made.result()
            faults = outcomes[case.name].faults(case)
            got = outcomes[case.name].measured
            number = "-" if got is None else f"{got:.4g}"
            print(
                f"{'FAULT' if faults else 'ok':6}{case.name}: {number} {case.unit}; expected "
                f"{case.expected:.4g} within {case.tolerance:.1%}",
                *faults,
                sep="  ",
                flush=True,
            )
    if asked.write:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    return int(any(outcome.faults(case) for case in chosen for outcome in [outcomes[case.name]]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
