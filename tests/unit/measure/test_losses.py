"""Losses of every port: what is shown, summed and told, and which are of a full queue."""

from typing import Any

import polars as pl
import pytest

from outcast import analysis
from outcast.records import queue_statistics
from outcast.records.counters import HostCounters, LinkRecord, LinkTotals
from outcast.records.effective import AppliedChange
from outcast.records.port_summaries import LossSummary
from outcast.records.run import Run
from outcast.records.run_directory import BlackoutRecord, RunDirectory
from outcast.view import report
from tests import records
from tests.fakes import Shown
from tests.golden.run_directory import make_run


def qdisc(handle: int, kind: str, drops: int) -> Shown:
    queue = {"drops": drops, "overlimits": 0, "backlog": 0, "qlen": 0}
    stats = Shown(TCA_STATS_BASIC={"bytes": 0, "packets": 0}, TCA_STATS_QUEUE=queue)
    return Shown(event="RTM_NEWQDISC", handle=handle << 16, TCA_KIND=kind, TCA_STATS2=stats)


@pytest.mark.parametrize(
    ("shown", "lost"),
    [
        ([(2, "tbf", 7), (3, "bfifo", 7)], {"queue": 7}),
        # netem counts what the shaper refused, and its own losses.
        ([(1, "netem", 10), (2, "tbf", 7), (3, "bfifo", 7)], {"queue": 7, "delay": 3}),
        # CoDel has dropped one that it has not yet reported.
        ([(1, "netem", 7), (2, "tbf", 7), (3, "codel", 8)], {"queue": 8, "delay": 0}),
    ],
)
def test_a_ports_losses_by_cause(shown, lost):
    assert queue_statistics.lost([qdisc(*row) for row in shown]) == lost


def link(port: str, node: str, neighbour: str, packets: int = 10**6, **lost: int) -> LinkRecord:
    lost = {"queue": 2 + lost.pop("queue", 0), **lost}
    return records.link(
        *(port, node, neighbour),
        flows=[0] if packets else [],
        before=LinkTotals(packets=5, bytes=500, lost={"queue": 2}),
        after=LinkTotals(packets=5 + packets, bytes=500 + 1000 * packets, lost=lost),
    )


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return make_run(tmp_path / "run", 100_000_000, 7, 2_000)


def lossy(run: RunDirectory, *links: LinkRecord, **changes: Any) -> Run:
    """The run analysed with these links."""
    counters = run.read_counters()
    run.write_counters(counters.model_copy(update={"links": list(links), **changes}))
    analysis.analyze(run)
    return Run(run)


def failed(run: RunDirectory, node: str, neighbour: str, port: str, *at_ns: int) -> None:
    """Records that a link was down from one time to another."""
    changes = [
        AppliedChange(0, at, at, node, neighbour, port, "up", up, up) for up, at in enumerate(at_ns)
    ]
    run.write_manifest(run.read_manifest().model_copy(update={"changes": changes}))


def losses(run: Run) -> LossSummary:
    assert run.summary.losses is not None
    return run.summary.losses


def test_losses_elsewhere_are_told_at_the_top(run, verb):
    result = lossy(
        run,
        link("s1-eth1", "s1", "h1", queue=300, interface=2),
        link("s2-eth1", "s2", "s1", queue=51_406),
        link("h3-eth0", "h3", "s2", link=4),
        link("h99-eth0", "h99", "s2", packets=0),
    )
    of_run = losses(result)
    assert (of_run.total, of_run.bottleneck, of_run.elsewhere) == (51_712, 300, 51_412)
    assert of_run.causes == {"interface": 2, "link": 4, "queue": 51_706}
    assert list(of_run.ports) == ["s1-eth1", "s2-eth1", "h3-eth0"]
    assert of_run.ports["s1-eth1"].lost == {"queue": 300, "interface": 2}
    assert of_run.ports["s1-eth1"].elsewhere == 2
    assert result.summary.warnings[0].startswith(
        "51,412 packets were lost elsewhere: s2-eth1 51,406 (queue), h3-eth0 4 (link), s1-eth1 2 "
        "(interface). The queue of s1-eth1 lost 300; "
    )
    frame = pl.read_parquet(run.path / "links.parquet")
    assert frame["lost"].to_list() == [302, 51_406, 4, 0]
    assert frame["lost_interface"].to_list() == [2, 0, 0, 0]
    out = " ".join(verb("analyze", run.path).out.split())
    assert "! elsewhere: 51,412 packets were lost" in out
    page = report.make(result)
    assert page.index("51,412 packets were lost elsewhere") < page.index("Goodput</h2>")
    assert page.index("Losses of every port</h2>") < page.index("Drops</h2>")


