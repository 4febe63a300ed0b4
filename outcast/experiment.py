"""One experiment, described in YAML: the schema, the reader with its refusals, the JSON schema.

Keys are as people write them (`rate: 1gbit`); attributes carry their unit (`rate_bps`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from outcast import units
from outcast.errors import ConfigError, InputError

MTU_FRAME_BYTES = 1514
"""A full Ethernet frame without its checksum, as a qdisc sees it."""

UNIT_SCHEMA = {
    "rate": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]?(bit|bps))\s*$",
    "size": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmM]?i?[bB])\s*$",
    "time": r"^\s*[0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|min)\s*$",
}


def _parse_limit(value: object) -> Limit:
    """`16KB` is bytes, `11 packets` is packets."""
    allowed = "allowed is a size as 16KB or a number of packets as '11 packets'"
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a queue limit; {allowed}")
    match = re.fullmatch(r"\s*([0-9]+)\s*(packets?|p)\s*", value)
    if match:
        limit = Limit(packets=int(match[1]))
    else:
        try:
            limit = Limit(size_bytes=units.parse_size_bytes(value))
        except ValueError:
            raise ValueError(f"{value!r} is not a queue limit; {allowed}") from None
    if limit.packets == 0 or (limit.size_bytes or MTU_FRAME_BYTES) < MTU_FRAME_BYTES:
        raise ValueError(
            f"{value!r} holds no full frame of {MTU_FRAME_BYTES} B and would drop every one; "
            f"{allowed}"
        )
    return limit


def _format_limit(limit: Limit) -> str:
    if limit.packets is not None:
        return f"{limit.packets} packets"
    return units.format_size(limit.size_bytes or 0)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limit(_Part):
    """A queue's capacity, in bytes or in packets; exactly one of the two is set."""

    size_bytes: int | None = None
    packets: int | None = None


def _unit(kind: str, parse: Any, format_: Any) -> Any:
    schema = {"type": "string", "pattern": UNIT_SCHEMA[kind]}
    return (
        BeforeValidator(parse),
        PlainSerializer(format_, return_type=str),
        WithJsonSchema(schema),
    )


RateBps = Annotated[int, *_unit("rate", units.parse_rate_bps, units.format_rate)]
SizeBytes = Annotated[int, *_unit("size", units.parse_size_bytes, units.format_size)]
TimeNs = Annotated[int, *_unit("time", units.parse_time_ns, units.format_time)]
QueueLimit = Annotated[
    Limit,
    BeforeValidator(_parse_limit),
    PlainSerializer(_format_limit, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["16KB", "11 packets"]}),
]


class Linear(_Part):
    """Two switches; a lone sender at the receiver's switch, rivals behind the other."""

    kind: Literal["linear"]
    rivals: int = Field(ge=1, le=250, description="senders behind the second switch")


class FatTree(_Part):
    """The k-ary fat-tree."""

    kind: Literal["fattree"]
    k: int = Field(ge=2, le=32, multiple_of=2, description="ports of every switch; even")


Topology = Annotated[Linear | FatTree, Field(discriminator="kind")]


class Links(_Part):
    """Every link of the network."""

    rate_bps: RateBps = Field(alias="rate", gt=0, description="both directions of every link")
    delay_ns: TimeNs | None = Field(
        default=None,
        alias="delay",
        description="of every link, one way, with the processing of the node that sends on it; "
        "default 25us in the virtual engine, where nodes take no time of their own, else 0",
    )
    jitter_ns: TimeNs | None = Field(
        default=None,
        alias="jitter",
        description="the delay varies by up to this, either way; default in the virtual engine as "
        "much as keeps packets in order (docs/virtual.md says why), else 0",
    )
    clock_offset_ppm: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="every port's rate is off by up to this, as its oscillator; drawn by the seed",
    )

    @model_validator(mode="after")
    def _jitter_keeps_order(self) -> Links:
        jitter_ns = self.jitter_ns or 0
        if jitter_ns and (self.delay_ns is None or jitter_ns > self.greatest_jitter_ns()):
            raise ValueError(
                f"jitter {units.format_time(jitter_ns)}: allowed is up to the delay, which is to "
                f"be given, and up to half a full frame's time "
                f"({units.format_time(self._half_frame_ns())}), beyond which packets would "
                "overtake each other"
            )
        return self

    def greatest_jitter_ns(self) -> int:
        """The jitter that keeps packets in order, and delays above zero."""
        return min(self.delay_ns or 0, self._half_frame_ns())

    def _half_frame_ns(self) -> int:
        return MTU_FRAME_BYTES * 8 * 10**9 // self.rate_bps // 2


