"""Records of what came of interventions: whatif.json, and fate.json with an outcome's decision."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from outcast import handed_in
from outcast.records import RunDirectory, read_record
from outcast.units import MOST_SPAN_NS

_TimeNs = Annotated[int, Field(ge=-MOST_SPAN_NS, le=MOST_SPAN_NS)]


class Compared(handed_in.Record):
    factual: float | None
    counterfactual: float | None
    difference: float | None = Field(
        default=None, description="counterfactual less factual; null where one is unknown"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_difference(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        match values.get("factual"), values.get("counterfactual"):
            case int() | float() as before, int() | float() as after:
                return {**values, "difference": after - before}
        return {**values, "difference": None}


class ComparedFlows(handed_in.Record):
    """A flow, or a group of flows, in both runs.

    `completion_ns` is the mean over flows that complete.
    """

    name: str
    flows: int
    goodput_bps: Compared
    drops: Compared
    timeouts: Compared
    completion_ns: Compared


class OtherFate(handed_in.Record):
    """A packet that has another fate in the other run; None if that run does not have it."""

    flow: int
    seq: int
    payload: int
    transmission: int = Field(description="how often the segment had been sent before")
    t_in_ns: int = Field(description="when it came in, in the run in which it was sent first")
    factual: str | None
    counterfactual: str | None


class WhatIf(handed_in.Versioned):
    """whatif.json: what came of the interventions in a run."""

    format: int = 2
    of: str
    changes: list[str] = Field(default=[], description="what was changed, in words")
    parts_ns: int | None = Field(description="where the runs part, after the traffic's start")
    parts: list[str] = Field(description="the same in words")
    flows: list[ComparedFlows]
    groups: list[ComparedFlows]
    ratio: Compared = Field(description="the outcast ratio, or that of the groups compared")
    changed: int = Field(description="packets that both runs have, with other fates")
    only_factual: int = Field(description="packets seen only in the run intervened in")
    only_counterfactual: int = Field(description="packets seen only in this run")
    packets: int = Field(description="packets of both runs together, each counted once")
    by_flow: dict[int, int] = Field(description="packets with another fate, by their flow")
    first: list[OtherFate] = Field(description="the first packets with another fate")


class Instant(handed_in.Record):
    """The outcomes of the futures from one instant on."""

    t_ns: _TimeNs = Field(description="from when the noise is another one, after the start")
    seeds: list[int] = Field(description="of the futures' noise")
    happened: list[bool] = Field(description="whether each future had the outcome")
    low: float = Field(ge=0, le=1, description="95 % interval of the probability (Clopper-Pearson)")
    high: float = Field(ge=0, le=1)
    same: int = Field(default=0, description="futures that are the run itself, to the byte")

    @property
    def probability(self) -> float:
        """The share of the futures with the outcome."""
        return sum(self.happened) / len(self.happened)


class Decision(handed_in.Versioned):
    """fate.json: from when on an outcome of a run was decided."""

    format: int = 2
    outcome: str
    happened: bool = Field(description="whether the run itself had the outcome")
    futures: str = Field(description="the folder with the futures' runs")
    instants: list[Instant]
    causes: list[str] = Field(
        default=[], description="what else differs between the run and its futures, as their kernel"
    )
    decided_ns: int | None = Field(
        description="the first instant from which on the probability's interval lies above 0.95 or "
        "below 0.05; null where there is none"
    )


def read_whatif(directory: RunDirectory) -> WhatIf | None:
    """None if nobody intervened in the run. Raises InputError."""
    return read_record(directory.whatif, WhatIf) if directory.whatif.exists() else None


def read_decision(directory: RunDirectory) -> Decision | None:
    """None if `outcast fate` did not run. Raises InputError."""
    return read_record(directory.decision, Decision) if directory.decision.exists() else None
