"""Shared libraries of programs' files: found by ldd, copied beside them."""

import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from outcast import experiment
from outcast.emulation.programs.names import HostNames, answer, zone_of
from outcast.engines import program_files
from outcast.errors import ConfigError
from outcast.records.run_directory import RunDirectory

CONFIG = """
name: libraries
topology: {kind: linear, rivals: 1}
links: {rate: 100mbit, delay: 5us}
queue: {kind: pfifo, limit: 20 packets}
duration: 100ms
programs:
  - {name: greet, host: h1, to: [h2], command: [./greet], files: [greet], libraries: true}
"""
NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def program(folder: Path) -> Path:
    """A program with a library that only this folder has."""
    (folder / "lib.c").write_text('const char *greeting(void) { return "hello"; }')
    (folder / "greet.c").write_text(
        "#include <stdio.h>\nconst char *greeting(void);\n"
        "int main(void) { puts(greeting()); return 0; }"
    )
    library, made = folder / "libgreeting.so.1", folder / "greet"
    soname = f"-Wl,-soname,{library.name}"
    for argv in (
        ["cc", "-shared", "-fPIC", soname, "-o", str(library), str(folder / "lib.c")],
        ["cc", "-o", str(made), str(folder / "greet.c"), str(library), f"-Wl,-rpath,{folder}"],
    ):
        subprocess.run(argv, check=True)
    return made


@NEEDS_CC
def test_libraries_are_copied_beside_the_program(tmp_path):
    made = program(tmp_path)
    assert program_files.needed_by(made, "x") == {"libgreeting.so.1": tmp_path / "libgreeting.so.1"}
    (tmp_path / "net.yaml").write_text(CONFIG)
    loaded = experiment.load(tmp_path / "net.yaml")
    directory = RunDirectory(tmp_path / "run")
    taken = program_files.take_files(loaded, directory).programs[0]
    files = [str(path.relative_to("programs/greet/files")) for path in taken.files]
    assert files == ["greet", "libraries"]
    # So a run made again takes these, and no others.
    assert not taken.libraries
    assert (directory.path / taken.files[1] / "libgreeting.so.1").is_file()


@NEEDS_CC
def test_a_library_that_is_not_there_is_named(tmp_path):
    made = program(tmp_path)
    (tmp_path / "libgreeting.so.1").unlink()
    with pytest.raises(ConfigError, match=r"^x: greet needs libgreeting\.so\.1, which this"):
        program_files.needed_by(made, "x")


# --- Names of hosts for programs that speak DNS: queries and replies as RFC 1035 has them


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
