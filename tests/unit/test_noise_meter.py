"""The noise meter: phases, gaps and latencies that are known, and what it does not tell."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import Joined, join
from outcast.analysis.measure.noise import (
    LEAST_ARRIVALS,
    Gaps,
    Latency,
    Noise,
    Phase,
    latency_by_setting,
    latency_of_idle,
    noise,
    phase_of,
    regime_of,
)
from outcast.analysis.measure.queue import replay
from outcast.records.port_summaries import NoiseSummary
from tests.golden.packets import P, capture

PACKET_NS = 12_000
"""Of the frames of `P`, if they leave so far apart."""


def seen(phase: np.ndarray, every: int = 1) -> Phase:
    """An input that sends a packet in each `every`th packet time, at these phases."""
    begins = np.arange(phase.size) * every * PACKET_NS
    stamps = begins + np.round(phase % 1 * PACKET_NS).astype(np.int64)
    return phase_of(stamps, phase % 1, PACKET_NS)


def test_an_input_in_step_keeps_its_phase_for_good():
    locked = seen(np.full(20_000, 0.3))
    assert locked.spread == pytest.approx(0, abs=1e-6)
    assert locked.kept == pytest.approx(1)
    assert (locked.lasts, locked.bound) == (8192, "at least")


def test_random_phases_keep_nothing():
    draw = np.random.default_rng(1)
    mixed = seen(draw.uniform(size=20_000))
    assert mixed.spread > 0.97
    assert mixed.kept < 0.02
    assert (mixed.lasts, mixed.bound) == (2, "at most")


@pytest.mark.parametrize("ppm", [100, 200, 1000])
def test_a_drift_shows_by_how_long_a_phase_lasts(ppm):
    """The cosine of a turn in 1/ppm packet times falls to 1/e after 0.19 of a turn."""
    drifting = seen(np.arange(60_000) * ppm * 1e-6)
    assert drifting.lasts is not None
    assert drifting.lasts == pytest.approx(np.arccos(1 / np.e) / (2 * np.pi * ppm * 1e-6), rel=0.25)


@pytest.mark.parametrize("lasts", [40, 400, 4000])
def test_a_phase_that_is_drawn_anew_lasts_as_long_as_it_was_drawn_for(lasts):
    draw = np.random.default_rng(2)
    phase = np.repeat(draw.uniform(size=400_000 // lasts), lasts)
    drawn = seen(phase)
    # Of two packets L apart a share of 1 - L / lasts has the same draw: 1/e at 0.63 of it.
    assert drawn.lasts is not None
    assert drawn.lasts == pytest.approx(0.63 * lasts, rel=0.35)
    expected = np.clip(1 - np.array([64, 256]) / lasts, 0, 1)
    assert expected[1] - 0.05 <= drawn.kept <= expected[0] + 0.05


def test_few_arrivals_tell_nothing():
    few = seen(np.full(LEAST_ARRIVALS - 1, 0.3))
    assert (few.arrivals, few.spread, few.kept, few.lasts) == (LEAST_ARRIVALS - 1, None, None, None)
    # Many arrivals within a short time say nothing of long lags.
    short = phase_of(np.arange(200, dtype=np.int64) * 1000, np.full(200, 0.3), PACKET_NS)
    assert short.kept is None


@pytest.mark.parametrize("jitter_ns", [0, 500, 1000, 3000, 5000])
def test_a_varying_latency_takes_its_part_of_a_phase(jitter_ns):
    """The share of a phase that two packets keep, if each is late by a draw of its own."""
    draw = np.random.default_rng(3)
    late = draw.uniform(-jitter_ns, jitter_ns, (2, 200_000)) / PACKET_NS
    kept = np.exp(2j * np.pi * (late[0] - late[1])).mean().real
    assert latency_by_setting(jitter_ns, PACKET_NS).kept == pytest.approx(kept, abs=0.01)


FULL = 1448


def scene(folder: Path, jitter_us: int, packets: int = 3000) -> Joined:
    """Two inputs share an output that is always busy; each 50th packet time is idle.

    `P` counts in microseconds. Input a comes 3 us after a departure, input b by a random phase.
    """
    draw = np.random.default_rng(4)
    came: dict[str, list[P]] = {"a": [], "b": []}
    out: list[P] = []
    for number in range(packets):
        leaves = 1000 + 12 * number + 60 * (number // 50)
        port = "ab"[number % 2]
        address = f"10.0.0.{number % 2 + 2}"
        late = int(draw.integers(-jitter_us, jitter_us + 1))
        if number % 50 == 0:
            # It finds the output idle, and leaves after the switch's latency.
            at = leaves - 20 + late
        else:
            at = leaves - 36 + (3 if port == "a" else int(draw.integers(0, 12)))
        came[port].append(P(at, seq=number, ip_id=number, src=address, payload=FULL))
        out.append(P(leaves, seq=number, ip_id=number, src=address, payload=FULL))
    ins = [
        read_capture(port, capture(folder / port, sorted(rows, key=lambda row: row.at_us)))
        for port, rows in came.items()
    ]
    return join(ins, [read_capture("out", capture(folder / "out", out))])


def test_the_inputs_of_a_scene_are_told_apart(tmp_path):
    joined = scene(tmp_path, jitter_us=0)
    measured = noise(joined, replay(joined), 0, delay_ns=0, jitter_ns=0)
    assert (measured.gaps.packet_ns, measured.gaps.mean_ns, measured.gaps.spread) == (12e3, 12e3, 0)
    a, b = (measured.phases[joined.inputs.index(port)] for port in "ab")
    assert a.kept > 0.95
    assert b.kept < 0.15
    # One input in step is not enough.
    assert measured.kept == b.kept
    assert regime_of(measured, drop_tail=True, dropped=True)[0] in ("mixed", "partly locked")


@pytest.mark.parametrize(("jitter_us", "kept"), [(0, 1.0), (2, 0.56), (5, 0.01)])
def test_the_latency_is_measured_by_packets_that_found_the_output_idle(tmp_path, jitter_us, kept):
    joined = scene(tmp_path, jitter_us, packets=6000)
    latency = latency_of_idle(joined, replay(joined), 0, 12_000)
    assert latency.told_by == "idle packets"
    assert latency.kept == pytest.approx(kept, abs=0.12)
    few = scene(tmp_path, jitter_us, packets=900)
    assert latency_of_idle(few, replay(few), 0, 12_000) is None


STEADY = Gaps(5000, 12_304.0, 12_304.0, 0.0)
EXACT = Latency(1.0, "setting")


def measured(*kept: float | None, latency: Latency | None = EXACT) -> Noise:
    phases = {place: Phase(1000, 0.5, share, 10.0) for place, share in enumerate(kept)}
    return Noise(STEADY, phases, latency)


@pytest.mark.parametrize(
    ("noise_seen", "regime", "words"),
    [
        (measured(0.9, 0.8), "phase-locked", "one draw"),
        (measured(0.9, 0.8, 0.0), "phase-locked", "keep 80%"),
        (measured(0.9, 0.02), "mixed", "keep 2%"),
        (measured(0.9, 0.8, latency=Latency(0.05, "setting")), "mixed", "keep 4%"),
        (measured(0.9, 0.2), "partly locked", "conclude from many"),
        # The latency only takes from what is kept.
        (measured(0.9, 0.02, latency=None), "mixed", "keep 2%"),
        (measured(0.9, 0.8, latency=None), "unknown", "perhaps phase-locked: inputs keep 80%"),
        (measured(0.9, 0.2, latency=None), "unknown", "found the output idle"),
        (measured(0.9, None), "unknown", "fewer than two inputs"),
        (measured(0.9), "unknown", "only one input"),
        (Noise(None, {}, None), "unknown", "fewer than 100 full frames"),
    ],
)
def test_the_words_for_what_is_known_and_what_is_not(noise_seen, regime, words):
    told, sentence = regime_of(noise_seen, drop_tail=True, dropped=True)
    assert told == regime
    assert sentence.startswith(regime)
    assert words in sentence


@pytest.mark.parametrize(
    ("others", "filler", "latency", "regime"),
    [
        (0.02, 0.98, EXACT, "unknown, perhaps phase-locked: one input nearly fills"),
        (None, 0.98, EXACT, "unknown, perhaps phase-locked: one input nearly fills"),
        (0.02, 0.98, None, "unknown, perhaps phase-locked: one input nearly fills"),
        (0.02, 0.16, EXACT, "mixed"),
        (0.02, 0.98, Latency(0.05, "setting"), "mixed"),
        (0.2, 0.98, EXACT, "partly locked"),
    ],
)
def test_one_input_in_step_that_fills_the_output_can_lock_the_others_out(
    others, filler, latency, regime
):
    """As ten flows a host under hosts-2011 do: 98 % kept by the one, next to none by the other."""
    phases = {0: Phase(4900, 0.02, filler, 8192.0), 1: Phase(300, 0.8, others, 50.0)}
    told, sentence = regime_of(Noise(STEADY, phases, latency), drop_tail=True, dropped=True)
    assert sentence.startswith(regime)
    assert told == regime.split(",")[0]


def test_phases_decide_only_where_a_drop_tail_queue_dropped():
    assert regime_of(measured(0.9, 0.8), drop_tail=False, dropped=True)[0] == "unknown"
    regime, sentence = regime_of(measured(0.9, 0.8), drop_tail=None, dropped=True)
    assert regime == "unknown"
    assert "does not show" in sentence
    for drop_tail in (True, None):
        regime, sentence = regime_of(measured(0.9, 0.8), drop_tail=drop_tail, dropped=False)
        assert regime == "unknown"
        assert "nothing was dropped" in sentence


@pytest.mark.parametrize(
    ("key", "value"),
    [("kept", 1e308), ("back_to_back", -1), ("gap_spread", -0.1), ("of_nominal", float("inf"))],
)
def test_numbers_of_others_that_nothing_measures_are_refused(key, value):
    names = ("kept", "packet_time_us", "of_nominal", "gap_spread", "latency_kept")
    written = {
        **dict.fromkeys(names, 0.5),
        **{"regime": "mixed", "sentence": "mixed", "latency_told_by": None, "back_to_back": 9},
        "inputs": {},
    }
    assert NoiseSummary.model_validate(written).kept == 0.5
    with pytest.raises(ValidationError, match=key):
        NoiseSummary.model_validate({**written, key: value})
