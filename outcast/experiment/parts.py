"""All parts of an experiment share their base class and the types of quantities."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from outcast import units

UNNAMED = "unnamed"
"""The label of the flows that have no name, in an experiment where others have one."""

ETHERNET_HEADER_BYTES = 14
MTU_FRAME_BYTES = 1500 + ETHERNET_HEADER_BYTES
"""A full Ethernet frame without its checksum, as a qdisc counts it, where a link has the usual MTU.
Queues that take a number of packets for a number of bytes count in this unit."""

LEAST_RATE_BPS, MOST_RATE_BPS = 10**3, 34 * 10**9
"""A higher rate, in bytes a second, needs more than the 32 bits in which it is read back."""

UNIT_SCHEMA = {
    "rate": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]?(bit|bps))\s*$",
    "size": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]?i?[bB])\s*$",
    "time": r"^\s*[0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|min|h)\s*$",
}


def key_of(attribute: str) -> str:
    """The key in YAML of an attribute whose name ends with a unit: `rate` of `rate_bps`."""
    return re.sub("_(ns|bps|bytes)$", "", attribute)


def described(meaning: str, **more: Any) -> Any:
    """A key with its meaning in the reference; `more` is what pydantic's `Field` takes besides."""
    return Field(description=meaning, **more)


def optional(meaning: str, **more: Any) -> Any:
    """A key that can be left out, which then has no value; see `described`."""
    return Field(default=None, description=meaning, **more)


def or_text(unit: str) -> Callable[[dict[str, Any]], None]:
    """Adds to a part's schema that a text alone stands for it, in the words of `UNIT_SCHEMA`."""

    def add(schema: dict[str, Any]) -> None:
        part = schema.pop("anyOf", None) or [{"$ref": schema.pop("$ref")}]
        schema["anyOf"] = [{"type": "string", "pattern": UNIT_SCHEMA[unit]}, *part]

    return add


class Part(BaseModel):
    """The base class of an experiment's parts: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
        alias_generator=key_of,
    )

    def _require(self) -> None:
        """Raises ValueError where its keys do not fit together; called when all are read."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._require()
        return self

    @model_validator(mode="before")
    @classmethod
    def _no_switch(cls, tree: Any) -> Any:
        """Refuses true and false for a number, because they would be 1 and 0."""
        for name, field in cls.model_fields.items() if isinstance(tree, Mapping) else ():
            key = field.alias or name
            if isinstance(tree.get(key), bool):
                kinds = {field.annotation, *get_args(field.annotation)}
                reads_it = any(isinstance(each, BeforeValidator) for each in field.metadata)
                if not kinds.isdisjoint((int, float)) and bool not in kinds and not reads_it:
                    raise ValueError(f"{key}: {str(tree[key]).lower()}: allowed is a number")
        return tree


def as_text(parse: Any, write: Any = str, **schema: Any) -> Any:
    """What `Annotated` takes for a value that people write as a text.

    `parse` reads the text, and `write` gives it back. `schema` says more of it to editors.
    """
    return (
        BeforeValidator(parse),
        PlainSerializer(write, return_type=str),
        WithJsonSchema({"type": "string", **schema}),
    )


def _whole_bytes(rate_bps: int) -> int:
    if not LEAST_RATE_BPS <= rate_bps <= MOST_RATE_BPS or rate_bps % 8:
        raise ValueError(
            f"{units.format_rate(rate_bps)}: the kernel keeps whole bytes a second; allowed are "
            f"multiples of 8bit from {units.format_rate(LEAST_RATE_BPS)} to "
            f"{units.format_rate(MOST_RATE_BPS)}"
        )
    return rate_bps


