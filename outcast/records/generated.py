"""Reads the result of every generated flow from the schedule and the programs' rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import handed_in
from outcast.errors import InputError
from outcast.plan.schedule import Generated
from outcast.records.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Completed:
    """One generated flow.

    Attributes:
        start_ns: the planned start after the traffic's start. A flow without a time of its own
            starts when its turn comes. None if it never started.
        end_ns: when its last byte arrived, after the traffic's start. None if it had not ended at
            the end of the experiment.
        received_bytes: bytes up to the end. For a stream, the payload of its datagrams.
        retransmits, timeouts: the kernel's counts for its connection. Linux counts timeouts from
            6.7 on.
        error: why it failed; None if it did not.
    """

    planned: Generated
    start_ns: int | None
    end_ns: int | None
    late_ns: int | None
    received_bytes: int
    sent: int | None
    received: int | None
    retransmits: int | None
    timeouts: int | None
    congestion_control: str | None
    error: str | None

    @property
    def completion_ns(self) -> int | None:
        """The flow completion time, from the planned start to the arrival of the last byte."""
        if self.end_ns is None or self.start_ns is None:
            return None
        return self.end_ns - self.start_ns


def schedule_file(directory: RunDirectory) -> Path:
    """The schedule has a line of JSON for each flow."""
    return directory.flows / "schedule.jsonl"


def result_file(directory: RunDirectory, host: str) -> Path:
    """The file of a host's program has a line of JSON for each side of a flow."""
    return directory.flows / f"generated.{host}.jsonl"


def read_rows(directory: RunDirectory) -> Iterator[dict[str, Any]]:
    """Reads the rows of all hosts' programs. Raises InputError if a file cannot be read."""
    for file in sorted(directory.flows.glob("generated.*.jsonl")):
        yield from _lines(file)


def read_answers(directory: RunDirectory) -> dict[int, dict[str, int | None]]:
    """Reads the kernel's `retransmits` and `timeouts` of the senders of blocks, by workload.

    A sender's connection carries the blocks of all rounds, so no flow has counts of its own.
    """
    found: dict[int, dict[str, int | None]] = {}
    for row in read_rows(directory):
        if row["side"] == "answer":
            sums = found.setdefault(row["workload"], {"retransmits": 0, "timeouts": 0})
            for name, before in sums.items():
                count = row.get(name)
                sums[name] = None if count is None or before is None else before + count
    return found


def read_generated_flows(directory: RunDirectory, t_start_ns: int) -> list[Completed]:
    """Reads every generated flow of a run. Raises InputError: a file is missing or broken."""
    schedule = schedule_file(directory)
    if not schedule.exists():
        return []
    planned = [Generated(**row) for row in _lines(schedule)]
    sides: dict[str, dict[int, dict[str, Any]]] = {"send": {}, "receive": {}}
    for row in read_rows(directory):
        if row["side"] in sides:
            sides[row["side"]][row.get("flow", -1)] = row
    return [
        _complete(
            flow, sides["send"].get(flow.flow, {}), sides["receive"].get(flow.flow, {}), t_start_ns
        )
        for flow in planned
    ]


def _complete(
    flow: Generated, send: dict[str, Any], receive: dict[str, Any], t_start_ns: int
) -> Completed:
    def since_start(t_ns: int | None) -> int | None:
        return None if t_ns is None else t_ns - t_start_ns

    begun_ns, planned_ns = send.get("t_begun"), send.get("t_planned")
    asked_ns = receive.get("t_asked")
    datagrams = receive.get("datagrams")
    return Completed(
        planned=flow,
        start_ns=since_start(next((t for t in (asked_ns, planned_ns, begun_ns) if t), None)),
        end_ns=since_start(receive.get("t_end")),
        late_ns=begun_ns - planned_ns if begun_ns and planned_ns else None,
        received_bytes=receive.get("bytes") or (datagrams or 0) * (flow.datagram_bytes or 0),
        sent=send.get("datagrams"),
        received=datagrams,
        retransmits=send.get("retransmits"),
        timeouts=send.get("timeouts"),
        congestion_control=send.get("congestion_control"),
        error=send.get("error") or receive.get("error"),
    )


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(handed_in.read_text(file).splitlines(), 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InputError(f"{file}:{number}: {error}") from None
