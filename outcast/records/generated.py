"""What became of every generated flow: the schedule and the programs' rows, put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from outcast import handed_in
from outcast.errors import InputError
from outcast.plan.schedule import Generated
from outcast.records.run_directory import MOST_COUNT, MOST_TIME_NS, RunDirectory

_Kind = TypeVar("_Kind")
_Time = Annotated[int, Field(ge=0, le=MOST_TIME_NS)] | None
_Count = Annotated[int, Field(ge=0, le=MOST_COUNT)] | None


@dataclass(frozen=True, slots=True)
class Completed:
    """One generated flow.

    Attributes:
        planned: as it was scheduled.
        start_ns, end_ns: after the traffic's start: when it was to start (when its turn came, for
            flows without a time of their own), and when its last byte arrived; None where it
            never started, or had not ended at the end of the experiment.
        late_ns: from the planned to the actual start.
        received_bytes: up to the end; of a stream, its datagrams' payload.
        sent, received: datagrams of a stream.
        retransmits, timeouts: of its connection; timeouts from Linux 6.7 on.
        error: why it failed, where it did.
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
        """The flow completion time: from the planned start to the last byte's arrival."""
        if self.end_ns is None or self.start_ns is None:
            return None
        return self.end_ns - self.start_ns


def schedule_file(directory: RunDirectory) -> Path:
    """The schedule, a JSON line for each flow."""
    return directory.flows / "schedule.jsonl"


def result_file(directory: RunDirectory, host: str) -> Path:
    """What a host's program wrote."""
    return directory.flows / f"generated.{host}.jsonl"


def read_rows(directory: RunDirectory) -> Iterator[dict[str, Any]]:
    """The rows of all programs. Raises InputError where a file cannot be read."""
    for file in sorted(directory.flows.glob("generated.*.jsonl")):
        for told, row in _lines(file, TypeAdapter(_Row)):
            # What only some versions tell is left to who asks for it.
            yield {**told, **row.model_dump(exclude_unset=True)}


class _Row(BaseModel):
    """What is used of a program's row, of either side of a flow."""

    side: str
    flow: int | None = None
    t_begun: _Time = None
    t_planned: _Time = None
    t_asked: _Time = None
    t_end: _Time = None
    bytes: _Count = None
    datagrams: _Count = None
    retransmits: _Count = None
    timeouts: _Count = None
    congestion_control: str | None = None
    error: str | None = None


def read(directory: RunDirectory, t_start_ns: int) -> list[Completed]:
    """Every generated flow of a run; none where it had no workloads.

    Raises:
        InputError: a file is missing or broken, or a row is of no planned flow.
    """
    schedule = schedule_file(directory)
    if not schedule.exists():
        return []
    planned = [flow for _, flow in _lines(schedule, TypeAdapter(Generated))]
    sides: dict[str, dict[int, dict[str, Any]]] = {"send": {}, "receive": {}}
    for row in read_rows(directory):
        if row["side"] in sides:
            sides[row["side"]][row.get("flow", -1)] = row
    strange = {*sides["send"], *sides["receive"]} - {flow.flow for flow in planned}
    if strange:
        raise InputError(f"{directory.flows}: rows of flow {min(strange)}, which {schedule} lacks")
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


def _lines(file: Path, kind: TypeAdapter[_Kind]) -> Iterator[tuple[dict[str, Any], _Kind]]:
    """Each line as it stands there, and checked."""
    for number, line in enumerate(handed_in.read_text(file).splitlines(), 1):
        try:
            tree = handed_in.parse_json(line)
            yield tree, kind.validate_python(tree)
        except ValidationError as error:
            why = handed_in.first_problem(error)
            raise InputError(f"{file}:{number}: {why}") from None
        except ValueError as error:
            raise InputError(f"{file}:{number}: {error}") from None
