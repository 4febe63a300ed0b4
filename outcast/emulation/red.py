"""Whether RED notices behind a shaper that its queue ran empty.

RED's average falls while the queue is empty (RFC 2309; Floyd and Jacobson 1993, section 4). Linux's
red notes the time only when it is asked for a packet and has none. A shaper above it never asks so.
Behind tbf and htb the average then falls by arrivals alone, and RED may drop nearly all on an
idle link. The guest's kernel notes the time when the last packet leaves (patch 0016), unless it is
told to do as Linux does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outcast.errors import ConfigError, ReadBackError
from outcast.experiment import Queue
from outcast.experiment.queues.ecn_threshold import EcnThreshold
from outcast.experiment.queues.red import Red

PARAMETER = Path("/sys/module/sch_red/parameters/stock_idle")
UNSEEN = (
    "red does not notice behind a shaper that its queue ran empty, as in every Linux, so it may "
    "drop nearly all on an idle link (docs/queues.md); the virtual engine's kernel notices it"
)


def set_idle(queues: Sequence[Queue], parameter: Path = PARAMETER) -> list[str]:
    """Sets the kernel's behaviour as RED queues ask; returns warnings where it cannot be set.

    Raises:
        ConfigError: two queues ask for different behaviours, but a kernel has one.
        ReadBackError: the kernel shows another value than was set.
    """
    wanted = {queue.idle for queue in queues if isinstance(queue, Red)}
    if any(isinstance(queue, EcnThreshold) for queue in queues):
        # It is red without an average (a weight of 1), and after a pause red would halve the last.
        wanted.add("stock")
    if not wanted:
        return []
    if len(wanted) > 1:
        raise ConfigError(
            "queue.idle: a kernel has one value for all red queues; allowed is idle: stock for "
            "every one, as ecn_threshold needs it, or idle: seen for every one"
        )
    is_stock = "Y" if wanted == {"stock"} else "N"
    if not parameter.exists():
        return [] if is_stock == "Y" else [UNSEEN]
    parameter.write_text(is_stock, encoding="ascii")
    read_back = parameter.read_text(encoding="ascii").strip()
    if read_back != is_stock:
        raise ReadBackError("red", "stock_idle", is_stock, read_back)
    return []
