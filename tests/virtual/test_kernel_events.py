"""Recording the kernel's events leaves the captures as they are, and no event is lost."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from outcast.engines.guest import boot as guest
from outcast.records.run_directory import RunDirectory
from tests.golden.replays import Golden, digests, run_engine_only

NETWORK = {
    "topology": {"kind": "linear", "rivals": 2},
    "flows": [{"from": "2-hop", "hosts": 1}, {"from": "3-hop", "hosts": 2}],
    "duration": "40ms",
    "analysis.windows": [],
    "analysis.bin": "1ms",
    "links.rate": "1gbit",
}
FIVE = [
    "tcp:tcp_probe",
    "tcp:tcp_retransmit_skb",
    "qdisc:qdisc_enqueue",
    "skb:kfree_skb",
    "timer:hrtimer_expire_entry",
]


@pytest.fixture(scope="module")
def every_event(kernel, tmp_path_factory) -> list[str]:
    lines: list[str] = []
    argv = ["/bin/cat", "/sys/kernel/tracing/available_events"]
    folder = tmp_path_factory.mktemp("events")
    guest.boot(guest.Boot(kernel.program, folder, argv, seed=1), lines.append)
    return lines


def recorded(target: Path, events: Sequence[str]) -> RunDirectory:
    overrides = {**NETWORK, **({"trace.events": list(events)} if events else {})}
    run_engine_only(Golden("configs/linear-12.yaml", overrides, {}), target)
    return RunDirectory(target)


def test_captures_are_equal_whatever_is_recorded(tmp_path, every_event):
    assert set(FIVE) < set(every_event)
    plain = recorded(tmp_path / "plain", [])
    assert not plain.trace.exists()
    read: dict[str, int] = {}
    for name, events in (("five", FIVE), ("all", every_event)):
        run = recorded(tmp_path / name, events)
        assert digests(run.path) == digests(plain.path), name
        formats = run.read_trace_formats()
        assert set(formats.events) == set(events)
        assert formats.statistics.lost == formats.statistics.entries == 0
        stored_bytes = run.trace_events.stat().st_size
        assert stored_bytes > 0
        assert stored_bytes % formats.page_bytes == 0
        assert "tcp_v4_rcv" in run.trace_symbols.read_text()
        read[name] = formats.statistics.read_events
    assert 100 < read["five"] < read["all"]
