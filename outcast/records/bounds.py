"""Bounds of what records may hold, because others may have made them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from outcast.units import MOST_SPAN_NS

MOST_TIME_NS = 1 << 62
"""The latest time stamp of a capture, in the year 2116."""
MOST_COUNT = 1 << 53
"""The most packets or bytes, because a float distinguishes all whole numbers up to here."""

Port = Annotated[int, Field(ge=0, le=65535)]
TimeNs = Annotated[int, Field(ge=0, le=MOST_TIME_NS)]
SpanNs = Annotated[int, Field(ge=0, le=MOST_SPAN_NS)]
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
FlowNumber = Annotated[int, Field(ge=0, lt=1 << 31)]
Name = Annotated[str, Field(min_length=1, max_length=255)]
Address = Annotated[str, AfterValidator(lambda text: str(ip_address(text)))]
