"""Measures the time and memory of `outcast join`, and those of dpkt, scapy and tshark.

    python benchmarks/join.py [--sizes 100000 1000000 10000000] [--repeats 3] [--against CHECKOUT]

For each number of packets, the captures are those of two inputs and the output of the tests'
reference switch, as nanosecond pcap with headers only. They are read once into the page cache. Then
a process of its own joins them, and writes packets, queue and chains as Parquet. The best of the
repeats counts. The other programs only read the same captures and match packets in a dictionary, by
addresses, ports, IP id and sequence number. They are left out if they would take more than about
two minutes. tshark is Debian's package of that name; without it, this says so.

Processor time is that of all threads. On a machine that does other things too, it is the better
measure. With `--against`, the code of another checkout joins the same captures in turn with this
one's, by the same interpreter, and a line gives the median of the pairs' ratios of processor time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tests.golden.model import Traffic

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

LATER = 20
"""A dropped packet is sent again after this number of packets of its flow."""

OTHERS = {
    "dpkt": """
import dpkt, sys
def keys(path):
    with open(path, "rb") as stream:
        for stamp, data in dpkt.pcap.Reader(stream):
            ip = dpkt.ethernet.Ethernet(data).data
            yield (ip.src, ip.dst, ip.id, ip.data.sport, ip.data.dport, ip.data.seq), stamp
""",
    "scapy": """
import sys
from scapy.all import IP, TCP, RawPcapReader, Ether
def keys(path):
    for data, _ in RawPcapReader(path):
        packet = Ether(data)
        ip, tcp = packet[IP], packet[TCP]
        yield (ip.src, ip.dst, ip.id, tcp.sport, tcp.dport, tcp.seq), 0
""",
    "tshark": """
import subprocess, sys
FIELDS = ["ip.src", "ip.dst", "ip.id", "tcp.srcport", "tcp.dstport", "tcp.seq_raw"]
def keys(path):
    command = ["tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.time_epoch"]
    for field in FIELDS:
        command += ["-e", field]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            stamp, *key = line.split()
            yield tuple(key), stamp
""",
}
MATCH = """
came = {}
for path in sys.argv[1:-1]:
    for key, stamp in keys(path):
        came.setdefault(key, []).append(stamp)
found = sum(1 for key, _ in keys(sys.argv[-1]) if came.get(key) and came[key].pop(0) is not None)
print(found)
"""
LARGEST = {"dpkt": 1_000_000, "scapy": 100_000, "tshark": 1_000_000}


def _sent_again(traffic: Traffic) -> Traffic:
    """Lets a later packet of the flow bring the data of each dropped one again.

    Otherwise the join would refuse the captures, because TCP repairs what is lost.
    """
    flow = traffic.src << 16 | traffic.sport
    order = np.argsort(flow, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(flow[order])) + 1):
        lost = traffic.t_out[rows] < 0
        free = rows[~lost]
        # At which of the flow's forwarded packets each loss can be repaired, some later.
        first = np.searchsorted(free, rows[lost]) + LATER
        place = np.maximum.accumulate(first - np.arange(first.size)) + np.arange(first.size)
        fits = place < free.size
        traffic.seq[free[place[fits]]] = traffic.seq[rows[lost][fits]]
    return traffic


def make_captures(folder: Path, packets: int) -> int:
    """Writes captures with about `packets` packets in all. Returns the exact number."""
    from tests.golden import model

    traffic = model.make_traffic(1, round(packets * 0.55), load=1.0)
    captures = model.captures(_sent_again(model.drop_tail(traffic, 16_384, 10**9)))
    for path in model.write_captures(folder, captures).values():
        path.read_bytes()
    return sum(capture.size for capture in captures.values())


def measure(command: list[str], code: Path = REPOSITORY) -> tuple[float, float, int]:
    """Runs a command by the code of a checkout.

    Returns its wall and processor time in seconds and its peak memory.
    """
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    # What joins remark of these captures is always the same.
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def ours(folder: Path) -> list[str]:
    """The command of `outcast join` for the captures in a folder."""
    program = [sys.executable, "-m", "outcast"]
    ports = ["--in", f"a={folder / 'in0.pcap'}", f"b={folder / 'in1.pcap'}"]
    ports += ["--out", f"c={folder / 'out.pcap'}"]
    return [*program, "join", *ports, "-o", str(folder / "packets.parquet")]


def print_pairs(packets: int, command: list[str], other: Path, repeats: int) -> None:
    """Prints the processor time of this and of another checkout, in turn, and their ratio."""
    for code in (REPOSITORY, other):
        measure(command, code)  # It may have to be compiled.
    pairs = [(measure(command)[1], measure(command, other)[1]) for _ in range(repeats)]
    ratio = statistics.median(mine / its for mine, its in pairs)
    both = "; ".join(f"{mine:.2f} and {its:.2f}" for mine, its in pairs)
    print(f"{packets:>10} ours and the other's processor time in s: {both}; ratio {ratio:.3f}")


def main() -> None:
    """Prints the table of times and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the captures go [default: /tmp]")
    parser.add_argument("--against", type=Path, help="a checkout whose code is compared with ours")
    arguments = parser.parse_args()
    if shutil.which("tshark") is None:
        print("tshark is left out: it is not installed (apt-get install tshark)")
    print(
        f"{'packets':>10} {'program':>8} {'seconds':>8} {'processor':>9} {'packets/s':>11} "
        f"{'B/packet':>9}"
    )
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            folder = Path(name)
            # A child's peak memory includes its parent's at the fork, so another process does it.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                packets = pool.apply(make_captures, (folder, size))
            if arguments.against:
                print_pairs(packets, ours(folder), arguments.against, arguments.repeats)
                continue
            results = {"outcast": [measure(ours(folder)) for _ in range(arguments.repeats)]}
            captures = [str(folder / f"{port}.pcap") for port in ("in0", "in1", "out")]
            for program, reader in OTHERS.items():
                if size > LARGEST[program]:
                    continue
                if program == "tshark" and shutil.which("tshark") is None:
                    continue
                results[program] = [measure([sys.executable, "-c", reader + MATCH, *captures])]
            for program, runs in results.items():
                seconds, processor, memory = min(runs)
                print(
                    f"{packets:>10} {program:>8} {seconds:>8.2f} {processor:>9.2f} "
                    f"{packets / seconds:>11.0f} "
                    f"{memory / packets:>9.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
