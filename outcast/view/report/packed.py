"""Packs tables of integers into few bytes for a page: byte planes, deflated, in base64.

A column is stored plain, as differences or as signed numbers. Every value of a column has as many
bytes as the greatest one needs. The first bytes of all values come first, then all second bytes,
because deflate (RFC 1951) shortens that order best. A browser inflates the text with its own
DecompressionStream.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from outcast.analysis.machine_code import Array

Encoding = Literal["plain", "signed", "delta"]
Columns = dict[str, tuple[Encoding, Array]]
GREATEST = 1 << 53
"""JavaScript's integers are exact below this."""
LEVEL = 6
"""The level of deflate, because level 9 takes three times as long and saves 1 %."""


def pack(tables: Mapping[str, Mapping[str, tuple[Encoding, Array]]]) -> tuple[dict[str, Any], str]:
    """Packs tables of columns.

    Returns:
        The description, {table: {"rows": n, "columns": [{name, encoding, width}]}}, and the base64
        text of the deflated bytes. Columns are in the order of the description.

    Raises ValueError: a plain column has a negative value, or a value is too great.
    """
    described: dict[str, Any] = {}
    squeeze = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = b""
    for table, columns in tables.items():
        listed = []
        for name, (encoding, values) in columns.items():
            planes, width = _planes(_encode(values.astype(np.int64), encoding), name)
            packed += b"".join(map(squeeze.compress, planes))
            listed.append({"name": name, "encoding": encoding, "width": width})
        rows = max((int(values.size) for _, values in columns.values()), default=0)
        described[table] = {"rows": rows, "columns": listed}
    return described, base64.b64encode(packed + squeeze.flush()).decode("ascii")


def _encode(values: Array, encoding: Encoding) -> Array:
    if encoding == "plain":
        return values
    if encoding == "delta":
        values = np.diff(values, prepend=0)
    # Zigzag coding makes numbers near 0, of either sign, small and non-negative.
    return np.asarray((values << 1) ^ (values >> 63))


def _planes(values: Array, name: str) -> tuple[list[bytes], int]:
    if values.size and (int(values.min()) < 0 or int(values.max()) >= GREATEST):
        raise ValueError(f"{name}: values from 0 to 2^53 can be packed")
    width = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
    table = np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(-1, 8)
    return [table[:, place].tobytes() for place in range(width)], width
