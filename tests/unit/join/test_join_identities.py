"""Routers that change packets: a join is exact by a looser identity, or says what differs."""

import random

import pytest
from scapy.all import ICMP, IP, TCP, UDP, Packet, Raw, fragment

from outcast.errors import InputError, UntrustedError
from tests.golden.rewriting import CLIENTS, SERVER, Change, Router, fresh, traffic, unchanged

PUBLIC, VIRTUAL = "192.0.2.1", "10.0.1.200"


def masquerade(seed: int, *, ports: bool = True) -> tuple[Change, Change]:
    """Source addresses become one, and ports are replaced (nft masquerade random)."""
    draw = random.Random(seed)
    given: dict[tuple[str, int, int], int] = {}

    def port_of(packet: Packet) -> tuple[type[Packet], str]:
        return (ICMP, "id") if ICMP in packet else (TCP if TCP in packet else UDP, "sport")

    def forth(packet: Packet) -> list[Packet]:
        layer, name = port_of(packet)
        old = getattr(packet[layer], name)
        new = draw.randrange(1024, 65536) if ports else old
        setattr(packet[layer], name, given.setdefault((packet.src, old, packet.proto), new))
        packet.src = PUBLIC
        return [fresh(packet)]

    def back(packet: Packet) -> list[Packet]:
        layer, name = port_of(packet)
        name = "id" if layer is ICMP else "dport"
        setattr(packet[layer], name, given[packet.dst, getattr(packet[layer], name), packet.proto])
        packet.dst = PUBLIC
        return [fresh(packet)]

    return forth, back


def to_virtual(router: tuple[Change, Change]) -> tuple[Change, Change]:
    """Clients talk to a virtual address, which becomes that of the server (DNAT)."""
    forth, back = router

    def there(packet: Packet) -> list[Packet]:
        packet.dst = SERVER
        return list(forth(fresh(packet)))

    def here(packet: Packet) -> list[Packet]:
        packet.src = SERVER
        return list(back(fresh(packet)))

    return there, here


def with_ids(change: Change, seed: int, constant: int | None = None) -> Change:
    draw = random.Random(seed)

    def made(packet: Packet) -> list[Packet]:
        parts = list(change(packet))
        for part in parts:
            part.id = draw.randrange(65536) if constant is None else constant
        return [fresh(part) for part in parts]

    return made


def with_numbers(seed: int) -> tuple[Change, Change]:
    """A firewall adds a constant to the numbers of each client's connection."""
    draw = random.Random(seed)
    added: dict[tuple[str, int], int] = {}

    def forth(packet: Packet) -> list[Packet]:
        if TCP in packet:
            by = added.setdefault((packet.src, packet.sport), draw.randrange(2**32))
            packet.seq = (packet.seq + by) % 2**32
        return [fresh(packet)]

    def back(packet: Packet) -> list[Packet]:
        if TCP in packet:
            by = added[packet.dst, packet.dport]
            packet.ack = (packet.ack + by) % 2**32
        return [fresh(packet)]

    return forth, back


CHANGES = ["masquerade", "ports kept", "virtual", "both ends", "no ids", "other ids"]
CHANGES += ["nat without ids"]


def changes(name: str, seed: int) -> tuple[Change, Change]:
    if name == "masquerade":
        return masquerade(seed)
    if name == "ports kept":
        return masquerade(seed, ports=False)
    if name == "virtual":
        return to_virtual((unchanged, unchanged))
    if name == "both ends":
        return to_virtual(masquerade(seed))
    forth, back = masquerade(seed) if name == "nat without ids" else (unchanged, unchanged)
    constant = 0 if name == "no ids" else None
    return with_ids(forth, seed, constant), with_ids(back, seed + 1, constant)


@pytest.mark.parametrize(("seed", "name"), [(n % 2, name) for n, name in enumerate(CHANGES)])
def test_each_packet_is_found(name, seed, tmp_path):
    router = Router(*changes(name, seed))
    server = VIRTUAL if name in ("virtual", "both ends") else SERVER
    traffic(router, seed, kinds="tui" if name == "masquerade" else "tu", server=server)
    result = router.join(tmp_path)
    assert router.faults(result) == []
    hosts = {host for flow in result.joined.flows for host in (flow.src, flow.dst)}
    assert {*CLIENTS, SERVER} <= hosts
    assert any("A and R: " in text for text in result.remarks), result.remarks


def test_moved_sequence_numbers_are_refused(tmp_path):
    with pytest.raises((UntrustedError, InputError)):
        traffic(Router(*with_numbers(6)), 0).join(tmp_path)


def test_the_exact_identity_is_taken_where_it_holds(tmp_path):
    router = traffic(Router(unchanged, unchanged), 1)
    result = router.join(tmp_path)
    assert router.faults(result) == []
    assert not any("are joined by" in text for text in result.remarks)


