"""A run that measured something for every figure. What each figure shows of it is tested elsewhere:
here is only enough for the drawing to be looked at."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from outcast.records.port_summaries import CountedOfClass, ServiceClassSummary, SpreadSummary
from outcast.records.run import Run
from outcast.records.run_directory import write_record
from outcast.records.summary import ProbeSummary
from outcast.uses.whatif.compared import Compared, Decision, Instant, WhatIf
from tests.golden.run_directory import analysed_run, with_records

DURATION_NS = 80_000_000
SPREAD = SpreadSummary(mean=1.5, p50=1.0, p90=2.0, p99=3.0, max=4.0)


def sampled(run: Run) -> pl.DataFrame:
    """Sockets as they might be sampled: flow n has a window of n + 1 segments and n + 1 ms."""
    times = np.arange(0, DURATION_NS, 10_000_000)
    return pl.concat(
        pl.DataFrame(
            {
                "t": times,
                "flow": np.full(times.size, flow.flow, np.int32),
                "host": flow.src,
                "cwnd": np.full(times.size, flow.flow + 1),
                "srtt_us": np.full(times.size, 1000 * (flow.flow + 1)),
                "unacked": np.ones(times.size, np.int64),
                "notsent_bytes": np.zeros(times.size, np.int64),
            }
        )
        for flow in run.manifest.flows
    )


def _tables(run: Run) -> dict[str, pl.DataFrame]:
    tens_of_ms = [10**7 * number for number in range(8)]
    bins = pl.DataFrame({"t": [0, 4 * 10**7] * 2, "flow": [0, 0, 1, 1]})
    executed = {"duration_ns": [10**6, 2 * 10**6], "status": 0, "ended_by": "itself"}
    udp = {"flow": [20, 21], "src": ["h2", "h3"], "sent_bps": 8e6, "received_bps": [6e6, 2e6]}
    times = {"delay_mean": 1e6, "delay_p50": 1e6, "delay_p99": 2e6, "jitter": 1e4}
    flows = {"size_bytes": [5_000, 200_000, 20_000_000], "fct": [10**6, 10**7, None]}
    rates = {"goodput_bps": [5e6, 7e6, 1e6, 3e6], "dropped": [1, 2, 3, 4]}
    both = {"factual_bps": [1e6, 2e6, 3e6, 4e6], "counterfactual_bps": [1e6, 4e6, 3e6, 2e6]}
    fates = {"factual": ["dropped", None], "counterfactual": "forwarded"}
    return {
        "sockets": sampled(run),
        "probes": pl.DataFrame({"probe": 0, "t": tens_of_ms, "rtt_ns": [2 * 10**6, None] * 4}),
        "completions": pl.DataFrame({"workload": 0, "kind": "poisson", **flows}),
        "programs": pl.DataFrame({"program": ["get", "get"], "server": False, **executed}),
        "streams": pl.DataFrame({"workload": 0, **udp, "loss_share": [0.25, 0.75], **times}),
        "workloads": bins.with_columns(
            pl.DataFrame({"workload": [0] * 4, "kind": "constant_rate", **rates})
        ),
        "whatif": bins.with_columns(pl.DataFrame(both)),
        "blast": pl.DataFrame({"t": tens_of_ms[3:5], "other": True, **fates}),
    }


def all_measured(path: Path) -> Run:
    """The run. Its flows start one after the other, so that they join and leave."""
    run = Run(analysed_run(path, DURATION_NS, 9, 6_000, (1, 4)))
    for name, table in _tables(run).items():
        table.write_parquet(path / f"{name}.parquet")
    counts = {"changed": 1, "only_factual": 0, "only_counterfactual": 1, "packets": 9}
    whatif: dict[str, Any] = {"of": "run", "parts": [], "flows": [], "groups": [], "first": []}
    ratio = Compared(factual=2.0, counterfactual=1.0)
    write_record(
        run.directory.whatif,
        WhatIf(**whatif, parts_ns=3 * 10**7, ratio=ratio, by_flow={0: 2}, **counts),
    )
    happened = [([True, False], 0.0, 1.0), ([True, True], 0.2, 1.0)]
    instants = [
        Instant(t_ns=(number + 1) * 10**7, seeds=[1, 2], happened=each, low=low, high=high)
        for number, (each, low, high) in enumerate(happened)
    ]
    write_record(
        run.directory.decision,
        Decision(
            outcome="flow 0 starves", happened=True, futures="futures", instants=instants,
            decided_ns=2 * 10**7,
        )
    )  # fmt: skip
    counted = CountedOfClass(sent=9, dropped=1)
    service = ServiceClassSummary(
        dscp=[46], packets=10, dropped=1, rate_bps=5e6, queueing_ms=SPREAD, captured=counted,
        counted=counted,
    )  # fmt: skip
    probe = ProbeSummary(
        kind="icmp", src="h3", dst="h1", payload_bytes=56, every_ms=10.0, sent=8, lost=4,
        base_rtt_ms=1.0, rtt_ms=SPREAD,
    )  # fmt: skip
    queue = {
        port: each.model_copy(update={"classes": {"fast": service, "rest": service}})
        for port, each in run.summary.queue.items()
    }
    flows = [
        flow.model_copy(update={"start_ns": 10**7 * flow.flow, "duration_ns": 3 * 10**7})
        for flow in run.manifest.flows
    ]
    return with_records(
        run,
        summary=run.summary.model_copy(update={"probes": {"0": probe}, "queue": queue}),
        manifest=run.manifest.model_copy(update={"flows": flows}),
    )
