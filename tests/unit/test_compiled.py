"""The seam to numba: what is compiled once loads without what only compiling needs."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np

from outcast.analysis import compiled

PROGRAM = """
import sys
import numpy as np
from outcast.analysis.compiled import compiled

@compiled
def total(values):
    parts = np.zeros(2, np.int64)
    for i in range(values.size):
        parts[i % 2] += values[i]
    return parts[0] + parts[1]

print(total(np.arange(10)), len(total.stats.cache_hits), "scipy.linalg" in sys.modules)
"""


def test_machine_code_loads_without_the_compiler(tmp_path):
    """numba's compiler imports scipy, which takes as long as all else that a small join needs."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = Path(compiled.__file__).parents[2]
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(root),
    }
    first, second = (
        subprocess.run(
            [sys.executable, str(program)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()
        for _ in range(2)
    )
    assert first == ["45", "0", "True"]
    assert second == ["45", "1", "False"]
    assert numba.__version__.startswith(compiled._LOADS_ALONE), "try whether this one's code does"


def test_the_first_value_that_is_large_enough():
    values = np.array([-5, 0, 0, 3, 9, 9, 20])
    for least in range(-7, 23):
        assert compiled.first_at_least(values, least) == np.searchsorted(values, least)
    assert compiled.first_at_least(values[:0], 1) == 0
