"""Stands-in for the kernel's answers."""

from typing import Any


class Shown(dict[str, Any]):
    """A netlink message as pyroute2 gives it."""

    def get_attr(self, name: str) -> Any:
        return self.get(name)
