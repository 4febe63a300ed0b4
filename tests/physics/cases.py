"""Experiments whose answer is a closed form or documented behaviour of the kernel.

Each case has its formula, its source, and a tolerance with the reason for it. `expected` and
`measured` are in one unit. A case never says what outcast gave before: the answer comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        expected: the same by the formula.
        tolerance: by how much they may differ, as a share of what is expected.
        unit: of both.
        formula, source: where the answer comes from.
        why: why the tolerance is what it is.
        quick: whether it is a part of scripts/test.sh.
        losses_at_senders: whether a sender's own queue may lose packets, as with hundreds of flows.
    """

    name: str
    keys: Keys
    measured: Callable[[Run], float]
    expected: float
    tolerance: float
    unit: str
    formula: str
    source: str
    why: str
    quick: bool = False
    losses_at_senders: bool = False


def keys(
    rate: str = "10mbit",
    delay: str = "5ms",
    queue: Any = None,
    flows: Any = None,
    *,
    access: str = "1gbit",
    access_delay: str = "100us",
    hosts: int = 1,
    between: int = 2,
    overrides: Any = (),
    duration: str = "10s",
    transport: Keys | None = None,
    **more: Any,
) -> Keys:
    """A dumbbell with an exact clock; the delay of the shared link is one way."""
    shared = [
        {"between": [f"s{n}", f"s{n + 1}"], "rate": rate, "delay": delay} for n in range(1, between)
    ]
    return {
        "topology": {
            "kind": "file",
            "path": "dumbbell.py",
            "topo": "dumbbell",
            "args": {"n": hosts, "between": between},
        },
        "links": {"rate": access, "delay": access_delay, "overrides": [*shared, *overrides]},
        "queue": queue or {"kind": "pfifo", "limit": "100 packets"},
        "transport": {"congestion_control": "cubic", "offloads": False, **(transport or {})},
        "noise": {"profile": "exact"},
        "flows": [{"from": "l1", "to": "r1"}] if flows is None else flows,
        "duration": duration,
        "engine": "virtual",
        **more,
    }


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
    """The mean time that packets spent in the switch."""
    start = run.manifest.traffic.t_start_ns + int(after_s * 1e9)
    end = run.manifest.traffic.t_start_ns + run.manifest.traffic.duration_ns
    table = run.table("packets").filter(
        (pl.col("t_in") >= start) & (pl.col("t_in") < end) & pl.col("t_out").is_not_null()
    )
    return float((table["t_out"] - table["t_in"]).mean()) / 1e6  # type: ignore[arg-type]


def queue_packets(run: Run, after_s: float = 1.0) -> float:
    """The mean length of the queue that packets found, in full frames."""
    start = run.manifest.traffic.t_start_ns + int(after_s * 1e9)
    table = run.table("packets").filter(pl.col("t_in") >= start)
    return float(table["queue_bytes"].mean()) / FRAME  # type: ignore[arg-type]


def between_drops_s(run: Run) -> float:
    """The mean time between two recoveries of flow 0, without slow start."""
    table = run.table("sockets").filter(pl.col("flow") == 0).sort("t")
    begun = (pl.col("ca_state") == "recovery") & (pl.col("ca_state").shift(1) != "recovery")
    times = table.filter(begun & (pl.col("t") > 5e9))["t"].to_list()
    return (times[-1] - times[0]) / (len(times) - 1) / 1e9


def own_queue_packets(run: Run) -> float:
    """What waits at a sender of 10 Mbps, from its mean round trip beyond 10.4 ms."""
    table = run.table("sockets").filter(pl.col("t") > 2e9)
    waited_ms = float(table["srtt_us"].mean()) / 1e3 - 10.4  # type: ignore[arg-type]
    return waited_ms / ((FRAME + ON_THE_WIRE) * 8 / 10e3)


def ping_ms(run: Run) -> float:
    """The least round trip that ping saw."""
    text = (run.path / "programs/ping/0.out").read_text()
    return float(text.rsplit("= ", 1)[1].split("/")[0])


