"""The senders' sockets over time: the samples of `outcast.emulation.sampling` as a table.

A message is struct inet_diag_msg with attributes (linux/inet_diag.h), one of which is struct
tcp_info (linux/tcp.h). Newer kernels only append to that struct. So a field that a kernel does not
have is missing at its end, and null in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from outcast.errors import InputError
from outcast.netlink import attributes
from outcast.records.run_directory import FlowRecord
from outcast.records.samples import read_samples

_ATTRIBUTES_AT = 16 + 72
"""After struct nlmsghdr and struct inet_diag_msg."""
_INET_DIAG_INFO, _INET_DIAG_DCTCPINFO = 2, 9
_INFO_BYTES = 248
_UNSET_SSTHRESH = 0x7FFFFFFF
_UNLIMITED_RATE = 2**64 - 1
_MOST_RATE = 2**60 - 1
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


def socket_table(path: Path, flows: Sequence[FlowRecord], t_start_ns: int) -> pl.DataFrame:
    """One row per sample of a flow's sending socket, in the order of time.

    `t` is in nanoseconds after the traffic's start.

    Returns:
        `t`, `flow`, `host`, `sport`, and the kernel's numbers: `cwnd`, `ssthresh` and `unacked`
        in segments; round trips and `rto_us` in microseconds; `retransmits` in segments;
        `timeouts`, `recoveries` and `recovering_ms` (Linux 6.7 and later: RTOs, how many recoveries
        they began, and the time spent in these); bytes; segments `delivered`, and `delivered_ce`
        of these, whose mark was echoed; rates; and how long the sender was limited, by what.
        `ssthresh` is null until it is set.

    Raises InputError if the file cannot be read, has flows that are not in `flows`, a message
    that is cut off, or a rate that no table holds.
    """
    file = read_samples(path)
    known = {record.flow: record for record in flows}
    try:
        records = [known[int(source)] for source in file.sources]
    except (KeyError, ValueError):
        raise InputError(f"{path}: tells of flows that the manifest does not have") from None
    rows, infos, sizes, alphas = [], bytearray(), [], []
    for sample in file.samples:
        if int.from_bytes(sample.message[:4], "little") > len(sample.message):
            raise InputError(f"{path}: a message of the kernel is cut off")
        by_kind = dict(attributes(sample.message[_ATTRIBUTES_AT:]))
        info = by_kind.get(_INET_DIAG_INFO)
        if info is None:  # A socket in TIME_WAIT keeps only its addresses.
            continue
        rows.append((sample.t_ns - t_start_ns, sample.source))
        sizes.append(len(info))
        infos += info[:_INFO_BYTES].ljust(_INFO_BYTES, b"\0")
        alphas.append(_dctcp_alpha(by_kind.get(_INET_DIAG_DCTCPINFO)))
    info_table = np.frombuffer(bytes(infos), _INFO)
    for name in _RATES:
        rates = info_table[name][info_table[name] != _UNLIMITED_RATE]
        if rates.size and int(rates.max()) > _MOST_RATE:
            raise InputError(
                f"{path}: {name.removesuffix('_bps')}: {rates.max()} bytes/s; allowed is less than "
                "2^60, or no limit"
            )
    size = min(sizes, default=_INFO_BYTES)
    columns = {
        name: pl.Series(info_table[name])
        if at + np.dtype(kind).itemsize <= size
        else pl.Series([None] * len(rows), dtype=pl.Int64)
        for name, (kind, at) in _FIELDS.items()
    }
    source = np.array([index for _, index in rows], np.int64)
    return pl.DataFrame(
        {
            "t": pl.Series([t for t, _ in rows], dtype=pl.Int64),
            "flow": pl.Series([records[index].flow for index in source], dtype=pl.Int32),
            "host": pl.Series([records[index].src for index in source], dtype=pl.String),
            "sport": pl.Series([records[index].sport for index in source], dtype=pl.UInt16),
            **columns,
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


def _dctcp_alpha(raw: bytes | None) -> float | None:
    """DCTCP's estimate of the share of marked packets, 0 to 1, from struct tcp_dctcp_info."""
    if raw is None or len(raw) < 8 or not int.from_bytes(raw[:2], "little"):
        return None
    return int.from_bytes(raw[4:8], "little") / _DCTCP_ALPHA_ONE
