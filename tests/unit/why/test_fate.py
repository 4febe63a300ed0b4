"""Outcomes and futures: the language, the instants, the intervals, and when it was decided."""

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from outcast.analysis import statistics
from outcast.api import many
from outcast.errors import ConfigError, InputError
from outcast.experiment import load
from outcast.records.interventions import Interventions, NoiseFrom, PacketFate
from outcast.uses.whatif import futures, outcome
from outcast.uses.whatif import words as shown
from outcast.uses.whatif.compared import Decision, Instant

FLOWS = pl.DataFrame(
    {
        "flow": [0, 1, 2],
        "goodput_bps": [10e6, 40e6, 40e6],
        "dropped": [9, 1, 2],
        "timeouts": [4, 0, 1],
        "timeouts_seen": [3, 0, 1],
        "longest_chain": [5, 1, 2],
    }
)


class FakeRun:
    """What an outcome reads of a run."""

    marked = "2-hop"
    groups = (
        SimpleNamespace(label="2-hop", flows=(0,)),
        SimpleNamespace(label="3-hop", flows=(1, 2)),
    )
    summary = SimpleNamespace(
        outcast_ratio=4.0, compare=None, jain_index=0.8, total_goodput_bps=90e6
    )

    def table(self, name: str) -> pl.DataFrame:
        assert name == "flows"
        return FLOWS

    def reading(self) -> Any:
        return pytest.MonkeyPatch.context()


def holds(words: str) -> bool:
    run: Any = FakeRun()
    return outcome.parse(words).of(run)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("starved", True),
        ("starved(1)", False),
        ("not starved", False),
        ("ratio > 2", True),
        ("share(lone) < 0.5", True),
        ("share(0) < 0.3", False),
        ("share('3-hop') >= 1.3", True),
        ("goodput('3-hop') == 40e6", True),
        ("timeouts(0) > 3 and drops(0) < 9", False),
        ("timeouts(0) > 3 or drops(0) < 9", True),
        ("longest_chain('3-hop') == 2", True),
        ("0.5 < jain < 0.9", True),
        ("total != 90e6", False),
        ("ratio > -1", True),
        ("not " * 40 + "starved", True),
    ],
)
def test_outcomes(words, expected):
    assert holds(words) is expected


@pytest.mark.parametrize(
    "words",
    [
        *("", "ratio", "5", "ratio >", "share < 0.5", "share() < 1", "share(1, 2) < 1"),
        *("share(flow=1) < 1", "raito > 2", "__import__('os') > 1", "ratio.real > 1"),
        *("ratio in (1, 2)", "starved(1, 2)", "lambda: 1", "ratio > 'x'", "(" * 150, "a" * 300),
        *("share(1.5) < 1", "ratio + 1 > 2", "True", "ratio > True"),
    ],
)
def test_what_is_no_outcome(words):
    with pytest.raises(ConfigError, match="--outcome"):
        outcome.parse(words)


def test_what_is_not_known_is_neither_so_nor_otherwise():
    class OneGroup(FakeRun):
        summary = SimpleNamespace(
            outcast_ratio=None, compare=None, jain_index=0.8, total_goodput_bps=90e6
        )

    run: Any = OneGroup()
    for words in ("ratio > 2", "not ratio > 2", "ratio != 2", "ratio > 2 and starved"):
        assert outcome.parse(words).of(run) is False, words
        assert outcome.parse(f"not ({words})").of(run) is False, words
    assert outcome.parse("ratio > 2 or starved").of(run) is True
    assert outcome.parse("not (ratio > 2 and not starved)").of(run) is True


def test_instants():
    assert [*futures.instants("0:100ms:25ms")] == [0, 25_000_000, 50_000_000, 75_000_000]


@pytest.mark.parametrize(
    "text", ["", "0", "0:1ms", "0:1ms:0", "2ms:1ms:1us", "0:1:2", "0:1s:1ns", f"0:{1 << 90}s:1ns"]
)
def test_other_instants_are_refused(text):
    with pytest.raises(ConfigError, match="--at"):
        futures.instants(text)


@pytest.mark.parametrize(
    "text",
    ["", "5", "5ms", "5ms:", "5ms:x", "5ms:0", "x:5", "5ms:" + "9" * 5000, "2s:5", "9999999h:5"],
)
def test_other_noise_is_refused(text):
    with pytest.raises(ConfigError, match="--noise"):
        futures.noise(text, 0, 10**9)


def test_every_future_has_a_seed_and_a_name():
    planned = [*futures.plan([0, 1000], 50, 7, 16)]
    assert len({one.name for one in planned}) == len({one.noise.seed for one in planned}) == 100
    assert planned == [*futures.plan([0, 1000], 50, 7, 16)]
    last = planned[-1]
    assert last.noise.boot_ns == 1016
    assert futures.noise(last.words, 16, 10**9) == last.noise


@pytest.mark.parametrize(
    ("happened", "count", "bounds"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 5.
        (81, 263, (0.2527, 0.3676)),
        (15, 148, (0.0578, 0.1617)),
        (0, 20, (0.0, 0.1684)),
        (20, 20, (0.8316, 1.0)),
    ],
)
def test_intervals_are_exact(happened, count, bounds):
    assert statistics.probability(happened, count) == pytest.approx(bounds, abs=5e-5)


