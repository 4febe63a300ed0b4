"""The samples of emulation.kernel.sampling as tables: senders' sockets and queues over time.

A socket's message is struct inet_diag_msg with attributes (linux/inet_diag.h), among them struct
tcp_info (linux/tcp.h). Newer kernels only append to that struct. A field that a kernel lacks is
null in the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from outcast.errors import InputError, ReadBackError
from outcast.netlink import attributes
from outcast.records.flows import FlowRecord
from outcast.records.queue_statistics import read_message, statistics
from outcast.records.samples import read_samples

_ATTRIBUTES_AT = 16 + 72
"""After struct nlmsghdr and struct inet_diag_msg."""
_INET_DIAG_INFO, _INET_DIAG_DCTCPINFO = 2, 9
_INFO_BYTES = 248
_UNSET_SSTHRESH = 0x7FFFFFFF
_UNLIMITED_RATE = 2**64 - 1
"""In bytes per second; the table has bits."""
_RATES = ("pacing_rate_bps", "delivery_rate_bps")
_DCTCP_ALPHA_ONE = 1024
CA_STATES = ("open", "disorder", "cwr", "recovery", "loss")
"""enum tcp_ca_state (linux/tcp.h)."""

_FIELDS: dict[str, tuple[str, int]] = {
    "ca_state": ("u1", 1),
    "backoff": ("u1", 4),
    "mss": ("<u4", 16),
    "unacked": ("<u4", 24),
    "lost": ("<u4", 32),
    "srtt_us": ("<u4", 68),
    "rttvar_us": ("<u4", 72),
    "min_rtt_us": ("<u4", 148),
    "rto_us": ("<u4", 8),
    "cwnd": ("<u4", 80),
    "ssthresh": ("<u4", 76),
    "snd_wnd": ("<u4", 228),
    "retransmits": ("<u4", 100),
    "timeouts": ("<u2", 240),
    "recoveries": ("<u2", 242),
    "recovering_ms": ("<u4", 244),
    "bytes_sent": ("<u8", 200),
    "bytes_acked": ("<u8", 120),
    "bytes_retrans": ("<u8", 208),
    "notsent_bytes": ("<u4", 144),
    "delivered": ("<u4", 192),
    "delivered_ce": ("<u4", 196),
    "pacing_rate_bps": ("<u8", 104),
    "delivery_rate_bps": ("<u8", 160),
    "busy_us": ("<u8", 168),
    "rwnd_limited_us": ("<u8", 176),
    "sndbuf_limited_us": ("<u8", 184),
}
"""Column: type and place in struct tcp_info."""
_INFO = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [kind for kind, _ in _FIELDS.values()],
        "offsets": [at for _, at in _FIELDS.values()],
        "itemsize": _INFO_BYTES,
    }
)


_OF_QUEUES = (
    *("backlog_bytes", "backlog_packets", "drops", "marks", "sent_packets", "sent_bytes"),
    "overlimits",
)


def socket_table(path: Path, flows: Sequence[FlowRecord], t_start_ns: int) -> pl.DataFrame:
    """One row per sample of a flow's sending socket, in the order of time.

    `t` is in ns after the traffic's start; `cwnd`, `ssthresh`, `unacked`, `retransmits` and
    `delivered` are in segments. `ssthresh` is null until it is set, a rate where it has no limit.
    docs/analysis.md has every column.

    Raises InputError if the file cannot be read.
    """
    file = read_samples(path)
    known = {record.flow: record for record in flows}
    records = [known[int(source)] for source in file.sources]
    times_ns, senders, infos, alphas = [], [], [], []
    for sample in file.samples:
        by_kind = dict(attributes(sample.message[_ATTRIBUTES_AT:]))
        info = by_kind.get(_INET_DIAG_INFO)
        if info is None:  # A socket in TIME_WAIT keeps only its addresses.
            continue
        times_ns.append(sample.t_ns - t_start_ns)
        senders.append(records[sample.source])
        infos.append(info)
        alphas.append(_dctcp_alpha(by_kind.get(_INET_DIAG_DCTCPINFO)))
    return pl.DataFrame(
        {
            "t": pl.Series(times_ns, dtype=pl.Int64),
            "flow": pl.Series([record.flow for record in senders], dtype=pl.Int32),
            "host": pl.Series([record.src for record in senders], dtype=pl.String),
            "sport": pl.Series([record.sport for record in senders], dtype=pl.UInt16),
            **_fields(infos),
            "dctcp_alpha": pl.Series(alphas, dtype=pl.Float64),
        }
    ).with_columns(
        pl.col("ca_state").replace_strict(
            dict(enumerate(CA_STATES)), default=None, return_dtype=pl.String
        ),
        ssthresh=pl.when(pl.col("ssthresh") < _UNSET_SSTHRESH).then("ssthresh"),
        **{
            name: pl.when(pl.col(name) < _UNLIMITED_RATE).then(pl.col(name).cast(pl.Int64) * 8)
            for name in _RATES
        },
    )


def _fields(infos: Sequence[bytes]) -> dict[str, pl.Series]:
    """The fields of these structs; null where the shortest struct lacks them."""
    table = np.frombuffer(b"".join(i[:_INFO_BYTES].ljust(_INFO_BYTES, b"\0") for i in infos), _INFO)
    size = min(map(len, infos), default=_INFO_BYTES)
    return {
        name: pl.Series(table[name])
        if at + np.dtype(kind).itemsize <= size
        else pl.Series([None] * len(infos), dtype=pl.Int64)
        for name, (kind, at) in _FIELDS.items()
    }


def _dctcp_alpha(raw: bytes | None) -> float | None:
    """DCTCP's estimate of the share of marked packets, 0 to 1, from struct tcp_dctcp_info."""
    if raw is None or len(raw) < 8 or not int.from_bytes(raw[:2], "little"):
        return None
    return int.from_bytes(raw[4:8], "little") / _DCTCP_ALPHA_ONE


def port_table(path: Path, t_start_ns: int) -> pl.DataFrame:
    """One row per sample of a port's queue, in the order of time.

    `t` is in ns after the traffic's start. The columns of `outcast.records.queue_statistics` have
    what is queued, and the packets dropped, marked and sent since the queue was made.

    Raises InputError if the file or a sample in it cannot be read.
    """
    file = read_samples(path)
    samples: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for sample in file.samples:
        samples[sample.t_ns - t_start_ns, sample.source].append(sample.message)
    rows: list[dict[str, int | str]] = []
    for (t_ns, number), messages in samples.items():
        source = file.sources[number]
        try:
            numbers = statistics([read_message(message) for message in messages])
        except (ReadBackError, ValueError) as error:
            raise InputError(f"{path}: {source}: {error}") from None
        rows.append({"t": t_ns, "port": source, **numbers})
    schema = {"t": pl.Int64, "port": pl.String, **dict.fromkeys(_OF_QUEUES, pl.Int64)}
    return pl.DataFrame(rows, schema=schema)
