"""Measures the memory of `outcast join` on long captures, with and without a limit.

    python benchmarks/memory.py [--sizes 5000000 10000000 20000000] [--limit 2000] [--folder DIR]

For each number of packets, the captures are those of two inputs and the output of the tests'
reference switch, a part of it again and again, as nanosecond pcap with headers only. A process of
its own joins them and writes packets, queue and chains as Parquet. It is measured twice: with the
machine's memory, and with at most `--limit` MiB of memory of its own (RLIMIT_DATA), so that columns
have to go to disk.

`all` is the largest resident set, which counts files that the kernel may drop at any time. `own` is
the largest part of it that only swap could take (RssAnon in /proc/PID/status, read every 20 ms).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.join import ours  # noqa: E402

PART = 500_000
"""So many packets come in before the same traffic begins again."""


def make_captures(folder: Path, packets: int) -> int:
    """Writes captures with about `packets` packets in all. Returns the exact number."""
    from tests.golden import model

    traffic = model.drop_tail(model.make_traffic(1, PART, load=1.0), 16_384, 10**9)
    captures = model.captures(traffic)
    each = sum(capture.size for capture in captures.values())
    span_s = int(max(traffic.t_in.max(), traffic.t_out.max()) - traffic.t_in.min()) // 10**9 + 3
    files = {name: (folder / f"{name}.pcap").open("wb") for name in captures}
    for file in files.values():
        file.write(model.PCAP_HEADER)
    parts = max(1, round(packets / each))
    for _ in range(parts):
        for name, capture in captures.items():
            files[name].write(capture.tobytes())
            capture["seconds"] += span_s
    for file in files.values():
        file.close()
    return parts * each


def measure(command: list[str], limit_bytes: int | None) -> tuple[float, int, int]:
    """Runs a command. Returns seconds, and its peaks of all and of its own memory in bytes."""

    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=limit)
    own = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            own = max(own, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))
        except (OSError, TypeError):
            pass  # it has just ended
        time.sleep(0.02)
    if status:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return time.monotonic() - began, usage.ru_maxrss * 1024, own * 1024


def main() -> None:
    """Prints the table of times and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    millions = [5_000_000, 10_000_000, 20_000_000]
    parser.add_argument("--sizes", type=int, nargs="+", default=millions)
    parser.add_argument("--limit", type=int, default=2000, help="MiB of memory in the second run")
    parser.add_argument("--folder", type=Path, help="where captures and tables go [default: /tmp]")
    arguments = parser.parse_args()
    heads = ("packets", "limit MiB", "seconds", "all MiB", "own MiB", "B/packet")
    print(" ".join(head.rjust(10) for head in heads))
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            folder = Path(name)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                packets = pool.apply(make_captures, (folder, size))
            for limit in (None, arguments.limit << 20):
                seconds, whole, own = measure(ours(folder), limit)
                mib = "none" if limit is None else str(limit >> 20)
                cells = (packets, mib, f"{seconds:.1f}", whole >> 20, own >> 20, own // packets)
                print(" ".join(str(cell).rjust(10) for cell in cells), flush=True)


if __name__ == "__main__":
    main()
