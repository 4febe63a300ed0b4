"""Stands-in for the kernel's answers and for a machine's programs."""

from collections.abc import Sequence
from typing import Any

from outcast.errors import CommandError


class Shown(dict[str, Any]):
    """A netlink message as pyroute2 gives it."""

    def get_attr(self, name: str) -> Any:
        return self.get(name)


class FakeMachine:
    """Lets only one way into a root work, as a machine with fewer privileges does. Has a gcc."""

    def __init__(self, allowed: str = "") -> None:
        self.allowed = allowed
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], **_: Any) -> str:
        if argv[0] == "gcc":
            return "gcc (Debian 14.2.0-19) 14.2.0\nCopyright\n"
        self.ran.append(list(argv))
        way = "user" if "--user" in argv else "chroot" if argv[0] == "sh" else "mount"
        if way != self.allowed:
            raise CommandError(argv, 1, f"{way}: Operation not permitted")
        return "said"
