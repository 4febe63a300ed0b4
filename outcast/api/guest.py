"""The virtual engine's kernel and root, made by scripts/guest/build where a run lacks them."""

from __future__ import annotations

import subprocess
import sys

from outcast.api.progress import is_shown, note
from outcast.engines.guest import code, kernels, parts, roots
from outcast.engines.guest.parts import Kind
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment
from outcast.experiment.engine import candidates, properties
from outcast.plan.model import Planned


def provide(planned: Planned, progress: bool | None = None) -> None:
    """Makes the virtual engine's kernel and root if they are missing and the experiment uses them.

    The experiment is planned first, so that a wrong one is not refused after minutes. A root that
    the run uses is compared with the list of its files.

    Raises:
        ConfigError: the experiment cannot be planned.
        RootError: the root is damaged, whichever engine is chosen.
        FeatureMissingError: they cannot be had; but not where the engine is `auto`.
    """
    experiment = planned.experiment
    engines = candidates(experiment.engine)
    in_guest = [properties(engine).own_kernel for engine in engines]
    if not any(in_guest):
        return
    if unfit := parts.processor_misfit():
        if all(in_guest):
            raise FeatureMissingError(unfit)
        note(progress, f"the virtual engine cannot be used: {unfit}")
        return
    _verify_roots(experiment)
    if not _lacks(experiment):
        return
    try:
        if not experiment.sweep:
            # The points of a sweep are planned by the sweep.
            if not roots.has_mininet():
                provide_mininet(progress)
            planned.by(engines[0])
        if _lacks(experiment):
            _make(progress)
    except FeatureMissingError as error:
        if all(in_guest):
            raise
        note(progress, f"the virtual engine cannot be used: {error}")


def provide_mininet(progress: bool | None = None) -> None:
    """Makes the guest's root, from which Mininet comes where this Python has none of its own.

    Raises FeatureMissingError: it cannot be had.
    """
    note(progress, "planning needs Mininet, which the guest's root has")
    _make(progress)


def _make(progress: bool | None) -> None:
    """Runs the script of this checkout. Raises FeatureMissingError where it is missing or fails.

    Its lines go to standard error, where the user sees how far it is.
    """
    if unfit := parts.misfit("kernels", parts.PINNED.kernel):
        note(progress, unfit)
    if not parts.SCRIPT.is_file():
        raise FeatureMissingError(f"the virtual engine's guest is missing; {parts.REMEDY}")
    note(progress, "making the virtual engine's guest first; this takes minutes, once")
    output = None if is_shown(progress) else subprocess.PIPE
    done = subprocess.run(
        [str(parts.SCRIPT)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
    )
    if done.returncode < 0 or done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        lines = (done.stderr or b"").decode(errors="replace").strip().splitlines()
        why = f": {lines[-1].removeprefix('guest: error: ')}" if lines else ", as it says above"
        raise FeatureMissingError(f"{parts.SCRIPT} did not make the guest{why}")
    sys.stderr.flush()


def _verify_roots(experiment: Experiment) -> None:
    if experiment.guest.root == "host":
        return
    kinds: list[Kind] = ["runtime", "build"] if _compiles(experiment) else ["runtime"]
    for kind in kinds:
        root = roots.find(kind)
        if root is not None:
            roots.verify(root)


def _lacks(experiment: Experiment) -> bool:
    """Whether a part of the guest that the experiment uses is not here."""
    selected = experiment.kernel is not None and experiment.kernel.build is not None
    if not selected and kernels.find() is None:
        return True
    if experiment.guest.root == "host":
        return False
    return roots.find() is None or (_lacks_programs() and roots.find("build") is None)


def _compiles(experiment: Experiment) -> bool:
    """Whether the root with the compiler is used: for our programs, or a kernel's modules."""
    has_modules = experiment.kernel is not None and bool(experiment.kernel.modules)
    return has_modules or _sweeps_kernels(experiment) or _lacks_programs()


def _sweeps_kernels(experiment: Experiment) -> bool:
    """Whether a sweep's runs may have other modules of their own."""
    if experiment.sweep is None:
        return False
    keys = {*experiment.sweep.lists, *(key for point in experiment.sweep.points for key in point)}
    return any(key.split(".")[0] == "kernel" for key in keys)


def _lacks_programs() -> bool:
    """Whether our programs have to be compiled. Once they are, they need no compiler."""
    return code.find_programs(parts.PINNED.build) is None
