"""Experiments whose answer is a closed form or documented behaviour of the kernel.

Each case has its formula, its source, and a tolerance with the reason for it. `expected` and
`measured` are in one unit. A case never says what outcast gave before: the answer comes first.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from outcast.records.run import Run

MSS = 1448
FRAME = 1514
ON_THE_WIRE = 24
"""Preamble, checksum and gap count with every frame (IEEE 802.3); `links.overhead` is ethernet."""
Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One experiment.

    Attributes:
        name: what it is about, in a few words.
        keys: the configuration, besides the name and the seed.
        measured: the number in question, from the finished run.
        expected: the same by the formula; two numbers where it gives bounds.
        tolerance: by how much they may differ, as a share of what is expected; 0 beside bounds.
        unit: of both.
        formula, source: where the answer comes from.
        why: why the tolerance is what it is.
        quick: whether it is a part of scripts/test.sh.
    """

    name: str
    keys: Keys
    measured: Callable[[Run], float]
    expected: float | tuple[float, float]
    tolerance: float
    unit: str
    formula: str
    source: str
    why: str
    quick: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that may be measured."""
        if isinstance(self.expected, tuple):
            return self.expected
        slack = self.tolerance * abs(self.expected) + 1e-9
        return self.expected - slack, self.expected + slack

    @property
    def answer(self) -> str:
        """What is expected, in words."""
        if isinstance(self.expected, tuple):
            return "{:.4g} to {:.4g} ".format(*self.expected) + self.unit
        return f"{self.expected:.4g} {self.unit}"


def keys(
    rate: Any = "10mbit",
    delay: str = "5ms",
    queue: Any = None,
    flows: Any = None,
    *,
    access: str = "1gbit",
    access_delay: str = "100us",
    hosts: int = 1,
    between: int = 2,
    cross: int = 0,
    shared: Any = None,
    overrides: Any = (),
    duration: str = "10s",
    transport: Keys | None = None,
    **more: Any,
) -> Keys:
    """A dumbbell with an exact clock; the delay of the shared link is one way.

    `shared` has the links between switches where they differ from one another or by direction.
    """
    shared = shared or [
        {"between": [f"s{n}", f"s{n + 1}"], "rate": rate, "delay": delay} for n in range(1, between)
    ]
    return {
        "topology": {
            "kind": "file",
            "path": "dumbbell.py",
            "topo": "dumbbell",
            "args": {"n": hosts, "between": between, "cross": cross},
        },
        "links": {"rate": access, "delay": access_delay, "overrides": [*shared, *overrides]},
        "queue": queue or pfifo(100),
        "transport": {"congestion_control": "cubic", "offloads": False, **(transport or {})},
        "noise": {"profile": "exact"},
        "flows": [{"from": "l1", "to": "r1"}] if flows is None else flows,
        "duration": duration,
        "engine": "virtual",
        **more,
    }


def pfifo(packets: int) -> Keys:
    return {"kind": "pfifo", "limit": f"{packets} packets"}


def pairs(hosts: int) -> list[dict[str, Any]]:
    """A flow from each host on the left to the one opposite."""
    return [{"from": f"l{n}", "to": f"r{n}"} for n in range(1, hosts + 1)]


def buffers(size: str) -> Keys:
    """The same at both ends, which is more than a bandwidth-delay product."""
    return {"receive_buffer": size, "send_buffer": size}


def reno(rate: str, delay: str, packets: int, duration: str, /, **more: Any) -> Keys:
    """One flow of Reno through a queue of `packets`; `more` may have more of `transport`."""
    transport = {"congestion_control": "reno", **more.pop("transport", {})}
    return keys(rate, delay, pfifo(packets), duration=duration, transport=transport, **more)


# --- what is measured


def goodput(flow: int | None = None, after_s: float = 0.0) -> Callable[[Run], float]:
    """Goodput of a flow, or of all, from some time on, in Mbps."""

    def of(run: Run) -> float:
        table = run.table("throughput").filter(pl.col("t") >= after_s * 1e9)
        if flow is not None:
            table = table.filter(pl.col("flow") == flow)
        bins = table["t"].n_unique()
        return float(table["goodput_bps"].sum()) / bins / 1e6

    return of


def share(one: int, other: int, after_s: float = 0.0) -> Callable[[Run], float]:
    """The goodput of one flow over that of another."""
    return lambda run: goodput(one, after_s)(run) / goodput(other, after_s)(run)


def jain(run: Run) -> float:
    return float(run.summary.jain_index or 0)


def sojourn_ms(run: Run, after_s: float = 2.0) -> float:
    """The mean time that packets spent in the queue, without the link's delay before it."""
    start = run.manifest.traffic.t_start_ns + int(after_s * 1e9)
    end = run.manifest.traffic.t_start_ns + run.manifest.traffic.duration_ns
    table = run.table("packets").filter(
        (pl.col("t_in") >= start) & (pl.col("t_in") < end) & pl.col("t_out").is_not_null()
    )
    delay_ns = run.manifest.bottlenecks[0].queue.delay_ns
    spent = table["t_out"] - table["t_in"]
    return (float(spent.mean()) - delay_ns) / 1e6


