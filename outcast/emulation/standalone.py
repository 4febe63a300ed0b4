"""Starts small programs of outcast at hosts; they import the standard library and one another.

`python standalone.py MODULE ARGUMENT...` calls the module's `main`. This Python is isolated from
its environment and has no site packages, which would cost time.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable

START_DEADLINE_S = 900.0


def command(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-I", "-S", __file__, module, *map(str, arguments)]


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def await_start(file: str, poll_s: float, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Waits for the file with the traffic's start, which appears when all programs are ready.

    Raises RuntimeError: it does not appear in time.
    """
    end = time.monotonic() + START_DEADLINE_S
    while not os.path.exists(file):
        meanwhile()
        if time.monotonic() > end:
            raise RuntimeError(f"no start was given within {START_DEADLINE_S:g} s")
        time.sleep(poll_s)
    with open(file, encoding="ascii") as stream:
        return int(stream.read())


if __name__ == "__main__":
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.append(root)
    sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
