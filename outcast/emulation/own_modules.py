"""Checks that the run's own modules are in the kernel, with the parameters that were asked for."""

from __future__ import annotations

from pathlib import Path

from outcast.errors import ReadBackError
from outcast.experiment.kernel import Kernel, argument

_LOADED = Path("/sys/module")
_BOOLS = {"1": "Y", "0": "N"}
"""How the kernel shows a parameter of the type bool (param_get_bool in kernel/params.c)."""


def read_back(kernel: Kernel, folder: Path = _LOADED) -> dict[str, dict[str, str]]:
    """By module, its parameters as the kernel shows them.

    Raises ReadBackError: a module is not loaded, or a parameter has another value or is not
    shown.
    """
    read: dict[str, dict[str, str]] = {}
    for module in kernel.modules:
        where = f"module {module.name}"
        if not (folder / module.name / "initstate").exists():
            raise ReadBackError(where, "state", "loaded", "no such module")
        read[module.name] = {}
        for name, value in module.parameters.items():
            try:
                actual = (folder / module.name / "parameters" / name).read_text().strip()
            except OSError:
                raise ReadBackError(
                    *(where, f"parameter {name}", argument(value)),
                    f"none; {module.path.name} needs module_param({name}, ..., 0444)",
                ) from None
            if not _equal(argument(value), actual):
                raise ReadBackError(where, f"parameter {name}", argument(value), actual)
            read[module.name][name] = actual
    return read


def _equal(requested: str, read_back: str) -> bool:
    if read_back in (requested, _BOOLS.get(requested)):
        return True
    try:
        return int(requested, 0) == int(read_back, 0)
    except ValueError:
        return False
