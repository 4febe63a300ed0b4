"""What a path needs of its ends: buffers that hold what it holds.

Pure: a plan and its experiment say it all, so a run can say it before anything is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from outcast import units
from outcast.experiment import Experiment
from outcast.plan import ports
from outcast.plan.flows import Flow
from outcast.plan.model import Plan
from outcast.plan.round_trips import base_rtt_ns, product_bytes, rate_bps

SEND_BUFFER_BYTES = 4 << 20
"""tcp_wmem's largest on a machine with memory (tcp_init in net/ipv4/tcp.c)."""
RECEIVE_BUFFER_BYTES = 16 << 20
"""tcp_rmem's largest with the guest's 2 GB: a 128th of the memory, up to 32 MB. Before Linux 6.16
it was 6 MB."""
LEAST_PAYLOAD = 0.5
"""The payload's share of a buffer, which counts whole packets with their bookkeeping (truesize;
tcp_adv_win_scale in Documentation/networking/ip-sysctl.rst)."""
LEAST_SEND_BUFFER_BYTES = 64 << 10
"""Linux looks at a send buffer only before it begins a packet of so many bytes, which is cut later
(tcp_sendmsg_locked in net/ipv4/tcp.c, GSO_LEGACY_MAX_SIZE)."""
MOST_PAYLOAD = {"send_buffer": 0.9, "receive_buffer": 0.7}
"""That share at most: what a program sends lies together in few packets."""


def longest_way_ns(experiment: Experiment, plan: Plan, path: Sequence[str]) -> int:
    """What a full frame takes from the first node of a path to the last if every queue is full."""
    queues = [ports.host_queue(experiment, plan, path[0])]
    queues += [ports.switch_queue(experiment, plan, port) for port in plan.ports_on(path)]
    links = [plan.links[hop] for hop in pairwise(path)]
    return sum(queue.full_ns for queue in queues) + sum(
        (link.delay_ns or 0) + link.frame_ns for link in links
    )


def buffer_warnings(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each kind of buffer that holds less than the paths of some flows hold.

    A path holds the bandwidth-delay product, of its base round trip, and more as its queue fills.
    """
    sizes = {flow: own.max_bytes for flow in plan.flows if (own := flow.transport.send_buffer)}
    small = [flow for flow, size in sizes.items() if size < LEAST_SEND_BUFFER_BYTES]
    lines = [
        f"{_where_set(experiment, flow, 'send_buffer')}: {units.format_size(sizes[flow])}: Linux "
        "looks at it only before a packet of up to 64KB, so some 90 kB are under way with any "
        "smaller one; allowed for a limit that counts is 64KB or more, or receive_buffer"
        for flow in small[:1]
    ]
    told = {("send_buffer", flow) for flow in small}
    usual = {"send_buffer": SEND_BUFFER_BYTES, "receive_buffer": RECEIVE_BUFFER_BYTES}
    for key, linux in usual.items():
        short: list[tuple[int, Flow, int, bool]] = []
        for flow in plan.flows:
            own = getattr(flow.transport, key)
            holds = linux if own is None else own.max_bytes
            product = product_bytes(plan, flow)
            if product > MOST_PAYLOAD[key] * holds and (key, flow) not in told:
                short.append((product, flow, holds, own is None))
        if not short:
            continue
        product, flow, holds, is_default = max(short, key=lambda item: item[0])
        whose = "Linux's largest by default" if is_default else "as transport says"
        more = f" (and of {len(short) - 1} more flows)" if len(short) > 1 else ""
        full = product + _queue_bytes(experiment, plan, flow)
        keys = dict.fromkeys(_where_set(experiment, each, key) for _, each, *_ in short)
        needed = -(-int(full / LEAST_PAYLOAD * 1.5) // 2**20)
        lines.append(
            f"the path of flow {flow.flow}{more} holds {product:,} B "
            f"({units.format_rate(rate_bps(plan, flow))} times "
            f"{units.round_time(base_rtt_ns(plan, flow.path, flow.return_path))}), and a {key} of "
            f"{units.format_size(holds)} ({whose}) holds payload of {LEAST_PAYLOAD:.0%} to "
            f"{MOST_PAYLOAD[key]:.0%} of its size; to fill the path and its queue set "
            f"{' and '.join(keys)}: {needed}MB"
        )
    return lines


def _where_set(experiment: Experiment, flow: Flow, key: str) -> str:
    """The key that decides: a group's own setting wins."""
    own = experiment.flows[flow.group].transport
    where = f"flows.{flow.group}." if own is not None and key in own.model_fields_set else ""
    return f"{where}transport.{key}"


def _queue_bytes(experiment: Experiment, plan: Plan, flow: Flow) -> int:
    """What the queue of a flow's slowest port of a switch holds."""
    queues = [ports.switch_queue(experiment, plan, port) for port in plan.ports_on(flow.path)]
    slowest = min(queues, key=lambda queue: queue.rate_bps, default=None)
    return 0 if slowest is None else slowest.limit_packets * slowest.frame_bytes
