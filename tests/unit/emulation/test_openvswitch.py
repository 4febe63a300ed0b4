"""What Open vSwitch is asked without starting a program."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outcast.emulation.commands import SystemCommands
from outcast.emulation.network import openvswitch
from outcast.emulation.network.openvswitch import OpenVSwitch
from outcast.errors import ReadBackError, RunError
from outcast.experiment import load
from outcast.plan.make import make_plan

CONFIG = Path(__file__).parents[3] / "configs" / "linear-12.yaml"


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
        ((b'{"id":0,"result":null,"error":"no such bridge"}',), "s1: refused: no such bridge"),
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


class Database(SystemCommands):
    """ovsdb-server, which has these rows of each table whatever it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, **rows: Any) -> None:
        super().__init__()
        self.folder, self.rows = folder, rows
        self.operations: list[Any] = []
        monkeypatch.setattr(openvswitch, "_answered", self.answered)
        monkeypatch.setattr(OpenVSwitch, "_listens", lambda _: True)

    def answered(self, _path: Path, method: str, requests: Sequence[Any]) -> Iterator[Any]:
        assert method == "transact"
        for _, *operations in requests:
            self.operations += operations
            yield [{"rows": self.rows.get(each["table"], [])} for each in operations]

    def run(self, argv: Sequence[str], **options: Any) -> str:
        return ""

    def spawn(self, name: str, argv: Sequence[str], **options: Any) -> Any:
        (self.folder / "ovs-vswitchd.7.ctl").touch()
        return SimpleNamespace(errors=str, end=lambda *_: None)


def test_an_interval_that_open_vswitch_does_not_have_stops_the_run(tmp_path, monkeypatch):
    shown = {"other_config": ["map", [["stats-update-interval", "5000"]]]}
    database = Database(monkeypatch, tmp_path, Open_vSwitch=[shown])
    with (
        pytest.raises(ReadBackError, match=r"stats-update-interval.*5000"),
        OpenVSwitch(database, tmp_path),
    ):
        pass


def test_a_port_that_open_vswitch_numbers_otherwise_stops_the_run(tmp_path, monkeypatch):
    plan = make_plan(load(CONFIG))
    numbers = {
        port: number
        for switch in plan.switches
        for port, number in openvswitch.port_numbers(plan, switch).items()
    }
    rows = [{"name": name, "ofport": number, "error": []} for name, number in numbers.items()]
    root = [{"next_cfg": 1}]
    database = Database(monkeypatch, tmp_path, Open_vSwitch=root, Interface=rows)
    OpenVSwitch(database, tmp_path).create_switches(plan, "tcp:127.0.0.1:6653")
    inserted = [each["row"] for each in database.operations if each["op"] == "insert"]
    requested = {row["name"]: row["ofport_request"] for row in inserted if "ofport_request" in row}
    assert requested == numbers
    rows[0] |= {"ofport": -1, "error": "could not open network device"}
    with pytest.raises(ReadBackError, match="could not open network device"):
        OpenVSwitch(database, tmp_path).create_switches(plan, "tcp:127.0.0.1:6653")


def test_open_vswitch_whose_control_socket_is_gone_is_an_error(tmp_path):
    with pytest.raises(RunError, match=r"asked for bridge/dump-flows: .*No such file"):
        list(ask(tmp_path, "s1"))
