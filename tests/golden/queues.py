"""Random queues on one clock, simulated packet by packet, and what a join has to say of them.

A and B send to R, whose port has the queue, and R acknowledges. `python -m tests.golden.queues N`
tries N of them, with clocks that are right, and as many with one that is wrong.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from outcast.api.joins import Join, join_captures
from outcast.errors import UntrustedError
from tests.golden.packets import P, capture

RECEIVER = "10.0.0.1"
SENDERS = {"A": "10.0.0.2", "B": "10.0.0.3"}
SERVICE_US = 300.0
BACK_US = 2.0


@dataclass(frozen=True)
class Scene:
    """Files by port, and by sender and IP id when a packet left, or None if it was dropped."""

    files: dict[str, list[P]]
    left_us: dict[tuple[str, int], float | None]
    words: str


def make(seed: int) -> Scene:
    """A queue with a discipline, a limit, arrivals and pauses by chance."""
    draw = random.Random(seed)
    kind = draw.choice(["fifo", "priority", "turns"])
    limit = draw.choice([5, 30, 200, 1000])
    unit_us = draw.choice([0.001, 1.0])
    arrivals = sorted(
        packet for name in SENDERS for packet in _arrivals(draw, name, draw.choice([200, 400]))
    )
    # The captures go on for longer than the queue takes to empty.
    last_us = arrivals[-1][0] + 1e6
    for name in SENDERS:
        arrivals += [(last_us + 1e4 * n, name, 500 + n) for n in range(3)]
    arrivals.sort()
    pauses = [(at, at + draw.uniform(1e3, 4e4)) for at in draw.sample(range(0, 300_000), 2)]
    waiting: dict[str, deque[tuple[float, str, int]]] = {name: deque() for name in SENDERS}
    left: dict[tuple[str, int], float | None] = {}
    free_us, turn = 0.0, 0
    pending = deque(arrivals)

    def begins(now: float) -> float:
        return next((until for since, until in pauses if since <= now < until), now)

    while pending or any(waiting.values()):
        held = sum(map(len, waiting.values()))
        next_us = begins(max(free_us, min((q[0][0] for q in waiting.values() if q), default=0.0)))
        if pending and (not held or pending[0][0] <= next_us):
            at, name, number = pending.popleft()
            if held >= limit:
                left[name, number] = None
            else:
                waiting[name].append((at, name, number))
            continue
        names = [name for name in SENDERS if waiting[name]]
        if kind == "fifo":
            name = min(names, key=lambda name: waiting[name][0])
        elif kind == "priority":
            name = names[0]
        else:
            turn += 1
            name = names[turn % len(names)]
        _, name, number = waiting[name].popleft()
        left[name, number] = next_us + 1.0
        free_us = next_us + SERVICE_US
    return Scene(_files(arrivals, left, unit_us), left, f"{kind}, limit {limit}, {unit_us:g} us")


def _arrivals(draw: random.Random, name: str, count: int) -> list[tuple[float, str, int]]:
    at, found = draw.uniform(0, 5e3), []
    load = draw.choice([0.3, 0.8, 1.5])
    burst = draw.choice([1, 20, 169])
    number = 0
    while number < count:
        for _ in range(min(draw.randint(1, burst), count - number)):
            found.append((at, name, number))
            at += draw.choice([0.2, 12.0])
            number += 1
        at += draw.expovariate(1 / (SERVICE_US * burst / load))
    return found


def _files(
    arrivals: list[tuple[float, str, int]],
    left: dict[tuple[str, int], float | None],
    unit_us: float,
) -> dict[str, list[P]]:
    files: dict[str, list[P]] = {"A": [], "B": [], "R": []}
    for at, name, number in arrivals:
        # Without payload, because nobody here sends again what was dropped.
        sent = P(at, seq=number, src=SENDERS[name], ip_id=number, payload=0)
        files[name].append(sent)
        gone = left[name, number]
        if gone is None:
            continue
        files["R"].append(replace(sent, at_us=gone))
        if number % 2:
            ack = P(
                gone + 20, 7, RECEIVER, ip_id=number, payload=0, dst=SENDERS[name], tsval=number
            )
            files["R"].append(ack)
            files[name].append(replace(ack, at_us=gone + 20 + BACK_US))

    def cut(packet: P) -> P:
        return replace(packet, at_us=1.7e9 + packet.at_us // unit_us * unit_us)

    return {
        name: sorted(map(cut, packets), key=lambda packet: packet.at_us)
        for name, packets in files.items()
    }


def joined(scene: Scene, folder: Path, shift_us: dict[str, float] | None = None) -> Join:
    """The join of a scene's files, whose stamps are moved by `shift_us`."""
    paths = {}
    for name, packets in scene.files.items():
        add_us = (shift_us or {}).get(name, 0.0)
        moved = [replace(packet, at_us=packet.at_us + add_us) for packet in packets]
        paths[name] = capture(folder / f"{name}.pcap", moved)
    return join_captures(ports=paths)


def faults(scene: Scene, result: Join) -> list[str]:
    """What the join has wrong: clocks that it corrects, verdicts, and waits."""
    got = result.joined
    found = [*got.clocks]
    at_r = {(p.src, p.ip_id): p.at_us for p in scene.files["R"] if p.dst == RECEIVER}
    came = {
        (p.src, p.ip_id): p.at_us
        for name in SENDERS
        for p in scene.files[name]
        if p.dst == RECEIVER
    }
    waits = got.t_out_ns - got.arrivals.stamp_ns
    for row in range(len(got.arrivals)):
        flow = got.flows[got.arrivals.flow[row]]
        key = (flow.src, int(got.arrivals.ip_id[row]))
        if key not in came:
            continue
        gone = at_r.get(key)
        verdict = int(got.verdict[row])
        if verdict == 2:
            continue
        if (verdict == 1) != (gone is None):
            found.append(f"{key}: verdict {verdict}")
        elif gone is not None and abs(int(waits[row]) - round((gone - came[key]) * 1000)) > 1:
            found.append(f"{key}: waits {waits[row]} ns, truly {(gone - came[key]) * 1000:.0f}")
    return found


def main(count: int) -> int:
    """Exit status 1 if a scene is wrong. A clock that is wrong has to be found, or refused."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            scene = make(seed)
            wrong = faults(scene, joined(scene, Path(folder)))
            if wrong:
                bad += 1
                print(f"{seed} ({scene.words}): {wrong[0]} and {len(wrong) - 1} more")
            step_us = random.Random(seed).choice([1e3, -1e3, 5e4, -5e4, 1e7, -1e7])
            try:
                clocks = joined(scene, Path(folder), {"R": step_us}).joined.clocks
            except UntrustedError:
                continue
            told = [re.findall(r" is ([0-9.]+) ms .*within ([0-9.]+) ms", line) for line in clocks]
            if len(told) != 2 or not all(
                found and abs(float(found[0][0]) - abs(step_us) / 1e3) <= float(found[0][1]) + 0.001
                for found in told
            ):
                bad += 1
                print(f"{seed} ({scene.words}), R {step_us / 1e3:g} ms off: {clocks}")
    print(f"{bad} of {2 * count} wrong")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