def queue_packets(run: Run, after_s: float = 1.0) -> float:
    """The mean length of the queue that packets found, in full frames."""
    start = run.manifest.traffic.t_start_ns + int(after_s * 1e9)
    table = run.table("packets").filter(pl.col("t_in") >= start)
    return float(table["queue_bytes"].mean()) / FRAME


def between_drops_s(run: Run) -> float:
    """The mean time between two recoveries of flow 0, without slow start."""
    table = run.table("sockets").filter(pl.col("flow") == 0).sort("t")
    begun = (pl.col("ca_state") == "recovery") & (pl.col("ca_state").shift(1) != "recovery")
    times = table.filter(begun & (pl.col("t") > 5e9))["t"].to_list()
    return (times[-1] - times[0]) / (len(times) - 1) / 1e9


def own_queue_packets(run: Run) -> float:
    """What waits at a sender of 10 Mbps, from its mean round trip beyond 10.4 ms."""
    table = run.table("sockets").filter(pl.col("t") > 2e9)
    waited_ms = float(table["srtt_us"].mean()) / 1e3 - 10.4
    return waited_ms / ((FRAME + ON_THE_WIRE) * 8 / 10e3)


def under_way(run: Run) -> float:
    """The mean number of a flow's segments that are not acknowledged."""
    return float(run.table("sockets").filter(pl.col("t") > 3e8)["unacked"].mean())


def ping_ms(run: Run) -> float:
    """The least round trip that ping saw."""
    text = (run.path / "programs/ping/0.out").read_text()
    return float(text.rsplit("= ", 1)[1].split("/")[0])


def data_frames(run: Run) -> float:
    """The frames with payload that left the first bottleneck's port; none if one is too large."""
    sent = run.table("packets").filter(pl.col("payload") > 0)
    return float(sent.height) if sent["payload"].max() == MSS else math.nan


def received_share(run: Run) -> float:
    """What of the sent UDP came through."""
    streams = run.table("streams")
    return float(streams["received"].sum() / streams["sent"].sum())


def goodput_of_model(loss: float, rtt_s: float) -> Callable[[Run], float]:
    """Goodput over that of the square root law, for the share of packets that really got lost."""

    def of(run: Run) -> float:
        sent = lost = 0
        for port in run.summary.losses.ports.values():
            if (port.node, port.neighbour) == ("s2", "r1"):
                sent, lost = sent + port.packets, lost + sum(port.lost.values())
        assert abs(lost / sent / loss - 1) < 0.5, "the link loses what was requested"
        return goodput(after_s=5)(run) / (MSS * 8 / rtt_s * math.sqrt(1.5 * sent / lost) / 1e6)

    return of


def departures_s(run: Run) -> list[float]:
    """When packets left the bottleneck, in seconds after the traffic's start."""
    table = run.table("packets").filter(pl.col("t_out").is_not_null()).sort("t_out")
    start = run.manifest.traffic.t_start_ns
    return [(t - start) / 1e9 for t in table.filter(pl.col("payload") > 0)["t_out"].to_list()]


def longest_gap(run: Run) -> tuple[float, float]:
    """When the longest time without a departure began, and how long it was, in seconds."""
    gap_s, began_s = max((after - t, t) for t, after in pairwise(departures_s(run)))
    return began_s, gap_s


def before_the_first_drop(run: Run) -> float:
    """Packets that were not dropped, before the first one that was."""
    table = run.table("packets").filter(pl.col("payload") > 0)
    return float((table["verdict"].cast(pl.String) == "dropped").arg_max() or 0)


def drops_beside_marks(run: Run) -> float:
    """Drops over drops and marks from 3 s on, by the kernel's count."""
    table = run.table("ports").filter(pl.col("port") == run.manifest.bottlenecks[0].egress)
    late = table.filter(pl.col("t") >= 3e9).sort("t")
    drops, marks = (late[name][-1] - late[name][0] for name in ("drops", "marks"))
    return float(drops / (drops + marks))


def rtt_exponent(run: Run) -> float:
    """The a of "goodput falls as RTT^-a" between the groups short and long, from 10 s on."""
    table = run.table("sockets").filter(pl.col("t") > 10e9)
    rtt, sent = [], []
    for flows in ((0, 1), (2, 3)):
        rtt.append(float(table.filter(pl.col("flow").is_in(flows))["srtt_us"].mean()))
        sent.append(sum(goodput(flow, 10)(run) for flow in flows))
    return math.log(sent[0] / sent[1]) / math.log(rtt[1] / rtt[0])


def chi_square(run: Run) -> float:
    """Pearson's, of the flows of each path against equal numbers."""
    table = run.table("packets").filter(pl.col("payload") > 0)
    flows = table.group_by("ingress").agg(pl.col("sport").n_unique())["sport"].to_list()
    counts = [*flows, *[0] * (4 - len(flows))]
    equal = sum(counts) / 4
    assert sum(counts) == 200, f"{sum(counts)} flows were seen"
    return sum((count - equal) ** 2 / equal for count in counts)


