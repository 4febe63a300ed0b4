"""TCP's settings: those of all hosts, and those of a group of flows that differ."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, create_model, model_validator
from pydantic.fields import FieldInfo

from outcast.experiment.parts import (
    KernelRateBps,
    Part,
    SizeBytes,
    TimeNs,
    described,
    optional,
    or_text,
)
from outcast.handed_in import own_words
from outcast.units import parse_size_bytes

CONGESTION_CONTROL_PATTERN = r"^[a-z][a-z0-9_]*$"

Ecn = bool | Literal["accurate"]
"""No ECN, that of RFC 3168, or Accurate ECN."""

MOST_RTO_NS = 120 * 10**9
"""The kernel's TCP_RTO_MAX (include/net/tcp.h)."""
MOST_PAYLOAD_BYTES = 1448
"""A full segment with timestamps on Ethernet."""


class Adaptive(Part):
    """TCPRand's Algorithm 1, by which the smallest payload follows CUBIC's window."""

    sigma2: float = described("variance of the normal distribution", default=1.0, gt=0)
    mu: float = described("its mean", default=1.0)
    nu_tau: float | Literal["infinite"] = described(
        "scales the window from which on sizes are random; 1 or more", default=1.0
    )
    nu_omega: float = described(
        "scales the window up to which sizes are random; 0: no upper end", default=1.0, ge=0
    )
    theta: int = described(
        "smallest payload of all, in bytes", default=200, ge=1, le=MOST_PAYLOAD_BYTES
    )

    def _require(self) -> None:
        if isinstance(self.nu_tau, float) and self.nu_tau <= 0:
            raise ValueError("nu_tau: allowed is a number above 0, or infinite")


class TcpRand(Part):
    """Payload sizes uniform between a smallest one and a full segment. Exactly one key is set."""

    min_payload: int | None = optional("rMin, a fixed number of bytes", ge=1, le=MOST_PAYLOAD_BYTES)
    adaptive: Adaptive | None = optional("rMin from Algorithm 1")

    def _require(self) -> None:
        if (self.min_payload is None) == (self.adaptive is None):
            raise ValueError("allowed is one of min_payload: 200 and adaptive: {}")


class Mptcp(Part):
    """Multipath TCP."""

    subflows: int = described("TCP connections of each flow", default=2, ge=2, le=8)
    over: Literal["ports", "interfaces"] = described(
        "what they differ in: ports of one address; or one of each interface of the sender, see "
        "docs/own-topologies.md",
        default="ports",
    )


class PacingRatio(Part):
    """The pacing rate in percent of window over RTT (ip-sysctl, tcp_pacing_ss_ratio)."""

    slow_start: int = described("below half of ssthresh", default=200, ge=1, le=1000)
    avoidance: int = described("above that", default=120, ge=1, le=1000)


_LEAST_BUFFER_BYTES = 4096


class Buffer(Part):
    """The sizes of a socket's buffer (tcp(7), tcp_rmem and tcp_wmem). The kernel tunes within them.

    A size alone is the largest; the others are Linux's own, or the same if it is smaller.
    """

    min_bytes: SizeBytes = Field(default=_LEAST_BUFFER_BYTES, gt=0, lt=2**31)
    default_bytes: SizeBytes = Field(gt=0, lt=2**31)
    max_bytes: SizeBytes = Field(gt=0, lt=2**31)

    @model_validator(mode="before")
    @classmethod
    def _size_alone(cls, given: object, info: ValidationInfo) -> object:
        if isinstance(given, (dict, Buffer)):
            return given
        size = parse_size_bytes(given)
        usual = min(131_072 if info.field_name == "receive_buffer" else 16_384, size)
        return {
            "min": f"{min(_LEAST_BUFFER_BYTES, size)}B",
            "default": f"{usual}B",
            "max": f"{size}B",
        }

    def _require(self) -> None:
        if not self.min_bytes <= self.default_bytes <= self.max_bytes:
            raise ValueError("allowed is min up to default, and default up to max")
        if self.min_bytes < _LEAST_BUFFER_BYTES:
            raise ValueError("allowed is 4KB or more, a page, which is the least that Linux takes")

    def __str__(self) -> str:
        return f"{self.min_bytes} {self.default_bytes} {self.max_bytes}"


