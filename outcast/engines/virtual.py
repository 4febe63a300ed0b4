"""The virtual engine: the same inner program, as the payload of a User-Mode Linux guest.

Real TCP, real qdiscs and real Open vSwitch on a clock that stands still while the guest computes;
an ordinary user's process, see `outcast.engines.guest.boot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from outcast.emulation.network import transport
from outcast.engines import (
    INSIDE,
    EventReader,
    Lacking,
    OnEvent,
    doctor,
    limits,
    own_modules,
    program_files,
    require_compiler,
)
from outcast.engines.guest import boot, code, init, kernels, parts, roots, world
from outcast.engines.guest.console import GuestResult
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.roots import Root
from outcast.engines.guest.world import World
from outcast.engines.ledger import Entry
from outcast.errors import FeatureMissingError, GuestError, StallError, did_you_mean
from outcast.experiment import Experiment, load_resolved
from outcast.experiment.engine import EngineName
from outcast.plan.flows import all_transports
from outcast.plan.model import Plan
from outcast.records.interventions import Interventions
from outcast.records.run_directory import GuestRecord, RunDirectory


def require_congestion_control(name: str, kernel: Kernel) -> None:
    available = kernel.congestion_controls
    if name not in available:
        raise FeatureMissingError(
            f"the virtual engine's kernel has no congestion control {name} "
            f"(it has {', '.join(available)}); the realtime engine takes what this machine's "
            f"kernel has (--engine realtime){did_you_mean(name, available)}"
        )


class VirtualEngine:
    """Runs experiments in the guest, by its virtual clock."""

    name: EngineName = "virtual"

    def __init__(
        self, kernel: Kernel | None = None, interventions: Interventions | None = None
    ) -> None:
        """Boots `kernel`, an earlier run's; None is the one that the experiment requests."""
        self._earlier = kernel
        self._interventions = interventions

    def require(self, experiment: Experiment, plan: Plan) -> None:
        if unfit := parts.processor_misfit():
            raise FeatureMissingError(unfit)
        kernel = self._kernel(experiment)
        sees = root_of(experiment)
        lacking = Lacking()
        if sees.is_host:
            lacking.note(doctor.require_programs)
            lacking.note(require_compiler, experiment, plan)
        for queue in (experiment.queue, *(exception.queue for exception in experiment.queues)):
            for qdisc in queue.tc():
                remedy = doctor.guest_is_too_old(qdisc.kind, kernel)
                what = f"the virtual engine's kernel has no qdisc {qdisc.kind}; {remedy}"
                lacking.note_if(bool(remedy), what)
        compiled = own_modules.compile_of(experiment, partial(own_modules.of_guest, kernel))
        for tcp in all_transports(experiment):
            # What a module registers, only the kernel knows once it is loaded.
            if not compiled:
                lacking.note(require_congestion_control, tcp.congestion_control, kernel)
            lacking.note(transport.require_rack, tcp, kernel.release)
        lacking.note(program_files.require, experiment, sees)
        lacking.note(boot.require, limits.processes(plan), limits.memory_mib(plan))
        lacking.refuse()

    def run(self, directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
        experiment = load_resolved(directory.config)
        kernel = self._kernel(experiment)
        # The manifest says its hash, so what boots has to have it.
        kernels.verify(kernel)
        modules = own_modules.compile_of(experiment, partial(own_modules.of_guest, kernel))
        changes = self._interventions
        reader = EventReader(on_event)
        sees, plan = self._prepare(directory, experiment, kernel)
        has_programs = bool(plan.programs) or plan.command is not None
        guest = boot.Boot(
            kernel.program,
            directory.path,
            [*sees.python_module(INSIDE), str(boot.RUN_DIRECTORY), self.name],
            seed=experiment.seed,
            stall_s=boot.STALL_OF_PROGRAMS_S if has_programs else boot.STALL_S,
            memory_mib=limits.memory_mib(plan),
            processes=limits.processes(plan),
            open_files=limits.open_files(plan),
            sees=sees,
            modules=modules,
            arguments=[
                *(() if changes is None else changes.arguments()),
                *([IPV6_ON] if "ipv6" in plan.families else []),
            ],
        )
        result = _boot(guest, directory, entry, reader)
        _require_done(directory, reader, result)
        if plan.command is None:
            if changes is not None:
                changes = changes.done(result.fates)
            _record_guest(directory, kernel, own_modules.records(modules), sees, changes)
        return reader.wall_s

    def _prepare(
        self, directory: RunDirectory, experiment: Experiment, kernel: Kernel
    ) -> tuple[World, Plan]:
        """The world of a run's guest, and its plan; a command's folder is as the guest sees it."""
        plan = directory.read_plan()
        if plan.command is None:
            return world_of(experiment, kernel), plan
        program_files.require_command(plan.command, root_of(experiment))
        folder = plan.command.folder
        sees = world_of(experiment, kernel, (folder,))
        if not sees.is_host:
            sees = replace(sees, folder=Path(folder))
            plan = replace(plan, command=replace(plan.command, folder=init.FOLDER))
            directory.write_plan(plan)
        return sees, plan

    def _kernel(self, experiment: Experiment) -> Kernel:
        return kernel_of(experiment) if self._earlier is None else self._earlier


def _boot(
    guest: boot.Boot, directory: RunDirectory, entry: Entry, reader: EventReader
) -> GuestResult:
    """Boots a run's guest; its log goes to the run directory, and the ledger knows of it.

    Raises GuestError, StallError: as boot.boot, with the phase that the run was in.
    """
    with (directory.path / "log.txt").open("a", encoding="utf-8") as log:

        def on_message(line: str) -> None:
            log.write(f"{line}\n")
            log.flush()

        def on_line(line: str) -> None:
            on_message(line)
            reader.feed(line)

        try:
            return boot.boot(guest, on_line, on_message, entry.note_folder)
        except StallError as error:
            raise StallError(f"{error}, during {reader.during()}{_why(reader)}") from None
        except GuestError as error:
            raise GuestError(f"{error}, during {reader.during()}") from None


def _require_done(directory: RunDirectory, reader: EventReader, result: GuestResult) -> None:
    """Raises OutcastError where the inner program failed, or has not finished."""
    why = reader.error
    if why is None and (result.status != 0 or not reader.done):
        why = reader.lost(result.status, "\n".join(result.said()))
    if why is None:
        return
    # The guest knows the run directory by another name.
    said = str(why).replace(str(boot.RUN_DIRECTORY), str(directory.path))
    why.args = (said, *why.args[1:])
    raise GuestError(f"{result.host_failure}; {why}") if result.host_failure else why


IPV6_ON = "ipv6.disable=0"
"""The guest kernel's option where hosts have IPv6 addresses (patch 0023)."""


def _why(reader: EventReader) -> str:
    """Why a guest with running programs may have stalled; empty if none runs."""
    if not reader.programs:
        return ""
    return (
        ": virtual time stands still while a program computes, and one of these seems to wait "
        f"without sleeping: {', '.join(reader.programs)}; allowed are programs that sleep or wait "
        "for input, or engine: realtime"
    )


def _record_guest(
    directory: RunDirectory,
    kernel: Kernel,
    modules: Mapping[str, Mapping[str, object]],
    sees: World,
    interventions: Interventions | None,
) -> None:
    """Adds to the manifest what the guest cannot know about its own kernel and root."""
    manifest = directory.read_manifest()
    built_from: dict[str, object] = {
        "source": f"{kernel.source} {kernel.version}",
        "recipe": kernel.recipe,
        "sha256": kernel.sha256,
        "compiler": kernel.compiler,
    }
    if kernel.own:
        built_from["own"] = list(kernel.own)
    if modules:
        built_from["modules"] = modules
    directory.write_manifest(
        manifest.model_copy(
            update={
                "kernel": {**manifest.kernel, **built_from},
                "guest": GuestRecord(**sees.record),
                "interventions": interventions,
            }
        )
    )


def root_of(experiment: Experiment) -> World:
    """The world of the experiment's guest, without our code.

    Raises FeatureMissingError: the root of the lock is missing.
    """
    if experiment.guest.root == "host":
        return world.of_host()
    return world.of_root(_locked_root())


def _locked_root() -> Root:
    root = roots.find()
    if root is None:
        raise FeatureMissingError(
            f"the guest's root is missing; {parts.REMEDY}; or set guest.root=host, which takes "
            "this machine's programs"
        )
    return root


def world_of(experiment: Experiment, kernel: Kernel, needed: Sequence[str] = ()) -> World:
    """The world of the experiment's guest; our code and programs are made ready for it.

    Raises:
        FeatureMissingError: the root of the lock is missing, or the one with the compiler.
        GuestError, RootError: our code or our programs cannot be made ready.
    """
    if experiment.guest.root == "host":
        return world.of_host(needed)
    root = _locked_root()
    ready = code.find_programs(parts.PINNED.build)
    if ready is None:
        compiler = roots.find("build")
        if compiler is None:
            raise FeatureMissingError(
                "the root with the compiler is missing, which compiles our programs for the "
                f"guest; {parts.REMEDY}"
            )
        ready = code.provide_programs(kernel, root, compiler)
    return world.of_root(root, code.provide(root, ready))


def kernel_of(experiment: Experiment) -> Kernel:
    """The kernel that the experiment's guest boots. Raises FeatureMissingError if it is missing."""
    if experiment.kernel is not None and experiment.kernel.build is not None:
        return kernels.find_key(experiment.kernel.build)
    return kernels.require()
