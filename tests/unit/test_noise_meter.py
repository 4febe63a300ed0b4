"""The noise of an output: gaps between departures, and the share of its phase an input keeps."""

from pathlib import Path

import numpy as np
import pytest

from outcast.analysis.join.join import Joined
from outcast.analysis.measure.noise import LEAST_ARRIVALS, kept_phase, noise
from outcast.records.port_summaries import NoiseInput
from tests.golden.packets import P, joined

PACKET_NS = 12_000
"""Of the frames of `P`, if they leave so far apart."""


def seen(phase: np.ndarray, every: int = 1) -> NoiseInput:
    """An input that sends a packet in each `every`th packet time, at these phases."""
    begins = np.arange(phase.size) * every * PACKET_NS
    stamps = begins + np.round(phase % 1 * PACKET_NS).astype(np.int64)
    return kept_phase(stamps, phase % 1, PACKET_NS)


@pytest.mark.parametrize("every", [1, 3, 20])
def test_an_input_in_step_keeps_its_phase(every):
    assert seen(np.full(20_000, 0.3), every).kept == pytest.approx(1)


def test_random_phases_keep_nothing():
    assert seen(np.random.default_rng(1).uniform(size=20_000)).kept < 0.02


@pytest.mark.parametrize("seed", range(20))
def test_the_share_is_that_of_the_draws(seed):
    """Phases that are drawn anew every so often, and late by a draw of their own.

    Of two packets L apart 1 - L / lasts have one draw, and sinc(2J)^2 is kept where each is late by
    up to J up and down.
    """
    draw = np.random.default_rng(seed)
    lasts, late = int(draw.choice([40, 100, 300, 1000, 4000])), draw.uniform(0, 0.4)
    phase = np.repeat(draw.uniform(size=200_000 // lasts), lasts)
    drawn = seen(phase + draw.uniform(-late, late, phase.size))
    same = np.clip(1 - np.geomspace(64, 256, 100) / lasts, 0, 1).mean() * np.sinc(2 * late) ** 2
    assert drawn.kept == pytest.approx(same, abs=0.1)


def test_few_arrivals_tell_nothing():
    few = seen(np.full(LEAST_ARRIVALS - 1, 0.3))
    assert (few.arrivals, few.kept) == (LEAST_ARRIVALS - 1, None)
    # Many arrivals within a short time say nothing of long lags.
    short = kept_phase(np.arange(200, dtype=np.int64) * 1000, np.full(200, 0.3), PACKET_NS)
    assert short.kept is None


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
    inputs = {port: sorted(rows, key=lambda row: row.at_us) for port, rows in came.items()}
    return joined(folder, inputs, out)


def test_the_inputs_of_a_scene_are_told_apart(tmp_path):
    found = noise(scene(tmp_path, jitter_us=0), 0, 0, nominal_ns=12_000)
    assert (found.packet_time_us, found.of_nominal, found.mean_of_nominal) == (12, 1, 1)
    assert found.gap_spread == 0
    assert found.inputs["a"].kept > 0.95
    assert found.inputs["b"].kept < 0.15


def test_an_output_that_is_never_busy_has_no_noise(tmp_path):
    few = scene(tmp_path, jitter_us=0, packets=90)
    found = noise(few, 0, 0, 12_000)
    assert (found.back_to_back, found.of_nominal, found.inputs) == (0, None, {})
