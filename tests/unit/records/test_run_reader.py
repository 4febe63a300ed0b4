"""`Run`: what a finished run says about itself, and one clear line if a file is missing."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from outcast.errors import InputError
from outcast.records.effective import (
    Sampling,
    flattened,
    host_settings,
    min_rto_ns_of,
    queue_settings,
    sampling_of,
)
from outcast.records.run import Run
from tests.golden.run_directory import analysed_run, with_records


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    directory = analysed_run(tmp_path_factory.mktemp("run") / "run", 20_000_000, 9, 1_000)
    return directory.path


@pytest.fixture
def run(finished, tmp_path) -> Run:
    return Run(shutil.copytree(finished, tmp_path / "run"))


def test_everything_is_there(run):
    assert run.manifest.name == run.summary.name == run.experiment.name == "golden"
    assert list(run.counters.ports)
    assert run.tables == sorted(path.stem for path in run.directory.path.glob("*.parquet"))
    packets = pl.read_parquet(run.directory.path / "packets.parquet")
    assert run.table("packets").drop("packet").equals(packets)
    assert run.table("packets", whole=True).equals(packets)
    assert run.scan("packets").select("flow").collect().equals(packets.select("flow"))


def test_ports_are_named_with_their_classes(run):
    assert run.hops == [2, 3]
    assert run.port_label("s1-eth3") == "s1-eth3 (3-hop, cubic)"
    assert run.port_label("s9-eth9") == "s9-eth9"


def test_a_table_that_is_not_there_is_named_with_those_that_are(run):
    with pytest.raises(InputError, match=r"no rtt\.parquet; its tables: bins, blackouts, .*queue"):
        run.table("rtt")
    with pytest.raises(InputError, match=r"no \.\./run/packets\.parquet"):
        run.table("../run/packets")


def test_why_a_run_is_not_trusted(run):
    def reasons(**capture: object) -> list[str]:
        whole = run.summary.capture.model_copy(update=capture)
        other = with_records(run, summary=run.summary.model_copy(update={"capture": whole}))
        assert other.trusted == whole.trusted
        return other.reasons

    assert reasons(trusted=True, reasons=[]) == []
    assert reasons(trusted=False, reasons=["5 too many"]) == ["5 too many"]
    assert reasons(trusted=False, reasons=[]) == ["no reason is given"]


def test_the_time_of_a_frame(run):
    assert run.frame_ns == 12_112
    record = run.manifest.bottlenecks[0]
    unlimited = record.model_copy(
        update={"queue": record.queue.model_copy(update={"rate_bps": None})}
    )
    manifest = run.manifest.model_copy(update={"bottlenecks": [unlimited]})
    # Then it is the value that the analysis measured.
    measured = run.summary.phase[record.egress].packet_time_us * 1e3
    assert with_records(run, manifest=manifest).frame_ns == round(measured)


# --- Effective settings: their names in the manifest, and how the analysis reads them


SAMPLING = Sampling(every_ns=10_000_000, taken=36, missed=2, longest_ns=7)
RECORD = flattened(
    hosts=host_settings(
        route_min_rto_ms={"": 2, "h3": 200},
        route_metrics={"": {"quickack": 1}, "h3": {"initcwnd": 3}},
        sysctls={"ipv4.tcp_sack": "1"},
        own_sysctls={"h3": {"ipv4.tcp_sack": "0"}, "h4": {}},
        recorded_sysctls={"ipv4.tcp_rmem": "1 2 3"},
        offloads=False,
    ),
    arrivals_core=1,
    queues=queue_settings(
        bottleneck={"rate_bps": 10, "limit_bytes": 5},
        ports=((("s1-eth1",), {"rate_bps": 10}), (("s1-eth2", "s1-eth3"), {"rate_bps": 20})),
    ),
    forwarding="Open vSwitch",
    routing={"kind": "hashed", "openflow": "OpenFlow15", "hash_seed": 0, "split": {"s1": 3}},
    mptcp_subflows={"h1": 2},
    start={"connect_s": 0.5, "start_set": "beforehand", "notice_s": None, "lead_s": 0.9},
    workloads={"workloads.flows": 3},
    sampling=SAMPLING,
    load={"cpu.machine_share": 0.5},
    min_rto_ns=4_000_000,
    controller_framework="ryu",
)


def test_the_manifest_names_every_setting():
    assert list(RECORD.items()) == [
        ("rto_min_route_ms", 2),
        ("h3.rto_min_route_ms", 200),
        ("quickack_route", 1),
        ("h3.initcwnd_route", 3),
        ("ipv4.tcp_sack", "1"),
        ("h3.ipv4.tcp_sack", "0"),
        ("ipv4.tcp_rmem", "1 2 3"),
        ("offloads", False),
        ("arrivals_core", 1),
        ("bottleneck.rate_bps", 10),
        ("bottleneck.limit_bytes", 5),
        ("ports.0", "s1-eth1"),
        ("ports.0.rate_bps", 10),
        ("ports.1", "s1-eth2 s1-eth3"),
        ("ports.1.rate_bps", 20),
        ("forwarding", "Open vSwitch"),
        ("routing.kind", "hashed"),
        ("routing.openflow", "OpenFlow15"),
        ("routing.hash_seed", 0),
        ("routing.split", {"s1": 3}),
        ("mptcp.subflows", {"h1": 2}),
        ("traffic.connect_s", 0.5),
        ("traffic.start_set", "beforehand"),
        ("traffic.lead_s", 0.9),
        ("workloads.flows", 3),
        ("samples.every_ns", 10_000_000),
        ("samples.taken", 36),
        ("samples.missed", 2),
        ("samples.longest_ns", 7),
        ("cpu.machine_share", 0.5),
        ("min_rto_ns", 4_000_000),
        ("controller_framework", "ryu"),
    ]


def test_the_analysis_reads_the_settings_again():
    assert sampling_of(RECORD) == SAMPLING
    assert min_rto_ns_of(RECORD) == 4_000_000
    assert sampling_of({**RECORD, "samples.every_ns": 0}) is None
    assert sampling_of({}) is None
    assert min_rto_ns_of({}) is None
