"""The whole experiment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from outcast.experiment.blackout import Blackout
from outcast.experiment.exceptions import QueueException
from outcast.experiment.flows import FlowGroup
from outcast.experiment.links import Links
from outcast.experiment.measure import Analysis, Capture, Samples
from outcast.experiment.parts import Part, TimeNs
from outcast.experiment.queue import Queue
from outcast.experiment.routing import Routing, Shortest
from outcast.experiment.sweep import Sweep
from outcast.experiment.topology import Topology
from outcast.experiment.transport import Transport
from outcast.experiment.workloads import Workload


class Experiment(Part):
    """The whole experiment."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="names the results")
    topology: Topology
    links: Links
    queue: Queue
    queues: tuple[QueueException, ...] = Field(
        default=(), description="exceptions to `queue`; the last that fits a port counts"
    )
    routing: Routing = Shortest()
    transport: Transport = Transport()
    flows: tuple[FlowGroup, ...] = ()
    workloads: tuple[Workload, ...] = ()
    blackout: Blackout | None = None
    duration_ns: TimeNs = Field(
        alias="duration", gt=0, description="from the start of the first flows"
    )
    capture: Capture = Capture()
    samples: Samples = Samples()
    analysis: Analysis = Analysis()
    engine: Literal["auto", "realtime", "virtual"] = Field(
        default="auto", description="auto: virtual where it can run, else realtime"
    )
    seed: int = Field(
        default=1, ge=0, lt=2**63, description="decides all that is random in the virtual engine"
    )
    repetitions: int = Field(
        default=1, ge=1, le=10_000, description="of a sweep; `outcast run` runs once"
    )
    sweep: Sweep | None = Field(
        default=None, description="what `outcast sweep` varies; `outcast run` passes it by"
    )

    def group_transport(self, group: int) -> Transport:
        """TCP's settings of a group's flows: `transport`, and what the group has otherwise."""
        own = self.flows[group].transport
        return self.transport if own is None else own.over(self.transport)

    @model_validator(mode="after")
    def _transports_fit(self) -> Experiment:
        for index in range(len(self.flows)):
            try:
                self.group_transport(index)
            except ValueError as error:
                raise ValueError(f"flows.{index}.transport: {error}") from None
        return self

    @model_validator(mode="after")
    def _workloads_do_as_transport_says(self) -> Experiment:
        for index, workload in enumerate(self.workloads):
            unknown = self.transport.beyond_the_generator()
            if workload.kind != "constant_rate" and unknown is not None:
                raise ValueError(
                    f"workloads.{index}: {workload.kind} traffic is not sent with "
                    f"transport.{unknown}; allowed with it is kind: constant_rate, "
                    f"or {unknown} within flows.N.transport alone"
                )
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> Experiment:
        if not self.flows and not self.workloads:
            raise ValueError("flows: there are none; allowed are flows, workloads, or both")
        for index, group in enumerate(self.flows):
            if group.start_ns >= self.duration_ns:
                raise ValueError(f"flows.{index}.start: is to be before the end of the duration")
            end_ns = group.start_ns + (group.duration_ns or 0)
            if end_ns > self.duration_ns:
                raise ValueError(f"flows.{index}.duration: ends after the experiment's duration")
        for index, workload in enumerate(self.workloads):
            if workload.start_ns + (workload.duration_ns or 1) > self.duration_ns:
                raise ValueError(f"workloads.{index}: goes on after the experiment's duration")
        for index, window_ns in enumerate(self.analysis.windows_ns):
            if window_ns > self.duration_ns:
                raise ValueError(f"analysis.windows.{index}: is longer than the duration")
        if self.blackout is not None and self.transport.offloads:
            raise ValueError(
                "blackout: its switch forwards frames as they are on the wire; "
                "allowed is transport.offloads: false"
            )
        if self.analysis.bin_ns > self.duration_ns:
            raise ValueError("analysis.bin: is longer than the duration")
        return self
