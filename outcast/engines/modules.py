"""Kernel modules that features need: whether they are on disk, and loading them (modprobe(8)).

A distribution's kernel has most congestion controls and qdiscs, and Open vSwitch's datapath, as
modules. It shows a module only once it is loaded, and loads few of them by itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from outcast.errors import DeadlineError, RunError

MODPROBE_DEADLINE_S = 30.0
UNLOAD_DEADLINE_S = 10.0
LOADED_FOLDER = Path("/sys/module")
"""Shows the loaded modules, and some of the built-in ones."""
OPEN_VSWITCH = "Open vSwitch kernel module"
BRIDGE = "bridge"
VETH = "veth"
HELD_ARRIVALS = ("ifb", "qdisc ingress", "filter matchall", "action mirred")
"""Modules that hold a host's arrivals back (network/interrupt_moderation.py), besides netem."""

_MODULES = {
    OPEN_VSWITCH: "openvswitch",
    BRIDGE: "bridge",
    VETH: "veth",
    "ifb": "ifb",
    "filter matchall": "cls_matchall",
    "action mirred": "act_mirred",
    # The kernel always has these built in.
    "qdisc pfifo": None,
    "qdisc bfifo": None,
    "congestion control reno": None,
}
_PARAMETERS = {"ifb": ("numifbs=0",)}
"""By itself ifb makes two devices in the machine's own namespace (drivers/net/ifb.c)."""

State = Literal["ready", "loadable", "absent"]
"""`ready`: loaded or built in; `loadable`: on disk as a module; `absent`: neither is known."""


def qdisc(kind: str) -> str:
    return f"qdisc {kind}"


def congestion_control(name: str) -> str:
    return f"congestion control {name}"


def module_of(feature: str) -> str | None:
    """The module that has a feature, or None."""
    if feature in _MODULES:
        return _MODULES[feature]
    kind, _, name = feature.rpartition(" ")
    # net/sched/sch_api.c and net/ipv4/tcp_cong.c request modules by these names.
    prefix = {"qdisc": "sch_", "congestion control": "tcp_"}.get(kind)
    return prefix and prefix + name


class Answer(NamedTuple):
    """The answer of a program of kmod; `words` are its errors in one line."""

    status: int
    output: str = ""
    words: str = ""


class Lookup(NamedTuple):
    """The state of a feature, with its module's name or modprobe's reason."""

    state: State
    detail: str = ""


@dataclass(frozen=True)
class Loading:
    """The modules that were loaded for some features, and those that were not.

    Attributes:
        loaded: modules that were not loaded before.
        refused: by feature, why its module was not loaded.
    """

    loaded: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)

    def why(self, feature: str) -> str:
        """A clause that says why a feature's module was not loaded; empty where it was."""
        words = self.refused.get(feature)
        return f", and the module {module_of(feature)} was not loaded: {words}" if words else ""


def is_loaded_module(name: str, loaded_folder: Path = LOADED_FOLDER) -> bool:
    """Whether a module is loaded. Only loaded modules have this file; built-in ones do not."""
    return (loaded_folder / name / "initstate").exists()


def run(name: str, *arguments: str) -> Answer:
    """Runs a program of kmod, also where an ordinary user's PATH does not lead to it."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return Answer(127, "", f"{name} is missing; install the package kmod")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=MODPROBE_DEADLINE_S,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return Answer(126, "", str(error))
    words = " ".join(done.stderr.split()) or f"{name} ended with status {done.returncode}"
    return Answer(done.returncode, done.stdout, words)


Runs = Callable[..., Answer]


def insert(file: Path, arguments: str, run: Runs = run) -> None:
    """Loads a module from its file (insmod(8)). Raises RunError with the kernel's reason."""
    answer = run("insmod", str(file), *arguments.split())
    if answer.status:
        raise RunError(f"the module {file.stem} was not loaded: {answer.words}")


def unload(name: str, deadline_s: float = UNLOAD_DEADLINE_S, run: Runs = run) -> None:
    """Unloads a module (rmmod(8)).

    The kernel removes a network namespace some time after its last process has ended. Until then
    the namespace uses its congestion control, so this is tried until it works.

    Raises DeadlineError: the module was still in use at the deadline.
    """
    end = time.monotonic() + deadline_s
    while (answer := run("rmmod", name)).status:
        if time.monotonic() > end:
            raise DeadlineError(f"the module {name} to be unused", deadline_s, answer.words)
        time.sleep(0.2)


@dataclass(frozen=True)
class Modules:
    """The modules of the running kernel; `loaded_folder` shows those that are loaded."""

    run: Runs = run
    loaded_folder: Path = LOADED_FOLDER

    def is_loaded(self, module: str) -> bool:
        return (self.loaded_folder / module).is_dir()

    def look_up(self, feature: str) -> Lookup:
        """Looks for a feature's module, and loads nothing."""
        module = module_of(feature)
        if module is None:
            return Lookup("absent")
        if self.is_loaded(module):
            return Lookup("ready")
        answer = self.run("modprobe", "--show-depends", module)
        if answer.status:
            return Lookup("absent", answer.words)
        if answer.output.split()[-2:-1] == ["builtin"]:
            return Lookup("ready")
        return Lookup("loadable", f"the module {module}, loaded when a run needs it")

    def load(self, features: Iterable[str]) -> Loading:
        """Loads the modules of features that are on disk and not in the kernel. They stay loaded.

        A module that is not loaded is no error, because the kernel may have the feature built in.
        """
        loading = Loading()
        for feature in features:
            module = module_of(feature)
            if module is None or self.is_loaded(module):
                continue
            answer = self.run("modprobe", module, *_PARAMETERS.get(module, ()))
            if answer.status:
                loading.refused[feature] = answer.words
            elif self.is_loaded(module):
                loading.loaded.add(module)
            else:
                loading.refused[feature] = "modprobe ran, and the kernel does not show it"
        return loading

    def record(self, features: Iterable[str], loading: Loading) -> dict[str, dict[str, str]]:
        """The loaded modules that have these features, for the manifest.

        By module: whether it was `loaded` `by this run` or `before it`, and its `srcversion`, a
        hash of its source, if it has one.
        """
        records: dict[str, dict[str, str]] = {}
        for module in sorted({module for feature in features if (module := module_of(feature))}):
            if is_loaded_module(module, self.loaded_folder):
                by_us = module in loading.loaded
                records[module] = {"loaded": "by this run" if by_us else "before it"}
                version = self.loaded_folder / module / "srcversion"
                if version.exists():
                    records[module]["srcversion"] = version.read_text().strip()
        return records
