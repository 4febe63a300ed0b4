"""Boots a kernel and tries in its guest what experiments use of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from outcast import netlink
from outcast.engines import doctor
from outcast.engines.guest import boot, check, world
from outcast.engines.guest.world import World
from outcast.errors import KernelError
from outcast.experiment.queues.base import QueueKind


def boot_and_try(program: Path, sees: World) -> check.Said:
    """Returns what the kernel says of itself.

    Raises:
        GuestError: it does not boot.
        KernelError: it lacks something.
    """
    # The check has a folder of its own, because the guest may write to it.
    with tempfile.TemporaryDirectory(prefix="outcast-check-") as name:
        argv = prepare(Path(name))
        lines: list[str] = []
        guest = boot.Boot(program, Path(name), argv, seed=1, sees=sees)
        result = boot.boot(guest, lines.append)
    if result.status != 0 or not lines:
        raise KernelError(
            f"the kernel boots, but lacks something: {' | '.join([*lines, *result.console][-5:])}"
        )
    said: check.Said = json.loads(lines[-1])
    return said


def prepare(folder: Path) -> list[str]:
    """Puts the program that tries the features into a folder; the command that runs it."""
    for module in (check, netlink):
        source = Path(str(module.__file__))
        shutil.copyfile(source, folder / source.name)
    program = boot.RUN_DIRECTORY / Path(netlink.__file__).name
    qdiscs = [
        (
            qdisc,
            doctor.SINCE.get(qdisc, QueueKind.since),
            doctor.set_up(qdisc, options, check.DEVICE, python=world.PYTHON, program=program),
        )
        for qdisc, options in doctor.QDISCS.items()
    ]
    (folder / check.COMMANDS).write_text(json.dumps(qdiscs), encoding="utf-8")
    return [world.PYTHON, "-I", str(boot.RUN_DIRECTORY / Path(check.__file__).name)]