def at(t_ns: int, share: float, count: int = 72) -> Instant:
    happened = [place < share * count for place in range(count)]
    return futures.instant(t_ns, dict(enumerate(happened)))


@pytest.mark.parametrize(
    ("shares", "decided"),
    [
        ([0.5, 1, 1], 1),
        ([1, 0.5, 1], 2),
        ([0.5, 0, 0], 1),
        ([1, 0, 0], 1),
        ([1, 1, 1], 0),
        ([1, 1, 0.95], None),
        ([1, 1, 0.5], None),
        ([], None),
    ],
)
def test_when_it_was_decided(shares, decided):
    found = [at(place, share) for place, share in enumerate(shares)]
    assert futures.decided_ns(found) == decided


def require_random(*settings: str) -> None:
    experiment = load(configs.find("fig3c"), settings)
    futures.require_random(experiment.resolved("virtual"), "run")


@pytest.mark.parametrize("profile", ["exact", "oscillators"])
def test_profiles_without_randomness_are_refused(profile):
    with pytest.raises(InputError, match="draws nothing at random"):
        require_random(f"noise={{profile: {profile}}}")


@pytest.mark.parametrize(
    "drawn",
    [
        "noise={profile: jitter}",
        "links.loss=0.01",
        "links.duplicate=0.01",
        "links.burst_loss={p: 0.01, r: 0.5}",
        "links.late={share: 0.01, by: 1ms}",
        "links.random_delay={mean: 1ms, spread: 100us}",
        "links.overrides=[{between: [e0_0, a0_0], random_delay: {mean: 1ms, spread: 1us}}]",
        "events=[{at: 1ms, between: [e0_0, a0_0], loss: 0.01}]",
        "queue={kind: red, limit: 64KB}",
        "queues=[{at: bottleneck, queue: {kind: pie, limit: 100 packets}}]",
    ],
)
def test_profiles_links_and_queues_draw(drawn):
    require_random("noise={profile: exact}", drawn)


def test_futures_of_a_run_with_other_fates_are_made_again():
    noise = NoiseFrom(t_ns=5, boot_ns=25, seed=7)
    change = Interventions(of="run", noise=noise)
    kernel: dict[str, str] = {"sha256": "0" * 64}
    made: Any = SimpleNamespace(
        interventions=change, dropped={"a.pcap": "0" * 64}, kernel=kernel, guest=None
    )
    first: Any = SimpleNamespace(kernel=kernel, guest=None)
    assert many._why_another(made, change, first) is None
    assert many._why_another(made, Interventions(of="else", noise=noise), first) is None
    elsewhere: Any = SimpleNamespace(kernel={"sha256": "1" * 64}, guest=None)
    assert "another kernel or root" in str(many._why_another(made, change, elsewhere))
    other = Interventions(of="run", noise=noise.model_copy(update={"boot_ns": 26}))
    assert "other fates" in str(many._why_another(made, other, first))
    made.dropped = {}
    assert "not compared" in str(many._why_another(made, change, first))


ENDS: Any = {"flow": 0, "src": "10.0.0.1", "sport": 20001, "dst": "10.0.0.2", "dport": 5001}
ENDS |= {"ip_id": 7, "seq": 9}
FATE = PacketFate(packet=1, fate="drop", port="s1-eth1", t_in_ns=10, boot_ns=30, **ENDS)


def test_futures_keep_the_fates_of_packets_and_begin_after_the_last():
    earlier = Interventions(of="run", fates=(FATE,))
    noise = NoiseFrom(t_ns=9, boot_ns=25, seed=7)
    with pytest.raises(InputError, match="at 10ns; allowed are futures from then on"):
        futures.interventions(earlier, "run", noise)
    later = noise.model_copy(update={"t_ns": 10})
    expected = Interventions(of="run", fates=(FATE,), noise=later)
    assert futures.interventions(earlier, "run", later) == expected


def decided(
    instants: list[Instant], *, decided_ns: int | None = 0, happened: bool = True
) -> Decision:
    return Decision(
        outcome="starved",
        happened=happened,
        futures="run-futures",
        instants=instants,
        decided_ns=decided_ns,
    )


@given(st.integers(1, 200), st.booleans())
def test_it_is_decided_from_72_equal_futures_on(count, happened):
    instants = [at(0, 0.5, count), at(5, float(happened), count), at(6, float(happened), count)]
    when = futures.decided_ns(instants)
    assert when == (5 if count >= 72 else None)
    first, told = shown.sentences(decided(instants, decided_ns=when, happened=happened))
    last = instants[-1]
    assert first == f"starved: {'yes' if happened else 'no'}, in the run itself"
    if when is None:
        assert (
            f"the probability lies somewhere from {last.low:.2f} to {last.high:.2f}; decided is"
            in told
        )
    else:
        assert told.endswith(
            f"lies {'above 0.95' if happened else 'below 0.05'} at each instant from then on"
        )