class Transport(Part):
    """TCP's settings at every host."""

    congestion_control: str = described(
        "the kernel's name: cubic, reno, bic, dctcp, bbr",
        default="cubic",
        pattern=CONGESTION_CONTROL_PATTERN,
    )
    min_rto_ns: TimeNs = described(
        "smallest RTO, in whole milliseconds; the kernel rounds it up to its tick",
        default=200_000_000,
    )
    sack: bool = described("selective acknowledgements (RFC 2018)", default=True)
    ecn: Ecn = described(
        "explicit congestion notification: true is RFC 3168; accurate is AccECN (RFC 9768), which "
        "reports to the sender how many packets were marked, and needs Linux 7",
        default=False,
    )
    offloads: bool | None = optional(
        "TSO, GSO, GRO and checksum offloads. Default: as the profile of `noise` says, and false "
        "where tcprand or blackout need it, or links have an MTU of their own"
    )
    pacing: Literal["none", "fq", "internal"] = described(
        "what spaces a flow's packets over its RTT: TCP itself, or fq at the sender's port",
        default="none",
    )
    pacing_rate_bps: KernelRateBps | None = optional(
        "upper limit; if left out, only the rate that TCP computes from cwnd and RTT"
    )
    mptcp: Mptcp | None = optional("several TCP connections for one flow (RFC 8684)")
    tcprand: TcpRand | None = optional("payloads of random sizes (TCPRand, section 4)")
    initial_window: int | None = optional(
        "segments that a flow sends before the first acknowledgement. If left out, the kernel's "
        "own: 10 (RFC 6928), and 3 before Linux 2.6.39 (RFC 3390)",
        ge=1,
        le=65535,
    )
    tail_loss_probe: bool | None = optional(
        "whether a sender probes for a lost tail before its RTO (RFC 8985, section 7), as Linux "
        "does from 3.10 on with SACK; if left out, the kernel's own"
    )
    rack: bool | None = optional(
        "whether time shows losses (RFC 8985), as in Linux from 4.4 on; false only before "
        "Linux 6.17, which always does; if left out, the kernel's own"
    )
    pacing_ratio: PacingRatio | None = optional(
        "by how much pacing is faster than window over RTT; if left out, the kernel's own"
    )
    delayed_acks: bool | None = optional(
        "whether receivers delay acknowledgements (RFC 1122, section 4.2.3.2); false acknowledges "
        "every segment, as ns-2's usual receiver does; if left out, the kernel's own"
    )
    small_queue_bytes: SizeBytes | None = optional(
        "most bytes of a flow that wait in the sender's own queues (TCP small queues, Linux 3.6 "
        "on); if left out, the kernel's own",
        gt=0,
        lt=2**31,
    )
    send_buffer: Buffer | None = optional(
        "most that a socket holds of what was sent and not yet acknowledged, and of what is to be "
        "sent; a size, or {min, default, max} as tcp_wmem has them; if left out, the kernel's own",
        json_schema_extra=or_text("size"),
    )
    receive_buffer: Buffer | None = optional(
        "most that a socket holds of what was received, which bounds the window that it offers; a "
        "size, or {min, default, max} as tcp_rmem has them; if left out, the kernel's own",
        json_schema_extra=or_text("size"),
    )

    def _require(self) -> None:
        if not 10**6 <= self.min_rto_ns <= MOST_RTO_NS or self.min_rto_ns % 10**6:
            raise ValueError(
                "min_rto: the kernel takes whole milliseconds from 1ms to 120s, as 2ms"
            )
        paced = {"pacing_rate": self.pacing_rate_bps, "pacing_ratio": self.pacing_ratio}
        for key, value in paced.items():
            if value is not None and self.pacing == "none":
                raise ValueError(
                    f"{key}: nothing is paced; it is allowed with pacing fq or internal"
                )
        if self.tail_loss_probe and not self.sack:
            raise ValueError("tail_loss_probe: the kernel probes only with sack: true")
        if self.mptcp is not None and (self.pacing == "internal" or self.pacing_rate_bps):
            raise ValueError(
                "mptcp: the kernel takes no pacing rate for MPTCP sockets; allowed is pacing none, "
                "or fq without pacing_rate"
            )
        if self.tcprand is None:
            return
        if self.offloads:
            raise ValueError(
                "tcprand: segmentation offloads would merge its packets; allowed is offloads: false"
            )
        if self.mptcp is not None:
            raise ValueError(
                "tcprand and mptcp: allowed is one of the two, because MPTCP cuts segments itself"
            )
        if self.tcprand.adaptive is not None and self.congestion_control != "cubic":
            raise ValueError(
                "tcprand.adaptive: Algorithm 1 follows CUBIC's window; allowed is "
                "congestion_control: cubic, or a fixed min_payload"
            )

    @property
    def negotiates_ecn(self) -> bool:
        """Whether connections mark their packets ECN-capable; those of DCTCP always do."""
        return bool(self.ecn) or self.congestion_control == "dctcp"

    def beyond_the_generator(self) -> str | None:
        """The first setting here that generated TCP traffic (`workloads`) cannot have, if any."""
        if self.mptcp is not None:
            return "mptcp"
        return f"pacing: {self.pacing}" if self.pacing != "none" else None


def _optional(field: FieldInfo) -> tuple[Any, Any]:
    annotated: Any = Annotated
    own: Any = field.annotation
    if field.metadata:
        own = annotated[own, *field.metadata]
    if field.default is not None:
        own |= None
    extra = field.json_schema_extra
    return own, Field(default=None, description=field.description, json_schema_extra=extra)


_OWN_KEYS: dict[str, Any] = {
    name: _optional(field) for name, field in Transport.model_fields.items() if name != "offloads"
}
_Keys: Any = create_model("_Keys", __base__=Part, **_OWN_KEYS)


class GroupTransport(_Keys):  # type: ignore[misc]
    """A group's settings. A key that is left out has its value in `transport`."""

    def over(self, base: Transport) -> Transport:
        """The settings of the group's flows: `base` with the group's own keys.

        Raises ValueError where the two do not fit together.
        """
        tree = base.model_dump(mode="json", by_alias=True, exclude_none=True)
        if self.pacing == "none":
            tree.pop("pacing_rate", None)
            tree.pop("pacing_ratio", None)
        tree |= self.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            return Transport.model_validate(tree)
        except ValidationError as error:
            raise ValueError(own_words(error.errors()[0])) from None
