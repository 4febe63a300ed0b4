"""What a bounded process does in a test: sleeps, takes memory, or dies."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from outcast.assignment.bounded import RESULT


def main() -> None:
    item = json.load(sys.stdin)
    time.sleep(item.get("sleep_s", 0.0))
    taken = bytearray(item.get("megabytes", 0) << 20)
    if item.get("kill"):
        os.kill(os.getpid(), signal.SIGSEGV)
    del taken
    (Path(sys.argv[1]) / RESULT).write_text(json.dumps({"done": True}))


if __name__ == "__main__":
    main()
