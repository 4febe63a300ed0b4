"""TCP sockets as the kernel shows them (sock_diag(7)), compared with what was requested."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcast import netlink
from outcast.emulation import senders
from outcast.emulation.commands import entered
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import transport
from outcast.errors import ReadBackError
from outcast.plan.flows import Flow, families_of

if TYPE_CHECKING:
    from outcast.experiment.parts import Family

NETLINK_SOCK_DIAG = 4
"""linux/netlink.h; the socket module does not name it."""
SOCK_DIAG_BY_FAMILY = 20
_MESSAGE_BYTES = 72
"""The size of struct inet_diag_msg (linux/inet_diag.h)."""
INET_DIAG_INFO, INET_DIAG_VEGASINFO, _INET_DIAG_CONG, _INET_DIAG_ULP_INFO = 2, 3, 4, 19
_INET_DIAG_TOS, _INET_DIAG_TCLASS = 5, 6
_ULP_MPTCP, _MPTCP_TOKEN_LOCAL = 3, 2
"""INET_ULP_INFO_MPTCP (linux/inet_diag.h), MPTCP_SUBFLOW_ATTR_TOKEN_LOC (linux/mptcp.h)."""
_ESTABLISHED, _TIME_WAIT, _SYN_RECEIVED, _CLOSED, _LISTENING = 1, 6, 3, 7, 10
"""Numbers of states (net/tcp_states.h)."""
_CONNECTIONS = 0xFFE & ~(1 << _TIME_WAIT | 1 << _SYN_RECEIVED | 1 << _CLOSED | 1 << _LISTENING)
"""The states that ss(8) shows by default."""
_UDP_UNCONNECTED, _TCP_LISTEN = "07", "0A"
"""The same as the tables of proc(5) have them."""
_SACK, _ECN = 2, 8
"""TCPI_OPT_SACK and TCPI_OPT_ECN (linux/tcp.h)."""
_UNLIMITED = 2**64 - 1
_TIMEOUTS_AT = 240
"""Offset of tcpi_total_rto in struct tcp_info (Linux 6.7)."""
_ECN_MODE_AT, _MODE_ACCURATE_ECN = 276, 2
"""Offset of tcpi_ecn_mode in struct tcp_info, and TCPI_ECN_MODE_ACCECN (linux/tcp.h, Linux 7)."""

_TCP_INFO = {
    **{"backoff": ("B", 4), "options": ("B", 5), "rto_us": ("I", 8), "rtt_us": ("I", 68)},
    **{"rttvar_us": ("I", 72), "cwnd": ("I", 80), "retransmits": ("I", 100)},
    **{"most_pacing": ("Q", 112), "bytes_acked": ("Q", 120), "bytes_received": ("Q", 128)},
    **{"delivered_ce": ("I", 196), "bytes_sent": ("Q", 200)},
    **{"timeouts": ("H", _TIMEOUTS_AT), "ecn_mode": ("I", _ECN_MODE_AT)},
}
"""The format and the offset of members of struct tcp_info (linux/tcp.h)."""
_VARIATION_MARGIN = 8.0
"""The kernel shows a quarter of the variation that it adds at the least, and keeps peaks longer."""
_JIFFIES_MS = 8.0
"""Rounding of an RTO to whole jiffies, twice, where HZ is 250."""


@dataclass(frozen=True, slots=True)
class SocketSample:
    """A TCP connection's socket, from struct inet_diag_msg and struct tcp_info (linux/tcp.h).

    Attributes:
        sack, ecn: whether they were negotiated; `ecn` also where it is AccECN.
        backoff: timeouts in a row.
        timeouts: since the connection began; None where the kernel does not count them.
        rto_us, rtt_us, rttvar_us: the RTO, the smoothed RTT and its variation; an RTT of 0 was not
            measured yet.
        cwnd: in segments.
        bytes_sent, bytes_acked, bytes_received: payload.
        delivered_ce: segments acknowledged with a congestion mark.
        most_pacing_bps: the pacing rate that was set; None where none was.
        mptcp_token: of its Multipath TCP connection; None where it has none.
    """

    t_ns: int
    local_port: int
    peer_port: int
    is_established: bool
    congestion_control: str
    sack: bool
    ecn: bool
    accurate_ecn: bool
    backoff: int
    timeouts: int | None
    rto_us: int
    rtt_us: int
    rttvar_us: int
    cwnd: int
    retransmits: int
    bytes_sent: int
    bytes_acked: int
    bytes_received: int
    delivered_ce: int
    most_pacing_bps: int | None
    dscp: int
    mptcp_token: int | None
    local_address: str


FAMILIES: Mapping[Family, socket.AddressFamily] = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


def sample_sockets(netns: int | None, families: Sequence[Family] = ("ipv4",)) -> list[SocketSample]:
    """The TCP connections of a host now; None is the present network namespace."""
    extensions = 1 << (INET_DIAG_INFO - 1) | 1 << (_INET_DIAG_CONG - 1)
    extensions |= 1 << (_INET_DIAG_TOS - 1) | 1 << (_INET_DIAG_TCLASS - 1)
    messages = [
        message
        for family in families
        for message in _dump(netns, extensions, _CONNECTIONS, FAMILIES[family])
    ]
    t_ns = time.time_ns()
    samples = (parse_socket(message, t_ns) for message in messages)
    return [sample for sample in samples if sample is not None]


def listens(netns: int | None, port: int, family: Family = "ipv4") -> bool:
    listening = _dump(netns, 0, 1 << _LISTENING, FAMILIES[family])
    return any(_ports(message)[0] == port for message in listening)


def has_port(netns: int, port: int) -> bool:
    """Whether a host listens at a TCP port, or has a UDP socket at it, with IPv4 or IPv6.

    It reads the kernel's tables (proc(5), net): a connection would stand in the captures.
    """
    if listens(netns, port):
        return True
    with entered(netns):
        tables = {"tcp6": _TCP_LISTEN, "udp": _UDP_UNCONNECTED, "udp6": _UDP_UNCONNECTED}
        return any(
            _has_line(Path("/proc/thread-self/net") / table, port, state)
            for table, state in tables.items()
        )


def _has_line(table: Path, port: int, state: str) -> bool:
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:  # This kernel has no such protocol.
        return False
    for line in lines:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == state:
            return True
    return False


def inet_diag_request(
    extensions: int,
    states: int,
    *,
    ports: tuple[int, int] = (0, 0),
    addresses: bytes = bytes(32),
    family: socket.AddressFamily = socket.AF_INET,
) -> bytes:
    """Struct inet_diag_req_v2 (linux/inet_diag.h) for TCP."""
    return (
        struct.pack("=BBBBI", family, socket.IPPROTO_TCP, extensions, 0, states)
        + struct.pack("!HH", *ports)
        + addresses
        + struct.pack("=I", 0)
        # Any cookie.
        + b"\xff" * 8
    )


def _dump(
    netns: int | None, extensions: int, states: int, family: socket.AddressFamily
) -> list[bytes]:
    """Every socket in one of the states: struct inet_diag_msg and its attributes."""
    body = inet_diag_request(extensions, states, family=family)
    with entered(netns), rtnetlink.Kernel(NETLINK_SOCK_DIAG) as kernel:
        return [answer.body for answer in kernel.dump("sockets", SOCK_DIAG_BY_FAMILY, body)]


def _ports(message: bytes) -> tuple[int, int]:
    local, peer = struct.unpack_from("!HH", message, 4)
    return local, peer


def parse_socket(message: bytes, t_ns: int) -> SocketSample | None:
    """A socket from struct inet_diag_msg with its attributes; None where it has no TCP state."""
    attributes = dict(netlink.attributes(message[_MESSAGE_BYTES:]))
    info = attributes.get(INET_DIAG_INFO)
    if info is None:
        return None
    family, (local_port, peer_port) = message[0], _ports(message)
    counts_timeouts = len(info) >= _TIMEOUTS_AT + 2
    # The kernel adds to the structure's end only.
    info = info.ljust(_ECN_MODE_AT + 4, b"\0")
    numbers = {
        name: int(struct.unpack_from(f"={form}", info, offset)[0])
        for name, (form, offset) in _TCP_INFO.items()
    }
    most_pacing, options = numbers.pop("most_pacing"), numbers.pop("options")
    timeouts, ecn_mode = numbers.pop("timeouts"), numbers.pop("ecn_mode")
    return SocketSample(
        t_ns=t_ns,
        local_port=local_port,
        peer_port=peer_port,
        is_established=message[1] == _ESTABLISHED,
        congestion_control=attributes.get(_INET_DIAG_CONG, b"").rstrip(b"\0").decode("ascii"),
        sack=bool(options & _SACK),
        ecn=bool(options & _ECN),
        accurate_ecn=ecn_mode & 3 == _MODE_ACCURATE_ECN,
        timeouts=timeouts if counts_timeouts else None,
        most_pacing_bps=None if most_pacing in (0, _UNLIMITED) else most_pacing * 8,
        **numbers,
        # An IPv6 socket shows both.
        dscp=attributes.get(_INET_DIAG_TCLASS, attributes.get(_INET_DIAG_TOS, b"\0"))[0] >> 2,
        mptcp_token=_mptcp_token(attributes.get(_INET_DIAG_ULP_INFO, b"")),
        local_address=socket.inet_ntop(family, message[8 : 12 if family == socket.AF_INET else 24]),
    )


def _mptcp_token(ulp_info: bytes) -> int | None:
    mptcp = netlink.attribute(ulp_info, _ULP_MPTCP)
    token = netlink.attribute(mptcp or b"", _MPTCP_TOKEN_LOCAL)
    return None if token is None else int.from_bytes(token, "little")


def sample_flows(flows: Sequence[Flow], netns: Callable[[str], int]) -> list[SocketSample]:
    hosts = sorted({name for flow in flows for name in (flow.src, flow.dst)})
    families = families_of(flows)
    return [sample for host in hosts for sample in sample_sockets(netns(host), families)]


def failed_checks(
    flows: Sequence[Flow], active: Sequence[Flow], samples: Sequence[SocketSample], *, steady: bool
) -> list[str]:
    """A line for each check that found other settings than requested.

    It raises nothing, because the traffic is over, and an error would destroy what was measured.
    `active` flows are checked one by one. For `steady` see `check_min_rto`.
    """
    failed = []
    try:
        check_sockets(active, samples)
    except ReadBackError as error:
        failed.append(str(error))
    try:
        for requested_ns in sorted({flow.transport.min_rto_ns for flow in flows}):
            min_rto_ns = transport.effective_min_rto_ns(requested_ns, transport.kernel_hz())
            own = {flow.sport for flow in flows if flow.transport.min_rto_ns == requested_ns}
            if min_rto_ns is not None:
                mine = [sample for sample in samples if sample.local_port in own]
                check_min_rto(mine, min_rto_ns, steady=steady)
    except ReadBackError as error:
        failed.append(str(error))
    return failed


def check_sockets(flows: Sequence[Flow], samples: Sequence[SocketSample]) -> None:
    """Checks the settings of every flow's sockets.

    At the sender these are congestion control, DSCP, pacing rate, and the negotiated selective
    acknowledgements and ECN. At the receiver it is the congestion control.

    Raises ReadBackError: a flow has other settings, or no socket was seen.
    """
    by_port = {sample.local_port: sample for sample in samples}
    receivers = {(sample.peer_port, sample.local_port): sample for sample in samples}
    for flow in flows:
        at = f"flow {flow.flow} at {flow.src}"
        control = flow.transport.congestion_control
        sender = by_port.get(flow.sport)
        if sender is None:
            raise ReadBackError(at, "congestion control", control, "no socket seen")
        if sender.congestion_control != control:
            raise ReadBackError(at, "congestion control", control, sender.congestion_control)
        for name, is_on, is_wanted in (
            ("sack", sender.sack, flow.transport.sack),
            ("ecn", sender.ecn, flow.transport.negotiates_ecn),
            ("accurate ECN", sender.accurate_ecn, flow.transport.ecn == "accurate"),
        ):
            if is_on is not is_wanted:
                raise ReadBackError(at, name, _on(is_wanted), _on(is_on))
        if sender.dscp != flow.dscp:
            raise ReadBackError(at, "dscp", flow.dscp, sender.dscp)
        rate_bps = senders.pacing_rate_bps(flow.transport)
        if rate_bps is not None and sender.most_pacing_bps != rate_bps:
            shown_bps = sender.most_pacing_bps
            read_back = "none" if shown_bps is None else f"{shown_bps}bps"
            raise ReadBackError(at, "pacing_rate", f"{rate_bps}bps", read_back)
        receiver = receivers.get((flow.sport, flow.dport))
        read_back = "no socket seen" if receiver is None else receiver.congestion_control
        if read_back != control:
            raise ReadBackError(
                f"flow {flow.flow} at {flow.dst}", "congestion control", control, read_back
            )


def _on(value: bool) -> str:
    return "on" if value else "off"


def check_min_rto(
    samples: Sequence[SocketSample], effective_ns: int, *, steady: bool = True
) -> None:
    """Checks that the sockets' RTOs go down to the minimum RTO and not below.

    An RTO is the smoothed RTT plus four times its variation, or plus the minimum if that is more
    (RFC 6298; net/ipv4/tcp_input.c, __tcp_set_rto). If no socket's RTO is as near to its RTT as the
    minimum and its own variation allow, the setting has no effect, whatever the route shows.

    Without `steady` an RTO may be longer. Where a link changes its rate, round trips vary, and the
    RTO keeps the largest variation for a while, which no socket shows (tcp_rtt_estimator). The same
    holds where every RTT is long beside the minimum, as on slow links, and where every socket has
    timed out: its one segment may wait for a delayed acknowledgement, by which the variation grows
    to 40 ms and more (TCP_DELACK_MIN). Old kernels do not count timeouts, so there any
    retransmission may have been one.

    Raises ReadBackError: the error has the RTO that is nearest to its RTT.
    """
    # A socket that has measured no round trip yet shows 0.
    measured = [sample for sample in samples if sample.rtt_us and not sample.backoff]
    if not measured:
        return
    minimum_ms = effective_ns / 1e6
    if 2 * min(sample.rtt_us for sample in measured) / 1e3 >= minimum_ms:
        # A variation can be as large as the round trip, and four of them dominate every timeout
        # (RFC 6298, section 2.3). So the minimum need not show at any socket.
        steady = False
    telling = [
        sample
        for sample in measured
        if not (sample.retransmits if sample.timeouts is None else sample.timeouts)
    ]
    too_long = bool(telling) and all(
        _above_ms(sample) > minimum_ms + _VARIATION_MARGIN * sample.rttvar_us / 1e3 + _JIFFIES_MS
        for sample in telling
    )
    nearest = min(map(_above_ms, measured))
    if (too_long and steady) or nearest < minimum_ms - _JIFFIES_MS:
        shown = f"an RTO of RTT + {nearest:g} ms"
        raise ReadBackError("every socket", "minimum RTO", f"{minimum_ms:g} ms", shown)


def _above_ms(sample: SocketSample) -> float:
    return (sample.rto_us - sample.rtt_us) / 1e3


TCP_SINK = 20291
"""The option of the guest's kernel by which it reads a socket itself (patch 0017)."""
_TCP_INFO_BYTES = 248
_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[[0-9]+\]")
_libc = ctypes.CDLL(None, use_errno=True)


