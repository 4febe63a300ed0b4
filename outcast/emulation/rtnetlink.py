"""Sets up qdiscs by rtnetlink(7), because tc(8) has no words for some of the kernel's options."""

from __future__ import annotations

import errno

from outcast import netlink
from outcast.errors import FeatureMissingError, RunError


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """Calls `outcast.netlink.replace_qdisc`, which describes the arguments.

    Raises:
        FeatureMissingError: the kernel has no such qdisc.
        RunError: the kernel refused; the text has its reason.
    """
    try:
        netlink.replace_qdisc(interface, kind, parent=parent, major=major, options=options)
    except OSError as error:
        # The kernel answers so for a kind that it does not know (qdisc_create in sch_api.c).
        if error.errno == errno.ENOENT:
            raise FeatureMissingError(f"this kernel has no qdisc {kind}") from None
        raise RunError(f"{interface}: qdisc {major}: {kind}: {error.strerror}") from None
