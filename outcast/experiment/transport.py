"""TCP's settings."""

from __future__ import annotations

from pydantic import Field, model_validator

from outcast.experiment.parts import Part, TimeNs


class Transport(Part):
    """TCP's settings at every host."""

    congestion_control: str = Field(
        default="cubic",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="the kernel's name: cubic, reno, bic, dctcp, bbr",
    )
    min_rto_ns: TimeNs = Field(
        default=200_000_000,
        alias="min_rto",
        description="whole milliseconds; the kernel rounds it up to its tick",
    )
    sack: bool = Field(default=True, description="selective acknowledgements (RFC 2018)")
    ecn: bool = Field(default=False, description="explicit congestion notification (RFC 3168)")
    offloads: bool = Field(default=False, description="TSO, GSO, GRO and checksum offloads")

    @model_validator(mode="after")
    def _whole_milliseconds(self) -> Transport:
        if self.min_rto_ns < 10**6 or self.min_rto_ns % 10**6:
            raise ValueError("min_rto: the kernel takes whole milliseconds from 1ms, as 2ms")
        return self
