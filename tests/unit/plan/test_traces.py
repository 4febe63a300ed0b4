"""Rate traces: two formats, what is refused, and that a link gets what the trace says."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast import experiment, workflow
from outcast.emulation.network.changes import Changer
from outcast.errors import ConfigError
from outcast.plan import stored, traces
from outcast.plan.events import port_traces
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.plan.ports import PortQueue
from outcast.records.run_directory import RunDirectory

CONFIGS = Path(__file__).parents[3] / "configs"
MS = 10**6
FRAME_BITS = 1514 * 8


def parsed(text: str, *, repeat: bool = False) -> traces.Trace:
    return traces.parse(text, FRAME_BITS, repeat=repeat)


def refusal(text: str, *, repeat: bool = False) -> tuple[int, str]:
    with pytest.raises(ValueError, match=r"allowed|is not") as refused:
        parsed(text, repeat=repeat)
    return refused.value.line, str(refused.value)


def test_a_csv_has_its_units_in_the_header_or_in_its_rows():
    by_header = parsed("# a comment\ntime_ms,rate_mbps\n0,5\n\n20,0.5\n40.5,0\n")
    by_row = parsed("time,rate\r\n0s,5mbit\r\n20ms,500kbit\r\n40500us,0\r\n")
    assert by_header == by_row
    assert by_header.t_ns == (0, 20 * MS, 40_500_000)
    assert by_header.rate_bps == (5_000_000, 500_000, 0)
    assert by_header.period_ns is None


def test_a_csv_that_repeats_ends_with_the_time_at_which_it_does():
    trace = parsed("time_s,rate_kbps\n0,500\n0.1,800\n0.2,1\n", repeat=True)
    assert (trace.t_ns, trace.period_ns) == ((0, 100 * MS), 200 * MS)
    t_ns, rate_bps = traces.steps(trace, 450 * MS, FRAME_BITS)
    # A frame during which the rate changes has one of its own.
    assert rate_bps[:-1:2] == (500_000, 800_000, 500_000, 800_000, 500_000)
    assert all(500_000 < rate < 800_000 for rate in rate_bps[1::2])
    for at_ns, row_ns in zip(t_ns[2:-1:2], (100 * MS, 200 * MS, 300 * MS, 400 * MS), strict=True):
        assert abs(at_ns - row_ns) < FRAME_BITS * 10**9 / 500_000


@pytest.mark.parametrize(
    ("header", "row", "t_ns", "rate_bps"),
    [
        ("time_s,rate_bps", "2,9000", 2 * 10**9, 9000),
        ("time_ms,rate_kbps", "2,9", 2 * MS, 9000),
        ("time_us,rate_mbps", "2,9", 2000, 9 * 10**6),
        ("time_ns,rate_gbps", "2,9", 2, 9 * 10**9),
        ("time_ns,rate_mbit", "2,9", 2, 9 * 10**6),
        ("time_s,rate_bit", "86400,9000", 86_400 * 10**9, 9000),
    ],
)
def test_every_unit_of_a_header(header, row, t_ns, rate_bps):
    trace = parsed(f"{header}\n0,0\n{row}\n")
    assert (trace.t_ns, trace.rate_bps) == ((0, t_ns), (0, rate_bps))


def test_the_rate_of_a_frame_across_a_pause_is_none_of_the_file():
    rows = "time_ms,rate_mbps\n0,8\n1000,0\n1500,4\n"
    t_ns, rate_bps = traces.steps(parsed(rows), 3_000 * MS, FRAME_BITS)
    assert min(rate_bps) < 10**6
    assert {*traces.lasting_bps(t_ns[:-1], rate_bps[:-1])} == {8 * 10**6, 4 * 10**6}


@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=60).filter(any),
    st.sampled_from([84, 366, 1066, 1536, 1538]),
)
def test_a_queue_that_is_never_empty_sends_what_the_trace_lets_through(counts, wire_bytes):
    """Each frame takes the time of the rate at which it begins, as in the kernel (sch_htb.c)."""
    text = "time_ms,rate_mbps\n" + "\n".join(f"{ms},{n / 3}" for ms, n in enumerate(counts))
    t_ns, rate_bps = traces.steps(parsed(text), len(counts) * MS, 8 * wire_bytes)
    at_ns, frames, place = 0.0, 0, 0
    while at_ns < len(counts) * MS:
        while place + 2 < len(t_ns) and t_ns[place + 1] <= at_ns:
            place += 1
        at_ns += 8 * wire_bytes * 1e9 / rate_bps[place]
        frames += at_ns <= len(counts) * MS
    assert abs(frames - sum(counts) / 3 * 1e3 / 8 / wire_bytes) <= 1.01


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "is empty"),
        ("# nothing\n", 1, "is empty"),
        ("a,b\n1,2", 1, "names no time and rate"),
        ("time_ms,rate_mbps,more\n", 1, "has 3 columns"),
        ("time_ms,rate_parsecs\n0,1", 1, "names no time and rate"),
        ("time_ms,rate_mbps\n", 1, "has 0 rows"),
        ("time_ms,rate_mbps\n5,2", 2, "allowed is 0 in the first row"),
        ("time_ms,rate_mbps\n0,2\n0,3", 3, "allowed is one after the row before's"),
        ("time_ms,rate_mbps\n0,2\n7", 3, "has 1 columns"),
        ("time_ms,rate_mbps\n0,-2", 2, "'-2' is not a rate"),
        ("time_ms,rate_mbps\n0,nan", 2, "'nan' is not a rate"),
        ("time_ms,rate_mbps\n0,1e9", 2, "'1e9' is not a rate"),
        ("time_ms,rate_mbps\n0,99999999", 2, "allowed are 0 and 1kbit to 34gbit"),
        ("time_ms,rate_bps\n0,7", 2, "allowed are 0 and 1kbit"),
        ("time_s,rate_bps\n0,9000\n999999999,9000", 3, "allowed is up to 24h"),
        ("time,rate\n0s,fast", 2, "'fast' is not a rate"),
        ("time,rate\n0,5mbit", 2, "'0' is not a time"),
        ("5\n3", 2, "3 ms after 5 ms"),
        ("1\nx\n", 2, "'x' is not a whole number of milliseconds"),
        ("٣\n", 1, "is not a whole number"),
        ("99999999999\n", 1, "is not a whole number"),
        ("0\n0\n", 2, "the last time is 0"),
    ],
)
def test_a_line_that_is_no_trace_is_named(text, line, said):
    at, message = refusal(text)
    assert (at, said in message) == (line, True), message
    assert "\n" not in message


def test_a_trace_that_repeats_has_an_end():
    assert refusal("time_ms,rate_mbps\n0,1\n", repeat=True) == (
        1,
        "has 1 rows; allowed are 2 or more",
    )


@given(st.text(max_size=60))
def test_any_text_is_a_trace_or_refused_with_a_line(text):
    try:
        first_ns, line = parsed(text).t_ns[0], 1
    except ValueError as error:
        first_ns, line = 0, error.line
    assert (first_ns, line >= 1) == (0, True)


@given(
    st.lists(st.integers(0, 2500), min_size=1, max_size=300).filter(lambda times: max(times) > 0),
    st.integers(0, 2500),
)
def test_the_bytes_of_any_second_are_those_of_the_trace(times, begin):
    """Within a bin at either end, because a packet is spread over its bin."""
    times = sorted(times)
    period = times[-1]
    (*t_ns, _), (*rate_bps, _) = traces.steps(
        parsed("\n".join(map(str, times))), 6000 * MS, FRAME_BITS
    )
    ends = [*t_ns[1:], 6000 * MS]

    def carried(until_ns: int) -> float:
        spans = zip(t_ns, ends, rate_bps, strict=True)
        return sum(
            rate * (min(end, until_ns) - at) / 1e9 for at, end, rate in spans if at < until_ns
        )

    places = Counter(max(1, time) for time in times)

    def delivered(until_ms: int) -> int:
        return sum(
            count * sum(1 for cycle in range(0, 6001, period) if cycle + time <= until_ms)
            for time, count in places.items()
        )

    sent = (carried((begin + 1000) * MS) - carried(begin * MS)) / FRAME_BITS
    wanted = delivered(begin + 1000) - delivered(begin)
    # What lies in the joined bins that the second's two ends cut.
    slack = 0.0
    for edge_ns in (begin * MS, (begin + 1000) * MS):
        place = max(index for index, at in enumerate(t_ns) if at <= edge_ns)
        slack += rate_bps[place] * (ends[place] - t_ns[place]) / 1e9 / FRAME_BITS
    assert abs(sent - wanted) <= slack + 1.01


def test_a_trace_has_a_bounded_number_of_steps():
    text = "time_us,rate_mbps\n0,1\n1,2\n2,1\n"
    with pytest.raises(ValueError, match="more than 200000 steps within 1s"):
        traces.steps(parsed(text, repeat=True), 10**9, FRAME_BITS)
    with pytest.raises(ValueError, match="no rate above 0"):
        traces.steps(parsed("time_ms,rate_mbps\n0,0\n"), 10**9, FRAME_BITS)


def planned(folder: Path, rate: str, *more: str) -> tuple[experiment.Experiment, Plan]:
    (folder / "cell.csv").write_text("time_ms,rate_mbps\n0,5\n100,20\n")
    (folder / "mine.yaml").write_text((CONFIGS / "linear-12.yaml").read_text())
    override = f"links={{rate: 100mbit, overrides: [{{from: s1, to: h1, rate: {rate}}}]}}"
    settings = [override, "duration=200ms", "analysis={}", "noise.profile=jitter", *more]
    loaded = experiment.load(folder / "mine.yaml", settings)
    whole = loaded.resolved("virtual")
    return whole, make_plan(whole)


def test_a_link_with_a_trace_has_its_mean_rate_and_a_class_of_htb(tmp_path):
    whole, plan = planned(tmp_path, "{trace: cell.csv}")
    link = plan.links["s1", "h1"]
    assert link.rate_bps == 12_500_000
    assert link.jitter_ns == 25_000  # by the delay; half a frame takes longer
    (port,) = port_traces(whole, plan)
    assert (port.port.port, port.port.queue.shaper_kind) == ("s1-eth1", "htb")
    # The frame between has its own rate.
    assert (port.t_ns[0], port.t_ns[-1]) == (0, 200 * MS)
    assert port.rate_bps[::2] == (5_000_000, 20_000_000)
    assert port.rate_bps[-1] == 12_500_000
    (tmp_path / "plan.json").write_text(stored.dumps(plan))
    assert stored.read_plan(tmp_path / "plan.json").traces == plan.traces


STREAM = "{kind: constant_rate, from: h4, to: h1, rate: 20mbit, datagram: %s}"


@pytest.mark.parametrize(
    ("more", "wire_bytes"),
    [
        (["flows=[]", f"workloads=[{STREAM % '1000B'}]"], 1042 + 24),
        (["flows=[]", f"workloads=[{STREAM % '18B'}]"], 84),
        ([f"workloads=[{STREAM % '1000B'}]"], 1514 + 24),
        (["flows=[]", f"workloads=[{STREAM % '1000B'}]", "addressing=ipv6"], 1062 + 24),
    ],
)
def test_steps_hold_frames_of_the_size_that_is_sent(tmp_path, more, wire_bytes):
    whole, plan = planned(tmp_path, "{trace: cell.csv}", *more)
    path = tmp_path / "cell.csv"
    trace = traces.read(path, FRAME_BITS, repeat=False)
    wanted = traces.steps(trace, whole.duration_ns, 8 * wire_bytes)
    (found,) = plan.traces
    assert (found.t_ns, found.rate_bps) == wanted


def test_each_direction_has_the_frames_that_are_sent_there(tmp_path):
    both = "links={rate: 100mbit, overrides: [{between: [s1, h1], rate: {trace: cell.csv}}]}"
    there = [both, "flows=[]", f"workloads=[{STREAM % '1000B'}]"]
    _, plan = planned(tmp_path, "{trace: cell.csv}", *there)
    assert {end for trace in plan.traces for end in trace.directions} == {
        ("s1", "h1"),
        ("h1", "s1"),
    }
    assert len({trace.t_ns for trace in plan.traces}) == 2


def test_the_run_keeps_its_own_copy_of_the_trace(tmp_path):
    whole, _ = planned(tmp_path, "{trace: cell.csv}")
    folder = tmp_path / "run"
    folder.mkdir()
    own = workflow._with_own_traces(RunDirectory(folder), whole)
    (folder / "config.yaml").write_text(experiment.dump(own))
    assert "trace: sources/0-cell.csv" in (folder / "config.yaml").read_text()
    again = experiment.load_resolved(folder / "config.yaml")
    assert make_plan(again).links == make_plan(whole).links
    assert (folder / "sources" / "0-cell.csv").read_bytes() == (tmp_path / "cell.csv").read_bytes()


@pytest.mark.parametrize(
    ("rate", "more", "said"),
    [
        ("{trace: none.csv}", (), "links.overrides.0.rate.trace: {folder}/none.csv: there is no"),
        ("{trace: mine.yaml}", (), "links.overrides.0.rate.trace: {folder}/mine.yaml:3: 'name: "),
        ("{trace: cell.csv, loop: true}", (), "loop: Extra inputs"),
        ("{repeat: true}", (), "allowed are trace and repeat"),
        ("0mbit", (), "links.overrides.0.rate"),
        (
            "{trace: cell.csv}",
            ("events=[{at: 1ms, from: s1, to: h1, rate: 5mbit}]",),
            "events.0.rate: the rate of s1-eth1 comes from a trace",
        ),
    ],
)
def test_a_trace_that_cannot_be_used_is_one_line(rate, more, said, tmp_path):
    with pytest.raises(ConfigError) as refused:
        planned(tmp_path, rate, *more)
    assert said.format(folder=tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


class FakeKernel:
    """Notes the rates; setting one takes `takes_ns`."""

    def __init__(self, takes_ns: int) -> None:
        self.set: list[tuple[str, int]] = []
        self.now_ns = 10**18
        self._takes_ns = takes_ns

    def apply(self, change: object) -> int:
        raise AssertionError(change)

    def set_rate(self, port: PortQueue) -> int:
        self.now_ns += self._takes_ns
        self.set.append((port.port, port.rate_bps))
        return port.rate_bps

    def close(self) -> None:
        """Does nothing."""


def test_rates_that_are_over_are_skipped_and_named(tmp_path):
    whole, plan = planned(tmp_path, "{trace: cell.csv}")
    kernel = FakeKernel(takes_ns=210 * MS)
    changer = Changer((), port_traces(whole, plan), kernel, now_ns=lambda: kernel.now_ns)
    changer._t_start_ns = kernel.now_ns - MS
    changer.work()
    (rates,) = changer.rates().ports
    assert rates.t_ns == [211 * MS, 421 * MS]
    assert rates.rate_bps == [5_000_000, 12_500_000]
    assert (rates.latest_ns, rates.skipped) == (221 * MS, 2)
    assert changer.warnings() == [
        "s1-eth1: 2 of 4 rates of cell.csv came too late to be set, and one 221.0 ms late; less "
        "load on this machine, or the virtual engine, keeps their times"
    ]
    assert rates.trace == "cell.csv"
