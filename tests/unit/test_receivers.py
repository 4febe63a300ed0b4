from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from outcast.emulation import receivers
from outcast.errors import ReadBackError
from tests.deadlines import HANG_S

SERVER = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
print("connected", flush=True)
received = 0
while data := connection.recv(1 << 20):
    received += len(data)
print(received, flush=True)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.wait()


def test_a_program_reads_by_itself_where_the_kernel_cannot(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as client:
        assert server.stdout.readline() == "connected\n"
        client.sendall(bytes(20_000))
        assert receivers.read_at_once([server.pid]) == 0
        client.sendall(bytes(20_000))
    assert int(server.communicate(timeout=HANG_S)[0]) == 40_000


class Kernel(socket.socket):
    """A socket of a kernel that takes the option and does not heed it."""

    def setsockopt(self, *_given: object) -> None:
        pass

    def getsockopt(self, *asked: object) -> int | bytes:  # type: ignore[override]
        return b"\1" * 248 if socket.TCP_INFO in asked else 0


def test_a_kernel_that_does_not_heed_the_option_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Kernel() as ours:
        monkeypatch.setattr(receivers, "_connections", lambda _pid: iter([ours]))
        with pytest.raises(ReadBackError, match="TCP_SINK"):
            receivers.read_at_once([1])


def test_a_process_that_has_gone_is_an_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OSError, match="No such process"):
        receivers.read_at_once([gone.pid])