def timeouts(run: Run) -> float:
    return float(run.summary.classes[next(iter(run.summary.classes))].timeouts or 0)


def payload_share(mtu: int = 1500, headers: int = 52) -> float:
    """Payload of a frame: without IP, TCP and time stamps, beside Ethernet's bytes."""
    return (mtu - headers) / (mtu + 14 + ON_THE_WIRE)


_FRAMES = "goodput = rate x (MTU - 52) / (MTU + 38)"
_SHAPED = "tc-tbf(8); IPv4, TCP, time stamps: RFC 791, 9293, 7323; IEEE 802.3"


def filled(
    after_s: float, mbps: float, tolerance: float = 0.03, *, mtu: int = 1500
) -> tuple[Callable[[Run], float], float, float, str, str, str]:
    """What a case is about in which one flow or more fill a link: from `measured` to `source`."""
    return goodput(after_s=after_s), mbps * payload_share(mtu), tolerance, "Mbps", _FRAMES, _SHAPED


_BUSY = "a buffer of a bandwidth-delay product and more keeps the link busy"
_MORE_THAN = "a buffer of more than a bandwidth-delay product keeps the link busy"


def _rates() -> Iterator[Case]:
    for rate, mbps, limit, delay, duration in (
        ("100kbit", 0.1, 20, "5ms", "60s"),
        ("100kbit", 0.1, 100, "5ms", "120s"),
        ("1mbit", 1, 30, "10ms", "30s"),
        ("10mbit", 10, 50, "10ms", "10s"),
        ("100mbit", 100, 200, "5ms", "5s"),
        ("1gbit", 1000, 1000, "1ms", "2s"),
        ("10gbit", 10_000, 4000, "100us", "500ms"),
    ):
        settle = float(duration.rstrip("ms")) * (1e-3 if duration.endswith("ms") else 1) / 4
        own = {"access": "10gbit" if mbps >= 1000 else "1gbit", "access_delay": "10us"}
        own |= {"duration": duration, "transport": buffers("64MB")}
        yield Case(
            f"one flow fills {rate} through {limit} packets",
            keys(rate, delay, pfifo(limit), **own),
            *filled(settle, mbps),
            _BUSY,
            quick=rate in ("1mbit", "100mbit"),
        )
    for rate, delay, own_delay, duration, after_s in (
        ("1gbit", "0us", "0us", "500ms", 0.1),
        ("1gbit", "1us", "1us", "500ms", 0.1),
        ("5mbit", "600ms", "100us", "60s", 30),
    ):
        own = {"access_delay": own_delay, "duration": duration, "transport": buffers("16MB")}
        yield Case(
            f"one flow fills {rate} over {delay}",
            keys(rate, delay, pfifo(600), **own),
            *filled(after_s, float(rate[0]) * (1000 if rate.endswith("gbit") else 1)),
            _BUSY,
        )
    for mtu in (576, 9000):
        base = keys("10mbit", "5ms", duration="10s")
        yield Case(
            f"frames of an MTU of {mtu}",
            {**base, "links": {**base["links"], "mtu": mtu}},
            *filled(2, 10, mtu=mtu),
            _MORE_THAN,
            quick=mtu == 9000,
        )
    own = {"access_delay": "10us", "duration": "5s", "transport": buffers("64MB")}
    yield Case(
        "one flow of IPv6 fills 100mbit",
        keys("100mbit", "5ms", pfifo(200), **own, addressing="ipv6"),
        goodput(after_s=1.25),
        100 * payload_share(headers=40 + 32),
        0.03,
        "Mbps",
        "goodput = rate x (MTU - 72) / (MTU + 38)",
        "tc-tbf(8); IPv6, TCP, time stamps: RFC 8200, 9293, 7323; IEEE 802.3",
        _BUSY,
        quick=True,
    )


def _delays() -> Iterator[Case]:
    for rate, rate_bps, delay, delay_ms in (
        ("100kbit", 1e5, "10ms", 10.0),
        ("1mbit", 1e6, "20ms", 20.0),
        ("100mbit", 1e8, "1us", 0.001),
        ("1gbit", 1e9, "300ms", 300.0),
    ):
        # A ping of 98 bytes takes its own time on each of three links; two have 1 Gbps.
        frame_bits = 8 * (98 + ON_THE_WIRE)
        own_ms = frame_bits * 1e3 / rate_bps + 2 * frame_bits / 1e6
        one_way_ms = delay_ms + 2 * 0.1 + own_ms
        ping = {"name": "ping", "host": "l1", "command": ["ping", "-c", "5", "-i", "0.5", "{r1}"]}
        yield Case(
            f"an idle ping over {rate} and {delay}",
            keys(rate, delay, flows=[], duration="5s", programs=[ping]),
            ping_ms,
            2 * one_way_ms,
            0.001 if one_way_ms > 1 else 0.05,
            "ms",
            "2 x sum over links of delay + 976 bits / rate",
            "store and forward: a frame arrives with its last bit; IEEE 802.3, clause 4.4.2",
            "ping prints three digits, and its own two system calls cost some microseconds",
            quick=rate == "1mbit",
        )


