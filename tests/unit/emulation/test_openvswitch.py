"""What Open vSwitch is asked without starting a program."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from outcast.emulation.commands import SystemCommands
from outcast.emulation.network import openvswitch
from outcast.emulation.network.openvswitch import OpenVSwitch
from outcast.errors import ReadBackError, RunError


def answering(folder: Path, *pieces: bytes | None) -> list[bytes]:
    """ovs-vswitchd's control socket, which answers one connection; what it was asked.

    It reads before the first piece, and where a piece is None.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "ovs-vswitchd.7.ctl"))
    listener.listen()
    asked: list[bytes] = []

    def answer() -> None:
        with listener, listener.accept()[0] as connection:
            asked.append(connection.recv(1 << 16))
            for piece in pieces:
                if piece is None:
                    asked.append(connection.recv(1 << 16))
                else:
                    connection.sendall(piece)

    threading.Thread(target=answer, daemon=True).start()
    return asked


def ask(folder: Path, *bridges: str) -> Iterator[str]:
    return OpenVSwitch(SystemCommands(), folder).ask("bridge/dump-flows", bridges)


def replies(*said: str) -> list[str]:
    """Answers with these results, in the order of the requests."""
    answers = [{"id": n, "result": text, "error": None} for n, text in enumerate(said)]
    return [json.dumps(answer, ensure_ascii=False) for answer in answers]


def test_open_vswitch_answers_in_pieces(tmp_path):
    reply = replies("actions={1}")[0].encode()
    cut = reply.index(b"1}") + 2
    # An address of a socket has 107 bytes.
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        asked = answering(Path(), reply[:cut], reply[cut:])
    assert list(ask(folder, "s1")) == ["actions={1}"]
    assert json.loads(asked[0]) == {"id": 0, "method": "bridge/dump-flows", "params": ["s1"]}


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_open_vswitch_is_asked_everything_by_one_connection(piece, tmp_path):
    said = ["", '"}{', "µ" * 9]
    whole = "".join(replies(*said)).encode()
    pieces = [whole[at : at + piece] for at in range(0, len(whole), piece)]
    asked = answering(tmp_path, *pieces)
    assert list(ask(tmp_path, "s1", "s2", "s3")) == said
    assert asked[0].count(b'"method": "bridge/dump-flows"') == 3


def test_open_vswitch_is_asked_many_things_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(openvswitch, "_REQUESTS_AT_ONCE", 2)
    bridges = [f"s{number}" for number in range(4)]
    texts = replies(*bridges)
    asked = answering(tmp_path, *("".join(texts[:2]).encode(), None, "".join(texts[2:]).encode()))
    assert list(ask(tmp_path, *bridges)) == bridges
    assert [text.count(b"bridge/dump-flows") for text in asked] == [2, 2]


def test_open_vswitch_that_does_not_answer_everything_is_an_error(tmp_path):
    answering(tmp_path, b'{"id":0,"result":"first","error":null}')
    answers = ask(tmp_path, "s1", "s2")
    assert next(answers) == "first"
    with pytest.raises(RunError, match="it gave no answer"):
        next(answers)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((b'{"id":0,"result":null,"error":"no such bridge"}',), "refused .* s1: no such bridge"),
        ((b'{"id":0,',), "it gave no answer"),
        ((), "it gave no answer"),
        ((b'{"id":1,"result":"","error":null}',), "s1: its answer is to another request"),
    ],
)
def test_open_vswitch_that_does_not_answer_is_an_error(pieces, said, tmp_path, monkeypatch):
    monkeypatch.setattr(openvswitch, "ANSWER_DEADLINE_S", 5.0)
    answering(tmp_path, *pieces)
    with pytest.raises(RunError, match=said):
        list(ask(tmp_path, "s1"))


def test_an_interval_that_open_vswitch_does_not_have_stops_the_run(tmp_path):
    class Forgetful(SystemCommands):
        def run(self, argv: Sequence[str], **options: Any) -> str:
            return '"5000"\n' if "get" in argv else ""

        def spawn(self, name: str, argv: Sequence[str], **options: Any) -> Any:
            (tmp_path / "db.sock").touch()

    with (
        pytest.raises(ReadBackError, match=r"stats-update-interval.*5000"),
        OpenVSwitch(Forgetful(), tmp_path),
    ):
        pass


def test_open_vswitch_whose_control_socket_is_gone_is_an_error(tmp_path):
    with pytest.raises(RunError, match="asked for bridge/dump-flows: its control socket is gone"):
        list(ask(tmp_path, "s1"))