class _Queue(_Part):
    where: Literal["every_port", "bottleneck"] = Field(
        default="every_port", description="which switch ports get this queue"
    )
    burst_bytes: SizeBytes = Field(
        default=1600, alias="burst", description="of the shaper; at least a frame"
    )

    @model_validator(mode="after")
    def _burst_holds_a_frame(self) -> _Queue:
        if self.burst_bytes < MTU_FRAME_BYTES:
            raise ValueError(
                f"burst {self.burst_bytes} B is below the frame size and would drop every full "
                f"frame; allowed is {MTU_FRAME_BYTES} B and more"
            )
        return self


class Tbf(_Queue):
    """tc-tbf(8): a token bucket with a taildrop queue, limited in bytes or packets."""

    kind: Literal["tbf"]
    limit: QueueLimit


class Htb(_Queue):
    """tc-htb(8): one class at the link's rate with a taildrop leaf, in bytes or packets."""

    kind: Literal["htb"]
    limit: QueueLimit


class _Shaped(_Queue):
    shaper: Literal["tbf", "htb"] = Field(
        default="tbf", description="what limits the rate; the queue is its child"
    )


class Pfifo(_Shaped):
    """tc-pfifo(8): taildrop counted in packets, under a shaper at the link's rate."""

    kind: Literal["pfifo"]
    limit: QueueLimit

    @model_validator(mode="after")
    def _counts_packets(self) -> Pfifo:
        if self.limit.packets is None:
            raise ValueError("pfifo counts packets; allowed is a limit as '11 packets'")
        return self


class Bfifo(_Shaped):
    """tc-bfifo(8): taildrop counted in bytes, under a shaper at the link's rate."""

    kind: Literal["bfifo"]
    limit: QueueLimit

    @model_validator(mode="after")
    def _counts_bytes(self) -> Bfifo:
        if self.limit.size_bytes is None:
            raise ValueError("bfifo counts bytes; allowed is a limit as 16KB")
        return self


class Red(_Shaped):
    """tc-red(8): random early detection under a shaper (Floyd and Jacobson 1993)."""

    kind: Literal["red"]
    limit: QueueLimit
    min_packets: int = Field(default=5, ge=1, description="no drop below this average")
    max_packets: int = Field(default=15, ge=2, description="every packet dropped above it")
    probability: float = Field(default=0.1, gt=0, le=1, description="of a drop at the maximum")
    weight: float = Field(default=0.002, gt=0, lt=1, description="of the moving average")
    ecn: bool = Field(default=False, description="mark instead of dropping")

    @model_validator(mode="after")
    def _thresholds_fit(self) -> Red:
        if self.limit.size_bytes is None:
            raise ValueError("red's hard limit is in bytes; allowed is a limit as 64KB")
        if not self.min_packets < self.max_packets:
            raise ValueError("min_packets is to be below max_packets")
        if self.max_packets * MTU_FRAME_BYTES > self.limit.size_bytes:
            raise ValueError(
                f"max_packets ({self.max_packets} frames of {MTU_FRAME_BYTES} B) is above the limit"
            )
        return self

    @property
    def weight_exponent(self) -> int:
        """The kernel's Wlog: its weight is 2^-Wlog."""
        return round(-math.log2(self.weight))


class Sfq(_Shaped):
    """tc-sfq(8): stochastic fairness queueing under a shaper (McKenney 1990)."""

    kind: Literal["sfq"]
    limit: QueueLimit
    buckets: int = Field(default=4, ge=1, le=65536, description="the hash table's divisor; 2^n")
    perturb_ns: TimeNs = Field(default=0, alias="perturb", description="0: never rehash")

    @model_validator(mode="after")
    def _fits_sfq(self) -> Sfq:
        if self.limit.packets is None:
            raise ValueError("sfq counts packets; allowed is a limit as '11 packets'")
        if self.buckets & (self.buckets - 1):
            raise ValueError("buckets is to be a power of two")
        if self.perturb_ns % 10**9:
            raise ValueError("perturb is to be in whole seconds")
        return self


Queue = Annotated[Tbf | Htb | Pfifo | Bfifo | Red | Sfq, Field(discriminator="kind")]


class Routing(_Part):
    """How paths are chosen; see controllers/routes.py."""

    kind: Literal["shortest", "spanning_tree"] = Field(
        default="shortest",
        description="shortest: ties by the destination's trailing bits (section 3.1 of the paper); "
        "spanning_tree: the only paths in one tree",
    )


