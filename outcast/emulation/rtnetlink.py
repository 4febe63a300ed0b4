"""Qdiscs set up by rtnetlink(7), where tc(8) cannot say what the kernel can do."""

from __future__ import annotations

from outcast import netlink
from outcast.errors import RunError


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """`outcast.netlink.replace_qdisc` of a run. Raises RunError with the kernel's reason."""
    try:
        netlink.replace_qdisc(interface, kind, parent=parent, major=major, options=options)
    except OSError as error:
        raise RunError(f"{interface}: qdisc {major}: {kind}: {error.strerror}") from None
