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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from outcast import doctor, openvswitch, queues, transport
from outcast.engines import EventReader, OnEvent
from outcast.errors import FeatureMissingError, RunError
from outcast.experiment import Experiment, load_resolved
from outcast.ledger import Entry, ProcessMark, default_folder
from outcast.run import RunDirectory


class RealtimeEngine:
    """See the module."""

    name: Literal["realtime", "virtual"] = "realtime"

    def require(self, experiment: Experiment) -> None:
        """Raises FeatureMissingError naming what this machine lacks for the experiment."""
        if os.geteuid() != 0:
            raise FeatureMissingError(
                "root is missing: the realtime engine makes network namespaces; run it with sudo"
            )
        transport.require_congestion_control(experiment.transport.congestion_control)
        needed = queues.kinds(
            queues.switch_queue(experiment, "any", is_bottleneck=True)
        ) | queues.kinds(queues.host_queue(experiment, "any"))
        queues.require_kinds(needed, doctor.probe_qdiscs(needed))
        if experiment.transport.offloads and not openvswitch.has_kernel_module():
            raise FeatureMissingError(
                "this kernel has no Open vSwitch module, and the userspace datapath loses "
                "checksum offloads; use transport.offloads: false, or --engine virtual"
            )

    def run(self, directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
        """See Engine.run."""
        allowed = transport.ALLOWED_CONGESTION_CONTROLS
        wanted = load_resolved(directory.config).transport.congestion_control
        with _alone():
            # Where the module exists but is not loaded; whether it is there is read afterwards.
            subprocess.run(["modprobe", "-q", "openvswitch"], check=False)
            before = allowed.read_text().strip()
            entry.settings[str(allowed)] = before
            entry.write()
            transport.allow_congestion_control(wanted)
            try:
                return _run_inside(directory, entry, on_event)
            finally:
                allowed.write_text(before)
                del entry.settings[str(allowed)]
                entry.write()


@contextmanager
def _alone() -> Iterator[None]:
    """Realtime runs share no machine: they would disturb each other's timing."""
    folder = default_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "realtime.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                "another realtime run is going on; two would disturb each other's timing"
            ) from None
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
