"""Qdiscs set up by rtnetlink(7), where tc(8) cannot say what the kernel can do."""

from __future__ import annotations

import errno

from outcast import netlink
from outcast.errors import FeatureMissingError, RunError


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """`outcast.netlink.replace_qdisc` of a run.

    Raises:
        FeatureMissingError: the kernel has no such qdisc.
        RunError: the kernel refused; with its reason.
    """
    try:
        netlink.replace_qdisc(interface, kind, parent=parent, major=major, options=options)
    except OSError as error:
        # The kernel's answer to a kind that it does not know (qdisc_create in sch_api.c).
        if error.errno == errno.ENOENT:
            raise FeatureMissingError(f"this kernel has no qdisc {kind}") from None
        raise RunError(f"{interface}: qdisc {major}: {kind}: {error.strerror}") from None
