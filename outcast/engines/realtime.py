"""The realtime engine: Mininet on this machine's kernel, in namespaces of its own.

The inner program runs in new network, mount and process namespaces (unshare(1)), apart from the
machine's own bridges, ports and processes. However it ends, the kernel removes all that it made: a
process namespace ends with its first process, and a network namespace with its last one
(pid_namespaces(7)).
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from outcast.emulation.commands import leave_working_folder, python_module
from outcast.emulation.network import forwarding, interrupt_moderation, multipath, transport
from outcast.emulation.network.openvswitch import has_kernel_module
from outcast.emulation.queues import qdiscs
from outcast.engines import (
    INSIDE,
    EventReader,
    Lacking,
    OnEvent,
    doctor,
    limits,
    modules,
    own_modules,
    program_files,
    require_compiler,
)
from outcast.engines.guest import kernels
from outcast.engines.ledger import Entry, default_folder, lock_file, undo_dead
from outcast.engines.modules import Loading, Modules
from outcast.engines.own_modules import Compiled
from outcast.errors import BusyError, FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Experiment, load_resolved
from outcast.experiment.engine import EngineName
from outcast.plan import ports
from outcast.plan.flows import all_transports
from outcast.plan.model import Plan
from outcast.records.run_directory import RunDirectory

_WHO = "the run's inner program"

_SCRATCH_PLACES = (Path("/tmp"), Path("/var/tmp"), Path("/root"))
"""Folders for temporary programs besides TMPDIR. Many systems mount /run noexec."""

_STAMPED_EARLY = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
"""A setting of the whole machine, which only the initial network namespace has."""


class RealtimeEngine:
    """Runs experiments on this machine's kernel, by its clock."""

    name: EngineName = "realtime"

    def __init__(self, kernel_modules: Modules | None = None) -> None:
        self._modules = kernel_modules or Modules()
        self._needed: list[str] = []
        self._loading = Loading()

    def require(self, experiment: Experiment, plan: Plan) -> None:
        """See Engine.require.

        The modules that the experiment needs are loaded first, because the kernel shows only loaded
        ones. They stay loaded.
        """
        lacking = Lacking()
        lacking.note_if(
            os.geteuid() != 0,
            "root is missing: the realtime engine makes network namespaces; run it as root",
        )
        lacking.note_if(
            experiment.kernel is not None and experiment.kernel.build is not None,
            "kernel.build selects a kernel of the virtual engine; use --engine virtual",
        )
        lacking.note_if(
            experiment.trace is not None,
            "trace: records events of the guest's kernel, in virtual time; use --engine virtual",
        )
        lacking.note_if(
            experiment.routing.per_packet,
            "routing.core: packet is drawn by the guest's kernel; use --engine virtual, or "
            "core: random",
        )
        lacking.note(doctor.require_programs, ("unshare", "setpriv"))
        lacking.note(require_compiler, experiment, plan, start_afterwards=True)
        lacking.note(program_files.require, experiment, None)
        lacking.note_if(plan.host_noise.throttle is not None, interrupt_moderation.ONLY_VIRTUAL)
        if "ipv6" in plan.families:
            lacking.note(transport.require_ipv6)
        lacking.note(limits.require, limits.open_files(plan), _WHO)
        if os.geteuid() == 0:
            self._require_of_kernel(experiment, plan, lacking)
        lacking.refuse()

    def _require_of_kernel(self, experiment: Experiment, plan: Plan, lacking: Lacking) -> None:
        """Loads the modules that a plan needs, and notes what the kernel lacks then."""
        if not doctor.works({"namespaces": "true"}):
            # Without them nothing shows what the kernel has.
            text = f"`unshare --net --mount` makes no namespaces here: {doctor.MAKES_NAMESPACES}"
            lacking.note_if(True, text)
            return
        kinds = _qdiscs(experiment, plan)
        transports = all_transports(experiment)
        listed = {modules.congestion_control(name) for name in transport.congestion_controls()}
        controls = {modules.congestion_control(tcp.congestion_control) for tcp in transports}
        self._load([modules.OPEN_VSWITCH, modules.VETH])
        self._load([*map(modules.qdisc, sorted(kinds)), *sorted(controls - listed)])
        if plan.host_noise.interrupts is not None:
            self._load(modules.HELD_ARRIVALS)
            if not doctor.holds_arrivals():
                lacking.note_if(
                    True, str(interrupt_moderation.missing(", ".join(modules.HELD_ARRIVALS)))
                )
        why = self._loading.why
        if not has_kernel_module():
            self._load([modules.BRIDGE])
            lacking.note(forwarding.require, experiment.routing, why(modules.OPEN_VSWITCH))
        self._needed += controls & listed
        compiled: list[Compiled] = []
        lacking.note(lambda: compiled.extend(own_modules.compile_of(experiment)))
        guest = kernels.find()
        in_guest = guest.congestion_controls if guest is not None else None
        for tcp in transports:
            lacking.note(transport.require_rack, tcp, os.uname().release)
            name = tcp.congestion_control
            refused = why(modules.congestion_control(name))
            # What a module registers, only the kernel knows once it is loaded.
            if not compiled:
                lacking.note(transport.require_congestion_control, name, in_guest, refused)
            if tcp.mptcp is not None:
                lacking.note(multipath.require)
        known = kinds & set(doctor.QDISCS)
        lacking.note(
            qdiscs.require_kinds,
            known,
            doctor.probe_qdiscs(known),
            lambda kind: why(modules.qdisc(kind)),
        )

    def _load(self, features: Sequence[str]) -> None:
        loading = self._modules.load(features)
        self._needed += features
        self._loading.loaded.update(loading.loaded)
        self._loading.refused.update(loading.refused)

    def run(self, directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
        experiment = load_resolved(directory.config)
        plan = directory.read_plan()
        if plan.command is not None:
            program_files.require_command(plan.command, None)
        settings = [transport.ALLOWED_CONGESTION_CONTROLS, _STAMPED_EARLY]
        compiled = own_modules.compile_of(experiment)
        with _alone(), _loaded(compiled), _put_back(entry, settings):
            for tcp in all_transports(experiment):
                transport.allow_congestion_control(tcp.congestion_control)
            _stamp_in_order()
            wall_s = _run_inside(directory, plan, entry, on_event)
        self._record_modules(directory, compiled)
        return wall_s

    def _record_modules(self, directory: RunDirectory, compiled: Sequence[Compiled]) -> None:
        """Adds the kernel's modules to the manifest, and whether this run loaded them."""
        records: dict[str, Mapping[str, object]] = {
            **self._modules.record(self._needed, self._loading),
            **own_modules.records(compiled),
        }
        if records:
            manifest = directory.read_manifest()
            kernel = {**manifest.kernel, "modules": records}
            directory.write_manifest(manifest.model_copy(update={"kernel": kernel}))


def _qdiscs(experiment: Experiment, plan: Plan) -> set[str]:
    """The kernel's qdiscs that the ports and the links of a plan need."""
    needed = {"netem"} if plan.wires or plan.host_noise.interrupts is not None else set()
    for port in plan.switch_ports():
        needed |= qdiscs.kinds(ports.switch_queue(experiment, plan, port))
    for host in plan.hosts:
        needed |= qdiscs.kinds(ports.host_queue(experiment, plan, host))
    return needed


@contextmanager
def _loaded(compiled: Sequence[Compiled]) -> Iterator[None]:
    """Loads the user's modules into this machine's kernel, and unloads them at the end.

    Raises:
        RunError: a module is loaded already, or the kernel refused one.
        DeadlineError: a module stayed in use after the run.
    """
    for module in compiled:
        if modules.is_loaded_module(module.name):
            raise RunError(
                f"kernel.modules: this machine's kernel has a module {module.name} already; "
                f"unload it (rmmod {module.name}) or rename the file"
            )
    try:
        for module in compiled:
            modules.insert(module.program, module.arguments)
        yield
    finally:
        for module in reversed(compiled):
            if modules.is_loaded_module(module.name):
                modules.unload(module.name)


@contextmanager
def _put_back(entry: Entry, settings: Sequence[Path]) -> Iterator[None]:
    """Restores settings of the whole machine at the end; those that it lacks are left out."""
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
    """Makes the kernel stamp every captured packet when it leaves the core's backlog.

    By default the kernel stamps a packet before that, except packets with a sending time, as most
    of TCP's have it (skb_tstamp in linux/skbuff.h). The capture stamps these later. So its times
    would step back by some microseconds between the two kinds.

    Raises ReadBackError: the kernel does not take the setting.
    """
    if not _STAMPED_EARLY.exists():
        return
    _STAMPED_EARLY.write_text("0")
    if (read_back := _STAMPED_EARLY.read_text().strip()) != "0":
        raise ReadBackError("this machine", _STAMPED_EARLY.name, 0, read_back)


@contextmanager
def _alone() -> Iterator[None]:
    """Raises BusyError while another realtime run goes on."""
    with open(lock_file(default_folder(), "realtime.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                "another realtime run is going on; two would disturb each other's timing"
            ) from None
        # A killed run's settings are put back before this run notes the machine's own.
        undo_dead(waits=True)
        yield


def _scratch_place() -> Path:
    """A folder for root's temporary programs. Raises FeatureMissingError: none can run from any."""
    tried = []
    for place in dict.fromkeys([Path(tempfile.gettempdir()), *_SCRATCH_PLACES]):
        if re.search(r"[\s:]", str(place)):
            # The dynamic linker ends a library's name at these characters (ld.so(8), LD_PRELOAD).
            tried.append(f"{str(place)!r} holds a space or a colon")
        elif not place.is_dir() or os.statvfs(place).f_flag & (os.ST_NOEXEC | os.ST_RDONLY):
            tried.append(f"{place} is missing, or is mounted noexec or read-only")
        else:
            return place
    raise FeatureMissingError(
        f"no folder for root's temporary programs: {', '.join(tried)}; set TMPDIR to one"
    )


def _run_inside(
    directory: RunDirectory, plan: Plan, entry: Entry, on_event: OnEvent
) -> Mapping[str, float]:
    argv = ["setpriv", "--pdeathsig", "KILL"]
    argv += ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
    argv += ["--mount-proc", *python_module(INSIDE), str(directory.path), RealtimeEngine.name]
    # Programs are compiled here and run as root, so nobody else may write to the folder.
    scratch = _scratch_place() / f"outcast-run-{secrets.token_hex(4)}"
    entry.note_folder(scratch)
    scratch.mkdir(mode=0o700)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    leave_working_folder(environment)
    reader = EventReader(on_event)
    with (directory.path / "log.txt").open("ab") as log:
        with limits.raised(limits.open_files(plan), _WHO):
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                errors="replace",
                env=environment,
                # The terminal's Ctrl-C would end only half of the run.
                start_new_session=True,
            )
        try:
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
        with (directory.path / "log.txt").open(encoding="utf-8", errors="replace") as written:
            said = "".join(line for line in written if not line.startswith("{"))
        # unshare(1) ends by the signal that ended its child. Before, it sets that signal to its
        # default and unblocks it, and with SIGKILL alone this fails.
        last = said.rstrip().rpartition("\n")[2]
        killed = last.startswith("unshare: sig") and last.endswith(": Invalid argument")
        raise reader.lost(-signal.SIGKILL if killed else status, said)
    return reader.wall_s
