"""How long a queue was full: it had no room for one more full frame."""

from __future__ import annotations

import numpy as np

from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis


def full_s(analysis: Analysis, port: PortAnalysis) -> float | None:
    """Seconds of the interval in which a queue with a limit in bytes was full; else None.

    Both papers on the Outcast problem have port blackout begin with a full taildrop queue.
    """
    record, queue = port.record.queue, port.queue
    if record.limit_bytes is None:
        return None
    mine = queue.egress == 0
    begin = analysis.manifest.traffic.t_start_ns
    start, end = begin + analysis.interval.start_ns, begin + analysis.interval.end_ns
    edges = np.clip(np.append(queue.time_ns[mine], end), start, end)
    full = queue.bytes[mine] + record.frame_bytes > record.limit_bytes
    return round(float(np.diff(edges)[full].sum()) / 1e9, 9)