def _windows() -> Iterator[Case]:
    def of_window(run: Run) -> float:
        table = run.table("sockets").filter(pl.col("t") > 3e9)
        window = float(table["snd_wnd"].max())
        rtt_s = float(table["srtt_us"].mean()) / 1e6
        return goodput(after_s=3)(run) / (window * 8 / rtt_s / 1e6)

    small = {"receive_buffer": "128KB", "send_buffer": "16MB"}
    yield Case(
        "a receive buffer of 128 KB over 100 ms",
        keys("100mbit", "50ms", pfifo(2000), transport=small, duration="10s"),
        of_window,
        1.0,
        0.05,
        "of window / RTT",
        "goodput = receiver's window / RTT",
        "RFC 9293, section 3.8.6",
        "the window is sampled each 10 ms",
        quick=True,
    )
    yield Case(
        "a satellite: 144 Mbps and 600 ms",
        keys("144mbit", "300ms", pfifo(8000), duration="40s", transport=buffers("128MB")),
        *filled(20, 144, 0.1),
        "after slow start a flow has to reach 90 %",
    )
    fast = {"access": "10gbit", "access_delay": "0us", "between": 1, "duration": "200ms"}
    yield Case(
        "one switch of 10 Gbps and no delay",
        keys("10gbit", queue=pfifo(200), **fast),
        *filled(0.05, 10_000),
        _MORE_THAN,
        quick=True,
    )
    far = {"access": "10gbit", "access_delay": "10us", "transport": buffers("512MB")}
    yield Case(
        "10 Gbps and 20 ms with tuned buffers",
        keys("10gbit", "10ms", pfifo(20000), duration="3s", **far),
        *filled(1.5, 10_000, 0.1),
        "after slow start a flow has to reach 90 %",
    )


def _losses() -> Iterator[Case]:
    def in_100_ms(run: Run) -> float:
        end_ns = run.manifest.traffic.t_start_ns + 10**8
        sent = (pl.col("payload") == MSS) & (pl.col("t_in") < end_ns)
        return float(run.table("packets").filter(sent).height)

    packets = 100
    service_s = (FRAME + ON_THE_WIRE) * 8 / 10e6
    whole = packets + 1 + 0.0104 / service_s
    yield Case(
        "the period of Reno's sawtooth",
        reno("10mbit", "5ms", packets, "60s"),
        between_drops_s,
        3 / 8 * whole**2 * service_s,
        0.15,
        "s",
        "3/8 W^2 S/C, W = limit + rate x RTT; one packet more each round trip of W S/C",
        "Appenzeller, Keslassy, McKeown (SIGCOMM 2004), section 2; RFC 5681",
        "the window halves to whole packets, and a loss is repaired within a round trip",
        quick=True,
    )
    for loss, duration in ((0.0005, "120s"), (0.005, "60s"), (0.02, "60s")):
        yield Case(
            f"Reno with {loss:.2%} loss on the link",
            reno(
                *("1gbit", "20ms", 2000, duration),
                overrides=[{"from": "s2", "to": "r1", "loss": loss}],
                transport={"receive_buffer": "32MB"},
            ),
            goodput_of_model(loss, 0.0404),
            1.0,
            0.12,
            "of MSS / RTT x sqrt(3 / 2p)",
            "p is the share that the link lost",
            "Mathis, Semke, Mahdavi, Ott (CCR 1997), for one acknowledgement a packet",
            "the constant is 1.22 for regular losses and 1.31 for random ones (+7 %), and a "
            "round trip of each repair does not grow (-7 % at 2 %)",
            quick=loss == 0.005,
        )
    bdp = 10e6 * 0.0404 / 8 / (FRAME + ON_THE_WIRE)
    yield Case(
        "a buffer of 4 bandwidth-delay products",
        reno("10mbit", "20ms", round(4 * bdp), "60s", transport={"receive_buffer": "4MB"}),
        lambda run: sojourn_ms(run, 10),
        (7 / 9 * 5 - 1) * 40.4,
        0.08,
        "ms",
        "mean wait = (7/9 x (1 + 4) - 1) RTT: W grows by 1 in W S/C, from half to whole",
        "Appenzeller, Keslassy, McKeown (SIGCOMM 2004), section 2; RFC 5681",
        "the minute holds no whole number of sawteeth",
    )
    yield Case(
        "a buffer of 2 packets",
        reno("10mbit", "20ms", 2, "30s", transport={"pacing": "fq"}),
        goodput(after_s=5),
        0.75 * (bdp + 2) / bdp * 10 * payload_share(),
        0.1,
        "Mbps",
        "3/4 (BDP + 2) / BDP x rate x (MTU - 52) / (MTU + 38), for a paced flow",
        "Appenzeller, Keslassy, McKeown (SIGCOMM 2004), section 2",
        "the window halves to whole packets, and a repair takes a round trip or two",
        quick=True,
    )
    yield Case(
        "slow start in 100 ms",
        reno("1gbit", "10ms", 1000, "100ms"),
        in_100_ms,
        10.0 * (2**5 - 1),
        0.02,
        "packets",
        "10 (2^5 - 1): the window of 10 doubles each round trip of 20.4 ms",
        "RFC 6928; RFC 5681, section 3.1",
        "acknowledgements of the last packets may be delayed",
        quick=True,
    )
    ways = [
        {"from": "s1", "to": "s2", "rate": "10mbit", "delay": "5ms"},
        {"from": "s2", "to": "s1", "rate": "100kbit", "delay": "5ms"},
    ]
    yield Case(
        "a thin way back for acknowledgements",
        keys("10mbit", "5ms", shared=ways, duration="20s", transport={"receive_buffer": "128KB"}),
        goodput(after_s=5),
        2 * MSS * 8 * 100e3 / ((66 + ON_THE_WIRE) * 8) / 1e6,
        0.03,
        "Mbps",
        "2 MSS for each acknowledgement of 90 bytes on the link of 100 kbit/s",
        "RFC 3449, section 2.1; RFC 1122, section 4.2.3.2",
        "the window keeps the way back full and drops nothing there",
        quick=True,
    )
    failure = {"at": "2s", "between": ["s1", "s2"], "up": False}
    yield Case(
        "timeouts double while a link is down",
        keys("10mbit", "5ms", duration="12s", events=[failure]),
        timeouts,
        5.0,
        0.2,
        "timeouts",
        "sum of RTO x 2^n, from some 0.3 s on, within 10 s: 5",
        "RFC 6298, section 5.5",
        "the first RTO hangs on the round trip's variation",
        quick=True,
    )


