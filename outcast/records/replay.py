"""Compares the captures of two runs byte by byte, and says in words where they part and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast.errors import ReplayError, UntrustedError, shortened
from outcast.records.kept_captures import (
    COMPRESSED,
    Packet,
    digests,
    first_stamp_ns,
    is_kept,
    parting,
)
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.units import format_time

_LONGEST_VALUE = 120
_PROGRAMS = ("outcast", "datapath", "kernel", "guest", "versions")
_MEASURED = ("traffic.", "samples.", "cpu.", "workloads.", "routing.split")
"""How effective settings begin that only follow from the packets."""

_ETHERNET_BYTES = 14


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first packet in which two runs part, by virtual time over all captures of both.

    Attributes:
        capture: the capture's name in the run directory, without `.zst`.
        port, direction: where it was captured.
        number: how many packets of this capture are equal before it.
        at_ns: epoch time of the earlier of the two packets.
        since_start_ns: the same after the traffic's start in the first run; negative before it.
        since_first_packet_ns: the same after the earliest packet of all captures of both.
        one, other: the packet in each run, in words.
        only_time_ns: by how much it is later in the other run, if the packets are equal otherwise.
    """

    capture: str
    port: str
    direction: str
    number: int
    at_ns: int
    since_start_ns: int
    since_first_packet_ns: int
    one: str
    other: str
    only_time_ns: int | None

    def lines(self) -> list[str]:
        """When and where the runs part, and the packet on each side."""
        after = self.since_start_ns >= 0
        when = f"{abs(self.since_start_ns) / 1e9:.9f} s {'after' if after else 'before'}"
        return [
            f"they part {when} the traffic's start, "
            f"{self.since_first_packet_ns / 1e9:.9f} s after the first packet",
            f"in {self.capture}, after {self.number} equal packets",
            f"first run: {self.one}",
            f"second run: {self.other}",
            *([] if self.only_time_ns is None else [self._only_time]),
        ]

    @property
    def _only_time(self) -> str:
        return (
            "what was captured of it is equal: only its time differs, by "
            f"{self.only_time_ns} ns in the second"
        )


@dataclass(frozen=True, slots=True)
class ManifestDifference:
    """A value that differs between two manifests.

    Attributes:
        part, name: the part of the manifest, as `kernel` or `effective`, and the setting in it.
        one, other: its value in each run; None where it is absent.
        decides: whether it can decide the packets. A measured value, for example how long
            connecting took, only follows from them.
    """

    part: str
    name: str
    one: object
    other: object
    decides: bool

    def in_words(self) -> str:
        values = (
            "absent" if value is None else shortened(str(value), _LONGEST_VALUE)
            for value in (self.one, self.other)
        )
        return f"{self.part}: {self.name}: {' and '.join(values)}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether two runs are equal, and where they part if not.

    Attributes:
        equal: whether both have the same captures with the same bytes.
        captures: how many captures both have.
        different: names of the captures that both have and that differ.
        only_one, only_other: names of the captures that only one run has.
        not_kept: names of different captures whose packets at least one run did not keep.
        first: the first difference; None if nothing differs or nothing was kept.
        manifests: what differs between the manifests, causes before effects.
    """

    equal: bool
    captures: int
    different: tuple[str, ...]
    only_one: tuple[str, ...]
    only_other: tuple[str, ...]
    not_kept: tuple[str, ...]
    first: FirstDifference | None
    manifests: tuple[ManifestDifference, ...]

    @property
    def causes(self) -> list[str]:
        """The differences of the manifests that can decide packets, in words."""
        return [differ.in_words() for differ in self.manifests if differ.decides]

    @property
    def difference(self) -> str:
        """What differs first, in one line; empty if nothing does."""
        if self.equal:
            return ""
        if self.first is None and not self.different:
            # One run lacks captures that the other has; what both have is equal.
            return self.lines()[1]
        if self.first is None:
            return f"{self.lines()[0]}, and which packet is unknown: a capture was not kept"
        when, where, *_ = self.first.lines()
        return f"{when}, {where}"

    def lines(self) -> list[str]:
        """What differs, where first, and what can have caused it."""
        if self.equal:
            although = ", although:" if self.manifests else ""
            said = [f"equal: {self.captures} captures, byte by byte{although}"]
        else:
            said = [f"different: {len(self.different)} of {self.captures} captures"]
        for names, which in ((self.only_one, "first"), (self.only_other, "second")):
            if names:
                said.append(f"only the {which} run captured {', '.join(names)}")
        if self.first is not None:
            said += self.first.lines()
        elif self.different:
            said.append(
                f"where they part is unknown, because {', '.join(self.not_kept)} was not kept"
            )
        if self.causes:
            said.append("what differs and can decide packets:")
            said += [f"  {words}" for words in self.causes]
        elif not self.equal:
            said.append("their manifests name no cause: same configuration, kernel and versions")
        return said


def require_equal(first: RunDirectory, other: RunDirectory) -> int:
    """Requires that all captures are equal byte by byte. Returns their number.

    Raises:
        ReplayError: something differs. Its text names where the runs part, and the first cause.
        InputError: as `explain`.
    """
    explanation = explain(first, other)
    if explanation.equal:
        return explanation.captures
    raise ReplayError("; before that, ".join([explanation.difference, *explanation.causes[:1]]))


def explain(first: RunDirectory, other: RunDirectory) -> Explanation:
    """Finds where two runs part, by virtual time, and what can have caused it.

    Raises InputError: one of the two is not the directory of a finished run, or a capture is
    broken.
    """
    runs = [(directory, directory.read_manifest()) for directory in (first, other)]
    here, there = (digests(directory, manifest) for directory, manifest in runs)
    both = sorted(set(here) & set(there))
    different = tuple(name for name in both if here[name] != there[name])
    kept = [name for name in different if is_kept(first.path / name) and is_kept(other.path / name)]
    paths = [directory.path / name for directory, _ in runs for name in both]
    return Explanation(
        equal=here == there,
        captures=len(both),
        different=different,
        only_one=tuple(sorted(set(here) - set(there))),
        only_other=tuple(sorted(set(there) - set(here))),
        not_kept=tuple(name for name in different if name not in kept),
        first=_first_of_all(runs, kept, [path for path in paths if is_kept(path)]),
        manifests=tuple(_manifests_differ(runs[0][1], runs[1][1])),
    )


def _first_of_all(
    runs: Sequence[tuple[RunDirectory, Manifest]], different: Sequence[str], kept: Sequence[Path]
) -> FirstDifference | None:
    """The earliest of the captures' first differences."""
    (first_run, first), (other_run, other) = runs
    parts = {name: parting(first_run.path / name, other_run.path / name) for name in different}
    parted = [(part.at_ns, name, part) for name, part in parts.items() if part is not None]
    if not parted:
        return None
    at_ns, name, part = min(parted, key=lambda entry: entry[:2])
    record = next(
        record for record in first.captures if record.file.removesuffix(COMPRESSED) == name
    )
    stamps = (first_stamp_ns(path) for path in kept)
    began_ns = min((stamp_ns for stamp_ns in stamps if stamp_ns is not None), default=at_ns)
    shift_ns = part.other.at_ns - part.one.at_ns if part.one and part.other else None
    return FirstDifference(
        capture=name,
        port=record.port,
        direction=record.direction,
        number=part.number,
        at_ns=at_ns,
        since_start_ns=at_ns - first.traffic.t_start_ns,
        since_first_packet_ns=at_ns - began_ns,
        one=_in_words(part.one, first),
        other=_in_words(part.other, other),
        only_time_ns=shift_ns if part.only_time else None,
    )


