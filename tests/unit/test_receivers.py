from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from outcast.emulation import receivers
from tests.deadlines import HANG_S

SERVER = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
print("connected", flush=True)
while data := connection.recv(1 << 20):
    print(len(data), flush=True)
"""


def test_a_receiver_wakes_for_a_batch_and_for_the_end() -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as client:
            assert server.stdout.readline() == "connected\n"
            assert receivers.read_in_batches([server.pid]) == 1
            for _ in range(20):
                client.sendall(bytes(2000))
                time.sleep(0.002)
        sizes = [int(line) for line in server.communicate(timeout=HANG_S)[0].splitlines()]
    finally:
        server.kill()
        server.wait()
    assert sum(sizes) == 40_000
    assert len(sizes) == 2
    assert sizes[0] >= receivers.BATCH_BYTES


def test_a_process_that_has_gone_is_an_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OSError, match="No such process"):
        receivers.read_in_batches([gone.pid])
