"""The ports behind which each address is, from the conversations that ports saw.

`directions` lists the evidence. Ports are equal paths to a host if they share its packets with
other ports, but hardly any with each other. Flooded packets are at all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from outcast.analysis.machine_code import I64

ELSEWHERE = -1
"""Behind a port that was not captured."""

NEARLY_ALL = 0.99
MOST_ELSEWHERE = 0.9
"""An address is elsewhere if no port sees more than this share of its conversations."""
MOST_COMMON = 0.05
"""Equal paths have at most this share of their packets in common with each other."""
LEAST_BEHIND = 0.01
"""A further path to a host needs this share of the votes of the first one."""

Seen = Counter[str]
"""The packets of each source that one port saw of a conversation."""
Conversations = dict[tuple[str, str], dict[int, Seen]]
"""For each two hosts that talk, in alphabetical order, the ports that saw them."""
Delays = dict[tuple[int, int, str, str], I64]
"""For (port, other port, source, destination), how much later the other's stamps are."""


def find(
    conversations: Conversations,
    delays: Delays,
    votes: Mapping[str, Mapping[int, float]],
    given: tuple[Collection[int], Collection[int]],
    longest_ns: int,
) -> dict[str, tuple[int, ...]]:
    """The ports behind which each address is, the surest first; ELSEWHERE alone if none is known.

    `votes` has the packets that are evidence for each address and port. `given` has the ports that
    are inputs only, and outputs only, as the caller states.
    """
    paths = _Paths(_neighbours(conversations), _common(delays))
    for address, ballot in votes.items():
        paths.place_by_votes(address, ballot)
    paths.spread(list(paths.places))
    paths.see_all()
    paths.spread(list(paths.places))
    # A host that loses all packets is seen at an input alone, as if its receiver were elsewhere.
    for ends, seen in conversations.items():
        if paths.places.keys().isdisjoint(ends):
            paths.settle(paths.by_the_word(ends, seen, given))
    paths.see_none()
    paths.spread(list(paths.places))
    for ends, seen in conversations.items():
        if paths.places.keys().isdisjoint(ends) and len(seen) > 1:
            paths.settle(_by_the_stamps(seen, delays, longest_ns, *ends))
    return paths.places


_Neighbours = dict[str, list[tuple[str, dict[int, Seen]]]]
"""For each host, its peers, and the ports that saw the conversation."""
_Who = str | tuple[str, str]
"""A host, or two that talk, in alphabetical order."""


def _neighbours(conversations: Conversations) -> _Neighbours:
    neighbours: _Neighbours = defaultdict(list)
    for (first, second), seen in conversations.items():
        neighbours[first].append((second, seen))
        neighbours[second].append((first, seen))
    return neighbours


def _common(delays: Delays) -> Counter[tuple[_Who, int, int]]:
    """The sampled packets of hosts that two ports have in common."""
    common: Counter[tuple[_Who, int, int]] = Counter()
    for (first, second, src, dst), stamps in delays.items():
        for who in (src, dst, _pair(src, dst)):
            common[who, first, second] += stamps.size
            common[who, second, first] += stamps.size
    return common


def _pair(first: str, second: str) -> tuple[str, str]:
    return min(first, second), max(first, second)