def causes(first: Manifest, other: Manifest) -> list[str]:
    """What differs of the programs that made two runs, in words: outcast, kernel, guest."""
    differ = _manifests_differ(first, other)
    return [difference.in_words() for difference in differ if difference.part in _PROGRAMS]


def _manifests_differ(former: Manifest, latter: Manifest) -> Iterator[ManifestDifference]:
    """Gives what differs between two manifests; what decides comes first."""
    first, second = _settings(former), _settings(latter)
    differences = []
    for key in dict.fromkeys([*first, *second]):
        if first.get(key) != second.get(key):
            part, name = key
            is_measured = part == "effective" and name.startswith(_MEASURED)
            decides = part != "traffic" and not is_measured
            differences.append(ManifestDifference(*key, first.get(key), second.get(key), decides))
    here, there = (manifest.files.get("config.yaml") for manifest in (former, latter))
    if here != there and not any(differ.part == "config" for differ in differences):
        # The file holds more than what is requested of the kernel, for example the analysis.
        differences.insert(0, ManifestDifference("config", "config.yaml", here, there, True))
    yield from sorted(differences, key=lambda differ: not differ.decides)


def _settings(manifest: Manifest) -> dict[tuple[str, str], object]:
    """All that two runs can differ in, by the part of the manifest and the name in it."""
    parts: dict[str, Mapping[str, object]] = {
        "config": manifest.requested,
        **{
            part: {part: getattr(manifest, part)}
            for part in ("engine", "datapath", "seed", "outcast")
        },
        "kernel": manifest.kernel,
        "guest": {} if manifest.guest is None else manifest.guest.model_dump(),
        "versions": manifest.versions,
        "effective": manifest.effective,
        "interventions": {} if manifest.interventions is None else manifest.interventions.named,
        "traffic": {"t_start_ns": manifest.traffic.t_start_ns},
    }
    return {(part, name): value for part, values in parts.items() for name, value in values.items()}


def require_prefix(explanation: Explanation, since_ns: int, named: str) -> None:
    """Raises UntrustedError if two runs part before an instant after the traffic's start."""
    first = explanation.first
    if explanation.equal or (first is not None and first.since_start_ns >= since_ns):
        return
    when = "at an unknown time" if first is None else first.lines()[0]
    raise UntrustedError(
        f"{named}: the run made again is another one before the intervention at "
        f"{format_time(since_ns)}: {when}; outcast replay --explain says more"
    )


def _in_words(packet: Packet | None, manifest: Manifest) -> str:
    """A packet's time, its flow if it has one, and its header fields as scapy shows them."""
    if packet is None:
        return "the capture has ended"
    from scapy.config import conf
    from scapy.layers.inet import TCP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Padding, Raw

    conf.noenum.add(TCP.sport, TCP.dport, UDP.sport, UDP.dport)
    frame = (Ether if len(packet.data) >= _ETHERNET_BYTES else Raw)(packet.data)
    ends: set[tuple[str, int, str, int]] = set()
    for kind in filter(frame.haslayer, (TCP, UDP)):
        ip, ports = frame[kind].underlayer, frame[kind]
        ends |= {(ip.src, ports.sport, ip.dst, ports.dport)}
        ends |= {(ip.dst, ports.dport, ip.src, ports.sport)}
    for rest in filter(frame.haslayer, (Raw, Padding)):
        if frame[rest].underlayer is not None:
            frame[rest].underlayer.remove_payload()
    flows = (f"flow {f.flow}, " for f in manifest.flows if not ends.isdisjoint(f.connections))
    stamp = f"{packet.at_ns // 10**9}.{packet.at_ns % 10**9:09d}"
    return f"{stamp}: {next(flows, '')}{frame!r}"