def test_what_was_lost_before_the_start_is_not_counted(run):
    """Handshakes of many flows fill a small queue before any of them may send."""
    whole = link("s1-eth1", "s1", "h1", queue=300)
    connected = LinkTotals(packets=45, bytes=2_500, lost={"queue": 42})
    result = lossy(run, whole.model_copy(update={"at_start": connected}))
    assert (losses(result).total, losses(result).bottleneck) == (260, 260)
    assert losses(result).ports["s1-eth1"].packets == 10**6 - 40
    assert pl.read_parquet(run.path / "links.parquet")["packets"].to_list() == [10**6 - 40]


def test_what_happens_behind_a_link_counts_at_the_port_that_sends_to_it(run):
    manifest = run.read_manifest()
    blackout = BlackoutRecord(port="s1-eth2", packets=50, dropped=9, periods=1)
    run.write_manifest(manifest.model_copy(update={"blackout": blackout}))
    host = HostCounters(before={"UdpRcvbufErrors": 1}, after={"UdpRcvbufErrors": 4})
    hosts = {**run.read_counters().hosts, "h1": host}
    result = lossy(
        run,
        link("s1-eth1", "s1", "h1", queue=5),
        link("s1-eth2", "s1", "h2"),
        link("h2-eth0", "h2", "s1"),
        hosts=hosts,
    )
    of_run = losses(result)
    assert of_run.ports["s1-eth1"].lost == {"queue": 5, "host": 3}
    assert of_run.ports["h2-eth0"].lost == {"blackout": 9}
    # The blackout stands before the bottleneck's input, so the join sees its drops.
    assert (of_run.bottleneck, of_run.elsewhere) == (14, 3)


def test_what_a_failed_link_lost_is_what_came_in_and_did_not_go_on(run):
    failed(run, "s2", "s1", "s2-eth1", 10**6, 2 * 10**6)
    counters = HostCounters(before={}, after={"TcpOutSegs": 90, "TcpRetransSegs": 10})
    links = (
        link("h3-eth0", "h3", "s2", 1000, link=30),
        link("h4-eth0", "h4", "s2", 100, queue=2),
        link("s2-eth1", "s2", "s1", 900, queue=40, link=5, interface=1),
        link("s2-eth2", "s2", "h3", 60, link=7),
        link("s2-eth3", "s2", "h4", 20),
        link("s1-eth2", "s1", "s2", 100),
        link("s1-eth1", "s1", "h1", 895),
    )
    of_run = losses(lossy(run, *links, hosts={"h4": counters, "h3": counters}))
    # 970 + 100 + 100 came to s2, and 900 + 40 + 1 + 60 + 20 are known.
    assert of_run.ports["s2-eth1"].lost == {"queue": 40, "link": 5, "interface": 1, "failure": 149}
    assert of_run.causes["failure"] == 149
    assert of_run.ports["s2-eth1"].elsewhere == 195
    # The link of h4 fails instead: its sockets sent 100 packets, 70 left and 2 were dropped.
    failed(run, "s2", "h4", "s2-eth3", 10**6, 2 * 10**6)
    shorter = link("h4-eth0", "h4", "s2", 70, queue=2)
    lost = losses(lossy(run, links[0], shorter, *links[2:], hosts={"h4": counters}))
    assert lost.ports["h4-eth0"].lost == {"queue": 2, "failure": 28}
    assert lost.ports["s2-eth3"].lost == {"failure": 119}
    assert "failure" not in lost.ports["s2-eth1"].lost


def test_drops_that_the_own_queue_did_not_count_are_those_of_its_failed_link(run):
    counters = run.read_counters()
    analysis.analyze(run)
    dropped = Run(run).summary.capture.inferred_drops
    assert dropped > 10
    arrivals = pl.read_parquet(run.path / "packets.parquet")["t_in"]
    last_ns = int(arrivals.max()) - run.read_manifest().traffic.t_start_ns
    counted = {"drops": 3 + dropped - 5}
    ports = {"s1-eth1": counters.ports["s1-eth1"].model_copy(update={"after": counted})}
    links = (link("s1-eth1", "s1", "h1", dropped - 5), link("h3-eth0", "h3", "s1"))

    def failure(from_ns: int, until_ns: int) -> int:
        failed(run, "s1", "h1", "s1-eth1", from_ns, until_ns)
        of_run = losses(lossy(run, *links, ports=ports))
        return of_run.ports["s1-eth1"].lost.get("failure", 0)

    assert failure(0, last_ns) == 5
    # Nothing came in while it was down, so the packets are lost in another way.
    assert failure(last_ns + 50_000_000, last_ns + 51_000_000) == 0