def test_marks_and_an_mss_that_a_router_changes_are_no_other_packets(tmp_path):
    def marks(packet: Packet) -> list[Packet]:
        packet.tos = 3
        if TCP in packet and packet[TCP].flags == "S":
            packet[TCP].options = [("MSS", 1400)]
        return [fresh(packet)]

    router = Router(marks, unchanged)
    for number in range(3):
        syn = TCP(sport=4000 + number, dport=80, seq=number, flags="S", options=[("MSS", 1460)])
        router.send(1000 + number * 10_000, IP(src=CLIENTS[0], dst=SERVER, id=number, ttl=64) / syn)
    for number in range(600):
        data = TCP(sport=4000, dport=80, seq=1 + 100 * number, flags="A") / Raw(b"x" * 100)
        at_ns = 100_000 + number * 50_000
        router.send(at_ns, IP(src=CLIENTS[0], dst=SERVER, id=9 + number, ttl=64) / data)
        ack = TCP(sport=80, dport=4000, seq=1, ack=101 + 100 * number, flags="A")
        packet = IP(src=SERVER, dst=CLIENTS[0], id=number, ttl=64) / ack
        router.send(at_ns + 20_000, packet, back=True)
    result = router.join(tmp_path)
    assert router.faults(result) == []
    assert result.joined.identity == ("checksum", "timestamp", "timestamp of SYN")


def datagram(number: int) -> Packet:
    """One of 3,500 bytes, which are three fragments or more."""
    data = UDP(sport=4000, dport=53) / Raw(random.Random(number).randbytes(3500))
    return fresh(IP(src=CLIENTS[0], dst=SERVER, id=number, ttl=64) / data)


def reply(router: Router, number: int) -> None:
    """Sends the answer to a datagram."""
    packet = IP(src=SERVER, dst=CLIENTS[0], id=number, ttl=64) / UDP(sport=53, dport=4000)
    router.send(number * 100_000 + 50_000, packet / Raw(b"x" * 20), back=True)


def test_a_router_that_fragments_is_refused(tmp_path):
    router = Router(lambda one: list(fragment(one, fragsize=1480)), unchanged)
    for number in range(60):
        router.send(number * 100_000, datagram(number))
        reply(router, number)
    with pytest.raises(UntrustedError, match="never seen to come in"):
        router.join(tmp_path)


# --- what nothing joins is named


def test_flows_that_are_alike_are_not_guessed(tmp_path):
    """Two flows with the same ids and lengths, of which a NAT translates both ends."""
    forth, back = to_virtual(masquerade(1))
    router = Router(forth, back)
    for number in range(100):
        for place, host in enumerate(CLIENTS):
            data = UDP(sport=4000 + place, dport=53, chksum=0) / Raw(b"x" * 100)
            packet = IP(src=host, dst=VIRTUAL, id=number, ttl=64) / data
            router.send(number * 100_000 + 30_000 * place, packet)
    with pytest.raises(UntrustedError, match="could be of several flows that are alike"):
        router.join(tmp_path)


# --- what the router itself sends and gets


def own(router: Router, seed: int, kind: str, *, is_alike: bool) -> None:
    """A host of A asks the router while the router asks the server, both in the same way.

    The payloads of both are the same if `is_alike`, as those of Windows' pings are.
    """
    draw = random.Random(seed)
    gaps = {name: draw.randrange(200_000, 2_000_000) for name in "AR"}
    ends = {"A": (CLIENTS[0], "10.0.1.1"), "R": (PUBLIC, SERVER)}
    ids = {host: draw.randrange(65536) for hosts in ends.values() for host in hosts}
    for number in range(draw.randrange(4, 30)):
        size = draw.randrange(20, 100)
        for place, (name, (asks, answers)) in enumerate(ends.items()):
            data = Raw(bytes(size) if is_alike else draw.randbytes(size))
            for back, (src, dst) in enumerate(((asks, answers), (answers, asks))):
                upper = ICMP(type=0 if back else 8, id=77 + place, seq=number)
                if kind != "ping":
                    ports = {"sport": 123, "dport": 123}
                    upper = UDP(**ports, **({"chksum": 0} if kind == "udp" else {}))
                ids[src] += 1 + place
                packet = IP(src=src, dst=dst, id=ids[src] % 65536, ttl=64) / upper / data
                at_ns = number * gaps[name] + 11 * place + 20_007 * back + 500_003
                router.seen[name].append((at_ns, packet))


OWN = [
    (hop, kind, is_alike)
    for hop in ("none", "masquerade", "both ends")
    for kind in ("ping", "udp", "udp with checksum")
    for is_alike in (False, True)
]
# Where no IP id is kept, only payloads tell.
OWN += [("nat without ids", kind, False) for kind in ("ping", "udp with checksum")]


@pytest.mark.parametrize(("seed", "case"), list(enumerate(OWN)))
def test_what_the_router_asks_is_not_what_it_is_asked(seed, case, tmp_path):
    hop, kind, is_alike = case
    router = Router(unchanged, unchanged) if hop == "none" else Router(*changes(hop, seed))
    traffic(router, seed, server=VIRTUAL if hop == "both ends" else SERVER)
    own(router, seed, kind, is_alike=is_alike)
    assert router.faults(router.join(tmp_path)) == []
