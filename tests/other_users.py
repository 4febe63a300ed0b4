"""Tests that run the checkout as another user."""

import stat
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def require_readable() -> None:
    """Skips the test where other users cannot read this checkout, as in root's home."""
    for folder in (ROOT, *ROOT.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            pytest.skip(f"other users cannot read {folder}")
