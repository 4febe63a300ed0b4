"""A debugger in the guest's kernel, at an instant of a run that has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcast.api import archives
from outcast.api.guest import provide_symbols
from outcast.archive import Unpacked
from outcast.engines.guest import boot
from outcast.engines.guest.debugger import Gdb, Request, require_gdb
from outcast.engines.kernel.cache import Kernel
from outcast.errors import ConfigError, did_you_mean
from outcast.plan.model import Plan
from outcast.records.run_directory import Manifest
from outcast.units import format_time

SWITCHES = "switches"
"""The debugger's name for the namespace of all switches."""


@dataclass(frozen=True)
class Debugged:
    """A run that was made again under a debugger, and has the same captures."""

    hits: int
    captures: int


def debug(
    source: str | os.PathLike[str],
    at_ns: int = 0,
    *,
    host: str | None = None,
    breakpoint: str = "",
    expressions: Sequence[str] = (),
    count: int | None = None,
    commands: Sequence[str] = (),
    allow_programs: bool = False,
    progress: bool | None = None,
) -> Debugged:
    """Makes a run again, and stops its kernel with gdb attached. Then the run goes on to its end.

    With neither a breakpoint nor commands, gdb reads commands from standard input. It writes to
    standard output. Virtual time stands still while it works, so the run stays the same run.
    docs/verbs/debug.md says what the arguments mean, which are the verb's options; `at_ns` counts
    from the traffic's start.

    Raises:
        ConfigError: the run has no such instant or host, or arguments do not fit together.
        InputError: the run cannot be made again, or gdb refused what it was asked for.
        FeatureMissingError: gdb is missing, or the kernel has no symbols.
        UntrustedError: the run made again is not the same run.
        OutcastError: the run failed, as in `run`.
    """
    if not breakpoint and (expressions or count is not None):
        raise ConfigError("--print and --count: allowed only with --break")
    with archives.opened(Path(source)) as unpacked:
        manifest = unpacked.run.read_manifest()
        _require_host(host, unpacked.run.read_plan())
        _require_instant(at_ns, manifest)
        flows = [
            {"sport": flow.sport, "dport": flow.dport, "flow": flow.flow} for flow in manifest.flows
        ]
        request = Request(
            guest_ns(manifest),
            host,
            breakpoint,
            tuple(expressions),
            count,
            tuple(commands),
            flows=tuple(flows),
        )
        return _debugged(unpacked, str(source), request, at_ns, allow_programs, progress)


def _debugged(
    unpacked: Unpacked,
    source: str,
    request: Request,
    at_ns: int,
    allow_programs: bool,
    progress: bool | None,
) -> Debugged:
    hits = 0

    @contextmanager
    def gdb(kernel: Kernel) -> Iterator[Gdb]:
        nonlocal hits
        require_gdb()
        provide_symbols(kernel, progress)
        with Gdb(kernel, request.begin_ns + at_ns, request) as debugger:
            debugger.check()
            yield debugger
            hits = debugger.hits()

    with archives.scratch_folder() as scratch:
        again = archives.Again(
            scratch, scratch / "again", allow_programs, progress, draw=False, debugger=gdb
        )
        explanation = archives.make_again(unpacked, source, again)
    archives.require_same(source, explanation)
    return Debugged(hits, explanation.captures)


def guest_ns(manifest: Manifest) -> int:
    """The traffic's start by the guest's clock: nanoseconds since its boot."""
    return manifest.traffic.t_start_ns - boot.START_NS


def _require_instant(at_ns: int, manifest: Manifest) -> None:
    traffic = manifest.traffic
    end_ns = traffic.t_end_ns - traffic.t_start_ns
    if not 0 <= at_ns < end_ns:
        raise ConfigError(
            f"--at {at_ns / 1e6:f}ms: allowed is from 0 until the flows have ended, at "
            f"{format_time(end_ns)} after the traffic's start"
        )


def _require_host(host: str | None, plan: Plan) -> None:
    if host is not None and host not in (*plan.hosts, SWITCHES):
        raise ConfigError(
            f"--host {host}: there is no such host; allowed are {', '.join(plan.hosts)}, and "
            f"{SWITCHES} for all switches{did_you_mean(host, plan.hosts)}"
        )