class Transport(_Part):
    """TCP's settings at every host."""

    congestion_control: str = Field(
        default="cubic",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="the kernel's name: cubic, reno, bic, dctcp, bbr",
    )
    min_rto_ns: TimeNs = Field(
        default=200_000_000,
        alias="min_rto",
        description="whole milliseconds; the kernel rounds it up to its tick",
    )
    sack: bool = Field(default=True, description="selective acknowledgements (RFC 2018)")
    ecn: bool = Field(default=False, description="explicit congestion notification (RFC 3168)")
    offloads: bool = Field(default=False, description="TSO, GSO, GRO and checksum offloads")

    @model_validator(mode="after")
    def _whole_milliseconds(self) -> Transport:
        if self.min_rto_ns < 10**6 or self.min_rto_ns % 10**6:
            raise ValueError("min_rto: the kernel takes whole milliseconds from 1ms, as 2ms")
        return self


class FlowGroup(_Part):
    """Flows of one kind: from hosts of a class or by name, to one host."""

    source: str | list[str] = Field(
        alias="from", description="a class as '2-hop', a host's name, or a list of names"
    )
    to: str | None = Field(default=None, description="a host's name; else the topology's receiver")
    hosts: int | None = Field(default=None, ge=1, description="how many of the class; else all")
    per_host: int = Field(default=1, ge=1, le=1000, description="flows of each host")
    start_ns: TimeNs = Field(default=0, alias="start", description="after the first flows' start")
    duration_ns: TimeNs | None = Field(
        default=None, alias="duration", gt=0, description="else up to the experiment's end"
    )
    size_bytes: SizeBytes | None = Field(
        default=None, alias="bytes", gt=0, description="instead of a duration"
    )

    @model_validator(mode="after")
    def _one_end(self) -> FlowGroup:
        if self.duration_ns is not None and self.size_bytes is not None:
            raise ValueError("duration and bytes exclude each other")
        return self


class Capture(_Part):
    """Which ports tcpdump listens at."""

    ports: Literal["bottleneck", "all"] | list[str] = Field(
        default="bottleneck",
        description="bottleneck: its output and all its inputs; all: every switch port both "
        "ways; or names as s1-eth2, both ways, besides the bottleneck",
    )


class Analysis(_Part):
    """How the captures are summed up."""

    windows_ns: tuple[Annotated[TimeNs, Field(gt=0)], ...] = Field(
        default=(), alias="windows", description="from the start; goodput is summed up in each"
    )
    bin_ns: TimeNs = Field(
        default=100_000_000, alias="bin", gt=0, description="of the curves over time"
    )