def _shares() -> Iterator[Case]:
    for flows, rate, limit, duration in ((2, "10mbit", 60, "30s"), (10, "50mbit", 200, "60s")):
        alike = [
            {"from": f"l{n}", "to": f"r{n}", "start": f"{37 * n}ms"} for n in range(1, flows + 1)
        ]
        own = {"hosts": flows, "duration": duration, "noise": {"profile": "hosts-modern"}}
        yield Case(
            f"{flows} equal CUBIC flows",
            keys(rate, "10ms", pfifo(limit), alike, **own),
            jain,
            1.0,
            0.1,
            "Jain's index",
            "equal flows get equal shares",
            "Chiu and Jain (1989); RFC 9438, section 4",
            "they converge slowly",
        )
    hundreds = [{"from": f"l{n}", "to": f"r{n}", "per_host": 100} for n in range(1, 6)]
    yield Case(
        "500 flows share a link",
        keys("100mbit", "10ms", pfifo(1000), hundreds, hosts=5, duration="5s"),
        *filled(2, 100, 0.05),
        "timeouts of some leave the link to others; copies of segments take some of it",
    )
    yield Case(
        "fq_codel gives each flow its share, whatever its round trip",
        keys(
            *("20mbit", "2ms", {"kind": "fq_codel", "limit": "1000 packets"}, pairs(2)),
            hosts=2,
            overrides=[{"between": ["l2", "s1"], "delay": "40ms"}],
            duration="20s",
        ),
        share(0, 1, after_s=5),
        1.0,
        0.3,
        "short over long",
        "max-min fair shares of two flows with data: 1",
        "RFC 8290, section 4.1",
        "the long flow is off the queue after each of its losses",
        quick=True,
    )
    bbr = {"name": "bbr", "from": "l1", "to": "r1", "transport": {"congestion_control": "bbr"}}
    rivals = [bbr, {"name": "cubic", "from": "l2", "to": "r2"}]
    for depth, name, shares in ((20, "shallow", (1.5, 50.0)), (400, "deep", (0.01, 1.0))):
        yield Case(
            f"BBR against CUBIC with a {name} buffer",
            keys("20mbit", "10ms", pfifo(depth), rivals, hosts=2, duration="30s"),
            share(0, 1, 5),
            shares,
            0.0,
            "BBR over CUBIC",
            "BBR wins below some bandwidth-delay product of buffer, CUBIC above some more",
            "Hock, Bless, Zitterbart (ICNP 2017), figures 6 to 8",
            "the source has the direction alone",
        )
    for control, bounds, source in (
        ("reno", (1.0, 2.0), "Lakshman and Madhow (ToN 1997), section 4: 1 <= a < 2"),
        # The sources bound it from above. Flows that lose at different times come nearer to 0.
        ("cubic", (0.0, 1.0), "Ha, Rhee, Xu (OSR 2008); RFC 9438, sections 3.3 and 5.1"),
    ):
        yield Case(
            f"{control}: a longer round trip gets less",
            keys(
                "50mbit",
                "18ms",
                pfifo(200),
                [
                    {"name": "short", "from": "l1", "to": "r1", "per_host": 2},
                    {"name": "long", "from": "l2", "to": "r2", "per_host": 2},
                ],
                hosts=2,
                overrides=[{"between": ["l2", "s1"], "delay": "60ms"}],
                duration="120s",
                noise={"profile": "hosts-modern"},
                transport={"congestion_control": control},
            ),
            rtt_exponent,
            bounds,
            0.0,
            "= a",
            "goodput falls as RTT^-a; a hangs on how far losses are synchronised",
            source,
            "these are the bounds of the sources, from independent to synchronised losses",
        )
    fair = (4.0, 6.0, 16.0, 4.0)

    def off_max_min(run: Run) -> float:
        shares = [mbps * payload_share() for mbps in fair]
        return max(abs(goodput(n, 5)(run) / right - 1) for n, right in enumerate(shares))

    yield Case(
        "max-min shares over three bottlenecks",
        keys(
            "10mbit",
            "5ms",
            {"kind": "fq", "limit": "1000 packets"},
            [{"from": "l1", "to": "r1"}, *({"from": f"c{n}", "to": f"d{n}"} for n in (1, 2, 3))],
            between=4,
            cross=3,
            shared=[
                {"between": [f"s{n}", f"s{n + 1}"], "rate": rate, "delay": "5ms"}
                for n, rate in ((1, "10mbit"), (2, "20mbit"), (3, "8mbit"))
            ],
            duration="20s",
        ),
        off_max_min,
        (0.0, 0.03),
        0.0,
        "off, the worst of four flows",
        "links of 10, 20, 8 Mbps: 4 for the flow over all, 6, 16 and 4 for those over one",
        "Bertsekas and Gallager, Data Networks, section 6.5.2; Demers and others (1989)",
        "every flow has 100 packets of its own, which keep it backlogged",
        quick=True,
    )
    hashed = keys(  # the last switch sees by which path each flow comes
        flows=[{"from": "l1", "to": "r1", "per_host": 200}],
        duration="500ms",
        routing={"kind": "hashed"},
        transport={"initial_window": 2},
    )
    hashed["topology"] = {**hashed["topology"], "topo": "parallel", "args": {"paths": 4}}
    hashed["links"] = {
        "rate": "1gbit",
        "delay": "100us",
        "overrides": [{"between": ["s2", "r1"], "rate": "10mbit"}],
    }
    yield Case(
        "200 flows hashed over 4 equal paths",
        hashed,
        chi_square,
        (0.07, 12.84),
        0.0,
        "= chi-square",
        "Pearson's with 3 degrees of freedom lies between these in 99 of 100 draws",
        "Pearson (1900); RFC 2992",
        "99 of 100 draws lie there",
    )


