"""Run in the guest: frames of known times through each queue, and what came out of it.

`BENCH.json CONFIG`: reads cases from BENCH.json and writes a line of JSON for each. A port has its
qdiscs as a run gives them; frames enter it by a packet socket and are seen at the other end of
its link, both by the guest's exact clock.
"""

import contextlib
import ctypes
import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from outcast import experiment
from outcast.emulation.queues import port_checks, qdiscs
from outcast.plan import ports
from outcast.records import queue_statistics

FRAME_BYTES = 1514
SO_RCVBUFFORCE, SO_TIMESTAMPNS, ETH_P_ALL = 33, 35, 3
PR_SET_TIMERSLACK = 29
RATE_BPS = 100_000_000


def frame(flow: int, number: int, tos: int) -> bytes:
    """A UDP datagram in a full frame. Its flow is the source port; `tos` has DSCP and ECN bits."""
    payload = struct.pack("!II", flow, number).ljust(FRAME_BYTES - 42, b"\0")
    udp = struct.pack("!HHHH", 20_000 + flow, 5001, 8 + len(payload), 0)
    addresses = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
    ip = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0)
    ip += addresses
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    return b"\2\0\0\0\0\2\2\0\0\0\0\1\x08\0" + ip + udp + payload


def run(case: dict[str, Any], number: int, config: Path) -> dict[str, Any]:
    """One case: `queue` in YAML, `sends` as [time in ns, flow, TOS byte]."""
    port, end = f"p{number}", f"q{number}"
    with IPRoute() as netlink:
        netlink.link("add", ifname=port, kind="veth", peer={"ifname": end})
        (index,) = netlink.link_lookup(ifname=port)
        for name in (port, end):
            netlink.link("set", index=netlink.link_lookup(ifname=name)[0], state="up")
        queue = experiment.load(config, [f"queue={case['queue']}"]).queue
        wanted = ports.PortQueue(port, RATE_BPS, 0, 0, queue)
        qdiscs.set_shaper(wanted)
        batch = "".join(f"{line}\n" for line in qdiscs.commands(wanted))
        subprocess.run(["tc", "-batch", "-"], input=batch, text=True, check=True)
        qdiscs.set_by_netlink(wanted)

        def shown() -> list[Any]:
            qdiscs = [each for each in netlink.get_qdiscs() if each["index"] == index]
            return qdiscs + list(netlink.get_classes(index=index))

        effective = port_checks.read_back(wanted, shown()) | port_checks.read_classes(wanted)
        sent, received = exchange(port, end, case["sends"])
        return {
            "name": case["name"],
            "effective": effective,
            "statistics": queue_statistics.statistics(shown()),
            "own": queue_statistics.own_counters(shown()),
            "sent": sent,
            "received": received,
        }


def exchange(
    port: str, end: str, sends: list[list[int]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Sent: [time, flow, TOS byte], a row for each number. Received: [time, number, ECN bits]."""
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as receiver,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver.bind((end, ETH_P_ALL))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 28)
        sender.bind((port, 0))
        began = time.time_ns() + 10**6
        sent = []
        for number, (at, flow, tos) in enumerate(sends):
            pause = began + at - time.time_ns()
            if pause > 0:
                time.sleep(pause / 1e9)
            sent.append([time.time_ns() - began, flow, tos])
            # The kernel reports a frame that the queue refuses to the packet socket.
            with contextlib.suppress(OSError):
                sender.send(frame(flow, number, tos))
        time.sleep(1)
        receiver.setblocking(False)
        received = []
        while True:
            try:
                got, notes, _, _ = receiver.recvmsg(64, 64)
            except BlockingIOError:
                return sent, received
            if len(got) < 50 or got[12:14] != b"\x08\0":
                continue
            seconds, nanoseconds = struct.unpack_from("=qq", notes[0][2])
            _, number = struct.unpack_from("!II", got, 42)
            received.append([seconds * 10**9 + nanoseconds - began, number, got[15] & 3])


def main() -> None:
    """See the module."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    for number, case in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        print(json.dumps(run(case, number, Path(sys.argv[2]))), flush=True)


if __name__ == "__main__":
    main()