def received_share(run: Run) -> float:
    """What of the sent UDP came through."""
    streams = run.table("streams")
    return float(streams["received_bps"].sum() / streams["sent_bps"].sum())


def timeouts(run: Run) -> float:
    return float(run.summary.classes[next(iter(run.summary.classes))].timeouts or 0)


def payload_share(mtu: int = 1500) -> float:
    """Payload of a frame: without IP, TCP and time stamps (52 bytes), beside Ethernet's bytes."""
    return (mtu - 52) / (mtu + 14 + ON_THE_WIRE)


_FRAMES = "goodput = rate x (MTU - 52) / (MTU + 38)"
_SHAPED = "tc-tbf(8); IPv4, TCP, time stamps: RFC 791, 9293, 7323; IEEE 802.3"
_START = "slow start and the first loss cost some of a short run"


def _rates() -> list[Case]:
    made = []
    for rate, mbps, limit, delay, duration in (
        ("100kbit", 0.1, 20, "5ms", "60s"),
        ("1mbit", 1, 30, "10ms", "30s"),
        ("10mbit", 10, 50, "10ms", "10s"),
        ("100mbit", 100, 200, "5ms", "5s"),
        ("1gbit", 1000, 1000, "1ms", "2s"),
        ("10gbit", 10_000, 4000, "100us", "500ms"),
    ):
        access = "10gbit" if mbps >= 1000 else "1gbit"
        settle = float(duration.rstrip("ms")) * (1e-3 if duration.endswith("ms") else 1) / 4
        made.append(
            Case(
                f"one flow fills {rate}",
                keys(
                    rate,
                    delay,
                    {"kind": "pfifo", "limit": f"{limit} packets"},
                    access=access,
                    access_delay="10us",
                    duration=duration,
                    transport={"receive_buffer": "64MB", "send_buffer": "64MB"},
                ),
                goodput(after_s=settle),
                mbps * payload_share(),
                0.03,
                "Mbps",
                _FRAMES,
                _SHAPED,
                "a buffer of a bandwidth-delay product and more keeps the link busy",
                quick=rate in ("1mbit", "100mbit"),
            )
        )
    for mtu in (576, 9000):
        made.append(
            Case(
                f"frames of an MTU of {mtu}",
                {
                    **(base := keys("10mbit", "5ms", duration="10s")),
                    "links": {**base["links"], "mtu": mtu},
                },
                goodput(after_s=2),
                10 * payload_share(mtu),
                0.03,
                "Mbps",
                _FRAMES,
                _SHAPED,
                "a buffer of more than a bandwidth-delay product keeps the link busy",
                quick=mtu == 9000,
            )
        )
    return made


def _delays() -> list[Case]:
    made = []
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
        made.append(
            Case(
                f"an idle ping over {rate} and {delay}",
                keys(
                    rate,
                    delay,
                    flows=[],
                    duration="5s",
                    programs=[
                        {
                            "name": "ping",
                            "host": "l1",
                            "command": ["ping", "-c", "5", "-i", "0.5", "{r1}"],
                        }
                    ],
                ),
                ping_ms,
                2 * one_way_ms,
                0.001 if one_way_ms > 1 else 0.05,
                "ms",
                "2 x sum over links of delay + 976 bits / rate",
                "store and forward: a frame arrives with its last bit; IEEE 802.3, clause 4.4.2",
                "ping prints three digits, and its own two system calls cost some microseconds",
                quick=rate == "1mbit",
            )
        )
    return made


