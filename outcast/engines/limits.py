"""What a run needs of this machine: open files (getrlimit(2)), memory, processes.

The guest's kernel is one process. It holds a descriptor for each file of the host that the guest's
cache knows, and another one for each process of the guest: 818 to 1118 on Debian 12. Another Python
may read more modules, hence MARGIN.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from outcast.emulation.traffic.capture import ring_kib
from outcast.errors import FeatureMissingError
from outcast.plan.model import Plan

FILES = 1350
"""Files of the host that the guest's programs open at most before the first flow."""
DESCRIPTORS_PER_PROCESS = 3
"""One in the guest's kernel, and two for output and errors in the run directory."""
PROCESSES = 10
"""Processes of every run: the guest's first one, the inner program, the controller, Open vSwitch's
two, and some that set the network up and look at it."""
PROCESSES_PER_PROGRAM = 8
"""A runner, the program, and some workers, as a web server has them."""
MARGIN = 1.5
INNER_FILES = 64
INNER_PER_HOST = 2
"""A host's network namespace, and the socket by which it is probed or its sockets are sampled."""
LEAST_MEMORY_MIB = 2048
"""The guest's memory for all but very large networks. Runs of one network should have the same."""
MEMORY_MIB, LINK_MIB, ENTRY_MIB, PROCESS_MIB = 256, 0.6, 0.0012, 1.5
"""The memory of a guest alone, and of each link, flow entry and process in it: a little more than
was measured in fat-trees of 8, 12 and 16 pods (docs/design/cost.md)."""


def processes(plan: Plan) -> int:
    """The number of processes at a time: clients, servers, captures, generators, programs."""
    servers = {(flow.dst, flow.dport) for flow in plan.flows}
    generators = {host for flow in plan.generated for host in (flow.src, flow.dst)}
    of_programs = PROCESSES_PER_PROGRAM * len(plan.programs)
    others = sum(map(len, (plan.flows, servers, plan.capture_ports, generators)))
    return PROCESSES + of_programs + others


def memory_mib(plan: Plan) -> int:
    """The guest's memory. A switch has two flow entries for each host that packets cross it to."""
    carried = (plan.carrying.nodes[switch].get("carries", plan.hosts) for switch in plan.switches)
    captures = len(plan.capture_ports)
    needed_mib = (
        MEMORY_MIB
        + LINK_MIB * plan.graph.number_of_edges()
        + ENTRY_MIB * 2 * sum(map(len, carried))
        + PROCESS_MIB * processes(plan)
        + ring_kib("virtual", captures) * captures / 1024
    )
    return max(LEAST_MEMORY_MIB, math.ceil(needed_mib))


def of_guest(process_count: int) -> int:
    """The number of open files of a guest's kernel with this number of processes."""
    return int(MARGIN * (FILES + DESCRIPTORS_PER_PROCESS * process_count))


def open_files(plan: Plan) -> int:
    """The number of open files of the inner program, in either engine."""
    return int(MARGIN * (INNER_FILES + INNER_PER_HOST * len(plan.hosts)))


@contextmanager
def raised(needed: int, who: str) -> Iterator[None]:
    """Raises the limit of open files for programs that the block starts; `who` needs them.

    Raises FeatureMissingError: the limit cannot be raised that far; the error names the remedy.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        enough = hard == resource.RLIM_INFINITY or hard >= needed
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard if enough else needed))
        except (OSError, ValueError):
            raise FeatureMissingError(
                f"{who} needs {needed} open files, and {hard} are allowed here (ulimit -Hn); raise "
                "the hard limit: nofile in /etc/security/limits.conf, or LimitNOFILE of the "
                "systemd unit"
            ) from None
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def require(needed: int, who: str) -> None:
    """Raises FeatureMissingError where `raised` would."""
    with raised(needed, who):
        pass
