"""The kernel's modules that features need: looks whether they are there, and loads them.

A distribution's kernel has most congestion controls and qdiscs, and Open vSwitch's datapath, as
modules. It shows a module only once it is loaded, and loads few of them by itself. See modprobe(8).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outcast.errors import DeadlineError, RunError

MODPROBE_DEADLINE_S = 30.0
UNLOAD_DEADLINE_S = 10.0
LOADED_FOLDER = Path("/sys/module")
"""Shows the loaded modules, and some of the built-in ones."""
OPEN_VSWITCH = "Open vSwitch kernel module"
BRIDGE = "bridge"
VETH = "veth"
HELD_ARRIVALS = ("ifb", "qdisc ingress", "filter matchall", "action mirred")
"""Modules that hold a host's arrivals back (outcast/emulation/arrivals.py), besides netem."""

_QDISC = "qdisc "
_CONGESTION_CONTROL = "congestion control "
_PREFIXES = {_QDISC: "sch_", _CONGESTION_CONTROL: "tcp_"}
"""How the names of modules begin that the kernel asks for (net/sched/sch_api.c,
net/ipv4/tcp_cong.c)."""
_MODULES = {
    OPEN_VSWITCH: "openvswitch",
    BRIDGE: "bridge",
    VETH: "veth",
    "ifb": "ifb",
    "filter matchall": "cls_matchall",
    "action mirred": "act_mirred",
}
_PARAMETERS = {"ifb": ("numifbs=0",)}
"""By itself ifb makes two devices in the machine's own namespace (drivers/net/ifb.c), unless the
file systemd.conf of modprobe.d(5) says the same."""
_NEVER_MODULES = {f"{_QDISC}pfifo", f"{_QDISC}bfifo", f"{_CONGESTION_CONTROL}reno"}

_NOT_FOUND = re.compile(r"modprobe: FATAL: Module \S+ not found in directory \S+")

State = Literal["ready", "loadable", "absent"]
"""`ready`: loaded or built in; `loadable`: on disk as a module; `absent`: neither."""


def qdisc(kind: str) -> str:
    """A qdisc's name as a feature."""
    return _QDISC + kind


def congestion_control(name: str) -> str:
    """A congestion control's name as a feature."""
    return _CONGESTION_CONTROL + name


def module_of(feature: str) -> str | None:
    """The module that has a feature; None where it is always built in, or no module is known.

    The feature is one of this module's constants, or comes from `qdisc` or `congestion_control`.
    """
    if feature in _NEVER_MODULES:
        return None
    for prefix, of_module in _PREFIXES.items():
        if feature.startswith(prefix):
            return of_module + feature.removeprefix(prefix)
    return _MODULES.get(feature)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of modprobe."""

    status: int
    output: str = ""
    words: str = ""


Runs = Callable[..., Answer]
"""Runs a program by its name with arguments."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Whether a feature's module is there. To find that out, nothing was loaded.

    Attributes:
        state: `absent` says only that no module was found. The feature may still be built in,
            because not every kernel comes with a list of what is.
        detail: the module, or why it cannot be loaded, if that is known.
    """

    state: State
    detail: str = ""


@dataclass(frozen=True)
class Loading:
    """The modules that were loaded for some features, and those that were not.

    Attributes:
        loaded: the files of modules that were not loaded before, also of those that others need.
        refused: by feature, why its module was not loaded.
    """

    loaded: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def why(self, feature: str) -> str:
        """A clause that says why a feature's module was not loaded; empty where it was."""
        words = self.refused.get(feature)
        return f", and the module {module_of(feature)} was not loaded: {words}" if words else ""


def modprobe(*arguments: str) -> Answer:
    """Runs modprobe, also where an ordinary user's PATH does not lead to it."""
    return _ran("modprobe", *arguments)


def is_loaded_module(name: str, loaded_folder: Path = LOADED_FOLDER) -> bool:
    """Whether a module is loaded. Only loaded modules have this file; built-in ones do not."""
    return (loaded_folder / name / "initstate").exists()


def insert(file: Path, arguments: str, run: Runs | None = None) -> None:
    """Loads a module from its file (insmod(8)). Raises RunError with the kernel's reason."""
    answer = (run or _ran)("insmod", str(file), *arguments.split())
    if answer.status:
        raise RunError(f"the module {file.stem} was not loaded: {answer.words}")


