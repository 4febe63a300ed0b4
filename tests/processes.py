"""Processes as /proc shows them (proc(5)). A process that ends meanwhile is no failure."""

from pathlib import Path


def children(pid: int) -> list[int]:
    """Process numbers of the children of all threads of `pid`."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Process numbers of all processes below `pid`, a parent before its children."""
    below: list[int] = []
    for child in children(pid):
        below += [child, *descendants(child)]
    return below


def command(pid: int) -> str:
    """The command line of `pid` with spaces between its words; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
