"""Tries what UDP programs ask of the kernel between two hosts, and prints what came of it."""

import errno
import json
import select
import socket
import struct
import sys
import time
from typing import Any

PORT = 4433
UDP_SEGMENT, UDP_GRO = 103, 104
SO_TXTIME, SCM_TXTIME = 61, 61
IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_MTU, IP_RECVERR = 10, 2, 14, 11
IPV6_MTU_DISCOVER, IPV6_MTU, IPV6_RECVERR, IPV6_RECVTCLASS, IPV6_TCLASS = 23, 24, 25, 66, 67
WAIT_S = 0.2


def serve() -> None:
    """Tells of each datagram, to whom sent it: its length, its traffic class, and the time."""
    inside = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    inside.bind(("::", PORT))
    inside.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
    inside.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    inside.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    classes = ((socket.IPPROTO_IPV6, IPV6_TCLASS), (socket.IPPROTO_IP, socket.IP_TOS))
    print("ready", flush=True)
    while True:
        data, controls, _, peer = inside.recvmsg(65_536, 256)
        told = {"bytes": len(data), "at": time.clock_gettime_ns(time.CLOCK_MONOTONIC)}
        for level, kind, value in controls:
            if (level, kind) in classes:
                told["class"] = value[0]
            elif (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                told["segment"] = int.from_bytes(value[:4], sys.byteorder)
        inside.sendto(json.dumps(told).encode(), peer)


def outside(host: str, family: int, port: int = PORT) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.connect(socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0][4])
    return sock


def heard(sock: socket.socket) -> list[dict[str, Any]]:
    """What the server told of the datagrams that came within WAIT_S."""
    told = []
    while select.select([sock], [], [], WAIT_S)[0]:
        told.append(json.loads(sock.recv(1000)))
    return told


def gso(host: str, family: int) -> list[Any]:
    sock = outside(host, family)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
    sock.send(bytes(3500))
    return [told["bytes"] for told in heard(sock)]


def gro(host: str, family: int) -> list[Any]:
    sock = outside(host, family)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
    sock.send(bytes(4000))
    return [told.get("segment") for told in heard(sock)]


def ecn(host: str, family: int) -> list[Any]:
    found: list[int] = []
    for bits in (0, 1, 2, 3):
        sock = outside(host, family)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_TCLASS, bits)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, bits)
        sock.send(b"x")
        found += [told["class"] & 3 for told in heard(sock)]
    return found


def txtime(host: str, family: int) -> list[Any]:
    sock = outside(host, family)
    sock.setsockopt(socket.SOL_SOCKET, SO_TXTIME, struct.pack("iI", time.CLOCK_MONOTONIC, 0))
    due = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 20_000_000
    sock.sendmsg([b"x"], [(socket.SOL_SOCKET, SCM_TXTIME, struct.pack("Q", due))])
    return [round((told["at"] - due) / 1e6) for told in heard(sock)]


def path_mtu(host: str, family: int) -> list[Any]:
    level, discover, mtu = (
        (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_MTU)
        if family == socket.AF_INET6
        else (socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_MTU)
    )
    sock = outside(host, family)
    sock.setsockopt(level, discover, IP_PMTUDISC_DO)
    try:
        sock.send(bytes(1600))
        refused = "sent"
    except OSError as error:
        refused = errno.errorcode[error.errno or 0]
    return [refused, sock.getsockopt(level, mtu)]


def icmp(host: str, family: int) -> list[Any]:
    sock = outside(host, family, PORT + 1)
    level, option = (
        (socket.IPPROTO_IPV6, IPV6_RECVERR)
        if family == socket.AF_INET6
        else (socket.IPPROTO_IP, IP_RECVERR)
    )
    sock.setsockopt(level, option, 1)
    sock.send(b"x")
    time.sleep(WAIT_S)
    _, controls, _, _ = sock.recvmsg(100, 256, socket.MSG_ERRQUEUE)
    number, _, kind, code = struct.unpack_from("=IBBB", controls[0][2])
    return [errno.errorcode[number], kind, code]


def fragments(host: str, family: int) -> list[Any]:
    sock = outside(host, family)
    sock.send(bytes(4000))
    return [told["bytes"] for told in heard(sock)]


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "serve":
        serve()
    found: dict[str, dict[str, Any]] = {}
    for name, family in (("ipv4", socket.AF_INET), ("ipv6", socket.AF_INET6)):
        for tried in (gso, gro, ecn, txtime, path_mtu, icmp, fragments):
            try:
                answer: Any = tried(rest[0], family)
            except OSError as error:
                answer = errno.errorcode[error.errno or 0]
            found.setdefault(tried.__name__, {})[name] = answer
    print(json.dumps(found))


main()
