"""The limits that a run needs (getrlimit(2)): they are raised, or the run is refused.

The guest's kernel is one process of ours. It holds a descriptor for each file of the host that the
guest has opened, as long as the guest's cache knows that file. It holds another one for each
process of the guest, which is a process of ours too. Measured on Debian 12, beside what `of_guest`
asks for:

```
                                          processes   descriptors   asked for
fig3c           13 flows, 3 captures          23           818         2146
t15-incast      41 generators, 41 captures    88           892         2439
p-ports-k8      113 flows, 3 captures        123          1118         2596
```

Most are modules of Python. Where networkx or pyroute2 have to be imported as a whole
(controllers/slim.py) it reads 500 more, and another Python may read still more. So FILES and half
as much again are asked for.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from outcast.emulation.capture import ring_kib
from outcast.errors import FeatureMissingError
from outcast.plan.model import Plan

FILES = 1350
"""Files of the host that the guest's programs open at most before the first flow."""
DESCRIPTORS_PER_PROCESS = 3
"""One in the guest's kernel, and its output and its errors in the run directory."""
PROCESSES = 10
"""Processes of every run: the guest's first one, the inner program, the controller, Open vSwitch's
two, and some that set the network up and look at it."""
PROCESSES_PER_PROGRAM = 8
"""A runner, and what a program may start: a web server has some workers."""
MARGIN = 1.5
INNER_FILES = 64
INNER_PER_HOST = 2
"""A host's network namespace, and the socket by which it is probed or its sockets are sampled."""
LEAST_MEMORY_MIB = 2048
"""The guest's memory for all but very large networks. Runs of one network should have the same."""
MEMORY_MIB, LINK_MIB, ENTRY_MIB, PROCESS_MIB = 256, 0.6, 0.0012, 1.5
"""A guest needs so much by itself, for a link, for a flow entry, and for a process; a little more
than was measured in fat-trees of 8, 12 and 16 pods (docs/design/cost.md)."""
ADDRESS_SPACE_MIB = 1024
"""The guest's kernel maps so much besides the guest's memory."""

_NAMES = {
    resource.RLIMIT_NOFILE: ("open files", "-n", "nofile", "LimitNOFILE"),
    resource.RLIMIT_NPROC: ("processes of this user", "-u", "nproc", "LimitNPROC"),
    resource.RLIMIT_FSIZE: ("bytes in a file", "-f", "fsize", "LimitFSIZE"),
    resource.RLIMIT_AS: ("bytes of address space", "-v", "as", "LimitAS"),
}
"""By limit: what it counts, ulimit's option, its names in limits.conf(5) and systemd.exec(5)."""

Needs = Mapping[int, int]
"""How much is needed, by the limit's number in the module `resource`."""


def processes(plan: Plan) -> int:
    """How many processes run at a time: a client for each flow, servers, captures, generators."""
    servers = {(flow.dst, flow.dport) for flow in plan.flows}
    generators = {host for flow in plan.generated for host in (flow.src, flow.dst)}
    of_programs = PROCESSES_PER_PROGRAM * len(plan.programs)
    others = sum(map(len, (plan.flows, servers, plan.capture_ports, generators)))
    return PROCESSES + of_programs + others


def memory_mib(plan: Plan) -> int:
    """The guest's memory. Each switch has two flow entries for each host."""
    captures = len(plan.capture_ports)
    needed_mib = (
        MEMORY_MIB
        + LINK_MIB * plan.graph.number_of_edges()
        + ENTRY_MIB * 2 * len(plan.hosts) * (len(plan.graph) - len(plan.hosts))
        + PROCESS_MIB * processes(plan)
        + ring_kib("virtual", captures) * captures / 1024
    )
    return max(LEAST_MEMORY_MIB, math.ceil(needed_mib))


def of_guest(process_count: int, memory_mib: int) -> Needs:
    """The needs of the guest's kernel for this many processes and this much memory."""
    descriptors = FILES + DESCRIPTORS_PER_PROCESS * process_count
    return {
        resource.RLIMIT_NOFILE: int(MARGIN * descriptors),
        resource.RLIMIT_NPROC: _running() + int(MARGIN * process_count),
        resource.RLIMIT_FSIZE: memory_mib << 20,
        resource.RLIMIT_AS: memory_mib + ADDRESS_SPACE_MIB << 20,
    }


def open_files(plan: Plan) -> int:
    """How many open files the inner program needs, in either engine."""
    return int(MARGIN * (INNER_FILES + INNER_PER_HOST * len(plan.hosts)))


def _running() -> int:
    """The threads of this user, because RLIMIT_NPROC counts threads; it does not limit root."""
    if os.geteuid() == 0 or _soft(resource.RLIMIT_NPROC) == resource.RLIM_INFINITY:
        return 0
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid():
                count += len(list((process / "task").iterdir()))
        except OSError:
            continue
    return count


def _soft(limit: int) -> int:
    return resource.getrlimit(limit)[0]


@contextmanager
def raised(needs: Needs, who: str) -> Iterator[None]:
    """Gives programs that the block starts at least these limits; restores ours afterwards.

    Raises FeatureMissingError: a limit cannot be raised that far; the error names the remedy.
    """
    before = {limit: resource.getrlimit(limit) for limit in needs}
    try:
        for limit, needed in needs.items():
            _raise(limit, needed, who)
        yield
    finally:
        for limit, pair in before.items():
            resource.setrlimit(limit, pair)


def require(needs: Needs, who: str) -> None:
    """Raises FeatureMissingError where `raised` would."""
    with raised(needs, who):
        pass


def _raise(limit: int, needed: int, who: str) -> None:
    soft, hard = resource.getrlimit(limit)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    enough = hard == resource.RLIM_INFINITY or hard >= needed
    try:
        resource.setrlimit(limit, (needed, hard if enough else needed))
    except (OSError, ValueError):
        what, option, in_file, in_unit = _NAMES[limit]
        raise FeatureMissingError(
            f"{who} needs {needed} {what}, and {hard} are allowed here (ulimit -H{option[1:]}); "
            f"raise the hard limit: {in_file} in /etc/security/limits.conf, or {in_unit} of the "
            "systemd unit"
        ) from None