@dataclass(slots=True)
class _Paths:
    neighbours: _Neighbours
    common: Counter[tuple[_Who, int, int]]
    places: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def _shared(self, who: _Who, port: int, others: Collection[int]) -> int:
        return max((self.common[who, port, other] for other in others), default=0)

    def _is_apart(
        self, who: _Who, port: int, paths: Collection[int], ports: Collection[int]
    ) -> bool:
        """Whether a port has packets in common with `ports`, but hardly any with `paths`."""
        most = self._shared(who, port, ports)
        return most > 0 and self._shared(who, port, paths) <= MOST_COMMON * most

    def _are_paths(self, who: _Who, paths: Sequence[int], ports: Collection[int]) -> bool:
        """Whether ports are equal paths: each has packets of `ports`, and none of another path."""
        return len(paths) == 1 or all(
            self._is_apart(who, path, [other for other in paths if other != path], ports)
            for path in paths
        )

    def place_by_votes(self, address: str, ballot: Mapping[int, float]) -> None:
        """Places a host behind the port with most votes, and behind all equal paths."""
        first, *rest = sorted(sorted(ballot), key=lambda port: -ballot[port])
        place = [first]
        for port in rest:
            if ballot[port] >= LEAST_BEHIND * ballot[first]:
                ports = {port for _, seen in self.neighbours[address] for port in seen}
                most = self._shared(address, port, ports.difference(place))
                if self._shared(address, port, place) <= MOST_COMMON * most:
                    place.append(port)
        self.places[address] = tuple(place)

    def spread(self, known: list[str]) -> None:
        """Finds the places of hosts that talk with hosts whose place is known."""
        while known:
            address = known.pop()
            for other, seen in self.neighbours[address]:
                if other not in self.places:
                    self._place_opposite(address, other, seen)
                    known += [other] if other in self.places else []
                if other in self.places:
                    known += self._widen(address, other, seen)

    def _place_opposite(self, address: str, other: str, seen: Mapping[int, Seen]) -> None:
        """Places a host that talks with one whose place is known: at the other port, or paths."""
        mine, ends = self.places[address], _pair(address, other)
        rest = sorted(set(seen).difference(mine), key=lambda port: -seen[port].total())
        if not rest or (ELSEWHERE not in mine and seen.keys().isdisjoint(mine)):
            return
        # A port without packets of the known place can be a further path to it.
        facing = [port for port in rest if self._shared(ends, port, mine)] or rest
        if self._are_paths(ends, facing, mine) and all(
            self._is_apart(ends, port, mine, facing) for port in rest if port not in facing
        ):
            self.places[other] = tuple(facing)

    def _widen(self, address: str, other: str, seen: Mapping[int, Seen]) -> Iterator[str]:
        """Finds further paths to one of two hosts that talk, and yields the host."""
        for port in sorted(set(seen).difference(self.places[address], self.places[other])):
            for near, far in ((address, other), (other, address)):
                paths = self.places[far]
                who = far, _pair(address, other)
                if all(self._is_apart(each, port, paths, self.places[near]) for each in who):
                    self.places[far] = (*paths, port)
                    yield far
                    break

    def settle(self, source: tuple[str, Sequence[int]] | None) -> None:
        """Places a host, if one was found, and all hosts that this decides."""
        if source is not None:
            self.places[source[0]] = tuple(source[1])
            self.spread([source[0]])

    def see_all(self) -> None:
        """Places hosts of several conversations: all pass the host's own port."""
        for address, total, passing in self._several():
            whole = [port for port, weight in passing.items() if weight >= NEARLY_ALL * total]
            if len(whole) == 1:
                self.places[address] = (whole[0],)

    def see_none(self) -> None:
        """Places hosts of several conversations that share no port ELSEWHERE.

        One conversation may have nearly all packets. If only one port saw them, the host's own port
        was not captured either.
        """
        for address, total, passing in self._several():
            is_shared = sum(passing.values()) > total
            if max(passing.values()) <= (MOST_ELSEWHERE if is_shared else NEARLY_ALL) * total:
                self.places[address] = (ELSEWHERE,)

    def _several(self) -> list[tuple[str, int, dict[int, int]]]:
        """Hosts of several conversations without a place, their packets, and those of each port."""
        hosts = []
        for address, talks in sorted(self.neighbours.items()):
            if address in self.places or len(talks) < 2:
                continue
            total = 0
            passing: dict[int, int] = defaultdict(int)
            for _, seen in talks:
                weight = max(at.total() for at in seen.values())
                total += weight
                for port in seen:
                    passing[port] += weight
            hosts.append((address, total, passing))
        return hosts

    def by_the_word(
        self,
        ends: tuple[str, str],
        seen: Mapping[int, Seen],
        given: tuple[Collection[int], Collection[int]],
    ) -> tuple[str, list[int]] | None:
        """The source and its place by the caller's inputs and outputs.

        If both hold both directions, the source is the host that lost packets on the way, or else
        the one that sent more.
        """
        came, outputs = ([port for port in seen if port in side] for side in given)
        if not came or not outputs:
            return None
        if not (self._are_paths(ends, came, outputs) and self._are_paths(ends, outputs, came)):
            return None
        entered, gone = (sum((seen[port] for port in side), Seen()) for side in (came, outputs))
        sources = sorted(set(entered) & set(gone))
        if not sources:
            return None
        return max(sources, key=lambda src: (entered[src] - gone[src], entered[src])), came


def _by_the_stamps(
    seen: Mapping[int, Seen],
    delays: Delays,
    longest_ns: int,
    first: str,
    second: str,
) -> tuple[str, list[int]] | None:
    """The source and its place, by the stamps as they are and by the number of packets."""
    for port, other in combinations(sorted(seen), 2):
        for src, dst in ((first, second), (second, first)):
            later = delays.get((port, other, src, dst))
            if later is None:
                continue
            if float((later > 0).mean()) >= NEARLY_ALL and int(np.median(later)) <= longest_ns:
                came, output = port, other
            elif float((later < 0).mean()) >= NEARLY_ALL and -int(np.median(later)) <= longest_ns:
                came, output = other, port
            else:
                continue
            if seen[came][src] >= NEARLY_ALL * seen[output][src]:
                return src, [came]
    return None
