"""What is measured of a run, a file for each thing that is measured."""

from __future__ import annotations

import pkgutil
from typing import Any

from outcast import quantities


def computed(level: str, *of: Any) -> dict[str, Any]:
    """The quantities of a level that name a function (`measure`), by their keys.

    Args:
        level: as in outcast/quantities.py.
        of: what the functions take: an Analysis, and of levels but `run` the row too.
    """
    return {
        quantity.key: pkgutil.resolve_name(f"{__name__}.{quantity.measure}")(*of)
        for quantity in quantities.of(level)
        if quantity.measure
    }
