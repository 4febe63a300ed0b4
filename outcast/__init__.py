"""outcast: many-to-one unfairness at a switch, reproducible on one machine.

```python
import outcast

experiment = outcast.load("configs/fig3c.yaml", {"flows.1.hosts": 6})
run = outcast.run(experiment, "results/six")
run.summary.outcast_ratio
```

The functions are loaded when they are first used, so that `import outcast` alone costs nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` alone would take most of the time of `import outcast`.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from outcast.api.archives import Replay, pack, replay
    from outcast.api.captures import export
    from outcast.api.experiments import load
    from outcast.api.joins import Join, join_captures
    from outcast.api.making import Executed, exec_in
    from outcast.api.runs import Execution, Program, Run, analyze, open_run, run
    from outcast.api.sweeps import Sweep, open_sweep, run_sweep
    from outcast.archive import Packed
    from outcast.errors import (
        BusyError,
        ConfigError,
        FeatureMissingError,
        GuestError,
        InputError,
        KernelError,
        NothingSentError,
        OutcastError,
        ReplayError,
        RootError,
        RunError,
        UntrustedError,
    )
    from outcast.experiment import Experiment
    from outcast.uses import (
        Comparison,
        Counterfactual,
        KernelTrace,
        compare,
        fate,
        trace,
        whatif_each,
    )

__version__ = "0.2.0"

__all__ = [
    "BusyError",
    "Comparison",
    "ConfigError",
    "Counterfactual",
    "Executed",
    "Execution",
    "Experiment",
    "FeatureMissingError",
    "GuestError",
    "InputError",
    "Join",
    "KernelError",
    "KernelTrace",
    "NothingSentError",
    "OutcastError",
    "Packed",
    "Program",
    "Replay",
    "ReplayError",
    "RootError",
    "Run",
    "RunError",
    "Sweep",
    "UntrustedError",
    "__version__",
    "analyze",
    "compare",
    "exec_in",
    "export",
    "fate",
    "join_captures",
    "load",
    "open_run",
    "open_sweep",
    "pack",
    "replay",
    "run",
    "run_sweep",
    "trace",
    "whatif_each",
]


def members(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__` (PEP 562): it loads a member when that is first used.

    `names` has the names of the members by the modules that they are in.
    """
    module_of = {name: module for module, own in names.items() for name in own.split()}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        member = getattr(__import__(module_of[name], fromlist=[name]), name)
        setattr(sys.modules[package], name, member)
        return member

    return load


if not TYPE_CHECKING:
    __getattr__ = members(
        __name__,
        {
            "outcast.api.archives": "Replay pack replay",
            "outcast.api.captures": "export",
            "outcast.api.experiments": "load",
            "outcast.api.joins": "Join join_captures",
            "outcast.api.making": "Executed exec_in",
            "outcast.api.runs": "Execution Program Run analyze open_run run",
            "outcast.api.sweeps": "Sweep open_sweep run_sweep",
            "outcast.archive": "Packed",
            "outcast.errors": (
                "BusyError ConfigError FeatureMissingError GuestError InputError KernelError "
                "NothingSentError OutcastError ReplayError RootError RunError UntrustedError"
            ),
            "outcast.experiment": "Experiment",
            "outcast.uses": (
                "Comparison Counterfactual KernelTrace compare fate trace whatif_each"
            ),
        },
    )


def __dir__() -> list[str]:
    return sorted(__all__)


class _MininetOfTheGuest:
    """Finds Mininet in the guest's root where no other finder of this Python has it.

    Planning needs Mininet's `Topo`, and distributions have it for their own Python alone.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name.partition(".")[0] != "mininet":
            return None
        from outcast.engines.guest import roots

        return roots.find_mininet(name, path)


sys.meta_path.append(_MininetOfTheGuest)
