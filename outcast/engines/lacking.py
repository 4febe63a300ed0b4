"""Gathers what a machine lacks for an experiment, so that one refusal names all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outcast.errors import FeatureMissingError


class Lacking:
    """Missing features, each once, in the order in which they were found."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes what the block finds missing, in place of raising it."""
        try:
            yield
        except FeatureMissingError as error:
            self._found[str(error)] = None

    def refuse(self) -> None:
        """Raises FeatureMissingError, which names everything that was noted; not if nothing was."""
        if self._found:
            raise FeatureMissingError("; ".join(self._found))