RED_MIN, RED_MAX, RED_PROBABILITY = 10, 60, 0.05
"""With these, ten flows at 50 Mbps over 10.4 ms are stable (Hollot, Misra, Towsley, Gong, INFOCOM
2001, proposition 1): 0.05 / 50 x (R C)^3 / (2 N)^2 = 0.8. Above 1 the queue would swing."""


def _red_packets(flows: int, rate_bps: float, base_rtt_s: float) -> float:
    """The queue at which RED's drops and Reno's square root law agree.

    A flow has W = (C RTT + q) / N and needs p = 3 / (2 W^2). RED's gaps between drops are uniform
    up to 1 / p_b, so p = 2 p_b / (1 + p_b), and p_b grows from 0 at the one threshold to
    `probability` at the other.
    """
    low, high = float(RED_MIN), float(RED_MAX)
    for _ in range(50):
        middle = (low + high) / 2
        window = (rate_bps * base_rtt_s / 8 / (FRAME + ON_THE_WIRE) + middle) / flows
        p = 1.5 / window**2
        needed = RED_MIN + (RED_MAX - RED_MIN) * p / (2 - p) / RED_PROBABILITY
        low, high = (middle, high) if needed > middle else (low, middle)
    return low


_LEAST = (0.5, "CoDel holds the least wait of 100 ms there, and the mean lies above the least")
_MEAN = (0.15, "the controller holds the average itself there")