def _windows() -> list[Case]:
    def of_window(run: Run) -> float:
        table = run.table("sockets").filter(pl.col("t") > 3e9)
        window = float(table["snd_wnd"].max())  # type: ignore[arg-type]
        rtt_s = float(table["srtt_us"].mean()) / 1e6  # type: ignore[arg-type]
        return goodput(after_s=3)(run) / (window * 8 / rtt_s / 1e6)

    made = [
        Case(
            "a receive buffer of 128 KB over 100 ms",
            keys(
                "100mbit",
                "50ms",
                {"kind": "pfifo", "limit": "2000 packets"},
                transport={"receive_buffer": "128KB", "send_buffer": "16MB"},
                duration="10s",
            ),
            of_window,
            1.0,
            0.05,
            "of window / RTT",
            "goodput = receiver's window / RTT",
            "RFC 9293, section 3.8.6",
            "the window is sampled each 10 ms",
            quick=True,
        ),
        Case(
            "a satellite: 144 Mbps and 600 ms",
            keys(
                "144mbit",
                "300ms",
                {"kind": "pfifo", "limit": "8000 packets"},
                duration="40s",
                transport={"receive_buffer": "128MB", "send_buffer": "128MB"},
            ),
            goodput(after_s=20),
            144 * payload_share(),
            0.1,
            "Mbps",
            _FRAMES,
            _SHAPED,
            "after slow start a flow has to reach 90 %",
        ),
        Case(
            "10 Gbps and 20 ms with tuned buffers",
            keys(
                "10gbit",
                "10ms",
                {"kind": "pfifo", "limit": "20000 packets"},
                access="10gbit",
                access_delay="10us",
                duration="3s",
                transport={"receive_buffer": "512MB", "send_buffer": "512MB"},
            ),
            goodput(after_s=1.5),
            10_000 * payload_share(),
            0.1,
            "Mbps",
            _FRAMES,
            _SHAPED,
            "after slow start a flow has to reach 90 %",
        ),
    ]
    return made


def _losses() -> list[Case]:
    packets = 100
    service_s = (FRAME + ON_THE_WIRE) * 8 / 10e6
    whole = packets + 1 + 0.0104 / service_s
    made = [
        Case(
            "the period of Reno's sawtooth",
            keys(
                "10mbit",
                "5ms",
                {"kind": "pfifo", "limit": f"{packets} packets"},
                duration="60s",
                transport={"congestion_control": "reno"},
            ),
            between_drops_s,
            3 / 8 * whole**2 * service_s,
            0.15,
            "s",
            "3/8 W^2 S/C, W = limit + rate x RTT; one packet more each round trip of W S/C",
            "Appenzeller, Keslassy, McKeown (SIGCOMM 2004), section 2; RFC 5681",
            "the window halves to whole packets, and a loss is repaired within a round trip",
            quick=True,
        )
    ]
    for loss in (0.0005, 0.005, 0.02):
        mbps = MSS * 8 / 0.0402 * math.sqrt(3 / 2 / loss) / 1e6
        made.append(
            Case(
                f"Reno with {loss:.2%} loss on the link",
                keys(
                    "1gbit",
                    "20ms",
                    {"kind": "pfifo", "limit": "2000 packets"},
                    duration="60s",
                    overrides=[{"from": "s2", "to": "r1", "loss": loss}],
                    transport={"congestion_control": "reno", "receive_buffer": "32MB"},
                ),
                goodput(after_s=5),
                mbps,
                0.25,
                "Mbps",
                "MSS / RTT x sqrt(3 / 2p)",
                "Mathis, Semke, Mahdavi, Ott (CCR 1997), for one acknowledgement a packet",
                "the model leaves timeouts out, and a minute has few losses at small shares",
                quick=loss == 0.005,
            )
        )
    made.append(
        Case(
            "timeouts double while a link is down",
            keys(
                "10mbit",
                "5ms",
                duration="12s",
                events=[{"at": "2s", "between": ["s1", "s2"], "up": False}],
            ),
            timeouts,
            5.0,
            0.2,
            "timeouts",
            "sum of RTO x 2^n, from some 0.3 s on, within 10 s: 5",
            "RFC 6298, section 5.5",
            "the first RTO hangs on the round trip's variation",
            quick=True,
        )
    )
    return made


