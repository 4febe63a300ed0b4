"""Names of hosts for the guest's programs: a table, and a server for programs that speak DNS.

Each program's host has the server at its loopback address, so no lookup is ever on a link. Only
hosts have names. Any other name does not exist.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

from outcast.emulation.commands import entered
from outcast.emulation.part import Context, Part

HOSTS_TABLE = Path("/etc/hosts")
"""Names and addresses, as the C library looks them up (hosts(5))."""
RESOLVER_SETTINGS = Path("/etc/resolv.conf")
PORT = 53
_LOOPBACK = {"ipv4": "127.0.0.1", "ipv6": "::1"}
_LARGEST_QUERY_BYTES = 4096
_TTL_S = 60
_HEADER = struct.Struct("!6H")
"""Number, flags, and how many questions, answers, authorities and additional records."""
_A, _PTR, _AAAA, _ANY = 1, 12, 28, 255
_RESPONSE, _OPCODE, _AUTHORITATIVE, _WANTS_RECURSION, _RECURSES = 0x8000, 0x7800, 0x400, 0x100, 0x80
_NO_ERROR, _FORMAT_ERROR, _NO_SUCH_NAME, _NOT_IMPLEMENTED = 0, 1, 3, 4
_NAME_OF_QUESTION = b"\xc0\x0c"

Zone = dict[bytes, list[tuple[int, bytes]]]
"""By a name in lower case: types and data of its records (RFC 1035, section 3.2)."""


def zone_of(names: Mapping[str, str]) -> Zone:
    """The records of hosts, forward and backward, from their names by their addresses."""
    zone: Zone = {}
    for text, name in names.items():
        address = ipaddress.ip_address(text)
        kind = _A if address.version == 4 else _AAAA
        zone.setdefault(name.lower().encode(), []).append((kind, address.packed))
        labels = (bytes([len(label)]) + label for label in name.encode().split(b"."))
        zone[address.reverse_pointer.encode()] = [(_PTR, b"".join(labels) + b"\0")]
    return zone


def answer(query: bytes, zone: Zone) -> bytes | None:
    """The reply to a query (RFC 1035, section 4.1); None for other bytes."""
    if len(query) < _HEADER.size or query[2] & 0x80:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(query)
    kept = _RESPONSE | _AUTHORITATIVE | _RECURSES | flags & (_OPCODE | _WANTS_RECURSION)

    def reply(code: int, question: bytes = b"", answers: tuple[bytes, ...] = ()) -> bytes:
        header = _HEADER.pack(number, kept | code, bool(question), len(answers), 0, 0)
        return b"".join((header, question, *answers))

    if flags & _OPCODE:
        return reply(_NOT_IMPLEMENTED)
    try:
        labels, end = [], _HEADER.size
        while size := query[end]:
            labels.append(query[end + 1 : end + 1 + size])
            end += 1 + size
        (kind,) = struct.unpack_from("!H2x", query, end + 1)
    except (IndexError, struct.error):
        return reply(_FORMAT_ERROR)
    if questions != 1:
        return reply(_FORMAT_ERROR)
    question = query[_HEADER.size : end + 5]
    records = zone.get(b".".join(labels).lower())
    if records is None:
        return reply(_NO_SUCH_NAME, question)
    answers = (
        _NAME_OF_QUESTION + struct.pack("!HHIH", of, 1, _TTL_S, len(data)) + data
        for of, data in records
        if kind in (of, _ANY)
    )
    return reply(_NO_ERROR, question, tuple(answers))


class HostNames(Part):
    """Lets the guest's programs find every host by its name.

    A host has no server where a program of its own is one, which is ready by port 53.
    """

    def __init__(self, run: Context) -> None:
        super().__init__(run)
        self._servers: dict[int, socket.socket] = {}

    def prepare(self) -> None:
        plan = self._run.plan
        names = {address: host for host in plan.hosts for address in plan.addresses(host)}
        own = [_LOOPBACK[family] for family in plan.families]
        lines = [*(f"{address} localhost outcast\n" for address in own)]
        lines += [f"{address} {host}\n" for address, host in names.items()]
        HOSTS_TABLE.write_text("".join(lines))
        RESOLVER_SETTINGS.write_text(f"nameserver {own[0]}\n")
        for host in self._hosts():
            self._open(host, own[0])
        zone = zone_of(dict.fromkeys(own, "localhost") | names)
        threading.Thread(target=self._serve, args=(zone,), name="names", daemon=True).start()

    def _hosts(self) -> list[str]:
        plan = self._run.plan
        hosts = {program.host for program in plan.programs}
        hosts |= {plan.command.host} if plan.command is not None else set()
        served = {program.host for program in plan.programs if program.ready_port == PORT}
        return sorted(hosts - served)

    def _open(self, host: str, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with entered(self._run.netns(host)):
            server = socket.socket(family, socket.SOCK_DGRAM)
        # Another server may have the port at the host's other addresses.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, PORT))
        self._servers[server.fileno()] = server

    def _serve(self, zone: Zone) -> None:
        waiting = select.poll()
        for descriptor in self._servers:
            waiting.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in waiting.poll():
                query, peer = self._servers[descriptor].recvfrom(_LARGEST_QUERY_BYTES)
                if reply := answer(query, zone):
                    # A host may refuse to send by rules of its own; the others still want answers.
                    with contextlib.suppress(OSError):
                        self._servers[descriptor].sendto(reply, peer)
