"""The kernel's functions by their addresses, as /proc/kallsyms lists them.

```
0000000060001000 T _stext
000000006028a230 t netem_dequeue        [sch_netem]
```
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from outcast import handed_in
from outcast.analysis.compiled import Array
from outcast.errors import InputError

MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class Symbols:
    """Functions in ascending order of their addresses; arrays of one length."""

    address: Array
    name: pl.Series

    def names(self, addresses: pl.Series) -> pl.Series:
        """The function that each address lies in; null below the first."""
        place = np.searchsorted(self.address, addresses.to_numpy().astype(np.uint64), "right")
        if not self.address.size:
            return pl.Series([None], dtype=pl.String).new_from_index(0, len(addresses))
        found = self.name.gather(np.maximum(place.astype(np.int64) - 1, 0))
        return found.set(pl.Series(place == 0), None)


def read_symbols(path: Path) -> Symbols:
    """Reads the list of functions; an empty one if there is no such file.

    Raises InputError if it is no such list.
    """
    if not path.exists():
        return Symbols(np.empty(0, np.uint64), pl.Series([], dtype=pl.String))
    addresses, names = [], []
    try:
        with handed_in.opened(path) as stream:
            text = stream.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES >> 20} MiB")
        for line in text.decode("ascii").splitlines():
            address, _, name, *_ = line.split()
            addresses.append(int(address, 16))
            names.append(name)
        array = np.array(addresses, np.uint64)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: no list of the kernel's functions: {error}") from None
    order = np.argsort(array, kind="stable")
    return Symbols(array[order], pl.Series(names, dtype=pl.String).gather(order))
