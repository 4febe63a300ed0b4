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
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from outcast.api.archives import Replay, pack, replay
    from outcast.api.captures import export
    from outcast.api.commands import Executed, exec_in
    from outcast.api.experiments import load
    from outcast.api.joins import Join, join_captures
    from outcast.api.runs import Execution, Program, Run, analyze, open_run, run
    from outcast.api.sweeps import Sweep, open_sweep, run_sweep
    from outcast.api.traces import KernelTrace, trace
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
    from outcast.uses import Counterfactual, fate, whatif_each

__version__ = "0.2.0"

__all__ = [
    "BusyError",
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

_MODULES = {
    "Executed": "outcast.api.commands",
    "Execution": "outcast.api.runs",
    "Experiment": "outcast.experiment",
    "Join": "outcast.api.joins",
    "KernelTrace": "outcast.api.traces",
    "Packed": "outcast.archive",
    "Program": "outcast.api.runs",
    "Replay": "outcast.api.archives",
    "Run": "outcast.api.runs",
    "Sweep": "outcast.api.sweeps",
    "analyze": "outcast.api.runs",
    "exec_in": "outcast.api.commands",
    "export": "outcast.api.captures",
    "join_captures": "outcast.api.joins",
    "load": "outcast.api.experiments",
    "open_run": "outcast.api.runs",
    "open_sweep": "outcast.api.sweeps",
    "pack": "outcast.api.archives",
    "replay": "outcast.api.archives",
    "run": "outcast.api.runs",
    "run_sweep": "outcast.api.sweeps",
    "trace": "outcast.api.traces",
}
"""The modules of the members. The errors are in outcast.errors, and uses have members too."""


def __getattr__(name: str) -> Any:
    """Loads a member when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from outcast import uses

    if name in uses.MEMBERS:
        member = uses.find(uses.MEMBERS[name])
    else:
        member = getattr(importlib.import_module(_MODULES.get(name, "outcast.errors")), name)
    globals()[name] = member
    return member


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
