"""Joins more random switches than the tests do: `python -m tests.golden.more NAME [COUNT]`.

NAME is queues, shared or ports. Prints what joins have wrong; exit status 1 if there is something.
"""

import sys
import tempfile
from pathlib import Path

from tests.golden import ports, queues, shared

SWITCHES = {"queues": queues.tried, "shared": shared.tried, "ports": ports.tried}


def main() -> int:
    name, count = sys.argv[1], int((sys.argv[2:] or ["500"])[0])
    wrong = 0
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            words, lines = SWITCHES[name](seed, Path(folder))
        if lines:
            wrong += 1
            print(f"{seed} ({words}): {lines[0]} and {len(lines) - 1} more", flush=True)
    print(f"{count} scenes, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