def unload(name: str, deadline_s: float = UNLOAD_DEADLINE_S, run: Runs | None = None) -> None:
    """Unloads a module (rmmod(8)).

    The kernel takes away a network namespace some time after its last process has ended, and until
    then the namespace uses its congestion control. So this is tried until it works.

    Raises DeadlineError: the module was still in use at the deadline.
    """
    end = time.monotonic() + deadline_s
    while (answer := (run or _ran)("rmmod", name)).status:
        if time.monotonic() > end:
            raise DeadlineError(f"the module {name} to be unused", deadline_s, answer.words)
        time.sleep(0.2)


def _ran(name: str, *arguments: str) -> Answer:
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
    except subprocess.TimeoutExpired:
        return Answer(124, "", f"{name} had not ended after {MODPROBE_DEADLINE_S:g} s")
    except OSError as error:
        return Answer(126, "", f"{program}: {error.strerror}")
    words = " ".join(done.stderr.split()) or f"{name} ended with status {done.returncode}"
    return Answer(done.returncode, done.stdout, words)


@dataclass(frozen=True)
class Modules:
    """The modules of the running kernel.

    Attributes:
        loaded_folder: shows the loaded modules, and some of the built-in ones.
        on_disk: the folder of this kernel's modules; it may be missing.
    """

    run: Callable[..., Answer] = modprobe
    loaded_folder: Path = LOADED_FOLDER
    on_disk: Path = Path("/lib/modules") / os.uname().release

    def is_loaded(self, module: str) -> bool:
        """Whether the kernel shows a module."""
        return (self.loaded_folder / module).is_dir()

    def look_up(self, feature: str) -> Lookup:
        """Whether a feature's module is there; loads nothing."""
        module = module_of(feature)
        if module is None:
            return Lookup("absent")
        if self.is_loaded(module):
            return Lookup("ready")
        answer = self.run("--show-depends", module)
        if answer.status:
            if not self.on_disk.is_dir() or _NOT_FOUND.fullmatch(answer.words):
                return Lookup("absent", f"no module {module} for this kernel")
            return Lookup("absent", answer.words)
        lines = [line.split() for line in answer.output.splitlines() if line.strip()]
        if any(words[0] == "install" for words in lines):
            return Lookup("absent", f"modprobe's configuration replaces loading {module}")
        if not lines or lines[-1][0] == "builtin":
            return Lookup("ready")
        return Lookup("loadable", f"the module {module}, loaded when a run needs it")

    def load(self, features: Iterable[str]) -> Loading:
        """Loads the modules of features that are on disk and not in the kernel. They stay loaded.

        A refusal is no error, because the feature may be built in. Ask the kernel for that.
        """
        loading = Loading()
        for feature in features:
            module = module_of(feature)
            if module is None or self.is_loaded(module):
                continue
            answer = self.run("--verbose", module, *_PARAMETERS.get(module, ()))
            for line in answer.output.splitlines():
                words = line.split()
                if len(words) > 1 and words[0] == "insmod" and not answer.status:
                    loading.loaded[_name(words[1])] = words[1]
            if answer.status:
                loading.refused[feature] = answer.words
            elif not self.is_loaded(module):
                ran = " ".join(answer.output.split()) or "nothing"
                loading.refused[feature] = f"modprobe did {ran}, and the kernel does not show it"
        return loading

    def record(self, features: Iterable[str], loading: Loading) -> dict[str, dict[str, str]]:
        """The loaded modules that have these features, for the manifest.

        Returns:
            By module: `loaded` (`by this run` or `before it`); its `file` if this run loaded it;
            and `srcversion`, a hash of its source, if it has one.
        """
        needed = {module for feature in features if (module := module_of(feature))}
        records: dict[str, dict[str, str]] = {}
        for module in sorted(needed | set(loading.loaded)):
            folder = self.loaded_folder / module
            if not is_loaded_module(module, self.loaded_folder):
                continue
            record = {"loaded": "by this run" if module in loading.loaded else "before it"}
            if module in loading.loaded:
                record["file"] = loading.loaded[module]
            version = folder / "srcversion"
            if version.exists():
                record["srcversion"] = version.read_text().strip()
            records[module] = record
        return records


def _name(file: str) -> str:
    """The kernel's name of the module in a file: /lib/modules/.../nf-conntrack.ko.xz."""
    return Path(file).name.split(".ko")[0].replace("-", "_")
