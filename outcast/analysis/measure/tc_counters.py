"""The drops that the kernel's queues counted, from what `tc -s qdisc` or `tc -s -j qdisc` printed.

A classful queue counts what its children drop, so the root of each device has all its drops
(`qdisc_tree_reduce_backlog` in net/sched/sch_api.c).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import files
from outcast.errors import ConfigError, InputError

_MOST_BYTES = 16 << 20
_HEAD = re.compile(
    r"^qdisc (?P<kind>\S+) \S+ (?:\[\S+\] )?(?:dev (?P<device>\S+) )?(?P<place>root|parent)\b"
)
_DROPPED = re.compile(r"^\s+Sent \d+ bytes \d+ pkt \(dropped (?P<dropped>\d+),")
_NEEDED = "allowed is a number, or a file with what `tc -s qdisc` or `tc -s -j qdisc` prints"


@dataclass(frozen=True, slots=True)
class RootQdisc:
    """The root queueing discipline of a device: what it and its children dropped since it was made.

    `device` is empty if the output of tc has none, as of `tc -s qdisc show dev`.
    """

    device: str
    kind: str
    dropped: int


def read_root_qdiscs(path: Path) -> list[RootQdisc]:
    """Reads the root qdiscs of a file. Those of kind noqueue, which queue nothing, are left out.

    Raises InputError if the file cannot be read or holds nothing of the kind.
    """
    try:
        with files.opened(path) as stream:
            text = (stream.read(_MOST_BYTES) or b"").decode(errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {files.reason(error)}") from None
    roots = _of_json(path, text) if text.lstrip().startswith("[") else _of_text(text)
    if not roots:
        raise InputError(f"{path}: has no root qdisc with a counter; {_NEEDED}")
    return [root for root in roots if root.kind != "noqueue"]


def _of_text(text: str) -> list[RootQdisc]:
    roots: list[RootQdisc] = []
    head: re.Match[str] | None = None
    for line in text.splitlines():
        head = _HEAD.match(line) or head
        counted = _DROPPED.match(line)
        if counted is not None and head is not None:
            if head["place"] == "root":
                roots.append(RootQdisc(head["device"] or "", head["kind"], int(counted["dropped"])))
            head = None
    return roots


def _of_json(path: Path, text: str) -> list[RootQdisc]:
    try:
        tree: Any = json.loads(text)
        roots = [
            RootQdisc(str(part.get("dev", "")), str(part["kind"]), int(part["drops"]))
            for part in tree
            if part.get("root") and "drops" in part
        ]
        if any(root.dropped < 0 for root in roots):
            raise ValueError
        return roots
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{path}: is no output of `tc -s -j qdisc`; {_NEEDED}") from None


def drops_by_output(path: Path, outputs: Collection[str]) -> dict[str | None, int]:
    """What the counters say of each output; of all together under None, if they name no output.

    Raises ConfigError if the file has several queues and does not tell which is an output's.
    """
    roots = read_root_qdiscs(path)
    if not roots:
        return {None: 0}
    of_device = Counter(root.device for root in roots)
    twice = [device for device, number in of_device.items() if number > 1]
    if twice:
        raise ConfigError(
            f"--dropped {path}: has {twice[0] or 'a device'} {of_device[twice[0]]} times; allowed "
            "is what one call of tc printed after the capture"
        )
    named: dict[str | None, int] = {
        root.device: root.dropped for root in roots if root.device in outputs
    }
    if named:
        return named
    if len(roots) == 1:
        return {None: roots[0].dropped}
    there = ", ".join(f"{root.device} ({root.kind}, {root.dropped:,} dropped)" for root in roots)
    raise ConfigError(
        f"--dropped {path}: has several queues: {there}; allowed is one, or ports with the names "
        f"of the devices, as {roots[0].device}=FILE. The outputs are {', '.join(sorted(outputs))}"
    )
