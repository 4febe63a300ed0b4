"""Requests by rtnetlink, as pyroute2 reads them, and the kernel's answers to them."""

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from outcast import netlink
from outcast.emulation.kernel import rtnetlink
from outcast.errors import DeadlineError, RunError

CREATE, EXCLUSIVE, REPLACE = 0x400, 0x200, 0x100
MULTI = 0x2


WHOLE = rtnetlink.add_veth_pair(rtnetlink.End("h1-eth0", 1500), rtnetlink.End("s1-eth1")).body


def read(kind: Any, request: rtnetlink.Request) -> Any:
    """What pyroute2 reads in a request."""
    message = kind(netlink.message(request.kind, request.flags, 1, request.body))
    message.decode()
    return message


def test_a_veth_pair_has_the_settings_of_both_ends():
    near = rtnetlink.End("h1-eth0", 9000, "02:00:00:00:00:01", 11)
    request = rtnetlink.add_veth_pair(near, rtnetlink.End("s1-eth1", 1400))
    message = read(ifinfmsg, request)
    assert (request.kind, request.flags) == (16, CREATE | EXCLUSIVE)
    assert message.get_attr("IFLA_IFNAME") == "h1-eth0"
    assert message.get_attr("IFLA_MTU") == 9000
    assert message.get_attr("IFLA_ADDRESS") == "02:00:00:00:00:01"
    assert message.get_attr("IFLA_NET_NS_FD") == 11
    of_kind = message.get_attr("IFLA_LINKINFO")
    assert of_kind.get_attr("IFLA_INFO_KIND") == "veth"
    peer = of_kind.get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert dict(peer["attrs"]) == {"IFLA_IFNAME": "s1-eth1", "IFLA_MTU": 1400}


def test_an_interface_is_set_up_and_gets_an_address():
    up = read(ifinfmsg, rtnetlink.set_up(7))
    assert (up["index"], up["flags"], up["change"], up["attrs"]) == (7, 1, 1, [])
    address = read(ifaddrmsg, rtnetlink.add_address(7, "10.0.1.2", 8))
    assert (address["family"], address["prefixlen"], address["index"]) == (socket.AF_INET, 8, 7)
    assert dict(address["attrs"]) == {"IFA_LOCAL": "10.0.1.2", "IFA_ADDRESS": "10.0.1.2"}


def test_a_route_has_its_metrics():
    asked = {"rto_min": 2, "initcwnd": 3, "quickack": 1, "lock": 1 << 13}
    request = rtnetlink.replace_route(7, "10.0.0.0", 8, "10.0.1.2", asked)
    route = read(rtmsg, request)
    assert (request.kind, request.flags) == (24, CREATE | REPLACE)
    assert (route["dst_len"], route["table"], route["proto"], route["scope"], route["type"]) == (
        *(8, 254, 2, 253, 1),
    )
    assert route.get_attr("RTA_DST") == "10.0.0.0"
    assert route.get_attr("RTA_PREFSRC") == "10.0.1.2"
    assert route.get_attr("RTA_OIF") == 7
    metrics = route.get_attr("RTA_METRICS")
    assert dict(metrics["attrs"]) == {f"RTAX_{name.upper()}": n for name, n in asked.items()}


def test_an_address_can_have_a_table_of_routes_of_its_own(monkeypatch):
    request = rtnetlink.add_rule("10.0.1.2", 101)
    rule = read(fibmsg, request)
    assert (request.kind, request.flags) == (32, CREATE | EXCLUSIVE)
    assert (rule["family"], rule["src_len"], rule["action"]) == (socket.AF_INET, 32, 1)
    assert rule.get_attr("FRA_SRC") == "10.0.1.2"
    assert (rule.get_attr("FRA_TABLE"), rule.get_attr("FRA_PRIORITY")) == (101, 100)
    other = rtnetlink.replace_route(7, "10.0.0.0", 8, "10.0.1.2", {"rto_min": 2}, 101)
    assert read(rtmsg, other)["table"] == 101
    everyone = bytes(12) + netlink.encode(15, b"\xfe\0\0\0")
    kernel, _ = connected(monkeypatch, dump((32, everyone), (32, request.body)))
    assert kernel.rules() == {"10.0.1.2": 101}
    kernel, _ = connected(monkeypatch, dump((24, other.body)))
    assert kernel.route_metrics("10.0.0.0", 8, 101) == [{"rto_min": 2}]


