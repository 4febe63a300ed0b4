"""Records of runs. What a test does not say is the least that a record needs."""

from typing import Any

from outcast.records.counters import CaptureRecord, LinkRecord, LinkTotals
from outcast.records.flows import FlowRecord, TrafficRecord
from outcast.records.run_directory import Manifest
from outcast.records.summary import CompletionSummary


def capture(file: str, packets: int = 1) -> CaptureRecord:
    """Of a file `captures/PORT.DIRECTION.pcap` from which no packet is missing."""
    port, direction, _ = file.removeprefix("captures/").split(".")
    counts = {"captured": packets, "received_by_filter": packets, "dropped_by_kernel": 0}
    return CaptureRecord.model_validate(
        {"port": port, "direction": direction, "file": file} | counts
    )


def completed(**more: Any) -> CompletionSummary:
    """A workload whose flows all finished at once."""
    usual = dict.fromkeys(("unfinished", "not_started", "failed", "latest_start_ms"), 0)
    unknown = dict.fromkeys(("datagrams_sent", "datagrams_lost", "retransmits", "timeouts"))
    return CompletionSummary.model_validate({**usual, **unknown, "times": {}, **more})


def flow(number: int, src_ip: str, sport: int, **more: Any) -> FlowRecord:
    """A flow to h1 that is to send for a second."""
    ends = {"src": f"h{src_ip.rpartition('.')[2]}", "src_ip": src_ip, "sport": sport}
    ends |= {"dst": "h1", "dst_ip": "10.0.0.1", "dport": 5001}
    usual = {"group": 0, "hops": 2, "path": [], "ingress": None, "congestion_control": "cubic"}
    times = {"start_ns": 0, "duration_ns": 10**9, "size_bytes": None}
    return FlowRecord(**{"flow": number, **ends, **usual, **times, **more})


def link(port: str, node: str, neighbour: str, **more: Any) -> LinkRecord:
    """A direction of a link that no flow crosses and that sent nothing."""
    nothing = LinkTotals(packets=0, bytes=0, lost={})
    usual: dict[str, Any] = {"rate_bps": 10**9, "flows": [], "acknowledged": [], "other": False}
    usual |= {"before": nothing, "after": nothing}
    return LinkRecord(port=port, node=node, neighbour=neighbour, **usual | more)


def manifest(**more: Any) -> Manifest:
    """A run of the virtual engine without flows and captures."""
    usual: dict[str, Any] = {
        "outcast": "0.1.0",
        "name": "x",
        "engine": "virtual",
        "datapath": "system",
        "seed": 1,
    }
    usual |= {key: {} for key in ("kernel", "versions", "requested", "effective")}
    usual |= {key: [] for key in ("flows", "bottlenecks", "captures")}
    traffic = TrafficRecord(t_start_ns=0, t_end_ns=1, duration_ns=1)
    return Manifest(**usual | {"traffic": traffic} | more)
