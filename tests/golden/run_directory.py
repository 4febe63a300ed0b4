"""A run directory as `outcast run` leaves it, filled with the reference switch's captures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from outcast.analysis import analyze
from outcast.experiment import load_resolved
from outcast.plan.make import make_plan
from outcast.records.counters import Counters, HostCounters, PortCounters
from outcast.records.flows import BottleneckRecord, QueueRecord, TrafficRecord
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from tests import records
from tests.golden.model import Traffic, captures, drop_tail, make_traffic, write_pcap

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
    captured = []
    for name, made in captures(traffic).items():
        port, direction = ports[name]
        file = f"captures/{port}.{direction}.pcap"
        write_pcap(path / file, made)
        captured.append(records.capture(file, made.size))
    flows = []
    senders = sorted(set(zip(traffic.src.tolist(), traffic.port.tolist(), strict=True)))
    for number, (address, port) in enumerate(senders):
        rows = np.flatnonzero(traffic.src == address)
        flows.append(
            records.flow(
                number,
                ".".join(str(byte) for byte in address.to_bytes(4)),
                int(traffic.sport[rows[0]]),
                group=port,
                src=f"h{number + 2}",
                hops=2 + port,
                path=[f"h{number + 2}", *(["s2"] if port else []), "s1", "h1"],
                ingress=f"s1-eth{2 + port}",
                duration_ns=duration_ns,
            )
        )
    dropped = int((traffic.t_out < 0).sum())
    directory.write_manifest(
        records.manifest(
            name="golden",
            engine="realtime",
            datapath="netdev",
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
            captures=captured,
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
            captures=captured,
        )
    )
    return directory


def make_run(path: Path, duration_ns: int, *traffic: Any) -> RunDirectory:
    """A run whose queue of 16 KiB at 1 Gbps got the traffic of these arguments (`make_traffic`)."""
    return write_run(path, drop_tail(make_traffic(*traffic), 16_384, 10**9), duration_ns)


def analysed_run(path: Path, duration_ns: int, *traffic: Any) -> RunDirectory:
    """Such a run with its tables and its summary."""
    directory = make_run(path, duration_ns, *traffic)
    analyze(directory)
    return directory


def with_records(run: Run, **values: object) -> Run:
    """The run with other records than those in its folder, as `summary=...`."""
    other = Run(run.directory)
    vars(other).update({**vars(run), **values})
    return other


def delayed_run(path: Path, delay_ns: int, duration_ns: int, *traffic: Any) -> RunDirectory:
    """`analysed_run`, whose output has a link of this delay before its queue."""
    made = drop_tail(make_traffic(*traffic), 16_384, 10**9)
    made = replace(made, t_out=np.where(made.t_out < 0, made.t_out, made.t_out + delay_ns))
    directory = write_run(path, made, duration_ns)
    manifest = directory.read_manifest()
    (record,) = manifest.bottlenecks
    queue = record.queue.model_copy(update={"delay_ns": delay_ns})
    behind = record.model_copy(update={"queue": queue})
    directory.write_manifest(manifest.model_copy(update={"bottlenecks": [behind]}))
    analyze(directory)
    return directory
