"""The realtime engine: Mininet on this machine's kernel, in namespaces of its own.

The inner program runs in fresh network, mount and process namespaces. Nothing of it can collide
with the machine's own bridges, ports or processes, and when it ends, however it ends, the kernel
removes all it had made: the process namespace dies with its first process, the network namespace
with its last. See unshare(1), pid_namespaces(7).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from outcast import doctor, forwarding, multipath, ports, private, queues, transport
from outcast.engines import EventReader, OnEvent, require_compiler
from outcast.errors import BusyError, FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Experiment, load_resolved
from outcast.ledger import Entry, ProcessMark, all_folders, default_folder, restore_settings
from outcast.openvswitch import has_kernel_module
from outcast.plan import make_plan
from outcast.run import RunDirectory

_STAMPED_EARLY = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
"""Of the whole machine; only the initial network namespace has it."""


class RealtimeEngine:
    """See the module."""

    name: Literal["realtime", "virtual"] = "realtime"

    def require(self, experiment: Experiment) -> None:
        """Raises FeatureMissingError naming what this machine lacks for the experiment."""
        if os.geteuid() != 0:
            raise FeatureMissingError(
                "root is missing: the realtime engine makes network namespaces; run it as root"
            )
        if not has_kernel_module():
            forwarding.require(experiment.routing.kind)
        require_compiler(experiment)
        for each in transport.all_of(experiment):
            transport.require_congestion_control(each.congestion_control)
            if each.mptcp is not None:
                multipath.require()
        plan = make_plan(experiment)
        needed = set().union(
            *(
                queues.kinds(ports.switch_queue(experiment, plan, port))
                for port in plan.switch_ports()
            ),
            *(queues.kinds(ports.host_queue(experiment, plan, host)) for host in plan.hosts),
        )
        queues.require_kinds(needed, doctor.probe_qdiscs(needed))

    def run(self, directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
        """See Engine.run."""
        experiment = load_resolved(directory.config)
        with _alone():
            # Where the module exists but is not loaded; whether it is there is read afterwards.
            subprocess.run(["modprobe", "-q", "openvswitch"], check=False)
            with _put_back(entry, [transport.ALLOWED_CONGESTION_CONTROLS, _STAMPED_EARLY]):
                for each in transport.all_of(experiment):
                    transport.allow_congestion_control(each.congestion_control)
                _stamp_in_order()
                return _run_inside(directory, entry, on_event)


@contextmanager
def _put_back(entry: Entry, settings: Sequence[Path]) -> Iterator[None]:
    """Puts settings of the whole machine back at the end; of those that it has."""
    before = {str(path): path.read_text().strip() for path in settings if path.exists()}
    entry.settings.update(before)
    entry.write()
    try:
        yield
    finally:
        for path, value in before.items():
            Path(path).write_text(value)
            del entry.settings[path]
        entry.write()


def _stamp_in_order() -> None:
    """Has every captured packet stamped when it is taken from the core's backlog.

    By default the kernel stamps a packet before it goes there, but not one that bears a sending
    time, as most of TCP's do (skb_tstamp in linux/skbuff.h): the capture stamps that one itself,
    later. A capture's times step back where the two kinds meet, by some microseconds.

    Raises:
        ReadBackError: where the kernel does not take it.
    """
    if not _STAMPED_EARLY.exists():
        return
    _STAMPED_EARLY.write_text("0")
    if (shown := _STAMPED_EARLY.read_text().strip()) != "0":
        raise ReadBackError("this machine", _STAMPED_EARLY.name, 0, shown)


@contextmanager
def _alone() -> Iterator[None]:
    """Realtime runs share no machine: they would disturb each other's timing."""
    with open(private.lock_file(default_folder(), "realtime.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                "another realtime run is going on; two would disturb each other's timing"
            ) from None
        for folder in all_folders():
            restore_settings(folder)
        yield


def _run_inside(directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
    argv = ["setpriv", "--pdeathsig", "KILL"]
    argv += ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
    argv += ["--mount-proc", sys.executable, "-m", "outcast.engines.inside"]
    argv += [str(directory.path), "realtime"]
    reader = EventReader(on_event)
    scratch = directory.path / ".scratch"
    scratch.mkdir()
    with (directory.path / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch)},
            # Ctrl-C is for us to pass on; the terminal must not end half of the run by itself.
            start_new_session=True,
        )
        try:
            entry.processes.append(ProcessMark.of(process.pid))
            entry.write()
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line.encode())
                log.flush()
                reader.feed(line)
            status = process.wait()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            shutil.rmtree(scratch, ignore_errors=True)
    if reader.error is not None:
        raise reader.error
    if status or not reader.done:
        tail = (directory.path / "log.txt").read_text(errors="replace").splitlines()[-3:]
        raise RunError(f"the run ended with status {status}: {' | '.join(tail)}")

    return reader.wall_s
