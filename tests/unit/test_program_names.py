"""Names of hosts for programs that speak DNS: queries and replies as RFC 1035 has them."""

import socket
import struct
from typing import Any, cast

import pytest

from outcast.emulation.programs.names import HostNames, answer, zone_of

A, PTR, MX, AAAA, ANY = 1, 12, 15, 28, 255
ZONE = zone_of({"10.0.0.2": "h2", "fd00::2": "h2", "10.0.0.3": "Web-1.lab"})


def question(name: str, kind: int) -> bytes:
    labels = [bytes([len(label)]) + label for label in name.encode().split(b".")]
    return b"".join(labels) + b"\0" + struct.pack("!HH", kind, 1)


def query(name: str, kind: int, flags: int = 0x100) -> bytes:
    return struct.pack("!6H", 7, flags, 1, 0, 0, 0) + question(name, kind)


def answered(name: str, kind: int) -> tuple[int, list[tuple[int, bytes]]]:
    """The reply's code, and types and data of its records."""
    reply = answer(query(name, kind), ZONE)
    number, flags, questions, answers, authorities, further = struct.unpack_from("!6H", reply)
    assert (number, flags & 0xFFF0, questions, authorities, further) == (7, 0x8580, 1, 0, 0)
    rest = reply[12:].removeprefix(question(name, kind))
    records = []
    for _ in range(answers):
        owner, of, network, _ttl_s, size = struct.unpack_from("!HHHIH", rest)
        assert (owner, network) == (0xC00C, 1)
        records.append((of, rest[12 : 12 + size]))
        rest = rest[12 + size :]
    assert rest == b""
    return flags & 0xF, records


def test_hosts_are_found_by_name_and_by_address():
    four, six = (A, bytes([10, 0, 0, 2])), (AAAA, bytes.fromhex("fd" + "00" * 14 + "02"))
    assert answered("h2", A) == (0, [four])
    assert answered("H2", AAAA) == (0, [six])
    assert answered("h2", ANY) == (0, [four, six])
    assert answered("web-1.LAB", A) == (0, [(A, bytes([10, 0, 0, 3]))])
    assert answered("3.0.0.10.in-addr.arpa", PTR) == (0, [(PTR, b"\5Web-1\3lab\0")])
    nibbles = ".".join(reversed("fd00" + "0" * 27 + "2"))
    assert answered(f"{nibbles}.ip6.arpa", PTR) == (0, [(PTR, b"\2h2\0")])


def test_what_no_host_has_is_told_at_once():
    assert answered("h2", MX) == (0, [])
    assert answered("web-1.lab", AAAA) == (0, [])
    assert answered("h2.example.org", A) == (3, [])
    assert answered("9.0.0.10.in-addr.arpa", PTR) == (3, [])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (query("h2", A, 0x2800), 4),
        (query("h2", A)[:-1], 1),
        (query("h2", A)[:14], 1),
        (struct.pack("!6H", 7, 0, 2, 0, 0, 0) + question("h2", A), 1),
        (query("h2", A, 0x8000), None),
        (b"short", None),
    ],
)
def test_other_messages_get_an_error_or_nothing(given, code):
    reply = answer(given, ZONE)
    if code is None:
        assert reply is None
    else:
        assert (len(reply), reply[3] & 0xF) == (12, code)


class Refusing:
    """A server's socket; the host refuses its first reply, and the third query ends the test."""

    def __init__(self, queries: socket.socket) -> None:
        self.queries, self.sent = queries, 0

    def recvfrom(self, size: int) -> tuple[bytes, str]:
        if self.sent == 2:
            raise KeyboardInterrupt
        return self.queries.recv(size), "peer"

    def sendto(self, reply: bytes, peer: str) -> None:
        self.sent += 1
        if self.sent == 1:
            raise PermissionError(1, "Operation not permitted")


def test_a_reply_that_a_host_refuses_ends_no_server():
    programs, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with programs, server:
        for _ in range(3):
            programs.send(query("h2", A))
        names = HostNames(cast(Any, None))
        names._servers[server.fileno()] = cast(socket.socket, Refusing(server))
        with pytest.raises(KeyboardInterrupt):
            names._serve(ZONE)
