"""The seam to numba: what is compiled once loads without what only compiling needs."""

import os
import shutil
import sys
from pathlib import Path

import numba
import numpy as np

from outcast.analysis import machine_code
from tests import guest_runs

PROGRAM = """
import sys
import numpy as np
from outcast.analysis.machine_code import compiled

@compiled
def total(values):
    parts = np.zeros(2, np.int64)
    for i in range(values.size):
        parts[i % 2] += values[i]
    return parts[0] + parts[1]

print(total(np.arange(10)), len(total.stats.cache_hits), "scipy.linalg" in sys.modules)
"""


def test_machine_code_loads_without_the_compiler(tmp_path):
    """numba's compiler imports scipy, which takes as long as all else that a small join needs.

    Where no cache can be written, each process compiles for itself.
    """
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    kept, nowhere = str(tmp_path / "cache"), "/proc/none"
    said = []
    for folder in (kept, kept, nowhere):
        root = Path(machine_code.__file__).parents[2]
        own = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(root)}
        done = guest_runs.ran([sys.executable, str(program)], env=own)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert said == [["45", "0", "True"], ["45", "1", "False"], ["45", "0", "True"]]
    assert numba.__version__.startswith(machine_code._LOADS_ALONE), "try this version"


def test_the_first_value_that_is_large_enough():
    values = np.array([-5, 0, 0, 3, 9, 9, 20])
    for least in range(-7, 23):
        assert machine_code.first_at_least(values, least) == np.searchsorted(values, least)
    assert machine_code.first_at_least(values[:0], 1) == 0


def test_a_change_in_another_file_reaches_what_was_compiled_before(tmp_path):
    """numba looks at a function's own file alone, and fails at a class that is gone."""
    source = Path(machine_code.__file__).parents[1]
    package = tmp_path / "outcast" / "analysis"
    package.mkdir(parents=True)
    # Without these, Python prefers the package that is installed.
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    for name in ("files.py", "errors.py", "analysis/machine_code.py"):
        shutil.copy(source / name, tmp_path / "outcast" / name)
    one = (
        "from typing import NamedTuple\nfrom outcast.analysis.machine_code import compiled\n"
        "class Old(NamedTuple):\n    n: int\n"
        "@compiled\ndef one(pair):\n    return pair.n\nPAIR = Old(1)\n"
    )
    two = (
        "from outcast.analysis import one\nfrom outcast.analysis.machine_code import compiled\n"
        "function = one.one\n@compiled\ndef two(pair):\n    return function(pair) + 1\n"
        "print(two(one.PAIR))\n"
    )
    (package / "two.py").write_text(two)
    said = []
    for change in (one, one.replace("return pair.n", "return pair.n + 40").replace("Old", "New")):
        (package / "one.py").write_text(change)
        words = [sys.executable, "-c", "import outcast.analysis.two"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        environment.pop("NUMBA_CACHE_DIR", None)
        done = guest_runs.ran(words, cwd=tmp_path, env=environment)
        said.append(done.stdout)
    assert said == ["2\n", "42\n"], done.stderr