def _queues() -> Iterator[Case]:
    five = pairs(5)
    ten = [{**flow, "per_host": 2} for flow in five]
    red = {"kind": "red", "limit": "300KB", "min_packets": RED_MIN, "max_packets": RED_MAX}
    red["probability"] = RED_PROBABILITY
    for shaper in ("tbf", "htb"):
        for kind, limit, target_ms, within, source in (
            ("codel", "1000 packets", 5.0, _LEAST, "RFC 8289, section 4.3"),
            ("fq_codel", "1000 packets", 5.0, _LEAST, "RFC 8290, section 5.2.1"),
            ("pie", "1000 packets", 15.0, _MEAN, "RFC 8033, section 4.2"),
            ("cake", "4MB", 5.0, _LEAST, "tc-cake(8): a 20th of rtt, which is 100 ms"),
            ("dualpi2", "1000 packets", 15.0, _MEAN, "RFC 9332, section 2.5.2.1"),
        ):
            queue = {"kind": kind, "shaper": shaper, "limit": limit}
            experiment = keys("50mbit", "5ms", queue, five, hosts=5, duration="15s")
            quick = (kind, shaper) in {("codel", "tbf"), ("pie", "htb")}
            yield Case(
                f"{kind} below {shaper} holds its target delay",
                experiment,
                sojourn_ms,
                target_ms,
                within[0],
                "ms",
                "mean sojourn time = the target",
                source,
                within[1],
                quick,
            )
            yield Case(
                f"{kind} below {shaper} keeps the link busy",
                experiment,
                *filled(2, 50, 0.05),
                "a short queue runs empty now and then",
                quick,
            )
        for ecn in (False, True):
            queue = {**red, "shaper": shaper, "ecn": ecn}
            tcp = {"congestion_control": "reno", "ecn": ecn}
            experiment = keys("50mbit", "5ms", queue, ten, hosts=5, duration="15s", transport=tcp)
            name = "RED with ECN" if ecn else "RED"
            yield Case(
                f"{name}: the mean queue below {shaper}",
                experiment,
                lambda run: queue_packets(run, 3),
                _red_packets(10, 50e6, 0.0104),
                0.2,
                "packets",
                "where RED's drops are those that N flows need: p = 3 / (2 W^2)",
                "Firoiu and Borden (INFOCOM 2000); Floyd and Jacobson (1993), section 7",
                "the law leaves timeouts out, and windows are some seven packets",
                quick=shaper == "tbf" and not ecn,
            )
            yield Case(
                f"{name} keeps the link busy below {shaper}",
                experiment,
                goodput(after_s=3),
                50 * payload_share(),
                0.05,
                "Mbps",
                _FRAMES,
                "Floyd and Jacobson (1993); RFC 2309",
                "a short queue runs empty now and then",
                quick=shaper == "tbf" and not ecn,
            )
            if ecn:
                yield Case(
                    f"{name} marks instead of dropping below {shaper}",
                    experiment,
                    drops_beside_marks,
                    (0.0, 0.02),
                    0.0,
                    "drops among drops and marks",
                    "no drop below the maximum; SYNs and copies of segments have no ECN",
                    "RFC 3168, sections 5 and 6.1.5",
                    "the average passes the maximum now and then",
                )
        yield from _dctcp(shaper)


def _dctcp(shaper: str) -> list[Case]:
    """Two flows at 100 Mbps over 1.4 ms, with K = 40 packets."""
    flows, mark, base = 2, 40, 100e6 * 1.4e-3 / 8 / (FRAME + ON_THE_WIRE)
    swing = math.sqrt(2 * flows * (base + mark)) / 2
    return [
        Case(
            f"DCTCP's queue stays near its mark below {shaper}",
            keys(
                "100mbit",
                "500us",
                {
                    "kind": "ecn_threshold",
                    "limit": "400 packets",
                    "threshold": f"{mark} packets",
                    "shaper": shaper,
                },
                pairs(2),
                hosts=2,
                duration="5s",
                transport={"congestion_control": "dctcp", "ecn": True},
            ),
            queue_packets,
            mark + flows - swing / 2,
            0.12,
            "packets",
            "K + N less half the swing of sqrt(2 N (C RTT + K)) / 2",
            "Alizadeh and others (SIGCOMM 2010), section 3.3",
            "an arrival does not count itself, and the two flows are not quite in step",
            quick=shaper == "tbf",
        )
    ]