def _no_label_of_others(name: str) -> str:
    if name == UNNAMED:
        raise ValueError(f"{name!r} stands for flows without a name; allowed is another name")
    return name


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
GroupName = Annotated[str, Field(pattern=NAME_PATTERN), AfterValidator(_no_label_of_others)]
"""The name of flows that are summed up together. Several entries may share it."""
Family = Literal["ipv4", "ipv6"]
Addressing = Literal["ipv4", "ipv6", "both"]
RateBps = Annotated[
    int, *as_text(units.parse_rate_bps, units.format_rate, pattern=UNIT_SCHEMA["rate"])
]
KernelRateBps = Annotated[RateBps, AfterValidator(_whole_bytes)]
SizeBytes = Annotated[
    int, *as_text(units.parse_size_bytes, units.format_size, pattern=UNIT_SCHEMA["size"])
]
TimeNs = Annotated[
    int, *as_text(units.parse_time_ns, units.format_time, pattern=UNIT_SCHEMA["time"])
]
OwnFamily = Annotated[
    Family | None,
    Field(
        description="the addresses of its packets; if left out, ipv6 where hosts have no others, "
        "else ipv4"
    ),
]
Start = Annotated[TimeNs, Field(description="time after the start of the traffic")]
Senders = Annotated[
    str | list[str],
    Field(alias="from", description="a class as '2-hop', a host's name, or a list of names"),
]
Receiver = Annotated[
    str | None, Field(description="a host's name; if left out, the topology's receiver")
]
Duration = Annotated[
    TimeNs | None,
    Field(gt=0, description="if left out, to the end of the experiment"),
]


DSCP = {
    **{"be": 0, "ef": 46, "le": 1},
    **{f"cs{number}": 8 * number for number in range(8)},
    **{f"af{c}{p}": 8 * c + 2 * p for c in range(1, 5) for p in range(1, 4)},
}
"""Names of code points (RFC 2474, 2597, 3246, 8622)."""


def _code_point(value: object) -> object:
    if isinstance(value, str) and value in DSCP:
        return DSCP[value]
    if type(value) is not int or not 0 <= value <= 63:
        raise ValueError(f"{value!r}: allowed are 0 to 63 or {', '.join(DSCP)}")
    return value


Dscp = Annotated[
    int,
    BeforeValidator(_code_point),
    Field(ge=0, le=63),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 63}]}
    ),
]
"""A differentiated services code point, the upper six bits of IP's TOS or traffic class."""
SENT_DSCP = (
    "code point of the packets that senders send, as `ef` or 46; acknowledgements have none. See "
    "docs/queues.md"
)


def _absolute(value: object, info: ValidationInfo) -> Path:
    """A path of the configuration, made absolute: a relative one is from the file's own folder."""
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{value!r} is not a path; allowed is the path of a file")
    folder = (info.context or {}).get(FOLDER, "")
    return Path(os.path.abspath(os.path.join(folder, value)))


FOLDER = "folder"
"""The key of the validation's context that has the folder of the configuration's file."""
OWN_FOLDER = "own_folder"
"""The key of the validation's context that has the only folder that files are read from. It is set
where somebody else handed the configuration in."""


def readable_file(value: object, info: ValidationInfo) -> Path:
    """A file that is read while a configuration is validated; its absolute path.

    Raises ValueError: it is no path, or the file is not in the only folder that files are read
    from.
    """
    path = _absolute(value, info)
    own = (info.context or {}).get(OWN_FOLDER)
    # A link in the folder could lead out of it.
    if own is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(own)):
        raise ValueError(
            f"{path}: is not read, because this configuration was handed in; allowed is a file "
            "in the folder that was handed in"
        )
    return path


UserFile = Annotated[Path, *as_text(_absolute)]
"""A file of the user's. In YAML it may be relative to the file that names it."""


def leaves(part: object) -> Iterator[object]:
    if isinstance(part, BaseModel):
        inner: Iterable[object] = (getattr(part, name) for name in type(part).model_fields)
    elif isinstance(part, Mapping):
        inner = part.values()
    elif isinstance(part, (list, tuple, set, frozenset)):
        inner = part
    else:
        yield part
        return
    for value in inner:
        yield from leaves(value)


def files_of(part: object) -> list[Path]:
    """The files of the user's that a part of an experiment names, without a topology's own file."""
    return [leaf for leaf in leaves(part) if isinstance(leaf, Path)]


_Part = TypeVar("_Part")


def with_files(part: _Part, change: Callable[[Path], Path]) -> _Part:
    """A part of an experiment that names other files in place of those of `files_of`."""
    changed: Any = part
    if isinstance(part, Path):
        changed = change(part)
    elif isinstance(part, BaseModel):
        own = {name: getattr(part, name) for name in type(part).model_fields}
        others = {name: with_files(value, change) for name, value in own.items()}
        update = {name: value for name, value in others.items() if value is not own[name]}
        changed = part.model_copy(update=update) if update else part
    elif isinstance(part, tuple):
        inner = tuple(with_files(value, change) for value in part)
        if any(new is not old for new, old in zip(inner, part, strict=True)):
            changed = inner
    return changed  # type: ignore[no-any-return]
