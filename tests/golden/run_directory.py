"""A run directory as `outcast run` leaves it, filled with the reference switch's captures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from outcast.experiment import load_resolved
from outcast.plan.make import make_plan
from outcast.records.run import Run
from outcast.records.run_directory import (
    BottleneckRecord,
    CaptureRecord,
    Counters,
    FlowRecord,
    HostCounters,
    Manifest,
    PortCounters,
    QueueRecord,
    RunDirectory,
    TrafficRecord,
)
from tests.golden.model import Traffic, captures, write_pcap

CONFIG = """\
name: golden
topology: {kind: linear, rivals: 12}
links: {rate: 1gbit}
queue: {kind: tbf, limit: 16KB}
transport: {congestion_control: cubic}
flows:
  - {from: 2-hop}
  - {from: 3-hop}
duration: {duration}
analysis: {windows: [{window}], bin: 1ms}
"""


def write_run(path: Path, traffic: Traffic, duration_ns: int) -> RunDirectory:
    """Writes the run. Flow 0 enters by the first port, all others by the second."""
    directory = RunDirectory(path)
    directory.captures.mkdir(parents=True)
    start = int(traffic.t_in[0])
    microseconds = duration_ns // 1000
    directory.config.write_text(
        CONFIG.replace("{duration}", f"{microseconds}us").replace(
            "{window}", f"{microseconds // 2}us"
        )
    )
    directory.write_plan(make_plan(load_resolved(directory.config)))
    ports = {"in0": ("s1-eth2", "in"), "in1": ("s1-eth3", "in"), "out": ("s1-eth1", "out")}
    records = []
    for name, made in captures(traffic).items():
        port, direction = ports[name]
        file = f"captures/{port}.{direction}.pcap"
        write_pcap(path / file, made)
        records.append(
            CaptureRecord.model_validate(
                {
                    "port": port,
                    "direction": direction,
                    "file": file,
                    "captured": made.size,
                    "received_by_filter": made.size,
                    "dropped_by_kernel": 0,
                }
            )
        )
    flows = []
    senders = sorted(set(zip(traffic.src.tolist(), traffic.port.tolist(), strict=True)))
    for number, (address, port) in enumerate(senders):
        rows = np.flatnonzero(traffic.src == address)
        flows.append(
            FlowRecord(
                flow=number,
                group=port,
                src=f"h{number + 2}",
                src_ip=".".join(str(byte) for byte in address.to_bytes(4)),
                sport=int(traffic.sport[rows[0]]),
                dst="h1",
                dst_ip="10.0.0.1",
                dport=5001,
                hops=2 + port,
                path=[f"h{number + 2}", *(["s2"] if port else []), "s1", "h1"],
                ingress=f"s1-eth{2 + port}",
                start_ns=0,
                duration_ns=duration_ns,
                size_bytes=None,
                congestion_control="cubic",
            )
        )
    dropped = int((traffic.t_out < 0).sum())
    directory.write_manifest(
        Manifest(
            outcast="0.1.0",
            name="golden",
            engine="realtime",
            datapath="netdev",
            seed=1,
            kernel={},
            versions={},
            requested={},
            effective={},
            traffic=TrafficRecord(
                t_start_ns=start, t_end_ns=start + duration_ns, duration_ns=duration_ns
            ),
            flows=flows,
            bottlenecks=[
                BottleneckRecord(
                    switch="s1",
                    egress="s1-eth1",
                    ingress=["s1-eth2", "s1-eth3"],
                    destinations=["10.0.0.1"],
                    queue=QueueRecord(
                        kind="tbf", rate_bps=10**9, limit_bytes=16384, limit_packets=None
                    ),
                )
            ],
            captures=records,
            wall_s={"setup": 1.5, "traffic": 0.5},
        )
    )
    directory.write_counters(
        Counters(
            ports={"s1-eth1": PortCounters(before={"drops": 3}, after={"drops": 3 + dropped})},
            hosts={
                flow.src: HostCounters(
                    before={"TcpRetransSegs": 5},
                    after={"TcpRetransSegs": 5 + flow.flow, "TcpExtTCPTimeouts": 2},
                )
                for flow in flows
            },
            captures=records,
        )
    )
    return directory


def with_records(run: Run, **values: object) -> Run:
    """The run with other records than those in its folder, as `summary=...`."""
    other = Run(run.directory)
    vars(other).update({**vars(run), **values})
    return other
