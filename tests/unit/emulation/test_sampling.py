"""Sampling: what the kernel is asked and when, what happens to the answers, and their file."""

import errno
import socket
import struct
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import find
from outcast.emulation.commands import wait_until
from outcast.emulation.kernel import rtnetlink, sampling
from outcast.emulation.kernel.sampling import (
    NetlinkSocket,
    Question,
    Sampler,
    Series,
    answers,
    series_of,
    socket_request,
)
from outcast.errors import RunError
from outcast.experiment import load
from outcast.plan.make import make_plan
from outcast.records.samples import Sample, SamplesWriter, read_samples
from tests.deadlines import HANG_S

PLAN = make_plan(
    load(
        find("linear-12"),
        ["topology={kind: linear, rivals: 2}", "flows=[{from: 2-hop}, {from: 3-hop}]"],
    )
)


class FakeNetlink:
    """Answers every request with its own bytes, or with an error of the kernel."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.closed = False

    def ask(self, requests: bytes, count: int) -> list[bytes]:
        if self.error:
            return [struct.pack("=IHHIIi", 36, 2, 0, 0, 0, -self.error)] * count
        return [
            struct.pack("=IHHII", 16 + len(requests), 20, 0, n, 0) + requests for n in range(count)
        ]

    def close(self) -> None:
        self.closed = True


def series(netlink: FakeNetlink) -> Series:
    return Series("a.zst", ("4", "7"), (Question(netlink, b"which", (0, 1)),))


def test_a_sample_at_each_due_time(tmp_path):
    netlink = FakeNetlink()
    start_ns = time.time_ns() + 30_000_000
    with Sampler(tmp_path / "samples", [series(netlink)], 10_000_000) as sampler:
        sampler.start(start_ns)
        wait_until(lambda: sampler.taken + sampler.missed >= 15, "fifteen samples", HANG_S)
        record = sampler.finish()
    found = read_samples(tmp_path / "samples/a.zst")
    assert found.sources == ("4", "7")
    times = sorted({sample.t_ns - start_ns for sample in found.samples})
    assert len(times) == sampler.taken
    # Never before it is due, and on the schedule that begins at the traffic's start.
    assert all(t >= 0 for t in times)
    slots = [t // 10_000_000 for t in times]
    assert slots == sorted(set(slots))
    assert {sample.message[16:] for sample in found.samples} == {b"which"}
    assert netlink.closed
    assert record.effective["sampling"].every_ns == 10_000_000


def test_what_comes_late_is_counted(tmp_path):
    class Slow(FakeNetlink):
        def ask(self, requests: bytes, count: int) -> list[bytes]:
            time.sleep(0.025)
            return super().ask(requests, count)

    start_ns = time.time_ns()
    with Sampler(tmp_path / "samples", [series(Slow())], 10_000_000) as sampler:
        sampler.start(start_ns)
        wait_until(lambda: sampler.taken >= 3, "three samples", HANG_S)
        sampler.finish()
    assert sampler.missed >= 2 * (sampler.taken - 1)
    assert sampler.longest_ns >= 25_000_000


def test_none_is_taken_where_none_is_asked_for(tmp_path):
    with Sampler(tmp_path / "samples", [series(FakeNetlink())], 0) as sampler:
        sampler.start(0)
        sampler.finish()
    assert sampler.taken == 0
    assert not (tmp_path / "samples").exists()


def watch(sampler: Sampler) -> None:
    """Samples until the sampler says that it has failed."""
    with sampler:
        sampler.start(0)
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            sampler.require_alive()
            time.sleep(0.01)


def test_a_socket_that_is_gone_has_no_sample_and_other_errors_are_told(tmp_path):
    gone = Question(FakeNetlink(errno.ENOENT), b"", (0, 1))
    assert answers(gone, 5) == []
    sampler = Sampler(tmp_path / "samples", [series(FakeNetlink(errno.EINVAL))], 10_000_000)
    with pytest.raises(RunError, match=r"sampling sockets and queues: .*Invalid argument"):
        watch(sampler)
    assert not (tmp_path / "samples/a.zst").exists()


def test_more_is_asked_than_a_sockets_buffer_holds():
    flows = [replace(PLAN.flows[0], sport=1, dport=port) for port in range(1, 2001)]
    questions = sampling.socket_questions(flows, lambda host: None)
    assert [source for question in questions for source in question.sources] == list(range(2000))
    assert max(len(question.sources) for question in questions) == sampling.ANSWERS_AT_ONCE
    # No such socket exists, and the kernel says so 2,000 times.
    assert [answers(question, 5) for question in questions] == [[]] * len(questions)
    questions[0].netlink.close()


def test_the_kernel_answers_for_a_real_socket_and_tells_of_none():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        flow = replace(
            PLAN.flows[0],
            src_ip="127.0.0.1",
            dst_ip="127.0.0.1",
            sport=client.getsockname()[1],
            dport=server.getsockname()[1],
        )
        netlink = NetlinkSocket(4, None)
        requests = socket_request(0, flow) + socket_request(1, replace(flow, sport=1))
        found = answers(Question(netlink, requests, (0, 1)), 1)
        netlink.close()
    assert [sample.source for sample in found] == [0]
    assert found[0].message[16] == socket.AF_INET
    assert len(found[0].message) > 16 + 72 + 200


def test_requests_are_laid_out_as_the_kernel_wants_them():
    request = rtnetlink.queue_request(3, 17, 2)
    assert struct.unpack("=IHHII", request[:16]) == (36, 38, 9, 3, 0)
    assert struct.unpack("=BBHiIII", request[16:]) == (0, 0, 0, 17, 2 << 16, 0, 0)


def test_the_queues_of_all_captured_outputs_are_sampled_and_no_others(monkeypatch):
    monkeypatch.setattr(sampling, "NetlinkSocket", lambda protocol, netns: FakeNetlink())
    monkeypatch.setattr(socket, "if_nametoindex", lambda name: int(name[-1]))
    run = SimpleNamespace(plan=PLAN, netns=lambda host: 0, place=lambda node: None)
    flows, ports = series_of(run)
    assert flows.sources == ("0", "1", "2")
    assert [question.sources for question in flows.questions] == [(0,), (1,), (2,)]
    assert ports.sources == ("s1-eth1",)
    assert [question.sources for question in ports.questions] == [(0, 0)]


NAMES = st.lists(st.text(st.characters(exclude_categories=["C"]), max_size=12), min_size=1)


def samples_of(sources: list[str]) -> st.SearchStrategy[list[list[Sample]]]:
    """Samples in a few batches, each of one of the sources."""
    sample = st.builds(
        Sample, st.integers(0, 2**62 - 1), st.integers(0, len(sources) - 1), st.binary(max_size=600)
    )
    return st.lists(st.lists(sample), max_size=5)


@given(NAMES.flatmap(lambda sources: st.tuples(st.just(sources), samples_of(sources))))
def test_what_is_written_is_read_back(tmp_path_factory, sources_and_batches):
    sources, batches = sources_and_batches
    path = tmp_path_factory.mktemp("samples") / "a.zst"
    with SamplesWriter(path, 10_000_000, sources) as writer:
        for batch in batches:
            writer.write(batch)
        assert not path.exists()
    found = read_samples(path)
    assert found.every_ns == 10_000_000
    assert found.sources == tuple(sources)
    assert found.samples == tuple(sample for batch in batches for sample in batch)
    assert [file.name for file in path.parent.iterdir()] == ["a.zst"]
