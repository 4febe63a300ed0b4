"""Programs that run in hosts: servers, clients, one's own senders."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from outcast.experiment.parts import (
    GroupName,
    Part,
    SizeBytes,
    TimeNs,
    UserFile,
    described,
    optional,
    or_text,
)
from outcast.units import parse_time_ns

MOST_EXECUTIONS = 10_000


def _word(value: object) -> object:
    """A word of a command line. YAML reads 80 as a number, which has only one spelling."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text; allowed is a word in quotes, as '0.1'")
    return value


def _words(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f"{value!r} is one text; allowed is a list of words, as [curl, -s, URL]")
    return value


Word = Annotated[
    str,
    BeforeValidator(_word),
    Field(max_length=32_768, pattern=r"^[^\x00]*$"),
    WithJsonSchema({"type": ["string", "integer"]}),
]


class Ready(Part):
    """How it shows that a server is ready for clients; exactly one of `port` and `line`."""

    port: int | None = optional("it listens at this TCP port, or has this UDP one", ge=1, le=65535)
    line: str | None = optional("it writes a line that contains this text", min_length=1)
    within_ns: TimeNs = described("the run fails if it takes longer", default=30_000_000_000, gt=0)

    def _require(self) -> None:
        if (self.port is None) == (self.line is None):
            raise ValueError("allowed is one of port and line, as {port: 80}")


class Limits(Part):
    """Limits of an execution; see getrlimit(2)."""

    memory_bytes: SizeBytes | None = optional("data of each process (RLIMIT_DATA)", gt=0)
    open_files: int | None = optional(
        "open files of each process (RLIMIT_NOFILE)", ge=3, le=1 << 20
    )
    time_ns: TimeNs | None = optional("a client's execution is ended after it", gt=0)


USUAL_SPREAD_NS = 10_000_000
"""No two machines start a program at one instant, but the hosts of a run share one clock."""


class ProgramStart(Part):
    """When a client begins. A time alone is `at`."""

    at_ns: TimeNs = described("after the traffic's start", default=0)
    spread_ns: TimeNs | None = optional(
        "it begins up to this long after `at`, drawn from the seed; if left out, 10ms where "
        "another client has the same `at`, else 0ms"
    )

    @model_validator(mode="before")
    @classmethod
    def _time_alone(cls, given: object) -> object:
        if isinstance(given, (dict, ProgramStart)):
            return given
        parse_time_ns(given)
        return {"at": given}


class Program(Part):
    """A command that runs in a host. With `ready` it is a server, otherwise a client."""

    name: GroupName = described("its name in tables; used once")
    host: str = described("the host's name")
    command: Annotated[tuple[Word, ...], BeforeValidator(_words)] = described(
        "the program and its arguments; {h9} is the address of host h9, {{ is a brace", min_length=1
    )
    ready: Ready | None = optional("makes it a server: started before the traffic, ended after it")
    start: ProgramStart = described(
        "a client's start: a time after the traffic's start, or {at, spread}",
        default=ProgramStart(),
        json_schema_extra=or_text("time"),
    )
    repeat: int = described("how often a client runs, in turn", default=1, ge=1, le=MOST_EXECUTIONS)
    every_ns: TimeNs | None = optional(
        "time between the starts of two executions; if left out, or if one takes longer, the next "
        "starts at once",
        gt=0,
    )
    to: tuple[str, ...] = described(
        "hosts that it talks to and that its command does not name", default=()
    )
    files: tuple[UserFile, ...] = described(
        "files and folders copied into its working folder", default=()
    )
    libraries: bool = described(
        "whether the shared libraries that `files` need are copied beside them, but for glibc's, "
        "which is the guest's",
        default=False,
    )
    limits: Limits = described("what an execution may take", default=Limits())
    allow_failure: bool = described("whether the run goes on if an execution fails", default=False)

    def _require(self) -> None:
        if not self.command[0]:
            raise ValueError("command: begins with an empty word; allowed is a program's name")
        if self.ready is not None:
            given = {
                "start": self.start != ProgramStart(),
                "repeat": self.repeat > 1,
                "every": self.every_ns is not None,
                "allow_failure": self.allow_failure,
                "limits.time": self.limits.time_ns is not None,
            }
            for name, is_given in given.items():
                if is_given:
                    raise ValueError(
                        f"{name}: not allowed with `ready`, because a server runs from before the "
                        "traffic until after it"
                    )
        if self.libraries and not self.files:
            raise ValueError("libraries: there are no `files` whose libraries could be copied")
        names = [path.name for path in self.files]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"files: two are called {name!r}; allowed are different names")
