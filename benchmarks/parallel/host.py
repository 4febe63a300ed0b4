"""Runs in the guest: two hosts with a link between them, or one of the two. See trial.py.

    host.py both|h0|h1 BYTES one|both

Every step is at a fixed instant of the guest's clock, so that both ways do the same at the same
time. The guest's Python is all that there is, so this imports nothing else.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial

LISTEN_S, START_S, END_S = 15, 20, 25
"""Seconds since boot."""

_NO_OFFLOADS = "tx off sg off tso off gso off gro off"
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def run(lines: str, namespace: str = "") -> None:
    """Runs a command for each line, in a network namespace if one is named."""
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    for line in lines.strip().splitlines():
        subprocess.run([*inside, *line.split()], check=True)


def sleep_until(uptime_s: int) -> None:
    """Returns at exactly this time since boot, see clock_nanosleep(2)."""
    if _LIBC.clock_nanosleep(1, 1, struct.pack("ll", uptime_s, 0), None):
        raise OSError("clock_nanosleep")


def set_up_host(host: int, namespace: str) -> None:
    """The host's end of the link: 1 Gbps, fixed addresses, packets as they are on the wire."""
    run(
        f"""ip link set lo up
        ethtool -K link0 {_NO_OFFLOADS}
        tc qdisc replace dev link0 root tbf rate 1gbit burst 1600 limit 1000000
        ip address add 10.0.0.{host + 1}/24 dev link0
        ip link set link0 up
        ip neigh replace 10.0.0.{2 - host} lladdr 02:00:00:00:00:0{1 - host} dev link0""",
        namespace,
    )


def set_up_wire() -> None:
    """In one guest: two veth pairs, and a bridge between them whose ports have the delay."""
    run("ip netns add h0\nip netns add h1\nip netns add wire")
    for host in (0, 1):
        own = f"link0 netns h{host} address 02:00:00:00:00:0{host}"
        run(f"ip link add {own} type veth peer name p{host} netns wire")
    run("ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0", "wire")
    for port in ("p0", "p1"):
        run(
            f"""ip link set {port} master br0
            ethtool -K {port} {_NO_OFFLOADS}
            tc qdisc replace dev {port} root netem delay 5us limit 100000
            ip link set {port} up""",
            "wire",
        )
    run("ip link set br0 up", "wire")


def enter(namespace: str) -> None:
    """Puts this process into a network namespace."""
    if namespace:
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        if _LIBC.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(descriptor)


def start(namespace: str, work: Callable[[], None]) -> int:
    """Starts a process in a namespace; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        enter(namespace)
        work()
        status = 0
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
    os._exit(status)


def receive(port: int) -> None:
    """Takes one connection to its end."""
    with socket.create_server(("", port)) as server:
        connection, _ = server.accept()
        while connection.recv(1 << 18):
            pass


def send(host: int, port: int, count: int) -> None:
    """Sends so many bytes to the other host, from START_S on."""
    sleep_until(START_S)
    chunk = bytes(1 << 16)
    with socket.create_connection((f"10.0.0.{2 - host}", port)) as connection:
        for at in range(0, count, len(chunk)):
            connection.sendall(chunk[: count - at])


def main(mode: str, count: int, ways: str) -> int:
    """Sets up, captures, sends, ends. Returns how many processes failed."""
    hosts = {"both": (0, 1), "h0": (0,), "h1": (1,)}[mode]
    space = {host: f"h{host}" if mode == "both" else "" for host in hosts}
    if mode == "both":
        set_up_wire()
    dumps, children = [], []
    for host in hosts:
        set_up_host(host, space[host])
        inside = ["ip", "netns", "exec", space[host]] if space[host] else []
        options = ["--time-stamp-precision=nano", "-s", "120", "-B", "8192", "-Z", "root"]
        argv = ["tcpdump", "-i", "link0", "-w", f"h{host}.pcap", *options]
        dumps.append(subprocess.Popen([*inside, *argv]))
    sleep_until(LISTEN_S)
    for host in hosts:
        if count and (ways == "both" or host == 1):
            children.append(start(space[host], partial(receive, 5000 + host)))
        if count and (ways == "both" or host == 0):
            children.append(start(space[host], partial(send, host, 5001 - host, count)))
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    sleep_until(END_S)
    for dump in dumps:
        dump.send_signal(signal.SIGINT)
        dump.wait()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
