"""TCP sockets as ss(8) shows them, and whether they have what was asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from outcast.emulation import senders
from outcast.emulation.commands import Commands
from outcast.errors import ReadBackError
from outcast.plan.flows import Flow

_VARIATION_MARGIN = 8.0
"""ss(8) shows a quarter of what the kernel adds at the least, and the kernel keeps peaks longer."""
_JIFFIES_MS = 8.0
"""Rounding of an RTO to whole jiffies, twice, where HZ is 250."""


@dataclass(frozen=True, slots=True)
class SocketSample:
    """A TCP socket as ss(8) shows it (`ss -tinoHO`)."""

    t_ns: int
    local_port: int
    peer_port: int
    state: str
    congestion_control: str
    values: dict[str, str]


def sample_sockets(netns: int, commands: Commands) -> list[SocketSample]:
    """The TCP connections of a host, as ss(8) shows them now."""
    return parse_ss(commands.run(["ss", "-tinoHO"], netns=netns), time.time_ns())


def parse_ss(text: str, t_ns: int) -> list[SocketSample]:
    """The output of `ss -tinoHO`: one line for each socket."""
    samples = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 6:
            continue
        state, _receive_queue, _send_queue, local, peer = words[:5]
        values: dict[str, str] = {}
        names: list[str] = []
        rest = iter(words[5:])
        for word in rest:
            name, separator, value = word.partition(":")
            if separator:
                values[name] = value
            elif name in ("send", "pacing_rate", "delivery_rate"):
                values[name] = next(rest, "")
            else:
                names.append(word)
        known = {"ts", "sack", "ecn", "ecnseen", "fastopen", "app_limited"}
        controls = [name for name in names if name not in known]
        samples.append(
            SocketSample(
                t_ns=t_ns,
                local_port=int(local.rsplit(":", 1)[1]),
                peer_port=int(peer.rsplit(":", 1)[1]),
                state=state,
                congestion_control=controls[0] if controls else "",
                values={**values, "flags": ",".join(name for name in names if name in known)},
            )
        )
    return samples


def check_sockets(flows: Sequence[Flow], samples: Sequence[SocketSample]) -> None:
    """Every flow's sockets, at both ends, have what was asked for.

    The sender's congestion control and pacing rate, selective acknowledgements and ECN as
    negotiated; at the receiver its congestion control.

    Raises:
        ReadBackError: naming the first flow that has not, or that was never seen.
    """
    by_port = {sample.local_port: sample for sample in samples}
    receivers = {(sample.peer_port, sample.local_port): sample for sample in samples}
    for flow in flows:
        at = f"flow {flow.flow} at {flow.src}"
        wanted = flow.transport.congestion_control
        sender = by_port.get(flow.sport)
        if sender is None:
            raise ReadBackError(at, "congestion control", wanted, "no socket seen")
        if sender.congestion_control != wanted:
            raise ReadBackError(at, "congestion control", wanted, sender.congestion_control)
        flags = sender.values.get("flags", "").split(",")
        for flag, is_wanted in (
            ("sack", flow.transport.sack),
            ("ecn", flow.transport.negotiates_ecn),
        ):
            if (flag in flags) is not is_wanted:
                raise ReadBackError(at, flag, _on(is_wanted), _on(not is_wanted))
        rate_bps = senders.pacing_rate_bps(flow.transport)
        if rate_bps is not None:
            # "now/at most"; ss leaves the second out where nothing limits the rate.
            _, _, shown = sender.values.get("pacing_rate", "").partition("/")
            if shown != f"{rate_bps}bps":
                raise ReadBackError(at, "pacing_rate", f"{rate_bps}bps", shown or "none")
        receiver = receivers.get((flow.sport, flow.dport))
        shown = "no socket seen" if receiver is None else receiver.congestion_control
        if shown != wanted:
            raise ReadBackError(
                f"flow {flow.flow} at {flow.dst}", "congestion control", wanted, shown
            )


def _on(value: bool) -> str:
    return "on" if value else "off"


def check_min_rto(samples: Sequence[SocketSample], effective_ns: int) -> None:
    """The sockets' timeouts go down to the minimum RTO and not below.

    A timeout is the smoothed RTT plus four times its variation, or plus the minimum where that is
    more (RFC 6298; net/ipv4/tcp_input.c, __tcp_set_rto). Where no socket is as near to its RTT as
    the minimum and its own variation allow, the setting has not taken, whatever the route shows.

    Raises:
        ReadBackError: with the nearest timeout seen.
    """
    above_ms = []
    for sample in samples:
        # A socket that has measured no round trip yet shows none.
        if "rtt" in sample.values and "backoff" not in sample.values:
            rtt_ms, variation_ms = (float(part) for part in sample.values["rtt"].split("/"))
            rto_ms = float(sample.values["rto"])
            above_ms.append((rto_ms - rtt_ms, _VARIATION_MARGIN * variation_ms))
    if not above_ms:
        return
    minimum_ms = effective_ns / 1e6
    too_long = all(above > minimum_ms + slack + _JIFFIES_MS for above, slack in above_ms)
    too_short = min(above for above, _ in above_ms) < minimum_ms - _JIFFIES_MS
    if too_long or too_short:
        nearest = min(above for above, _ in above_ms)
        raise ReadBackError(
            "every socket", "minimum RTO", f"{minimum_ms:g} ms", f"an RTO of RTT + {nearest:g} ms"
        )
