"""Runs programs that nobody here wrote, many times under load: `again.py FOLDER [TIMES [NAME...]]`.

FOLDER is where `scripts/test-programs.sh` put the programs. Each of them makes the same transfer
over a lossy link TIMES times, while another process keeps every core busy. A run passes if its
client ends with the status 0. All captures of a program must be equal to the byte.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

import outcast
from outcast.testing.networks import Networks

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "configs" / "examples"
_PASSED = "captures "


def networks(folder: Path) -> dict[str, dict[str, Any]]:
    """The keys of each program's configuration."""
    text = (HERE / "programs.yaml").read_text(encoding="utf-8")
    for word, path in (("FOLDER", folder), ("EXAMPLES", EXAMPLES), ("HERE", HERE)):
        text = text.replace(f"{word}/", f"{path}/")
    tree = yaml.safe_load(text)
    return {
        name: {
            **tree["network"],
            **each.get("keys", {}),
            "programs": [
                {"name": name, "host": host, **each[name], **each.get("both", {})}
                for name, host in (("server", "h1"), ("client", "h3"))
            ],
        }
        for name, each in tree["programs"].items()
    }


def main() -> int:
    """Runs what the command line asks for; 1 if a run fails or differs."""
    folder = Path(sys.argv[1]).resolve()
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    asked = networks(folder)
    failed = 0
    for _ in os.sched_getaffinity(0):
        multiprocessing.Process(target=_spin, args=(os.getpid(),), daemon=True).start()
    for name in sys.argv[3:] or asked:
        begin = time.monotonic()
        outcomes = Counter(_once(name, asked[name]) for _ in range(times))
        passed = [count for what, count in outcomes.items() if what.startswith(_PASSED)]
        same = max(passed, default=0)
        each_s = (time.monotonic() - begin) / times
        print(f"{name}: {same} of {times} pass and are equal, {each_s:.1f} s each")
        for what, count in outcomes.most_common():
            print(f"  {count} times: {what}", flush=True)
        failed += times - same
    return int(failed > 0)


def _once(name: str, keys: dict[str, Any]) -> str:
    """Makes a run. Returns a hash of its captures, or why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = Networks(Path(folder), Path(__file__), seed=1).run(name=name, **keys)
        except outcast.OutcastError as error:
            return str(error)
        client = run.program("client")
        if client.status != 0 or not run.trusted:
            return f"status {client.status}, {run.reasons}: {client.errors}"
        found = hashlib.sha256()
        for path in sorted((run.path / "captures").iterdir()):
            found.update(path.name.encode() + path.read_bytes())
        return f"{_PASSED}{found.hexdigest()[:16]}; {client.output.strip().splitlines()[-1:]}"


def _spin(parent: int) -> None:
    os.nice(10)
    while os.getppid() == parent:
        pass


if __name__ == "__main__":
    sys.exit(main())
