"""What a run needs of this process's limits (getrlimit(2)): raised where they allow, else refused.

The guest's kernel is one process of ours. It holds a descriptor for each of the host's files that
the guest has opened, as long as the guest's cache knows that file, and one for each process of the
guest, which is a process of ours too. Measured on Debian 12, with what `of_guest` asks for:

```
                                          processes   descriptors   asked for
fig3c           13 flows, 3 captures          23          1401         2146
t15-incast      41 generators, 41 captures    87          1464         2439
p-ports-k8      113 flows, 3 captures        123          1702         2596
```

About 1340 are files of Python and its packages. Half as much again is asked for, because another
Python or another controller framework reads other files.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from outcast.errors import FeatureMissingError
from outcast.plan.model import Plan

FILES = 1350
"""Of the host, that the guest's programs open before the first flow."""
DESCRIPTORS_PER_PROCESS = 3
"""Its own in the guest's kernel, its output and its errors in the run directory."""
PROCESSES = 10
"""Of every run: the guest's first one, the inner program, the controller, Open vSwitch's two, and
some that it is looked at and set up with."""
MARGIN = 1.5
INNER_FILES = 64
INNER_PER_HOST = 2
"""A host's network namespace, and the socket by which it is probed or its sockets are sampled."""
ADDRESS_SPACE_MIB = 1024
"""What the guest's kernel maps besides the guest's memory."""

_NAMES = {
    resource.RLIMIT_NOFILE: ("open files", "-n", "nofile", "LimitNOFILE"),
    resource.RLIMIT_NPROC: ("processes of this user", "-u", "nproc", "LimitNPROC"),
    resource.RLIMIT_FSIZE: ("bytes in a file", "-f", "fsize", "LimitFSIZE"),
    resource.RLIMIT_AS: ("bytes of address space", "-v", "as", "LimitAS"),
}
"""What is counted; the option of ulimit; its name in limits.conf(5) and in systemd.exec(5)."""

Needs = Mapping[int, int]
"""A limit's number in the module `resource`, and how much is needed."""


def processes(plan: Plan) -> int:
    """How many run at a time: a client for each flow, servers, captures and generators."""
    servers = {(flow.dst, flow.dport) for flow in plan.flows}
    generators = {host for flow in plan.generated for host in (flow.src, flow.dst)}
    return PROCESSES + sum(map(len, (plan.flows, servers, plan.capture_ports, generators)))


def of_guest(process_count: int, memory_mib: int) -> Needs:
    """What the guest's kernel needs for a guest of so many processes and so much memory."""
    descriptors = FILES + DESCRIPTORS_PER_PROCESS * process_count
    return {
        resource.RLIMIT_NOFILE: int(MARGIN * descriptors),
        resource.RLIMIT_NPROC: _running() + int(MARGIN * process_count),
        resource.RLIMIT_FSIZE: memory_mib << 20,
        resource.RLIMIT_AS: memory_mib + ADDRESS_SPACE_MIB << 20,
    }


def open_files(plan: Plan) -> int:
    """How many the inner program needs, wherever it runs."""
    return int(MARGIN * (INNER_FILES + INNER_PER_HOST * len(plan.hosts)))


def _running() -> int:
    """Threads of this user, which is what RLIMIT_NPROC counts; root is not limited by it."""
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
    """Programs started in the block get at least these limits; afterwards ours are as before.

    Args:
        needs: what is needed; see Needs.
        who: needs them; begins the error's text.

    Raises:
        FeatureMissingError: naming a limit that cannot be raised so far, and the remedy.
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
