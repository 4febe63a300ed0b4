"""What the runs need."""

from tests.virtual.conftest import kernel

__all__ = ["kernel"]
