"""The generator's program over the loopback interface, and the records of its rows."""

import errno
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from outcast import experiment
from outcast.emulation import c_programs, standalone
from outcast.emulation.commands import SystemCommands
from outcast.emulation.generator import generator, loop
from outcast.emulation.generator.tasks import check_smallest_payloads, tasks
from outcast.errors import ReadBackError
from outcast.experiment import TcpRand
from outcast.experiment.transport import Adaptive
from outcast.plan.make import make_plan
from outcast.records import generated as results
from outcast.records.run_directory import RunDirectory

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"
ONE, OTHER = "127.0.0.1", "127.0.0.2"
EMPTY: dict[str, list[Any]] = {
    key: [] for key in ("send", "turns", "receive", "answer", "ask", "streams", "datagrams_from")
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((ONE, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run(
    folder: Path,
    end_ms: int,
    *,
    status_of_other: int = 0,
    connects_first: bool = False,
    **by_host: dict[str, Any],
) -> tuple[int, list[dict[str, Any]]]:
    """Runs a program for each host. Returns the start and all rows."""
    (port,) = free_ports(1)
    processes = []
    for host, (name, task) in zip((ONE, OTHER), by_host.items(), strict=True):
        whole = {"ips": [host], "tcp_port": port, "udp_port": 0, "end_ns": end_ms * 10**6}
        whole["datagrams_until_ns"] = whole["end_ns"] + generator.DRAIN_NS // 2
        (folder / f"{name}.json").write_text(json.dumps({**EMPTY, **whole, **task}))
        processes.append(
            subprocess.Popen(
                standalone.command(generator.__name__, f"{name}.json", "start", f"{name}.jsonl"),
                cwd=folder,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    if connects_first:
        (folder / f"start{generator.CONNECT_SUFFIX}").touch()
        for process in processes:
            assert process.stdout.readline() == "connected\n"
    t_start_ns = time.time_ns() + 200_000_000
    (folder / "new").write_text(str(t_start_ns))
    (folder / "new").rename(folder / "start")
    rows = []
    for process, name, status in zip(processes, by_host, (0, status_of_other), strict=True):
        assert process.wait(20) == status
        process.stdout.close()
        written = folder / f"{name}.jsonl"
        assert written.exists() is (status == 0)
        rows += map(json.loads, written.read_text().splitlines() if status == 0 else [])
    return t_start_ns, rows


def asked(ports: list[int], *rounds: list[int]) -> dict[str, Any]:
    """A task that asks each of these ports for a block, in several rounds."""
    senders = [[ONE, port] for port in ports]
    return {"start_ns": 0, "block": 100_000, "senders": senders, "rounds": rounds}


def of(rows: list[dict[str, Any]], side: str) -> dict[int, dict[str, Any]]:
    return {row["flow"]: row for row in rows if row["side"] == side}


def test_flows_arrive_whole_and_the_programs_end_when_all_have(tmp_path):
    ports = free_ports(3)
    sizes = [1, 1448, 3_000_000]
    t_start_ns, rows = run(
        tmp_path,
        60_000,
        one={"send": [[n, n * 10**7, OTHER, port, sizes[n]] for n, port in enumerate(ports)]},
        other={"receive": [[n, ONE, port, sizes[n]] for n, port in enumerate(ports)]},
    )
    sent, received = of(rows, "send"), of(rows, "receive")
    for n, size in enumerate(sizes):
        assert received[n]["bytes"] == size
        assert received[n]["error"] is None
        assert sent[n]["error"] is None
        assert sent[n]["t_planned"] == t_start_ns + n * 10_000_000
        assert sent[n]["t_planned"] <= sent[n]["t_begun"] < received[n]["t_end"]
        assert sent[n]["congestion_control"]


def test_what_has_not_ended_is_recorded_as_unfinished(tmp_path):
    ports = free_ports(2)
    _, rows = run(
        tmp_path,
        200,
        # The second flow is never sent: its receiver waits in vain.
        one={"send": [[0, 0, OTHER, ports[0], 10**12]]},
        other={"receive": [[0, ONE, ports[0], 10**12], [1, ONE, ports[1], 100]]},
    )
    received = of(rows, "receive")
    assert list(received) == [0]
    assert received[0]["t_end"] is None
    assert 0 < received[0]["bytes"] < 10**12
    assert received[0]["error"] is None
    assert of(rows, "send")[0]["error"] is None


@pytest.mark.parametrize("concurrent", [1, 2])
def test_so_many_turns_are_taken_at_a_time(tmp_path, concurrent):
    ports = free_ports(4)
    transfers = [[n, OTHER, port, 50_000] for n, port in enumerate(ports)]
    _, rows = run(
        tmp_path,
        60_000,
        one={"turns": [{"start_ns": 0, "concurrent": concurrent, "transfers": transfers}]},
        other={"receive": [[n, ONE, port, 50_000] for n, port in enumerate(ports)]},
    )
    sent, received = of(rows, "send"), of(rows, "receive")
    begun = sorted(row["t_begun"] for row in sent.values())
    ended = sorted(row["t_end"] for row in received.values())
    assert all(end <= later for end, later in zip(ended, begun[concurrent:], strict=False))
    assert begun[concurrent - 1] < ended[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="a large receive buffer (SO_RCVBUFFORCE) needs root")
def test_datagrams_are_sent_in_their_time_and_counted_by_their_port(tmp_path):
    sport, udp_port = free_ports(2)
    _, rows = run(
        tmp_path,
        150,
        one={"udp_port": udp_port, "streams": [[0, 0, 10**8, OTHER, sport, 1000, 30_000_000]]},
        other={"udp_port": udp_port, "datagrams_from": [[0, ONE, sport]]},
    )
    # At 0, 30, 60 and 90 ms.
    assert of(rows, "send")[0]["datagrams"] == 4
    assert of(rows, "receive")[0]["datagrams"] == 4


def test_a_connection_of_no_flow_ends_the_program(tmp_path):
    sport, other = free_ports(2)
    run(
        tmp_path,
        1_000,
        status_of_other=1,
        one={"send": [[0, 0, OTHER, sport, 100]]},
        other={"receive": [[0, ONE, other, 100]]},
    )


def test_a_start_that_is_never_given_is_not_awaited_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(standalone, "START_DEADLINE_S", 0.02)
    with pytest.raises(RuntimeError, match="no start"):
        standalone.await_start(str(tmp_path / "start"), 0.01)


@pytest.mark.parametrize("connects_first", [False, True])
def test_a_round_begins_when_all_blocks_of_the_last_have_come(connects_first, tmp_path):
    ports = free_ports(3)
    _, rows = run(
        tmp_path,
        60_000,
        connects_first=connects_first,
        one={"answer": [[OTHER, port, 100_000, 0] for port in ports]},
        other={"ask": [asked(ports, [0, 1, 2], [3, 4, 5])]},
    )
    received = of(rows, "receive")
    assert len(received) == 6
    assert max(received[n]["t_end"] for n in (0, 1, 2)) <= received[3]["t_asked"]
    assert len({received[n]["t_asked"] for n in (3, 4, 5)}) == 1


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return c_programs.provide(
        c_programs.TCPRAND, tmp_path_factory.mktemp("library"), SystemCommands()
    )


def tcprand(library: Path, ports: list[int], least: int, adaptive: str | None) -> dict[str, Any]:
    seeds = {str(port): n for n, port in enumerate(ports)}
    return {"library": str(library), "least": least, "adaptive": adaptive, "seeds": seeds}


@pytest.mark.parametrize(("least", "adaptive"), [(700, None), (0, "1,1,1,1,200")])
def test_payloads_of_random_sizes_arrive_whole_pushed_in_turn_and_asked_for(
    library, tmp_path, least, adaptive
):
    ports = free_ports(4)
    _, rows = run(
        tmp_path,
        60_000,
        one={
            "tcprand": tcprand(library, ports, least, adaptive),
            "send": [[0, 0, OTHER, ports[0], 3_000_001]],
            "turns": [
                {"start_ns": 0, "concurrent": 1, "transfers": [[1, OTHER, ports[1], 50_000]]}
            ],
            "answer": [[OTHER, port, 100_000, 0] for port in ports[2:]],
        },
        other={
            "receive": [[0, ONE, ports[0], 3_000_001], [1, ONE, ports[1], 50_000]],
            "ask": [asked(ports[2:], [2, 3], [4, 5], [6, 7])],
        },
    )
    received = of(rows, "receive")
    sizes = [3_000_001, 50_000, *[100_000] * 6]
    assert [received[n]["bytes"] for n in range(8)] == sizes
    assert all(row["error"] is None and row["t_end"] for row in received.values())
    sent = [row for row in rows if row["side"] in ("send", "answer")]
    assert sorted(row["sent_bytes"] for row in sent) == [50_000, 300_000, 300_000, 3_000_001]
    if adaptive is None:
        assert all(row["smallest_payload"] == [700, 700] for row in sent)
    else:
        # Nothing is lost on the loopback interface, so there is no window to follow.
        assert all(row["smallest_payload"][0] > 1448 for row in sent)


class Kernel:
    """A fake library that takes some bytes of each call, and then nothing."""

    def __init__(self, takes: list[int]) -> None:
        self.takes, self.calls = takes, list[tuple[str, Any]]()
        for name in ("new", "open", "send", "used", "free"):
            setattr(self, f"tcprand_{name}", self._call(name))

    def _call(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            return {"new": 1, "send": self.takes.pop(0) if name == "send" else 0}.get(name, 0)

        return call


def test_a_full_socket_and_a_lost_connection_are_as_a_sockets_own():
    kernel = Kernel([900, -errno.EAGAIN, -errno.ECONNRESET])
    payloads = loop.RandomPayloads(kernel, 5, 700, None)
    assert payloads.send(3, 10_000) == 900
    with pytest.raises(BlockingIOError):
        payloads.send(3, 9_100)
    with pytest.raises(ConnectionError):
        payloads.send(3, 9_100)
    payloads.close()
    assert [name for name, _ in kernel.calls] == ["new", "open", "send", "send", "send", "free"]


def test_the_seed_is_that_of_the_connections_port():
    seeds = {"40001": 77, "40002": 88}
    wanted = {"library": "", "least": 700, "adaptive": None, "seeds": seeds}
    program = generator.Program({**EMPTY, "tcprand": wanted})
    kernel = Kernel([])
    program._library = kernel
    program.random_payloads(40002)
    ((_, (seed, least, _)),) = kernel.calls
    assert (seed.value, least) == (88, 700)


FIXED, ADAPTIVE = TcpRand(min_payload=200), TcpRand(adaptive=Adaptive(theta=300))


@pytest.mark.parametrize(
    ("wanted", "used", "found"),
    [
        (None, None, None),
        (FIXED, (200, 200), (200, 200)),
        (FIXED, (200, 1448), "200 to 1448"),
        (FIXED, None, "of random sizes"),
        (ADAPTIVE, (300, 1448), (300, 1448)),
        (ADAPTIVE, (299, 1448), "300 and more"),
        (None, (200, 200), "of any size"),
    ],
)
def test_the_sizes_that_were_sent_are_those_requested(wanted, used, found):
    row: dict[str, Any] = {"side": "send", "flow": 1, "sent_bytes": 5000}
    rows = [{"side": "receive", "flow": 1}, {**row, "smallest_payload": used} if used else row]
    if isinstance(found, str):
        with pytest.raises(ReadBackError, match=found):
            check_smallest_payloads(wanted, rows)
    else:
        assert check_smallest_payloads(wanted, rows) == found


@pytest.mark.parametrize(
    ("send", "receive", "start_ns", "end_ns", "late_ns"),
    [
        ({"t_planned": 1100, "t_begun": 1105}, {"t_end": 1500, "bytes": 9}, 100, 500, 5),
        ({"t_planned": None, "t_begun": 1300}, {"t_end": 1500, "bytes": 9}, 300, 500, None),
        ({}, {"t_end": 1500, "t_asked": 1400, "bytes": 9}, 400, 500, None),
        ({}, {}, None, None, None),
    ],
)
def test_rows_become_completions(send, receive, start_ns, end_ns, late_ns, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.flows.mkdir()
    row = {"workload": 0, "kind": "poisson", "src": "h1", "dst": "h2", "sport": 1, "size_bytes": 9}
    results.schedule_file(directory).write_text(json.dumps({"flow": 0, "start_ns": 0, **row}))
    lines = [{"side": "send", "flow": 0, **send}] if send else []
    lines += [{"side": "receive", "flow": 0, **receive}] if receive else []
    results.result_file(directory, "h1").write_text("\n".join(map(json.dumps, lines)))
    (found,) = results.read_generated_flows(directory, 1000)
    assert (found.start_ns, found.end_ns, found.late_ns) == (start_ns, end_ns, late_ns)
    assert found.completion_ns == (None if start_ns is None else 500 - start_ns)


@pytest.mark.parametrize(("counts", "sums"), [([2, 3], 5), ([2, None], None)])
def test_what_the_senders_of_blocks_count_is_of_their_workload(counts, sums, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.flows.mkdir()
    for host, timeouts in enumerate(counts):
        row = {"side": "answer", "workload": 1, "retransmits": 10, "timeouts": timeouts}
        results.result_file(directory, f"h{host}").write_text(json.dumps(row) + "\n")
    assert results.read_answers(directory) == {1: {"retransmits": 20, "timeouts": sums}}


WORKLOADS = (
    "{kind: incast, senders: 3, block: 1MB, rounds: 2}, {kind: shuffle, hosts: 3, bytes: 1MB}, "
    "{kind: constant_rate, from: 2-hop, rate: 1mbit}"
)


def test_every_flow_is_in_its_two_hosts_tasks():
    background = "{kind: background, load: 0.05, sizes: web-search}"
    wanted = experiment.load(FIG3C, [f"workloads=[{background}, {WORKLOADS}]"])
    plan = make_plan(wanted)
    sent: list[int] = []
    received: list[int] = []
    for task in tasks(wanted, plan).values():
        sent += [each[0] for each in (*task["send"], *task["streams"])]
        sent += [each[0] for turns in task["turns"] for each in turns["transfers"]]
        received += [each[0] for each in (*task["receive"], *task["datagrams_from"])]
        received += [flow for ask in task["ask"] for each in ask["rounds"] for flow in each]
        assert len(task["answer"]) <= 1
    assert sorted(received) == [flow.flow for flow in plan.generated]
    blocks = [flow.flow for flow in plan.generated if flow.kind == "incast"]
    assert sorted([*sent, *blocks]) == sorted(received)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_connection_draws_sizes_of_its_own(seed):
    wanted = experiment.load(
        FIG3C,
        [
            f"seed={seed}",
            "transport={congestion_control: cubic, tcprand: {adaptive: {theta: 300}}}",
            f"workloads=[{WORKLOADS}]",
        ],
    )
    plan = make_plan(wanted)
    found = tasks(wanted, plan, Path("/x/tcprand.so"))
    assert found == tasks(wanted, plan, Path("/x/tcprand.so"))
    seeds = []
    for task in found.values():
        mine = task.get("tcprand", {"seeds": {}})
        connections = [each[1] for each in task["answer"]]
        connections += [each[2] for turns in task["turns"] for each in turns["transfers"]]
        assert sorted(map(int, mine["seeds"])) == sorted(connections)
        seeds += mine["seeds"].values()
        if connections:
            assert (mine["least"], mine["adaptive"]) == (0, "1.0,1.0,1.0,1.0,300")
    assert len(set(seeds)) == len(seeds) == 3 + 6
    other = tasks(wanted.model_copy(update={"seed": 3}), plan, Path("/x/tcprand.so"))
    others = [task.get("tcprand", {"seeds": {}})["seeds"] for task in other.values()]
    assert not {*seeds}.intersection(*(own.values() for own in others))