def _others() -> Iterator[Case]:
    def stream(rate: str) -> Any:
        return [{"kind": "constant_rate", "from": "l1", "to": "r1", "rate": rate}]

    sent_mbps = 40 * 1536 / 1470
    stepped = keys(
        {"trace": "steps.csv"}, "100us", flows=[], workloads=stream("20mbit"), duration="6s"
    )
    failure = [
        {"at": at, "between": ["s1", "s2"], "up": up} for at, up in (("2s", False), ("3s", True))
    ]
    five = {"flows": [], "workloads": stream("5mbit"), "duration": "5s"}
    cut = keys("10mbit", "100us", **five, events=failure)

    def slow_departures(run: Run) -> list[float]:
        return [t for t, after in pairwise(departures_s(run)) if after - t > 3.5e-3]

    yield from (
        Case(
            f"{kind}'s burst of 100 KB before a queue of 2 packets",
            keys(
                *("10mbit", "100us"),
                flows=[],
                shared=[{"from": "s1", "to": "s2", "rate": "10mbit", "queue": queue}],
                workloads=stream("40mbit"),
                duration="1s",
            ),
            before_the_first_drop,
            102_400 / (1 - 10 / sent_mbps) / 1536 + 2 / (1 - 10 / sent_mbps),
            0.03,
            "packets",
            "b / (1 - r / s) of bytes sent at s, and the queue: a policer of rate r, burst b",
            "Cruz (1991): b + r t; tc-tbf(8), tc-htb(8)",
            "whole packets, and HTB lends one",
            quick=kind == "tbf",
        )
        for kind in ("tbf", "htb")
        for queue in [{"kind": kind, "limit": "2 packets", "burst": "100KB"}]
    )
    yield Case(
        "a trace's rate falls at 2 s",
        stepped,
        lambda run: slow_departures(run)[0],
        2.0,
        0.002,
        "s",
        "the first gap of 1536 bytes at 2 Mbps, not 10, begins at the trace's time",
        "the trace",
        "it begins with a packet's departure: 1.2 ms at 10 Mbps",
        quick=True,
    )
    yield Case(
        "a trace's rate is back at 4 s",
        stepped,
        lambda run: slow_departures(run)[-1],
        4.0,
        0.002,
        "s",
        "the last gap of 2 Mbps begins before the trace's time",
        "the trace",
        "a packet at 2 Mbps takes 6.1 ms",
        quick=True,
    )
    yield Case(
        "the packets of 2 s at 2 Mbps",
        stepped,
        lambda run: float(len(slow_departures(run))),
        2 * 2e6 / (1536 * 8),
        0.01,
        "packets",
        "time x rate / 1536 bytes",
        "work conservation",
        "one packet at either end",
        quick=True,
    )
    yield Case(
        "a link goes down at 2 s",
        cut,
        lambda run: longest_gap(run)[0],
        2.0,
        0.0015,
        "s",
        "the last departure is one before the event's time",
        "the event",
        "packets are 2.35 ms apart",
        quick=True,
    )
    yield Case(
        "a link is down for 1 s",
        cut,
        lambda run: longest_gap(run)[1],
        1.0,
        0.005,
        "s",
        "nothing leaves between the two events",
        "the events",
        "packets are 2.35 ms apart, and the first comes after the link's delay",
        quick=True,
    )
    slow = [{"between": ["l1", "s1"], "rate": "10mbit"}]
    yield Case(
        "TCP small queues bound a sender's own queue",
        keys("1gbit", "5ms", overrides=slow, duration="10s"),
        own_queue_packets,
        6.0,
        0.35,
        "packets",
        "two units of tcp_min_tso_segs (2), and one that is sent before the check",
        "tcp_small_queue_check, tcp_tso_autosize (net/ipv4/tcp_output.c)",
        "acknowledgements come in pairs",
        quick=True,
    )
    yield from (
        Case(
            f"UDP below the link's rate is not lost over {delay}",
            keys("10mbit", delay, **five),
            received_share,
            1.0,
            0.0001,
            "received over sent",
            "all of it",
            "work conservation",
            "nothing may be missing",
            quick=True,
        )
        for delay in ("5ms", "600ms")
    )
    yield from (
        Case(
            f"UDP above the link's rate into {limit} packets",
            keys("10mbit", "5ms", pfifo(limit), **five | {"workloads": stream("20mbit")}),
            received_share,
            (5e7 / 8 / 1536 + limit) / (1e8 / 8 / 1470),
            0.002,
            "received over sent",
            "(link's rate x 5 s / 1536 + the full queue) / (rate sent x 5 s / 1470)",
            "work conservation",
            "two or three packets more are under way, and the stream begins at a random phase",
        )
        for limit in (2, 100)
    )
    change = {"at": "5s", "between": ["s1", "s2"], "rate": "4mbit"}
    yield Case(
        "a rate that changes at 5 s",
        keys("10mbit", "5ms", duration="10s", events=[change]),
        *filled(6, 4),
        _MORE_THAN,
        quick=True,
    )
    paced = {"pacing": "internal", "pacing_rate": "8mbit"}
    yield Case(
        "pacing at 8 Mbps",
        keys("100mbit", "5ms", duration="5s", transport=paced),
        goodput(after_s=1),
        8.0,
        0.01,
        "Mbps",
        "the rate, of payload",
        "tcp_update_skb_after_send (net/ipv4/tcp_output.c) counts payload alone",
        "a second of start is left out",
        quick=True,
    )
    yield Case(
        "20 flows wait in their sender's own queue",
        keys(
            "1gbit",
            "5us",
            flows=[{"from": "l1", "to": "r1", "per_host": 20}],
            access_delay="5us",
            duration="1s",
        ),
        under_way,
        90.0,
        0.05,
        "segments of a flow",
        "two units of 64 KB, which are 45 segments each, and no loss among 1800",
        "tcp_small_queue_check, tcp_tso_autosize below 0.5 ms (net/ipv4/tcp_output.c)",
        "a flow whose units leave the queue has fewer, and some tens are on the links",
        quick=True,
    )
    take = "import socket\ns = socket.create_server(('', 7000)).accept()[0]\nwhile s.recv(65536): 0"
    send = (
        "import socket, sys, time\ns = socket.create_connection((sys.argv[1], 7000))\n"
        "s.setsockopt(6, 1, 1)\n"  # TCP_NODELAY
        "for size in range(1400, 1541, 4): s.send(bytes(size)); time.sleep(0.02)"
    )
    ends = [
        {"name": "take", "host": "r1", "command": ["python3", "-c", take]},
        {"name": "send", "host": "l1", "start": "20ms", "command": ["python3", "-c", send, "{r1}"]},
    ]
    sizes = range(1400, 1541, 4)
    yield Case(
        "units of little more than a segment are cut",
        keys(flows=[], duration="2s", programs=ends, transport={"offloads": True}),
        data_frames,
        float(sum(math.ceil(size / MSS) for size in sizes)),
        0.0,
        "frames",
        "sum over writes of ceil(bytes / MSS)",
        "RFC 9293, section 3.7.1: no segment is larger than the MSS",
        "each write is acknowledged before the next one",
        quick=True,
    )


CASES: tuple[Case, ...] = tuple(
    case
    for group in (_rates, _delays, _windows, _losses, _shares, _queues, _others)
    for case in group()
)
