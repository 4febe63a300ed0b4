"""Effective settings: their names in the manifest, and how the analysis reads them."""

from outcast.records.effective import (
    Effective,
    HostSettings,
    QueueSettings,
    Routing,
    Sampling,
    Start,
    min_rto_ns_of,
    sampling_of,
)

SAMPLING = Sampling(every_ns=10_000_000, taken=36, missed=2, longest_ns=7)
RECORD = Effective(
    hosts=HostSettings(
        route_min_rto_ms={"": 2, "h3": 200},
        route_metrics={"": {"quickack": 1}, "h3": {"initcwnd": 3}},
        sysctls={"ipv4.tcp_sack": "1"},
        own_sysctls={"h3": {"ipv4.tcp_sack": "0"}, "h4": {}},
        recorded_sysctls={"ipv4.tcp_rmem": "1 2 3"},
        offloads=False,
    ),
    arrivals_core=1,
    queues=QueueSettings(
        bottleneck={"rate_bps": 10, "limit_bytes": 5},
        ports=((("s1-eth1",), {"rate_bps": 10}), (("s1-eth2", "s1-eth3"), {"rate_bps": 20})),
    ),
    forwarding="Open vSwitch",
    routing=Routing("hashed", "OpenFlow15", "over ports", 0, {"s1": {"s1-eth1": 3}}),
    mptcp_subflows={"h1": 2},
    start=Start(connect_s=0.5, start_set="when all had connected", notice_s=0.4, lead_s=0.9),
    workloads={"workloads.flows": 3},
    sampling=SAMPLING,
    load={"cpu.machine_share": 0.5},
    min_rto_ns=4_000_000,
    controller_framework="ryu",
)


def test_the_manifest_names_every_setting():
    assert list(RECORD.flat().items()) == [
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
        ("routing.hash", "over ports"),
        ("routing.hash_seed", 0),
        ("routing.split", {"s1": {"s1-eth1": 3}}),
        ("mptcp.subflows", {"h1": 2}),
        ("traffic.connect_s", 0.5),
        ("traffic.start_set", "when all had connected"),
        ("traffic.notice_s", 0.4),
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
    flat = RECORD.flat()
    assert sampling_of(flat) == SAMPLING
    assert min_rto_ns_of(flat) == 4_000_000
    assert sampling_of({**flat, "samples.every_ns": 0}) is None
    assert sampling_of({}) is None
    assert min_rto_ns_of({}) is None