def test_ipv6_has_its_own_family_and_no_search_for_duplicates():
    address = read(ifaddrmsg, rtnetlink.add_address(7, "fd00::a00:1", 104))
    assert (address["family"], address["prefixlen"], address["flags"]) == (10, 104, 0x02)
    assert address.get_attr("IFA_LOCAL") == "fd00::a00:1"
    route = read(rtmsg, rtnetlink.replace_route(7, "fd00::a00:0", 104, "fd00::a00:1", {}))
    assert (route["family"], route.get_attr("RTA_DST")) == (10, "fd00::a00:0")
    # In place of the kernel's own, which has this metric.
    assert route.get_attr("RTA_PRIORITY") == 256
    entry = read(ndmsg, rtnetlink.replace_neighbour(7, "fd00::a00:2", "02:00:00:00:00:01"))
    assert (entry["family"], entry.get_attr("NDA_DST")) == (10, "fd00::a00:2")


def test_an_arp_entry_is_permanent():
    request = rtnetlink.replace_neighbour(7, "10.0.1.2", "02:00:00:00:00:01")
    entry = read(ndmsg, request)
    assert (request.flags, entry["ifindex"], entry["state"]) == (CREATE | REPLACE, 7, 0x80)
    assert dict(entry["attrs"]) == {"NDA_DST": "10.0.1.2", "NDA_LLADDR": "02:00:00:00:00:01"}


class FakeKernel:
    """A netlink socket whose answers a function gives for what is sent."""

    def __init__(self, answers: Callable[[bytes], Sequence[bytes]]) -> None:
        self.answers = answers
        self.sent: list[bytes] = []
        self.left: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)
        self.left += self.answers(message)

    def settimeout(self, _seconds: float) -> None:
        pass

    def recv(self, _size: int) -> bytes:
        if not self.left:
            raise TimeoutError
        return self.left.pop(0)

    def close(self) -> None:
        self.answers = lambda _: ()


def connected(
    monkeypatch: pytest.MonkeyPatch, answers: Callable[[bytes], Sequence[bytes]]
) -> tuple[rtnetlink.Kernel, FakeKernel]:
    fake = FakeKernel(answers)
    monkeypatch.setattr(socket, "socket", lambda *_: fake)
    return rtnetlink.Kernel(), fake


def acknowledging(refused: Sequence[int] = ()) -> Callable[[bytes], list[bytes]]:
    """Answers each request; those for these interfaces are refused (ENODEV)."""

    def answers(message: bytes) -> list[bytes]:
        given = []
        for asked in netlink.messages(message):
            (interface,) = struct.unpack_from("=4xi", asked.body)
            number = -19 if interface in refused else 0
            body = struct.pack("=i", number) + asked.whole
            given.append(netlink.message(netlink.ERROR, 0, asked.sequence, body))
        return given

    return answers


def test_many_requests_go_by_few_messages_in_their_order(monkeypatch):
    kernel, fake = connected(monkeypatch, acknowledging())
    kernel.do([rtnetlink.set_up(index) for index in range(1, 150)])
    asked = [list(netlink.messages(message)) for message in fake.sent]
    assert [len(together) for together in asked] == [64, 64, 21]
    indices = [struct.unpack_from("=4xi", part.body)[0] for together in asked for part in together]
    assert indices == list(range(1, 150))
    assert not fake.left


def test_the_first_request_that_is_refused_is_named(monkeypatch):
    kernel, fake = connected(monkeypatch, acknowledging(refused=[70, 90, 140]))
    with pytest.raises(RunError, match=r"^interface 70: up: No such device$"):
        kernel.do([rtnetlink.set_up(index) for index in range(1, 150)])
    assert len(fake.sent) == 2


def dump(*bodies: tuple[int, bytes]) -> Callable[[bytes], list[bytes]]:
    """Answers a dump by two reads, the second of which ends it."""
    first, *others = (netlink.message(kind, MULTI, 1, body) for kind, body in bodies)
    done = netlink.message(netlink.DONE, MULTI, 1, bytes(4))
    return lambda _: [first, b"".join(others) + done]


def test_the_route_of_the_main_table_is_found_among_others(monkeypatch):
    ours = rtnetlink.replace_route(7, "10.0.0.0", 8, "10.0.1.2", {"rto_min": 2, "lock": 8192})
    narrower = rtnetlink.replace_route(7, "10.0.0.0", 16, "10.0.1.2", {"rto_min": 9})
    local = bytearray(ours.body)
    local[4] = 255  # RT_TABLE_LOCAL
    bodies = [(24, bytes(local)), (24, narrower.body), (24, ours.body)]
    kernel, _ = connected(monkeypatch, dump(*bodies))
    assert kernel.route_metrics("10.0.0.0", 8) == [{"lock": 8192, "rto_min": 2}]


def test_arp_entries_are_those_of_one_interface(monkeypatch):
    entries = [
        rtnetlink.replace_neighbour(8, "10.0.0.1", "02:00:00:00:00:08"),
        rtnetlink.replace_neighbour(7, "10.0.0.1", "02:00:00:00:00:01"),
    ]
    kernel, _ = connected(monkeypatch, dump(*((28, entry.body) for entry in entries)))
    assert kernel.neighbours(7) == {"10.0.0.1": "02:00:00:00:00:01"}


