"""Marks every test by its folder, and skips what needs root when there is none."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes depends more on the machine's load than on the code.
settings.register_profile("outcast", deadline=None, max_examples=50)
settings.load_profile("outcast")

# So that the processes that a sweep starts find the tests' own executor of runs.
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])

FOLDERS = ("unit", "emulation", "virtual", "physics", "browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        if folder in FOLDERS:
            item.add_marker(getattr(pytest.mark, folder))
        if folder == "emulation" and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="emulation tests need root"))
