"""A bridge with a shaped port, captured as an engineer would do it by hand.

    python -m tests.emulation.bridge FOLDER [--ports 3] [--seconds 3]

As root. It makes a bridge and a host behind each of its ports, all in namespaces of its own. The
last host, R, receives one TCP flow from the first host, A, and eight from the others together. R's
port sends through a token bucket filter of 50 Mbps with a limit of 16 KB. At every port runs plain
`tcpdump -i PORT -s 96 -w FILE`, so each file has both directions and microseconds.

FOLDER then has `A.pcap`, `B.pcap`, ..., `R.pcap` and `truth.json`: what tc counted as dropped, and
by sender what its sockets sent and R's sockets never got.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.emulation import hops
from tests.emulation.hops import DEADLINE_S, command

RATE = "50mbit"
LIMIT_BYTES = 16_384
MANY_FLOWS = 8
PORT = 5001
_SEGMENTS = struct.Struct("=II")
_SEGMENTS_AT = 136
"""Where struct tcp_info (linux/tcp.h) has tcpi_segs_out and tcpi_segs_in."""


def host_names(ports: int) -> list[str]:
    """The hosts: A, B, ... and last R, which receives."""
    return [chr(ord("A") + number) for number in range(ports - 1)] + ["R"]


def address(number: int) -> str:
    """The address of a host by its place."""
    return f"192.168.7.{number + 1}"


def _segments(connection: socket.socket) -> tuple[int, int]:
    """How many segments a socket sent and received."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    sent, received = _SEGMENTS.unpack_from(information, _SEGMENTS_AT)
    return sent, received


def receive(flows: int) -> None:
    """R's program: accepts the flows, reads all, prints how many segments came from each host."""
    listener = socket.create_server(("", PORT), backlog=64)
    print("listening", flush=True)
    came: dict[str, int] = {}
    lock = threading.Lock()

    def take(connection: socket.socket, sender: str) -> None:
        while connection.recv(1 << 16):
            pass
        # The sender keeps its side until it has read this, so that nothing is on the way.
        connection.sendall(b"x")
        time.sleep(0.5)
        with lock:
            came[sender] = came.get(sender, 0) + _segments(connection)[1]
        connection.close()

    tasks = []
    for _ in range(flows):
        connection, (sender, _port) = listener.accept()
        tasks.append(threading.Thread(target=take, args=(connection, sender)))
        tasks[-1].start()
    for task in tasks:
        task.join()
    print(json.dumps(came), flush=True)


def send(to: str, flows: int, seconds: float) -> None:
    """A sender's program: sends for a while, then prints how many segments its sockets sent."""
    sent: list[int] = []

    def give() -> None:
        connection = socket.create_connection((to, PORT), timeout=DEADLINE_S)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            connection.sendall(b"d" * 16_384)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        time.sleep(0.3)
        sent.append(_segments(connection)[0])
        connection.recv(1)
        connection.close()

    tasks = [threading.Thread(target=give) for _ in range(flows)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    print(sum(sent), flush=True)


def flows_of(names: list[str]) -> dict[str, int]:
    """How many flows each host sends: A one, the others eight together."""
    others = names[1:-1]
    count = {name: 0 for name in others}
    for number in range(max(MANY_FLOWS, len(others))):
        count[others[number % len(others)]] += 1
    return {names[0]: 1, **count}


def _build(names: list[str]) -> None:
    command("ip", "link", "add", "bridge0", "type", "bridge", "stp_state", "0")
    command("ip", "link", "set", "bridge0", "up")
    for number, name in enumerate(names):
        hops.plug(name)
        command("ip", "link", "set", f"p{name}", "master", "bridge0", "up")
        inside = hops.inside(name)
        command(*inside, "ip", "addr", "add", f"{address(number)}/24", "dev", "eth0")
        command(*inside, "ip", "link", "set", "eth0", "up")
        command(*inside, "ip", "link", "set", "lo", "up")
    command("tc", "qdisc", "add", "dev", f"p{names[-1]}", "root", "tbf", "rate", RATE,
             "burst", "2kb", "limit", str(LIMIT_BYTES))  # fmt: skip


def _tcpdump(folder: Path, names: list[str]) -> list[list[str]]:
    return [
        ["tcpdump", "-i", f"p{name}", "-s", "96", "-w", str(folder / f"{name}.pcap"), "-Z", "root"]
        for name in names
    ]


def _scene(folder: Path, ports: int, seconds: float) -> None:
    """Makes the scene; runs inside namespaces of its own."""
    names = host_names(ports)
    Path("/run/netns").mkdir(exist_ok=True)
    command("mount", "-t", "tmpfs", "none", "/run/netns")
    _build(names)
    flows = flows_of(names)
    me = [sys.executable, "-m", "tests.emulation.bridge"]
    with hops.captured(_tcpdump(folder, names)):
        receiver = subprocess.Popen(
            [*hops.inside("R"), *me, "--receive", str(sum(flows.values()))],
            stdout=subprocess.PIPE,
            text=True,
        )
        receiver.stdout.readline()
        words = [*me, "--send", address(ports - 1)]
        senders = {
            name: subprocess.Popen(
                [*hops.inside(name), *words, str(count), str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name, count in flows.items()
        }
        sent = {
            name: int(process.communicate(timeout=seconds + DEADLINE_S)[0])
            for name, process in senders.items()
        }
        came = json.loads(receiver.communicate(timeout=DEADLINE_S)[0])
    (shaper,) = json.loads(command("tc", "-s", "-j", "qdisc", "show", "dev", "pR"))
    truth = {
        "drops": shaper["drops"],
        "by_sender": {name: sent[name] - came[address(names.index(name))] for name in names[:-1]},
        "sent": sent,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def make_scene(folder: Path, ports: int = 3, seconds: float = 3.0) -> dict[str, object]:
    """Makes the scene in namespaces of its own. Returns what `truth.json` has."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*hops.ISOLATED, sys.executable, "-m", "tests.emulation.bridge", str(folder)]
    options = ["--ports", str(ports), "--seconds", str(seconds), "--inside"]
    subprocess.run([*words, *options], check=True, timeout=seconds + 2 * DEADLINE_S)
    truth: dict[str, object] = json.loads((folder / "truth.json").read_text())
    return truth


def main() -> None:
    """The command line; it also is the hosts' programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--ports", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--receive", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        receive(given.receive)
    elif given.send:
        send(given.send[0], int(given.send[1]), float(given.send[2]))
    elif given.inside:
        _scene(given.folder, given.ports, given.seconds)
    else:
        if os.geteuid():
            raise SystemExit("only root can make namespaces")
        print(json.dumps(make_scene(given.folder, given.ports, given.seconds)))


if __name__ == "__main__":
    main()
