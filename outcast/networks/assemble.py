"""From the parts of a user's file to a network: fills in missing addresses and datapath ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

from pydantic import BaseModel, ValidationError

from outcast import handed_in
from outcast.experiment import (
    Network,
    NetworkError,
    NetworkHost,
    NetworkLink,
    NetworkSwitch,
    OwnKeys,
)
from outcast.experiment.network import Segment, segments

_FIRST_ADDRESS = int(IPv4Address("10.0.0.0"))


def validated(subject: str, model: type[BaseModel], values: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, NetworkError):
            raise cause from None
        raise NetworkError(subject, handed_in.first_problem(error)) from None


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A key by which h2 comes before h10, as Mininet sorts its nodes (mininet.util.natural)."""
    return tuple(
        (0, int(part)) if part.isdigit() else (1, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    )


def network(keys: Mapping[str, Any], parts: Mapping[str, Any]) -> Network:
    """The network of the hosts, switches, links and notes of a file.

    `keys` are those of the topology that decide it.

    Raises NetworkError: it cannot be built.
    """
    for link in parts["links"]:
        for words in link.get("own", {}).values():
            validated(_between(link), OwnKeys, words)
    links = [validated(_between(link), NetworkLink, link) for link in parts["links"]]
    routers = sorted(parts["routers"], key=lambda router: natural(router["name"]))
    names = {router["name"] for router in routers}
    pairs = [(first.node, second.node) for first, second in (link.places for link in links)]
    whole: Network = validated(
        "",
        Network,
        {
            "of": keys,
            "hosts": _hosts(parts["hosts"], segments(pairs, names) if names else ()),
            "switches": _switches(parts["switches"]),
            "links": links,
            "notes": parts["notes"][:20],
            "routers": routers,
        },
    )
    return whole


def _between(link: Mapping[str, Any]) -> str:
    return " - ".join(str(end).rpartition("-eth")[0] for end in link["ends"])


def _hosts(
    found: Iterable[Mapping[str, Any]], segments: Sequence[Segment] = ()
) -> tuple[NetworkHost, ...]:
    """The hosts by name, with addresses where they have none.

    As in Mininet, the n-th host has 10.0.0.n unless that is taken. The Ethernet address is 02:00
    and the four bytes of the IP address. Where there are routers, and so `segments`, the n-th host
    of the m-th segment has 10.m.0.n.
    """
    in_order = sorted(found, key=lambda host: natural(host["name"]))
    taken = {host["ip"] for host in in_order if "ip" in host}
    first = _first_addresses(in_order, segments)
    counted: Counter[int] = Counter()
    complete = []
    for host in in_order:
        address, before = host.get("ip"), first.get(host["name"], _FIRST_ADDRESS)
        counted[before] += 1
        number = counted[before]
        while address is None:
            free = str(IPv4Address(before + number))
            address = None if free in taken else free
            number += 1
        taken.add(address)
        mac = str(host.get("mac") or _mac(host["name"], address)).lower().replace("-", ":")
        values = {**host, "ip": address, "mac": mac}
        complete.append(validated(host["name"], NetworkHost, values))
    return tuple(complete)


def _first_addresses(
    in_order: Sequence[Mapping[str, Any]], segments: Sequence[Segment]
) -> dict[str, int]:
    """The address before the first one of each host's segment: its given subnet, or a free one."""
    numbers = {host["name"]: IPv4Address(_valid(host)) for host in in_order if "ip" in host}
    used = {int(number) >> 16 for number in numbers.values()}
    number = next((int(n) >> 24 << 24 for n in numbers.values()), _FIRST_ADDRESS)
    place = {host["name"]: place for place, host in enumerate(in_order)}
    first: dict[str, int] = {}
    of_hosts = [[node for node in segment.nodes if node in place] for segment in segments]
    for names in sorted(
        filter(None, of_hosts), key=lambda names: min(place[name] for name in names)
    ):
        given = next((int(numbers[name]) >> 16 << 16 for name in names if name in numbers), None)
        while given is None:
            number += 1 << 16
            given = None if number >> 16 in used else number
        first |= dict.fromkeys(names, given)
    return first


def _valid(host: Mapping[str, Any]) -> str:
    _mac(host["name"], host["ip"])
    return str(host["ip"])


def _mac(name: str, address: str) -> str:
    try:
        packed = IPv4Address(address).packed
    except ValueError:
        raise NetworkError(
            name, f"ip {address!r}: allowed is an IPv4 address, as 10.0.0.1"
        ) from None
    return ":".join(["02", "00", *(f"{byte:02x}" for byte in packed)])


def _switches(found: Iterable[Mapping[str, Any]]) -> tuple[NetworkSwitch, ...]:
    """The switches by name, with datapath ids where they have none.

    As in Mininet, that is the first number in the name (Switch.defaultDpid). Where it is taken or
    no address is given, it is the lowest free one.
    """
    in_order = sorted(found, key=lambda switch: natural(switch["name"]))
    taken = {switch["dpid"] for switch in in_order if "dpid" in switch}
    unnumbered: Sequence[Mapping[str, Any]] = [
        switch for switch in in_order if "dpid" not in switch
    ]
    chosen: dict[str, int] = {}
    for switch in unnumbered:
        number = re.search(r"[0-9]{1,9}", switch["name"])
        if number and int(number[0]) > 0 and int(number[0]) not in taken:
            chosen[switch["name"]] = int(number[0])
            taken.add(int(number[0]))
    free = 1
    for switch in unnumbered:
        if switch["name"] not in chosen:
            while free in taken:
                free += 1
            chosen[switch["name"]] = free
            taken.add(free)
    return tuple(
        validated(switch["name"], NetworkSwitch, {"dpid": chosen.get(switch["name"]), **switch})
        for switch in in_order
    )
