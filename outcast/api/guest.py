"""The virtual engine's kernel and root, made where a run needs them."""

from __future__ import annotations

from outcast.api.progress import note
from outcast.engines import processor, shipped
from outcast.engines.guest import helpers
from outcast.engines.kernel import cache as kernels
from outcast.engines.root import cache, mininet_package
from outcast.engines.root.lock import Kind
from outcast.errors import FeatureMissingError, KernelError, RootError
from outcast.experiment import Experiment
from outcast.experiment.engine import candidates, properties
from outcast.plan.planned import Planned


def provide(planned: Planned, progress: bool | None = None) -> None:
    """Makes the virtual engine's kernel and root if the experiment can use them and they lack.

    Before that, the experiment is planned, because a wrong one should not be refused after
    minutes. A root that the run uses is compared with the list of its files.

    Raises:
        ConfigError: the experiment cannot be planned.
        RootError: the root is damaged, whichever engine is asked for.
        FeatureMissingError, RootError, KernelError, CommandError, GuestError: as `build.build` of
            the root and of the kernel; but where the engine is `auto` and packages, sources,
            programs or the processor are missing, nothing is raised.
    """
    experiment = planned.experiment
    engines = candidates(experiment.engine)
    in_guest = [properties(engine).own_kernel for engine in engines]
    if not any(in_guest):
        return
    if unfit := processor.misfit():
        if all(in_guest):
            raise FeatureMissingError(unfit)
        note(progress, f"the virtual engine cannot be used: {unfit}")
        return
    _verify_roots(experiment)
    lacking = _lacking_roots(experiment)
    lacks_kernel = _lacks_kernel(experiment)
    if not lacking and not lacks_kernel:
        return
    if not experiment.sweep:
        # The points of a sweep are planned by the sweep.
        if not mininet_package.is_there():
            provide_mininet(progress)
            lacking = _lacking_roots(experiment)
        planned.by(engines[0])
    # Few runs need these, and all would wait for their imports.
    from outcast.api.building import build_kernel, build_root

    if unfit := shipped.misfit("kernels", kernels.pinned_key()):
        note(progress, unfit)
    try:
        if lacks_kernel:
            # It makes both roots too, one of them while the compiler works.
            note(progress, "building the virtual engine's kernel first; this takes minutes, once")
            build_kernel(progress)
        elif lacking:
            note(progress, "making the guest's root first; this takes a minute, once")
        for kind in _lacking_roots(experiment):
            build_root(kind, progress)
    except (FeatureMissingError, KernelError, RootError) as error:
        if all(in_guest):
            raise
        note(progress, f"the virtual engine cannot be used: {error}")


def provide_mininet(progress: bool | None = None) -> None:
    """Makes the guest's root, from which Mininet comes where this Python has none of its own.

    Raises FeatureMissingError or RootError, as `build.build` of the root.
    """
    from outcast.api.building import build_root

    note(progress, "planning needs Mininet, which the guest's root has: making that first, once")
    build_root("runtime", progress)


def _verify_roots(experiment: Experiment) -> None:
    if experiment.guest.root == "host":
        return
    kinds: list[Kind] = ["runtime", "build"] if _compiles(experiment) else ["runtime"]
    for kind in kinds:
        root = cache.find(kind)
        if root is not None:
            cache.verify(root)


def _lacking_roots(experiment: Experiment) -> list[Kind]:
    if experiment.guest.root == "host":
        return []
    lacking: list[Kind] = [] if cache.find() is not None else ["runtime"]
    if _lacks_programs() and cache.find("build") is None:
        lacking.append("build")
    return lacking


def _compiles(experiment: Experiment) -> bool:
    """Whether the root with the compiler is used: for our programs, a kernel, or its modules."""
    has_modules = experiment.kernel is not None and bool(experiment.kernel.modules)
    return (
        has_modules or _sweeps_kernels(experiment) or _lacks_programs() or _lacks_kernel(experiment)
    )


def _sweeps_kernels(experiment: Experiment) -> bool:
    """Whether a sweep's runs may have other modules of their own."""
    if experiment.sweep is None:
        return False
    keys = {*experiment.sweep.lists, *(key for point in experiment.sweep.points for key in point)}
    return any(key.split(".")[0] == "kernel" for key in keys)


def _lacks_programs() -> bool:
    """Whether our programs have to be compiled. Once they are, they need no compiler."""
    compiler = cache.pinned_key("build")
    return compiler is not None and helpers.find(compiler) is None


def _lacks_kernel(experiment: Experiment) -> bool:
    selected = experiment.kernel is not None and experiment.kernel.build is not None
    return not selected and kernels.find() is None
