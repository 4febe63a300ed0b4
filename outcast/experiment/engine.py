"""What distinguishes the engines (nobody else asks which it is), and the kernel of a run."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import StringConstraints, field_validator, model_validator

from outcast.experiment.parts import Part, UserFile, described, optional

EngineName = Literal["realtime", "virtual"]
EngineChoice = Literal["auto", "realtime", "virtual"]


class Properties(NamedTuple):
    """What an engine is like.

    Attributes:
        virtual_clock: whether time passes only as the experiment needs it. Then nodes take no time,
            this machine's speed changes nothing, and the seed alone decides every byte of a run.
        own_kernel: whether runs have a guest's kernel, with our patches and events.
        delay_ns: the delay of links that have none given.
        samples_every_ns: the time between samples of sockets and queues, if none is given.
        ring_kib: the ring of one tcpdump, in KiB.
        late_timers_ns: how late a shaper's timer may be without making the shaper slower.
    """

    virtual_clock: bool
    own_kernel: bool
    delay_ns: int
    samples_every_ns: int
    ring_kib: int
    late_timers_ns: int


VIRTUAL = Properties(
    virtual_clock=True,
    own_kernel=True,
    # How long a switch takes for a packet when nothing else waits (the TCPRand paper, section 5.1).
    delay_ns=25_000,
    samples_every_ns=10_000_000,
    # No packet comes while tcpdump reads, so a ring needs room for the packets of one instant. The
    # kernel writes to all of it at the start; for 64 MiB that takes a tenth of the set-up.
    ring_kib=8 * 1024,
    late_timers_ns=0,
)
# Sampling takes CPU time from the network; docs/analysis.md says how much.
_REALTIME = Properties(False, False, 0, 100_000_000, ring_kib=64 * 1024, late_timers_ns=100_000)


def properties(engine: EngineName | None) -> Properties:
    """The engine's properties. Captures of a real network (None) are like a run in real time."""
    return {"virtual": VIRTUAL, "realtime": _REALTIME}[engine or "realtime"]


def candidates(choice: EngineChoice) -> tuple[EngineName, ...]:
    """The engines that may make such a run, first the one that no machine's speed matters to."""
    return ("virtual", "realtime") if choice == "auto" else (choice,)


_SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}\.c")
"""The kernel has room for a module's name of 55 bytes (MODULE_NAME_LEN in linux/moduleparam.h)."""

ParameterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
ParameterText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.,:/+-]{1,100}$")]
"""The kernel splits parameters at spaces, and quotes would have to be escaped."""


class Module(Part):
    """A module of the kernel, compiled from a C file before the run and loaded for it."""

    path: UserFile = described("the C file; its name without `.c` is the module's name")
    parameters: dict[ParameterName, bool | int | ParameterText] = described(
        "the module's parameters (module_param in the C file)", default={}
    )

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        """`tcp_mine.c` is short for `{path: tcp_mine.c}`."""
        return {"path": value} if isinstance(value, str) else value

    def _require(self) -> None:
        if not _SOURCE.fullmatch(self.path.name):
            raise ValueError(
                f"{self.path.name!r}: allowed is a C file whose name has up to 40 letters, digits, "
                "_ and -, begins with a letter and ends with .c"
            )

    @property
    def name(self) -> str:
        """The module's name in the kernel, which writes every `-` as `_`."""
        return self.path.stem.replace("-", "_")

    @property
    def arguments(self) -> str:
        """The parameters as finit_module(2) takes them."""
        return " ".join(f"{name}={argument(value)}" for name, value in self.parameters.items())


def argument(value: bool | int | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


class Kernel(Part):
    """The run's kernel, with more than it always has."""

    modules: tuple[Module, ...] = described(
        "C files that are compiled and loaded, in this order", default=()
    )
    build: str | None = optional(
        "the guest's kernel, by its key in `outcast guest info`; the default is ours",
        pattern=r"^[0-9a-f]{6,20}$",
    )

    @field_validator("modules")
    @classmethod
    def _names_differ(cls, modules: tuple[Module, ...]) -> tuple[Module, ...]:
        names = [module.name for module in modules]
        for module in modules:
            if names.count(module.name) > 1:
                raise ValueError(
                    f"two files give the module {module.name}; allowed is one of each name"
                )
        return modules


class Guest(Part):
    """The guest's file system."""

    root: Literal["locked", "host"] = described(
        "locked: programs of pinned versions, the same on every machine; host: this machine's own "
        "programs, with which a run repeats only here",
        default="locked",
    )
