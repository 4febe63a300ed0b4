"""Random switches on one clock, simulated packet by packet, and what a join has to say of them.

Two or three hosts send to R, some of them also to S, and R and S send back. Each port of the switch
has a queue.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from outcast.analysis.join.clocks import MOST_DRIFT, STAMP_NS
from outcast.analysis.join.join import DEFAULT_MAX_SOJOURN_NS, Verdict
from outcast.api.joins import Join, join_captures
from outcast.errors import UntrustedError
from tests.golden.packets import P, capture

HOSTS = {"A": "10.0.0.2", "B": "10.0.0.3", "C": "10.0.0.4", "R": "10.0.0.1", "S": "10.0.0.5"}
NAMES = {address: name for name, address in HOSTS.items()}
KINDS = ("fifo", "priority", "turns", "htb")
ARRIVALS = ("poisson", "even", "bursts", "heavy", "standing", "pauses")
UNITS_NS = (1, 1_000, 1_000_000)
ODD_UNITS_NS = (1, 1_000, 64_000, 128_000, 250_000, 976_562, 3_906_250, 4_000_000, 15_625_000)
LATENCIES_NS = (0, 20_000, 50_000, 200_000, 700_000)
FRAME_BYTES = 66
PROCESSING_NS = 1_000
"""A packet takes so long from its turn to its departure."""
EPOCH_NS = 1_700 * 10**9
QUIET_NS = 10**9
"""So long nothing comes before the last few packets, so that what had not left by then was dropped.
"""


@dataclass(frozen=True)
class Sent:
    """A packet: when it comes in, and between which hosts."""

    at_ns: int
    src: str
    dst: str
    number: int


@dataclass(frozen=True)
class Queue:
    """A port's queue.

    Attributes:
        kind: `fifo`; `priority` by sender; `turns` of the senders; `htb`: each sender has a share
            of the rate, may borrow what others leave, and has a queue and a ceiling of its own.
        service_ns: how long it sends a packet.
        limit: how many packets wait; of `priority` and `htb` in each class.
        pauses: when it does not begin to send.
    """

    kind: str
    service_ns: int
    limit: int
    pauses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Scene:
    """What was sent, when each packet left (None: dropped), and how it was captured."""

    sent: tuple[Sent, ...]
    left_ns: dict[Sent, int | None]
    queues: dict[str, Queue]
    unit_ns: int
    routed: bool

    @property
    def words(self) -> str:
        """What kind of scene it is."""
        queue = self.queues["R"]
        way = "routed" if self.routed else "bridged"
        return (
            f"{way}, {queue.kind} of {queue.limit} and {queue.service_ns} ns, {self.unit_ns} ns; "
            f"back by {self.queues['A'].kind} and {self.queues['A'].service_ns} ns"
        )


@dataclass(frozen=True)
class Fault:
    """What is wrong with the clock of a port: `by_ns` from `from_ns` on, and a drift.

    `came_ns` is by how much what comes in, at any port, is stamped by another clock.
    """

    port: str
    by_ns: int = 0
    from_ns: int = 0
    drift: float = 0.0
    came_ns: int = 0

    def stamp_ns(self, port: str, at_ns: int) -> int:
        """What the clock of a port shows."""
        if port != self.port:
            return at_ns
        step_ns = self.by_ns if at_ns >= self.from_ns else 0
        return at_ns + step_ns + round(self.drift * at_ns)


RIGHT = Fault("")
"""No clock is wrong."""


def make(seed: int, latency_ns: int = 0) -> Scene:
    """A scene by chance. Packets take `latency_ns` to their queue, those of B twice as long."""
    draw = random.Random(seed)
    service_ns = draw.choice([12_000, 120_000, 300_000, 1_200_000])
    senders = draw.choice(["AB", "ABC"])
    receivers = draw.choice(["R", "R", "RS"])
    pairs = [(src, dst) for src in senders for dst in receivers]
    # Arrivals that are as slow as the queue of R, also where another queue is quicker.
    sent = [p for src, dst in pairs for p in _arrivals(draw, src, dst, service_ns)]
    span_ns = max(packet.at_ns for packet in sent)
    for src, dst in pairs:
        # The ways back have acknowledgements, traffic of their own, or nothing.
        back = draw.choice(["acknowledgements", "own", "nothing"])
        if back == "acknowledgements":
            sent += [
                Sent(packet.at_ns + draw.randint(20_000, 60_000), dst, src, packet.number)
                for packet in sent
                if (packet.src, packet.dst) == (src, dst) and packet.number % 2
            ]
        elif back == "own":
            sent += _arrivals(draw, dst, src, service_ns)
    quiet_ns = max(packet.at_ns for packet in sent) + QUIET_NS
    ends = {(packet.src, packet.dst) for packet in sent}
    sent += [
        Sent(quiet_ns + 10_000_000 * n + 100_000 * place, src, dst, 10_000 + n)
        for n in range(3)
        for place, (src, dst) in enumerate(sorted(ends))
    ]
    queues = {}
    for port in dict.fromkeys([*receivers, *senders]):
        shaped = port in receivers or draw.random() < 0.3
        queues[port] = Queue(
            draw.choice(KINDS) if shaped else "fifo",
            service_ns if shaped else 1_000,
            draw.choice([5, 30, 200, 1000]),
            tuple(
                (at, at + draw.randint(1_000_000, 40_000_000))
                for at in (draw.randint(0, span_ns) for _ in range(draw.choice([0, 0, 2])))
            ),
        )
    left = {}
    for port, queue in queues.items():
        queued = {
            replace(p, at_ns=p.at_ns + latency_ns * (1 + (p.src == "B"))): p
            for p in sent
            if p.dst == port
        }
        served = _serve(queue, sorted_by_time(list(queued)))
        left.update({queued[p]: gone for p, gone in served.items()})
    # Longer than any wait: a second is the most that a join allows.
    if max(gone - p.at_ns for p, gone in left.items() if gone is not None) > 900_000_000:
        return make(seed + 1_000_000, latency_ns)
    return Scene(
        tuple(sorted_by_time(sent)), left, queues, draw.choice(UNITS_NS), draw.random() < 0.5
    )


def standing(seed: int) -> Scene:
    """A queue of R that stands at about 11 ms to the end, with acknowledgements back."""
    draw = random.Random(seed)
    service_ns = 200_000
    sent = []
    for src in "AB":
        at = 0.0
        for number in range(1_000):
            sent.append(Sent(int(at), src, "R", number))
            sent.append(Sent(int(at) + draw.randint(20_000, 60_000), "R", src, number))
            # First a pause, so that queues are seen empty, then more than fits.
            at += 5e6 if number < 10 else draw.expovariate(1 / (1.7 * service_ns))
    queues = {port: Queue("fifo", 200_000 if port == "R" else 1_000, 60) for port in "RAB"}
    left = {}
    for port, queue in queues.items():
        left.update(_serve(queue, sorted_by_time([p for p in sent if p.dst == port])))
    return Scene(tuple(sorted_by_time(sent)), left, queues, 1, routed=False)


def later(scene: Scene, latency_ns: int, unit_ns: int) -> Scene:
    """The scene with a latency behind each queue, and stamps that are multiples of a unit."""
    left = {one: None if at is None else at + latency_ns for one, at in scene.left_ns.items()}
    return replace(scene, left_ns=left, unit_ns=unit_ns)


def sorted_by_time(sent: Iterator[Sent] | list[Sent]) -> list[Sent]:
    """Packets in the order of time."""
    return sorted(sent, key=lambda packet: (packet.at_ns, packet.src, packet.dst, packet.number))


def _arrivals(draw: random.Random, src: str, dst: str, service_ns: int) -> list[Sent]:
    """What a host sends, by one of several processes."""
    kind = draw.choice(ARRIVALS)
    count = draw.choice([150, 300, 500])
    gap_ns = service_ns / draw.choice([0.05, 0.2, 0.5, 0.9, 1.6])
    at: float = draw.randint(0, 5_000_000)
    times: list[int] = []
    burst = draw.choice([3, 20, 169])
    begins = draw.randint(0, count // 2)
    while len(times) < count:
        if kind in ("bursts", "pauses"):
            apart = draw.choice([200, 12_000])
            size = draw.randint(1, burst)
            times += [int(at) + n * apart for n in range(size)]
            idle = draw.expovariate(1 / (gap_ns * burst))
            at = times[-1] + apart + (idle if kind == "bursts" else draw.choice([idle, 5e7]))
            continue
        times.append(int(at))
        if kind == "poisson":
            at += draw.expovariate(1 / gap_ns)
        elif kind == "even":
            at += gap_ns * draw.uniform(0.99, 1.01)
        elif kind == "heavy":
            at += min(gap_ns * (draw.paretovariate(1.2) - 1), 2e8)
        else:
            # From some time on it fills the queue at once, and then keeps it as full as it is.
            at += 200 if begins <= len(times) < begins + burst else service_ns * 1.02
    return [Sent(when, src, dst, number) for number, when in enumerate(times[:count])]


def _serve(queue: Queue, arrivals: list[Sent]) -> dict[Sent, int | None]:
    """When each packet leaves by a queue; None if it is dropped."""
    senders = sorted({packet.src for packet in arrivals})
    waiting: dict[str, deque[Sent]] = {src: deque() for src in senders}
    share_ns = {src: queue.service_ns * len(senders) for src in senders}
    ceiling_ns = {src: round(queue.service_ns * (1 + n)) for n, src in enumerate(senders)}
    at_rate, at_ceiling = dict.fromkeys(senders, 0), dict.fromkeys(senders, 0)
    left: dict[Sent, int | None] = {}
    pending = deque(arrivals)
    free_ns = turn = 0
    while pending or any(waiting.values()):
        # Whose turn may come, and when at the earliest.
        ready = {src: max(free_ns, line[0].at_ns) for src, line in waiting.items() if line}
        if queue.kind == "htb":
            ready = {src: max(at, at_ceiling[src]) for src, at in ready.items()}
        begins = _resumed(queue, min(ready.values(), default=0))
        if pending and (not ready or pending[0].at_ns <= begins):
            packet = pending.popleft()
            own = queue.kind in ("priority", "htb")
            held = len(waiting[packet.src]) if own else sum(map(len, waiting.values()))
            if held >= queue.limit:
                left[packet] = None
            else:
                waiting[packet.src].append(packet)
            continue
        names = [src for src, at in ready.items() if at <= begins]
        turn += 1
        if queue.kind == "fifo":
            src = min(names, key=lambda src: (waiting[src][0].at_ns, src))
        elif queue.kind == "priority":
            src = names[0]
        else:
            if queue.kind == "htb":
                names = [src for src in names if at_rate[src] <= begins] or names
            src = names[turn % len(names)]
        at_rate[src] = max(at_rate[src], begins - share_ns[src]) + share_ns[src]
        at_ceiling[src] = begins + ceiling_ns[src]
        left[waiting[src].popleft()] = begins + PROCESSING_NS
        free_ns = begins + queue.service_ns
    return left


def _resumed(queue: Queue, now_ns: int) -> int:
    """When the port sends again, if it pauses now."""
    for since, until in sorted(queue.pauses):
        if since <= now_ns < until:
            now_ns = until
    return now_ns


# --- captures


def _stamps(scene: Scene, fault: Fault) -> dict[Sent, tuple[int, int | None]]:
    """What the captures show of each packet: when it came in, and when it left."""

    def shown(port: str, at_ns: int) -> int:
        return EPOCH_NS + fault.stamp_ns(port, at_ns) // scene.unit_ns * scene.unit_ns

    return {
        packet: (
            shown(packet.src, packet.at_ns + fault.came_ns),
            None if gone is None else shown(packet.dst, gone),
        )
        for packet, gone in scene.left_ns.items()
    }


def joined(
    scene: Scene,
    folder: Path,
    fault: Fault = RIGHT,
    *,
    in_order: bool = False,
    coarse: dict[str, int] | None = None,
) -> Join:
    """The join of a scene's captures; `in_order` of what they show, as `reordercap` gives them.

    `coarse` has units of the stamps of some ports.
    """
    files: dict[str, list[tuple[int, P]]] = {port: [] for port in scene.queues}
    for packet, (came_ns, gone_ns) in _stamps(scene, fault).items():
        # Without payload, because nobody here sends again what was dropped.
        seen = P(
            came_ns / 1000,
            packet.number,
            HOSTS[packet.src],
            ip_id=packet.number,
            payload=0,
            dst=HOSTS[packet.dst],
        )
        files[packet.src].append((packet.at_ns, seen))
        left_ns = scene.left_ns[packet]
        if left_ns is not None and gone_ns is not None:
            gone = replace(seen, at_us=gone_ns / 1000, ttl=63 if scene.routed else 64)
            files[packet.dst].append((left_ns, gone))
    paths = {}
    for port, packets in files.items():
        packets.sort(key=lambda entry: entry[1].at_us if in_order else entry[0])
        if coarse and port in coarse:
            unit = coarse[port] / 1000
            packets = [(at, replace(one, at_us=one.at_us // unit * unit)) for at, one in packets]
        paths[port] = capture(folder / f"{port}.pcap", [packet for _, packet in packets])
    return join_captures(ports=paths, routed=scene.routed)


def faults(scene: Scene, result: Join) -> list[str]:
    """What the join of a scene with right clocks has wrong: clocks, verdicts, waits, estimates."""
    found = [*result.joined.clocks, *_wrong_packets(scene, result, RIGHT, 0)]
    if len(result.joined.arrivals) != len(scene.sent):
        found.append(f"{len(result.joined.arrivals)} of {len(scene.sent)} packets take part")
    for estimate in result.estimates:
        queue = scene.queues[estimate.port]
        if queue.kind in ("fifo", "turns"):
            begin = f"{estimate.port}: "
            found += [
                line for line in result.remarks if line.startswith(begin) and "at contents" in line
            ]
        truth_bps = FRAME_BYTES * 8 / queue.service_ns * 1e9
        low, high = estimate.rate_low_bps, estimate.rate_high_bps
        # With ceilings a queue is not always busy while packets wait.
        if low is None or high is None or queue.kind == "htb" or queue.pauses:
            continue
        if not low * 0.999 <= truth_bps <= high * 1.001:
            found.append(f"{estimate.port}: {low:.0f} to {high:.0f} bps, truly {truth_bps:.0f}")
        if queue.kind != "priority" and estimate.limit_at_least is not None:
            limit = queue.limit * (1 if estimate.limit_unit == "packets" else FRAME_BYTES)
            if not estimate.limit_at_least <= limit < (estimate.limit_below or math.inf):
                found.append(f"{estimate.port}: {estimate}, truly {queue.limit}")
    return found


def _wrong_packets(scene: Scene, result: Join, fault: Fault, error_ns: int | None) -> Iterator[str]:
    """Verdicts and waits that are wrong, the waits by more than `error_ns` if it is known."""
    got = result.joined
    truth = _stamps(scene, RIGHT)
    packets = {(p.src, p.dst, p.number): p for p in scene.sent}
    waits_ns = got.t_out_ns - got.arrivals.stamp_ns
    for row in range(len(got.arrivals)):
        flow = got.flows[got.arrivals.flow[row]]
        packet = packets[NAMES[flow.src], NAMES[flow.dst], int(got.arrivals.ip_id[row])]
        came_ns, gone_ns = truth[packet]
        right = Verdict.DROPPED if gone_ns is None else Verdict.FORWARDED
        verdict = Verdict(int(got.verdict[row]))
        if verdict != right:
            yield f"{packet}: {verdict.name}"
        elif gone_ns is not None and error_ns is not None:
            # Where a clock is wrong, the units that stamps are cut to begin elsewhere.
            most_ns = error_ns + (2 * scene.unit_ns if fault != RIGHT else 0)
            if abs(int(waits_ns[row]) - (gone_ns - came_ns)) > most_ns:
                yield f"{packet}: waits {waits_ns[row]} ns, truly {gone_ns - came_ns}"


# --- clocks that are wrong


def make_fault(scene: Scene, seed: int) -> Fault:
    """A clock that is off, that steps, or that drifts: by 1 ms to 10 s, to either side."""
    draw = random.Random(seed)
    by_ns = round(10 ** draw.uniform(6, 10)) * draw.choice([1, -1])
    port = draw.choice(sorted(scene.queues))
    span_ns = scene.sent[-1].at_ns
    kind = draw.choice(["off", "steps", "drifts", "drifts like a machine's"])
    if kind == "off":
        return Fault(port, by_ns)
    if kind == "steps":
        return Fault(port, by_ns, draw.randint(0, span_ns - QUIET_NS))
    if kind == "drifts" and abs(by_ns / span_ns) <= MOST_DRIFT:
        return Fault(port, drift=by_ns / span_ns)
    # A drift faster than a machine's clock ever has is no drift (docs/join.md).
    return Fault(port, drift=math.copysign(10 ** draw.uniform(-5, -3), by_ns))


def contradicts(scene: Scene, fault: Fault) -> bool:
    """Whether the stamps cannot be of one clock: a packet leaves too early, or far too late."""
    return any(
        gone is not None and not -STAMP_NS <= gone - came <= DEFAULT_MAX_SOJOURN_NS
        for came, gone in _stamps(scene, fault).values()
    )


def judge(scene: Scene, folder: Path, fault: Fault) -> tuple[str, list[str]]:
    """How a join takes a clock that is wrong, in a word, and what is wrong with that."""
    try:
        result = joined(scene, folder, fault)
    except UntrustedError:
        return "refused", []
    clocks = result.joined.sources.clocks
    assert clocks is not None
    if not result.joined.clocks:
        # So few that they are told, and make no contradiction.
        told = any("longer than --max-sojourn" in line for line in result.remarks)
        if contradicts(scene, fault) and not told:
            return "overlooked", ["no clock is corrected, though packets leave before they came in"]
        wrong = _wrong_packets(scene, result, fault, None)
        # What leaves too late counts as dropped, and the line that tells it says so.
        return "not to be seen", [one for one in wrong if not (told and one.endswith("DROPPED"))]
    return (
        "found" if clocks.error_ns is not None else "found without a bound",
        list(_wrong_packets(scene, result, fault, clocks.error_ns)),
    )


def try_faults(seeds: Iterable[int], folder: Path) -> tuple[Counter[str], list[str]]:
    """Tries scenes with a wrong clock: how joins take them, and a line on each that is wrong."""
    outcomes: Counter[str] = Counter()
    bad = []
    for seed in seeds:
        scene = make(seed)
        fault = make_fault(scene, seed)
        outcome, wrong = judge(scene, folder, fault)
        outcomes[outcome] += 1
        if wrong:
            bad.append(f"{seed} ({scene.words}), {fault}: {wrong[0]} and {len(wrong) - 1} more")
    return outcomes, bad


def tried(seed: int, folder: Path) -> tuple[str, list[str]]:
    """A scene in words, and what a join has wrong: on one clock, in odd units, by a wrong clock."""
    draw = random.Random(-1 - seed)
    scene = make(seed)
    odd = later(scene, draw.choice(LATENCIES_NS), draw.choice(ODD_UNITS_NS))
    wrong = []
    for right in (scene, odd):
        try:
            wrong += faults(right, joined(right, folder))
        except UntrustedError as error:
            wrong.append(f"refused: {error}")
    return scene.words, wrong + judge(scene, folder, make_fault(scene, seed))[1]