def _shares() -> list[Case]:
    made = []
    for flows, rate, limit, duration in ((2, "10mbit", 60, "30s"), (10, "50mbit", 200, "20s")):
        made.append(
            Case(
                f"{flows} equal CUBIC flows",
                keys(
                    rate,
                    "10ms",
                    {"kind": "pfifo", "limit": f"{limit} packets"},
                    [
                        {"from": f"l{n}", "to": f"r{n}", "start": f"{37 * n}ms"}
                        for n in range(1, flows + 1)
                    ],
                    hosts=flows,
                    duration=duration,
                    noise={"profile": "hosts-modern"},
                ),
                jain,
                1.0,
                0.1,
                "Jain's index",
                "equal flows get equal shares",
                "Chiu and Jain (1989); RFC 9438, section 4",
                "they converge slowly",
                quick=flows == 2,
            )
        )
    made.append(
        Case(
            "500 flows share a link",
            keys(
                "100mbit",
                "10ms",
                {"kind": "pfifo", "limit": "1000 packets"},
                [{"from": "l1", "to": "r1", "per_host": 500}],
                duration="5s",
            ),
            goodput(after_s=2),
            100 * payload_share(),
            0.05,
            "Mbps",
            _FRAMES,
            _SHAPED,
            "timeouts of some leave the link to others; copies of segments take some of it",
            losses_at_senders=True,
        )
    )
    made.append(
        Case(
            "fq_codel gives each flow its share, whatever its round trip",
            keys(
                "20mbit",
                "2ms",
                {"kind": "fq_codel", "limit": "1000 packets"},
                [{"from": "l1", "to": "r1"}, {"from": "l2", "to": "r2"}],
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
    )
    for depth, name, bound in ((20, "shallow", 1.5), (400, "deep", 0.9)):
        made.append(
            Case(
                f"BBR against CUBIC with a {name} buffer",
                keys(
                    "20mbit",
                    "10ms",
                    {"kind": "pfifo", "limit": f"{depth} packets"},
                    [
                        {
                            "name": "bbr",
                            "from": "l1",
                            "to": "r1",
                            "transport": {"congestion_control": "bbr"},
                        },
                        {"name": "cubic", "from": "l2", "to": "r2"},
                    ],
                    hosts=2,
                    duration="30s",
                ),
                lambda run, bound=bound: float(
                    (share(0, 1, 5)(run) > 1) if bound > 1 else (share(0, 1, 5)(run) < 1)
                ),
                1.0,
                0.0,
                "(yes)",
                "BBR wins below some bandwidth-delay product of buffer, CUBIC above some more",
                "Hock, Bless, Zitterbart (ICNP 2017), figures 6 to 8",
                "only the direction is claimed",
            )
        )
    return made


def _queues() -> list[Case]:
    many = [{"from": f"l{n}", "to": f"r{n}"} for n in range(1, 6)]
    made = []
    for kind, extra, low, high in (
        ("codel", {}, 1.0, 15.0),
        ("fq_codel", {}, 0.5, 15.0),
        ("pie", {}, 5.0, 30.0),
    ):
        made.append(
            Case(
                f"{kind} holds its target delay",
                keys(
                    "50mbit",
                    "5ms",
                    {"kind": kind, "limit": "1000 packets", **extra},
                    many,
                    hosts=5,
                    duration="15s",
                ),
                lambda run, low=low, high=high: float(low <= sojourn_ms(run) <= high),
                1.0,
                0.0,
                "(yes)",
                f"mean sojourn time between {low:g} and {high:g} ms",
                "RFC 8289, 8290, 8033: targets of 5, 5 and 15 ms",
                "TCP's sawtooth moves the delay around its target",
                quick=kind == "codel",
            )
        )
        made.append(
            Case(
                f"{kind} keeps the link busy",
                made[-1].keys,
                goodput(after_s=2),
                50 * payload_share(),
                0.1,
                "Mbps",
                _FRAMES,
                _SHAPED,
                "a short queue runs empty now and then",
            )
        )
    for shaper in ("tbf", "htb"):
        red = keys(
            "50mbit",
            "5ms",
            {"kind": "red", "limit": "150KB", "shaper": shaper},
            many,
            access_delay="1ms",
            hosts=5,
            duration="10s",
        )
        made.append(
            Case(
                f"RED below {shaper} keeps the link busy",
                red,
                goodput(after_s=2),
                50 * payload_share(),
                0.1,
                "Mbps",
                _FRAMES,
                "Floyd and Jacobson (1993); RFC 2309",
                "RED overshoots in slow start, and its queue runs empty now and then",
                quick=shaper == "tbf",
            )
        )
        made.append(
            Case(
                f"RED's mean queue below {shaper}",
                red,
                lambda run: queue_packets(run, 2),
                10.0,
                0.6,
                "packets",
                "between min_packets (5) and max_packets (15)",
                "Floyd and Jacobson (1993), section 4",
                "the average lies between the thresholds, the queue around it",
            )
        )
    made.append(
        Case(
            "DCTCP's queue stays near its mark",
            keys(
                "100mbit",
                "500us",
                {"kind": "ecn_threshold", "limit": "400 packets", "threshold": "40 packets"},
                [{"from": "l1", "to": "r1"}, {"from": "l2", "to": "r2"}],
                hosts=2,
                duration="5s",
                transport={"congestion_control": "dctcp", "ecn": True},
            ),
            queue_packets,
            40.0,
            0.3,
            "packets",
            "K + N at most, K - sqrt(C RTT / 2) at the least",
            "Alizadeh and others (SIGCOMM 2010), section 3.3",
            "the queue swings by the square root of the bandwidth-delay product",
        )
    )
    return made


def _others() -> list[Case]:
    def stream(rate: str) -> Any:
        return [{"kind": "constant_rate", "from": "l1", "to": "r1", "rate": rate}]

    made = [
        Case(
            "TCP small queues bound a sender's own queue",
            keys(
                "1gbit",
                "5ms",
                overrides=[{"between": ["l1", "s1"], "rate": "10mbit"}],
                duration="10s",
            ),
            own_queue_packets,
            6.0,
            0.35,
            "packets",
            "two units of tcp_min_tso_segs (2), and one that is sent before the check",
            "tcp_small_queue_check, tcp_tso_autosize (net/ipv4/tcp_output.c)",
            "acknowledgements come in pairs",
            quick=True,
        ),
        Case(
            "UDP below the link's rate is not lost",
            keys("10mbit", "5ms", flows=[], workloads=stream("5mbit"), duration="5s"),
            received_share,
            1.0,
            0.001,
            "received over sent",
            "all of it",
            "work conservation",
            "what is under way at the end",
            quick=True,
        ),
        Case(
            "UDP above the link's rate",
            keys("10mbit", "5ms", flows=[], workloads=stream("20mbit"), duration="5s"),
            received_share,
            0.5,
            0.05,
            "received over sent",
            "link's rate / rate sent",
            "work conservation",
            "the queue is filled once",
        ),
        Case(
            "a rate that changes at 5 s",
            keys(
                "10mbit",
                "5ms",
                duration="10s",
                events=[{"at": "5s", "between": ["s1", "s2"], "rate": "4mbit"}],
            ),
            goodput(after_s=6),
            4 * payload_share(),
            0.03,
            "Mbps",
            _FRAMES,
            _SHAPED,
            "a buffer of more than a bandwidth-delay product keeps the link busy",
            quick=True,
        ),
        Case(
            "pacing at 8 Mbps",
            keys(
                "100mbit",
                "5ms",
                duration="5s",
                transport={"pacing": "internal", "pacing_rate": "8mbit"},
            ),
            goodput(after_s=1),
            8.0,
            0.01,
            "Mbps",
            "the rate, of payload",
            "tcp_update_skb_after_send (net/ipv4/tcp_output.c) counts payload alone",
            "a second of start is left out",
            quick=True,
        ),
    ]
    return made


CASES: tuple[Case, ...] = tuple(
    case
    for group in (_rates, _delays, _windows, _losses, _shares, _queues, _others)
    for case in group()
)
