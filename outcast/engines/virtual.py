"""The virtual engine: the same inner program, as the payload of a User-Mode Linux guest.

Real TCP, real qdiscs and real Open vSwitch on a clock that stands still while the guest computes;
an ordinary user's process, see `outcast.guest.boot`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal

from outcast import transport
from outcast.engines import EventReader, OnEvent, require_compiler
from outcast.errors import FeatureMissingError, RunError
from outcast.experiment import Experiment, load_resolved
from outcast.guest import boot
from outcast.kernel import cache
from outcast.kernel.cache import Kernel
from outcast.ledger import Entry, ProcessMark
from outcast.run import RunDirectory


class VirtualEngine:
    """See the module."""

    name: Literal["realtime", "virtual"] = "virtual"

    def require(self, experiment: Experiment) -> None:
        """Raises FeatureMissingError naming what is missing: its kernel, or what that one lacks."""
        _kernel()
        for each in transport.all_of(experiment):
            transport.require_guest_congestion_control(each.congestion_control)
        require_compiler(experiment)

    def run(self, directory: RunDirectory, entry: Entry, on_event: OnEvent) -> Mapping[str, float]:
        """See Engine.run."""
        kernel = _kernel()
        reader = EventReader(on_event)
        argv = [sys.executable, "-m", "outcast.engines.inside", str(boot.RUN_DIRECTORY), "virtual"]
        with (directory.path / "log.txt").open("a", encoding="utf-8") as log:

            def on_line(line: str) -> None:
                log.write(f"{line}\n")
                log.flush()
                reader.feed(line)

            def on_start(pid: int) -> None:
                entry.processes.append(ProcessMark.of(pid))
                entry.write()

            result = boot.boot(
                kernel.program,
                directory.path,
                argv,
                seed=load_resolved(directory.config).seed,
                on_line=on_line,
                on_start=on_start,
            )
            log.writelines(f"{line}\n" for line in result.console)
        if reader.error is not None:
            # The guest knows the run directory by another name.
            said = str(reader.error).replace(str(boot.RUN_DIRECTORY), str(directory.path))
            reader.error.args = (said, *reader.error.args[1:])
            raise reader.error
        if result.status or not reader.done:
            said = " | ".join(result.console[-5:])
            raise RunError(f"the run ended with status {result.status}: {said}")
        _record_kernel(directory, kernel)
        return reader.wall_s


def _record_kernel(directory: RunDirectory, kernel: Kernel) -> None:
    """Adds to the manifest what the guest cannot know of its own kernel."""
    manifest = directory.read_manifest()
    made = {
        "source": f"{kernel.source} {kernel.version}",
        "recipe": kernel.recipe,
        "sha256": kernel.sha256,
    }
    directory.write_manifest(manifest.model_copy(update={"kernel": {**manifest.kernel, **made}}))


def _kernel() -> Kernel:
    kernel = cache.find()
    if kernel is None:
        raise FeatureMissingError(
            "the virtual engine's kernel is missing; build it once with: outcast kernel build"
        )
    return kernel