def test_mtus_are_told_by_name(monkeypatch):
    ends = [rtnetlink.End("h1-eth0", 9000), rtnetlink.End("s1-eth1", 1500)]
    bodies = [(16, rtnetlink.add_veth_pair(end, end).body) for end in ends]
    kernel, _ = connected(monkeypatch, dump(*bodies))
    assert kernel.mtus() == {"h1-eth0": 9000, "s1-eth1": 1500}


def stats(index: int, *values: int) -> tuple[int, bytes]:
    """An answer to RTM_GETSTATS: struct if_stats_msg and IFLA_STATS_LINK_64."""
    counted = netlink.encode(1, struct.pack("=25Q", *values, *range(25 - len(values))))
    return 92, struct.pack("=BxxxII", 0, index, 1) + counted


def test_counters_of_interfaces(monkeypatch):
    told = dump(stats(1, *range(10, 18)), stats(7, *range(20, 28)))
    kernel, fake = connected(monkeypatch, told)
    counted = kernel.counters()
    assert list(counted) == [1, 7]
    # The order of struct rtnl_link_stats64.
    assert counted[7] == {
        **{"rx_packets": 20, "tx_packets": 21, "rx_bytes": 22, "tx_bytes": 23},
        **{"rx_errors": 24, "tx_errors": 25, "rx_dropped": 26, "tx_dropped": 27},
    }
    assert struct.unpack_from("=IHH", fake.sent[0])[1:] == (94, 0x301)
    kernel, _ = connected(monkeypatch, dump((92, struct.pack("=BxxxII", 0, 7, 0))))
    with pytest.raises(RunError, match="the kernel counts nothing for interface 7"):
        kernel.counters()


def test_a_dump_that_is_refused_or_ends_in_an_error_is_an_error(monkeypatch):
    refused = netlink.message(netlink.ERROR, 0, 1, struct.pack("=i", -1))
    kernel, _ = connected(monkeypatch, lambda _: [refused])
    with pytest.raises(RunError, match=r"^qdiscs: Operation not permitted$"):
        kernel.queues({7})
    done = netlink.message(netlink.DONE, MULTI, 1, struct.pack("=i", -12))
    kernel, _ = connected(monkeypatch, lambda _: [done])
    with pytest.raises(RunError, match=r"^interfaces: Cannot allocate memory$"):
        kernel.mtus()


def test_a_dump_during_which_something_changed_is_made_again(monkeypatch):
    def told(message: bytes, flags: int) -> list[bytes]:
        (asked,) = netlink.messages(message)
        link = netlink.message(16, MULTI | flags, asked.sequence, WHOLE)
        return [link + netlink.message(netlink.DONE, MULTI, asked.sequence, bytes(4))]

    flags = [0x10, 0]
    kernel, fake = connected(monkeypatch, lambda message: told(message, flags.pop(0)))
    assert kernel.mtus() == {"h1-eth0": 1500}
    assert len(fake.sent) == 2
    kernel, _ = connected(monkeypatch, lambda message: told(message, 0x10))
    with pytest.raises(RunError, match="they changed each time"):
        kernel.mtus()


def test_answers_to_an_earlier_request_are_none_of_a_later_one(monkeypatch):
    """An acknowledgement that came late would otherwise end a dump as if it were whole."""
    kernel, fake = connected(monkeypatch, lambda _: [])
    with pytest.raises(DeadlineError, match="the kernel's answer on interface 7: up"):
        kernel.do([rtnetlink.set_up(7)])
    late = netlink.message(netlink.ERROR, 0, 1, struct.pack("=i", 0))
    link = netlink.message(16, MULTI, 2, WHOLE)
    fake.left = [late, link, netlink.message(netlink.DONE, MULTI, 2, bytes(4))]
    assert kernel.mtus() == {"h1-eth0": 1500}


def test_what_the_kernel_does_not_take_is_an_error_of_the_run(monkeypatch):
    def full(_message: bytes) -> list[bytes]:
        raise OSError(105, "No buffer space available")

    kernel, _ = connected(monkeypatch, full)
    with pytest.raises(RunError, match=r"^interface 7: up: No buffer space available$"):
        kernel.do([rtnetlink.set_up(7)])


def test_the_qdiscs_of_some_interfaces_alone_are_decoded(monkeypatch):
    def qdisc(interface: int) -> bytes:
        return netlink.traffic_control(interface, 1) + netlink.encode(1, b"tbf\0")

    kernel, _ = connected(monkeypatch, dump((36, qdisc(7)), (36, qdisc(8)), (36, qdisc(7))))
    shown = kernel.queues({7, 9})
    assert {index: len(messages) for index, messages in shown.items()} == {7: 2}
    assert shown[7][0].get_attr("TCA_KIND") == "tbf"
    assert shown[7][0]["event"] == "RTM_NEWQDISC"
