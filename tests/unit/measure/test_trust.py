"""Each reason not to trust a run, alone, in an analysis that is otherwise sound."""

from collections.abc import Callable
from types import SimpleNamespace as Record
from typing import Any

import numpy as np
import pytest

from outcast.analysis import trust
from outcast.analysis.measure import losses


def flow(number: int, ingress: str | None = "s1-eth2", dst_ip: str = "10.0.0.1") -> Record:
    return Record(
        flow=number, src=f"h{number}", dst="h0", ingress=ingress, dst_ip=dst_ip, path=["h", "s"]
    )


def sound() -> Any:
    """An analysis of one port, whose captures and counters agree on five drops."""
    records = [
        Record(port=f"s1-eth{n}", direction=way, file=f"{n}.pcap", captured=9, dropped_by_kernel=0)
        for n, way in ((2, "in"), (1, "out"))
    ]
    captures = [Record(port=each.port, records=9, cut=0, steps_back=0) for each in records]
    judged = Record(
        dropped=5, in_flight=0, early=0, duplicates=0, unexplained=0, before_output=0, forwarded=4
    )
    bottleneck = Record(egress="s1-eth1", ingress=["s1-eth2"], destinations=["10.0.0.1"])
    bottleneck.queue = Record(frame_bytes=1514)
    departures = Record(frame_bytes=np.array([66, 1514, 1518, 1514], np.int32))
    joined = Record(counts=judged, departures=departures)
    port = Record(record=bottleneck, joined=joined, captures=captures, numbers=[0])
    told = Record(
        **{"captures": records, "distrust": [], "blackout": None, "flows": [flow(0)]},
        **{"planned_flows": [flow(0)], "bottlenecks": [bottleneck], "generated_hosts": []},
        **{"programs": [], "requested": {}},
    )
    ports = {"s1-eth1": Record(delta=lambda name: 5)}
    counters = Record(ports=ports, links=[])
    return Record(ports=[port], manifest=told, counters=counters, whole=None)


def failed_link(analysis: Any) -> None:
    """Seven drops, two of which are of a link that was down."""
    analysis.ports[0].joined.counts.dropped = 7
    analysis.lost = np.array([True, True, False])


def put(part: Callable[[Any], Any], **values: Any) -> Callable[[Any], object]:
    """Sets attributes of a part of an analysis."""
    return lambda made: vars(part(made)).update(values)


def all_of(*changes: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda made: [change(made) for change in changes]


def counts(made: Any) -> Any:
    return made.ports[0].joined.counts


def manifest(made: Any) -> Any:
    return made.manifest


BLACKOUT = put(manifest, blackout=Record(port="s1-eth2", dropped=3))


REASONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "no drops counted": (
        lambda made: made.counters.ports.update({"s1-eth1": Record(delta=lambda name: 4)}),
        "s1-eth1: 5 drops inferred, its queue counted 4",
    ),
    "a blackout's are missing": (
        BLACKOUT,
        "s1-eth1: 5 drops inferred, its queue counted 8, with the blackout's",
    ),
    "a link lost fewer": (
        all_of(failed_link, put(counts, dropped=8)),
        "s1-eth1: 8 drops inferred, its queue counted 5, and at most 2 were lost by its link",
    ),
    "before the capture": (
        put(counts, before_output=3),
        "s1-eth1: 3 packets came in before its capture began",
    ),
    "a frame larger than its link takes": (
        lambda made: made.ports[0].joined.departures.frame_bytes.__setitem__(1, 2962),
        "s1-eth1: 1 frames left that are larger than its link takes, up to 2962 of 1514 bytes: "
        "segments that a host hands over as one unit were not cut",
    ),
    "cut": (
        lambda made: setattr(made.ports[0].captures[1], "cut", 2),
        "1.pcap: 2 packets too short for their headers",
    ),
    "a flow is missing": (
        lambda made: made.manifest.flows.append(flow(1)),
        "s1-eth1: no packet of flow 1 (h1) was seen",
    ),
    "a flow that nothing captures": (
        lambda made: made.manifest.flows.append(flow(1, ingress=None)),
        "flow 1 (h1 to h0) crosses no captured queue: its goodput is not known",
    ),
    "a host's own queue": (
        lambda made: made.counters.links.append(
            Record(within=Record(lost={"queue": 4}), node="h0", port="h0-eth0", neighbour="s1")
        ),
        "h0: its own queue lost 4 packets, which a real host's does not, because TCP holds back "
        "before",
    ),
}
REASONS["links"] = (lambda made: setattr(made, "of_links", ["a link"]), "a link")
REASONS["what the engine found"] = (lambda made: made.manifest.distrust.append("a"), "a")
NO_REASONS: dict[str, Callable[[Any], object]] = {
    "nothing": lambda made: None,
    "a blackout's drops": all_of(BLACKOUT, put(counts, dropped=8)),
    "a blackout of another port": put(manifest, blackout=Record(port="s1-eth9", dropped=3)),
    "what a failed link lost": failed_link,
    "a flow that comes in elsewhere": lambda made: made.manifest.flows.append(flow(1, "s9-eth1")),
    "a flow to elsewhere": lambda made: made.manifest.flows.append(flow(1, dst_ip="10.0.0.9")),
    "a flow on another way": all_of(
        lambda made: made.manifest.flows.append(flow(1)),
        put(lambda made: made, strangers=frozenset({1})),
    ),
}


@pytest.fixture
def summary(monkeypatch) -> Callable[[Callable[[Any], object]], Any]:
    def of(change: Callable[[Any], object]) -> Any:
        analysis = sound()
        change(analysis)
        for module in (trust, losses):
            monkeypatch.setattr(
                module, "lost_to_the_link", lambda *_: getattr(analysis, "lost", None)
            )
        monkeypatch.setattr(
            trust, "elsewhere", lambda *_: getattr(analysis, "strangers", frozenset())
        )
        monkeypatch.setattr(
            "outcast.analysis.trust.distrust", lambda _: getattr(analysis, "of_links", [])
        )
        return trust.capture_summary(analysis)

    return of


@pytest.mark.parametrize("what", REASONS)
def test_a_reason(what, summary):
    change, reason = REASONS[what]
    made = summary(change)
    assert (made.trusted, made.reasons) == (False, [reason])


@pytest.mark.parametrize("what", NO_REASONS)
def test_no_reason(what, summary):
    made = summary(NO_REASONS[what])
    assert (made.trusted, made.reasons) == (True, [])