class Experiment(_Part):
    """The whole experiment."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="names the results")
    topology: Topology
    links: Links
    queue: Queue
    routing: Routing = Routing()
    transport: Transport = Transport()
    flows: Annotated[tuple[FlowGroup, ...], Field(min_length=1)]
    duration_ns: TimeNs = Field(
        alias="duration", gt=0, description="from the start of the first flows"
    )
    capture: Capture = Capture()
    analysis: Analysis = Analysis()
    engine: Literal["auto", "realtime", "virtual"] = Field(
        default="auto", description="auto: virtual where it can run, else realtime"
    )
    seed: int = Field(
        default=1, ge=0, lt=2**63, description="decides all that is random in the virtual engine"
    )
    repetitions: int = Field(
        default=1, ge=1, le=10_000, description="of a sweep; `outcast run` runs once"
    )

    @model_validator(mode="after")
    def _times_fit(self) -> Experiment:
        for index, group in enumerate(self.flows):
            if group.start_ns >= self.duration_ns:
                raise ValueError(f"flows.{index}.start: is to be before the end of the duration")
            end_ns = group.start_ns + (group.duration_ns or 0)
            if end_ns > self.duration_ns:
                raise ValueError(f"flows.{index}.duration: ends after the experiment's duration")
        for index, window_ns in enumerate(self.analysis.windows_ns):
            if window_ns > self.duration_ns:
                raise ValueError(f"analysis.windows.{index}: is longer than the duration")
        if self.analysis.bin_ns > self.duration_ns:
            raise ValueError("analysis.bin: is longer than the duration")
        return self


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML as users mean it: a key given twice is a mistake, not a silent override."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, (str, int, float, bool, type(None))):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is to be a word", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Reads a YAML file, applies `KEY=VALUE` overrides (dots between keys), and validates.

    Raises:
        ConfigError: with the file, the line or key, what is wrong and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from None
    tree = _parse_yaml(text, str(path))
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a mapping of keys is needed (name, topology, links, ...)")
    lines = _lines(text)
    for override in overrides:
        at = _override(tree, override)
        lines = {key: line for key, line in lines.items() if key[: len(at)] != at}
    return validate(tree, str(path), lines)


def _parse_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _UniqueKeyLoader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None


def _override(tree: dict[Any, Any], override: str) -> tuple[str | int, ...]:
    """Sets one key in place; returns where it stands."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {override}: allowed is KEY=VALUE, as links.rate=100mbit")
    value = _parse_yaml(text, f"--set {key}")
    node: Any = tree
    parts = key.split(".")
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        last = following is None
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                raise ConfigError(f"--set {key}: {part!r} is not an index below {len(node)}")
            if last:
                node[int(part)] = value
            else:
                node = node[int(part)]
        elif isinstance(node, dict):
            if last:
                node[part] = value
            else:
                node = node.setdefault(part, {})
        else:
            raise ConfigError(f"--set {key}: nothing can be set below {part!r}")
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _lines(text: str) -> dict[tuple[str | int, ...], int]:
    """The line, from 1, of every key and list item."""
    lines: dict[tuple[str | int, ...], int] = {}

    def walk(node: yaml.Node | None, at: tuple[str | int, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                lines[(*at, str(key.value))] = key.start_mark.line + 1
                walk(value, (*at, str(key.value)))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[(*at, index)] = value.start_mark.line + 1
                walk(value, (*at, index))

    walk(yaml.compose(text, yaml.SafeLoader), ())
    return lines


def validate(
    tree: Mapping[str, Any], where: str, lines: Mapping[tuple[str | int, ...], int] | None = None
) -> Experiment:
    """A parsed tree as an experiment. Raises ConfigError, its text beginning with `where`."""
    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_refusal(error, where, lines or {})) from None


def _refusal(error: ValidationError, where: str, lines: Mapping[tuple[str | int, ...], int]) -> str:
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    at = _yaml_location(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    context = first.get("ctx", {})
    kind = first["type"]
    if kind == "extra_forbidden":
        allowed = ", ".join(_allowed_keys(first["loc"]))
        message = f"unknown key; allowed are {allowed}"
    elif kind == "missing":
        message = "is missing"
    elif kind == "union_tag_invalid":
        at = (*at, "kind")
        message = f"{context['tag']!r} is unknown; allowed are {context['expected_tags']}"
    elif kind == "union_tag_not_found":
        at = (*at, "kind")
        message = "is missing"
    elif kind == "string_pattern_mismatch":
        message = f"{_short(first['input'])}: allowed is text of the form {context['pattern']}"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        message = f"{_short(first['input'])}: allowed is a mapping of keys, as {{kind: ...}}"
    elif not first["msg"].startswith("Value error"):
        message = f"{_short(first['input'])}: {message.replace('Input should be', 'allowed is')}"
    line = next((lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in lines), None)
    place = f"{where}:{line}" if line else where
    key = ".".join(str(part) for part in at)
    return f"{place}: {key}: {message}" if key else f"{place}: {message}"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


_TAGS = frozenset(("linear", "fattree", "tbf", "htb", "pfifo", "bfifo", "red", "sfq"))


def _yaml_location(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Pydantic's location without the tags and types that stand in no YAML file."""
    kept: list[int | str] = []
    for index, part in enumerate(location):
        is_tag = index == 1 and part in _TAGS
        is_union_member = isinstance(part, str) and ("[" in part or part in ("str", "int"))
        if not is_tag and not is_union_member:
            kept.append(part)
    return tuple(kept)


def _allowed_keys(location: tuple[int | str, ...]) -> list[str]:
    """The keys of the model that refused the last part of `location`."""
    schema: dict[str, Any] = json_schema()
    definitions = schema["$defs"]
    node: dict[str, Any] = schema
    for part in location[:-1]:
        if isinstance(part, int):
            node = node["items"]
        elif "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
        else:
            node = node["properties"][part]
        if "$ref" in node:
            node = definitions[node["$ref"].removeprefix("#/$defs/")]
    return list(node["properties"])


def json_schema() -> dict[str, Any]:
    """The JSON schema of a configuration file, for editors."""
    return Experiment.model_json_schema(by_alias=True)


def dump(experiment: Experiment) -> str:
    """The resolved experiment as YAML that `load` reads back to an equal one."""
    tree = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def load_resolved(path: Path) -> Experiment:
    """The config.yaml of a run directory. Raises InputError where it cannot be read."""
    try:
        return load(path)
    except ConfigError as error:
        raise InputError(str(error)) from None
