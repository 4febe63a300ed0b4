"""A receiver that the guest's kernel reads (TCP_SINK) against a program that reads at once."""

import outcast
from outcast.emulation.kernel import sockets

EXPERIMENT = """
name: sink
topology: {kind: linear, rivals: 2}
queue: {kind: pfifo, limit: 100 packets}
noise: {profile: exact}
flows: []
duration: 100ms
engine: virtual
programs:
  - {name: server, host: h4, command: [python3, receive.py, HOW], files: [receive.py]}
  - {name: client, host: h1, command: [python3, send.py, "{h4}"], files: [send.py], start: 10ms}
"""

RECEIVE = f"""
import socket, sys
listening = socket.socket()
listening.bind(("", 99))
listening.listen()
inside, _ = listening.accept()
inside.recv(1)
if sys.argv[1] == "sink":
    inside.setsockopt(socket.IPPROTO_TCP, {sockets.TCP_SINK}, 1)
reads, room = 0, bytearray(1 << 17)
while inside.recv_into(room):
    reads += 1
print(reads)
"""

SEND = """
import socket, sys, time
outside = socket.create_connection((sys.argv[1], 99))
end = time.monotonic() + 0.05
while time.monotonic() < end:
    outside.sendall(bytes(1 << 17))
"""


def test_tcp_cannot_tell_it_from_a_program_that_reads_at_once(tmp_path):
    link = "{rate: 1gbit, delay: 0us}"
    (tmp_path / "receive.py").write_text(RECEIVE, encoding="ascii")
    (tmp_path / "send.py").write_text(SEND, encoding="ascii")
    path = tmp_path / "sink.yaml"
    captures, reads = {}, {}
    for how in ("read", "sink"):
        text = f"links: {link}{EXPERIMENT.replace('HOW', how)}"
        path.write_text(text, encoding="utf-8")
        run = outcast.run(outcast.load(path), tmp_path / how, progress=False)
        found = sorted((tmp_path / how / "captures").iterdir())
        captures[how] = {file.name: file.read_bytes() for file in found}
        reads[how] = int((tmp_path / how / "programs/server/0.out").read_text())
        assert run.trusted, run.reasons
    assert captures["read"] == captures["sink"]
    assert reads["read"] > 100
    assert reads["sink"] == 0