def read_at_once(pids: Iterable[int]) -> int:
    """Makes the guest's kernel read the connected TCP sockets of these processes (TCP_SINK).

    Returns how many sockets these are; 0 where the kernel has no such option.

    Raises ReadBackError: the kernel shows that it does not read a socket.
    """
    count = 0
    for pid in pids:
        for connection in _connections(pid):
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            form, offset = _TCP_INFO["bytes_received"]
            if not struct.unpack_from(f"={form}", info, offset)[0]:
                continue
            try:
                connection.setsockopt(socket.IPPROTO_TCP, TCP_SINK, 1)
            except OSError as error:
                if error.errno == errno.ENOPROTOOPT:
                    return 0
                raise
            if not connection.getsockopt(socket.IPPROTO_TCP, TCP_SINK):
                raise ReadBackError(f"process {pid}", "TCP_SINK", "on", "off")
            count += 1
    return count


def _connections(pid: int) -> Iterator[socket.socket]:
    """Duplicates a process's connected TCP sockets (pidfd_getfd(2)), one open at a time."""
    pidfd = os.pidfd_open(pid)
    try:
        for path in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda path: int(path.name)):
            if not _SOCKET.fullmatch(os.readlink(path)):
                continue
            descriptor = _libc.syscall(_PIDFD_GETFD, pidfd, int(path.name), 0)
            if descriptor < 0:
                number = ctypes.get_errno()
                raise OSError(number, f"descriptor {path.name} of {pid}: {os.strerror(number)}")
            with socket.socket(fileno=descriptor) as ours:
                is_tcp = (ours.type, ours.proto) == (socket.SOCK_STREAM, socket.IPPROTO_TCP)
                if is_tcp and ours.family in (socket.AF_INET, socket.AF_INET6):
                    try:
                        ours.getpeername()
                    except OSError:  # the listening one
                        continue
                    yield ours
    finally:
        os.close(pidfd)
