"""TCP's settings of each host, which follow from those of its flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from outcast.errors import ConfigError
from outcast.experiment import Experiment, Transport
from outcast.experiment.transport import Ecn

if TYPE_CHECKING:
    from outcast.plan.flows import Flow

ReceiverKind = tuple[str, Literal["iperf", "tcp", "mptcp"]]
"""What the connections of one listening socket share: congestion control, and the program."""

_ECN_KINDS: tuple[Ecn, ...] = (False, True, "accurate")
"""From the least to the most: an end with more also takes connections with less."""
_OF_A_SENDER = (
    *("min_rto_ns", "sack", "ecn", "initial_window", "tail_loss_probe", "rack", "pacing_ratio"),
    *("small_queue_bytes", "send_buffer", "mptcp"),
)
"""What the senders of one host share."""


def all_of(experiment: Experiment) -> list[Transport]:
    """TCP's settings of the experiment, followed by those of every group of flows."""
    groups = range(len(experiment.flows))
    return [experiment.transport, *(experiment.group_transport(index) for index in groups)]


def receiver_kind(transport: Transport) -> ReceiverKind:
    """The kind of receiver that a flow needs; each kind at a host has its own listening socket.

    A DCTCP sender needs a receiver that echoes every mark as DCTCP does (RFC 8257, section 3.2).
    Any other sender needs a receiver that does not.
    """
    if transport.mptcp is not None:
        return transport.congestion_control, "mptcp"
    return transport.congestion_control, "tcp" if transport.tcprand is not None else "iperf"


def of_hosts(
    base: Transport, flows: Iterable[Flow], machine: Callable[[str], str] = str
) -> Mapping[str, Transport]:
    """The settings of each host that takes part in a flow; other hosts have `base`.

    `machine` gives an interface's host.

    Selective acknowledgements, ECN, the minimum RTO, the initial window, fq and what is set by
    sysctl belong to a host and not to a socket. A receiver offers what any of its senders uses,
    because a connection has what both ends have. Delayed acknowledgements and the receive buffer
    belong to the receiver.

    Raises ConfigError: two groups of one host ask for different settings of it.
    """
    senders: dict[str, Transport] = {}
    receivers: dict[str, list[Transport]] = {}
    for flow in flows:
        receivers.setdefault(machine(flow.dst), []).append(flow.transport)
        other = senders.setdefault(machine(flow.src), flow.transport)
        for name in _OF_A_SENDER:
            if getattr(other, name) != getattr(flow.transport, name):
                raise ConfigError(f"flows: {_disagree(flow.src, name)}")
        if (other.pacing == "fq") != (flow.transport.pacing == "fq"):
            raise ConfigError(f"flows: {_disagree(flow.src, 'pacing: fq')}")
    common = {
        "congestion_control": base.congestion_control,
        "delayed_acks": base.delayed_acks,
        "receive_buffer": base.receive_buffer,
    }
    hosts = {host: settings.model_copy(update=common) for host, settings in senders.items()}
    for host, received in receivers.items():
        offered = {
            "sack": any(settings.sack for settings in received),
            "ecn": max((settings.ecn for settings in received), key=_ECN_KINDS.index),
        }
        mine = senders.get(host)
        if mine is not None and any(getattr(mine, name) != offered[name] for name in offered):
            raise ConfigError(f"flows: {_disagree(host, 'sack and ecn')}, sent and received")
        windows = {str(settings.receive_buffer) for settings in received}
        if len(windows) > 1:
            raise ConfigError(f"flows: {_disagree(host, 'receive_buffer')}, received")
        delayed = {settings.delayed_acks for settings in received}
        if len(delayed) > 1:
            raise ConfigError(f"flows: {_disagree(host, 'delayed_acks')}, received")
        hosts[host] = (mine or base).model_copy(
            update={
                **common,
                **offered,
                "delayed_acks": delayed.pop(),
                "receive_buffer": received[0].receive_buffer,
            }
        )
    return hosts


def negotiated_ecn(first: Ecn, second: Ecn) -> Ecn:
    """The ECN of a connection between two hosts: the lesser of what they have."""
    return min(first, second, key=_ECN_KINDS.index)


def _disagree(host: str, setting: str) -> str:
    name = setting.removesuffix("_ns").removesuffix("_bytes")
    return f"groups that differ in {name} have flows of {host}; it is one setting of the host"
