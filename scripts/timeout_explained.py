"""Writes docs/a-timeout-explained.md from a run of figure 3(c) and from stored results.

    outcast run configs/fig3c.yaml --set links.overhead=none -o results/fig3c
    outcast trace results/fig3c
    .venv/bin/python -m benchmarks.causes --write
    .venv/bin/python -m scripts.timeout_explained results/fig3c > page.md
    mv page.md docs/a-timeout-explained.md
    .venv/bin/python -m scripts.fill_numbers

Every number of the page comes from the run or, between marks, from the benchmark. The page
follows the first timeout of the lone flow that lost its whole window in one blackout, and whose
retransmission got through.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks import stored
from benchmarks.seen import after_timeouts
from outcast.analysis.trace import senders
from outcast.analysis.trace.events import LOSS, RECOVERY
from outcast.analysis.trace.moment import Moment, moments
from outcast.analysis.trace.waits import BLACKOUT, wait_table
from outcast.records.run import Run

ROOT = Path(__file__).parents[1]
NAME = "results/fig3c"
FLOW = 0
MS = 1_000_000
BEFORE_NS = 20_000
BURST_NS = 1_000_000
LEAST_LOST = 2
MOST_LINES = 24


@dataclass(frozen=True)
class Story:
    """One timeout, and what led to it. Times count from the traffic's start.

    Attributes:
        fired_ns: when the retransmission timer went off.
        ended_ns: when the sender had left the state loss.
        drops: the dropped segments, as rows of packets.parquet with `t_ns`, by time.
        waits: the timers that went off from the first drop to the end, as rows of the wait table.
    """

    fired_ns: int
    ended_ns: int
    drops: pl.DataFrame
    waits: pl.DataFrame
    tell: Callable[[int], Moment]

    @property
    def burst(self) -> pl.DataFrame:
        """The drops of the blackout itself, without those of later probes."""
        first_ns = self.drops["t_ns"][0]
        return self.drops.filter(pl.col("t_ns") < first_ns + BURST_NS)


def find(run: Run) -> Story:
    """The timeout that the page follows. Exits if the run has none."""
    traced = senders.read_traced(run.directory)
    packets, queue, chains = (run.table(name) for name in ("packets", "queue", "blackouts"))
    start_ns = run.manifest.traffic.t_start_ns
    waits = wait_table(traced.senders, traced.again, traced.drops, packets, chains)
    mine = waits.filter(pl.col("flow") == FLOW)
    numbered = packets.with_row_index("packet").with_columns(t_ns=pl.col("t_in") - start_ns)

    def moment(t_ns: int) -> Moment:
        (answer,) = moments(
            traced.senders, traced.again, traced.drops, packets, queue, start_ns, FLOW, t_ns
        )
        return answer

    loss_ends = traced.senders["tcp_cong_state_set"].filter(
        pl.col("flow") == FLOW, pl.col("old_state") == LOSS, pl.col("cong_state") < RECOVERY
    )
    timeouts = mine.filter(
        pl.col("timer") == "rto", pl.col("lost") == BLACKOUT, pl.col("copies") == 0
    )
    for wait in timeouts.to_dicts():
        fired_ns = wait["t_ns"]
        silent = moment(fired_ns - 1)
        whole = len(silent.missing) == silent.packets_out >= LEAST_LOST and silent.state == "open"
        ended = loss_ends.filter(pl.col("t_ns") > fired_ns)["t_ns"]
        if not whole or not len(ended):
            continue
        lost = [segment.packet for segment in silent.missing if segment.packet is not None]
        drops = numbered.filter(pl.col("packet").is_in(lost)).sort("t_ns")
        during = mine.filter(pl.col("t_ns").is_between(drops["t_ns"][0], ended[0]))
        if during.filter(pl.col("timer") == "rto").height == 1:
            return Story(fired_ns, ended[0], drops, during, moment)
    sys.exit("the run has no timeout of the lone flow that lost its whole window in one blackout")


def shown(run: Run, *words: str, most: int = MOST_LINES) -> str:
    """A command and what it prints, as a block of Markdown."""
    program = ROOT / ".venv/bin/outcast"
    verb, *options = words
    result = subprocess.run(
        [program, verb, run.directory.path, *options], check=True, capture_output=True, text=True
    )
    lines = result.stdout.rstrip().splitlines()
    cut = [*lines[:most], "..."] if len(lines) > most else lines
    command = " ".join(["outcast", verb, NAME, *options])
    return "\n".join(["```", f"$ {command}", *cut, "```"])


def ms(t_ns: int) -> str:
    """A time in milliseconds, to the nanosecond."""
    return f"{t_ns / MS:.6f}ms"


def page(run: Run, story: Story) -> str:
    """The page as Markdown."""
    drops, burst = story.drops, story.burst
    first, last, fired = burst["t_ns"][0], burst["t_ns"][-1], story.fired_ns
    before, silent = story.tell(first - BEFORE_NS), story.tell(fired - 1)
    after, ended = story.tell(fired), story.tell(story.ended_ns)
    timer = silent.timer
    if timer is None or timer.due_ns is None:
        sys.exit("no timer was armed before the timeout")
    packets = run.table("packets").with_columns(
        t_ns=pl.col("t_in") - run.manifest.traffic.t_start_ns
    )
    through = packets.filter(pl.col("verdict").cast(pl.String) == "forwarded")
    others = through.filter(pl.col("t_ns").is_between(first, fired))
    beside = through.filter(pl.col("t_ns").is_between(first - BEFORE_NS, last + BEFORE_NS))
    goodput = [group.summary.mean_goodput_bps / 1e6 for group in run.groups]
    why = ("why", "--flow", str(FLOW), "--at")
    seen = (ms(first - BEFORE_NS), ms(last + BEFORE_NS))
    return f"""<!-- Written by scripts/timeout_explained.py; do not edit. -->
# A timeout, explained

The starved flow of figure 3(c) stands still most of the time. This page follows one of its
timeouts from the drop to the recovery, by what the kernel itself did. Every statement has the
command that shows it. You can make the same run, because the virtual engine gives the same bytes
on every machine:

```
outcast run configs/fig3c.yaml --set links.overhead=none -o {NAME}
outcast trace {NAME}
```

The second command makes the run again with the kernel's events on, and refuses if a byte of the
captures differs. This run (seed {run.directory.read_manifest().seed}) is of
{stored.state_of([run])}.
Its lone flow reached {goodput[0]:.1f} Mbps, and its twelve rivals {goodput[1]:.1f} Mbps on average.
All times count from the traffic's start.

## Before: a small window, and all is well

At {ms(first - BEFORE_NS)} the flow is in state {before.state}. Its window is {before.cwnd}
segments, and {before.in_flight} are in flight.

{shown(run, *why, ms(first - BEFORE_NS))}

## The blackout: {burst.height} packets in a row

Between {ms(first)} and {ms(last)} the queue of {drops["egress"][0]} drops {burst.height} segments
of the flow, all that come. {drops["ingress"][0]} is its port; {beside.height} packets of the other
port get through around them.

{shown(run, "inspect", "--between", *seen)}

The chain of each drop leads from the drop over its detection to the next copy. Here the detection
is the retransmission timer:

{chain_lines(run, first, drops["t_ns"][-1])}

## Silence: nothing is left to tell the sender

No segment got through, so no acknowledgement comes back that RACK could work on. Only timers are
left. The sender has {silent.waiting_bytes:,} bytes to send, and may send none.

{probes(story)}
The retransmission timer is armed anew at {ms(timer.armed_ns)} with a timeout of
{timer.rto_ns / MS:g} ms, and due at {ms(timer.due_ns)}. (A tick is 1 ms. The kernel adds one to a
timer's time, so that none goes off early: `calc_index` in kernel/time/timer.c.) One nanosecond
before it goes off:

{shown(run, *why, ms(fired - 1))}

{(fired - first) / MS:.3f} ms lie between the first drop and the timeout. In that time
{others.height:,} packets of the rivals came in and left:

```
$ outcast inspect {NAME} --between {ms(first)} {ms(fired)} --verdict forwarded \\
    --format csv | tail -n +2 | wc -l
{others.height}
```

## The timer goes off

At {ms(fired)} `tcp_retransmit_timer` takes all segments for lost (`tcp_enter_loss`). The window is
{after.cwnd} segment and the threshold {after.ssthresh}, and the oldest segment is sent again.

{shown(run, *why, ms(fired))}

## Recovery, from the bottom

{late_acknowledgement(run, story)}Acknowledgements come, and the rest follows. At
{ms(story.ended_ns)} the flow is in state {ended.state}, with a window of {ended.cwnd}.
The {drops.height} dropped packets have cost {(story.ended_ns - first) / MS:.3f} ms. The rivals
share their port. So packets dropped in a row are rarely one rival's whole window, and what it sent
later shows the loss at once.

{shown(run, *why, ms(story.ended_ns))}

## Is it always like that?

The Outcast paper (section 4) explains the starvation by such timeouts. The events of
<!--=waits.seeds--><!--/--> seeds for each congestion control say how long flows stood still until
a timer went off, in milliseconds of a flow and a run of 500 ms, and what had been lost. RACK is
always on in Linux 7.3.

<!--=waits--><!--/-->

`lost` is what had become of the oldest segment's last copy: `blackout`, dropped in a row of two or
more packets of its port while others got through; `hole`, dropped alone, and something sent after
it got through; `tail loss`, dropped alone, and nothing sent after it got through; `lost elsewhere`,
at another port than the bottleneck; `not lost`. The last three columns say which timer it waited
for: the retransmission timer, that of a tail loss probe, or RACK's.

So most of the lone flow's lost time follows blackouts, as the paper says. Its rivals' timeouts have
another reason: most of their losses happen at the queue where they meet, before the bottleneck.

A probe costs time where the timeout is short: after it the retransmission timer starts again, so a
sender whose probe is lost too waits for both. And the first segment after a timeout is alone, so
the receiver may delay its acknowledgement (RFC 5681, section 4.2):

<!--=waits, after--><!--/-->

Why segments were sent again, one cause for each:

<!--=waits, causes--><!--/-->

The sums are the kernel's own counters, at every host of every run:

<!--=waits, sums--><!--/-->

`<!--=waits.command--><!--/-->` makes these tables; these are of
<!--=waits.state--><!--/-->. [outcast why](verbs/why.md) explains the causes.
"""


def late_acknowledgement(run: Run, story: Story) -> str:
    """A sentence on the receiver's delay of the first acknowledgement, if there was one."""
    traced = senders.read_traced(run.directory)
    late = after_timeouts(traced.every, traced.senders).filter(
        pl.col("flow") == FLOW, pl.col("t_ns") == story.fired_ns, pl.col("delayed")
    )
    if not late.height:
        return ""
    return (
        "The segment is alone, so the receiver delays its acknowledgement until its own timer\n"
        f"goes off (`tcp_delack_timer`). It takes {late['heard_ns'][0] / MS:.3f} ms.\n"
    )


def probes(story: Story) -> str:
    """A sentence on each tail loss probe before the timeout, or on their absence."""
    sent = story.waits.filter(pl.col("timer") == "tlp", pl.col("t_ns") < story.fired_ns)
    lines = []
    for t_ns in sent["t_ns"]:
        lost = story.drops.filter(pl.col("t_ns").is_between(t_ns, t_ns + MS))
        fate = f" It is dropped too, at {ms(lost['t_ns'][0])}." if lost.height else ""
        lines.append(
            f"At {ms(t_ns)} the tail loss probe's timer goes off, and `tcp_send_loss_probe` sends\n"
            f"a segment beyond the window.{fate}\n"
        )
    return "\n".join(lines)


def chain_lines(run: Run, first: int, last: int) -> str:
    """The lines of the flow's chains for drops in a time, below their head."""
    block = shown(run, "why", "--flow", str(FLOW), most=1 << 30).splitlines()
    head, rows, end = block[:4], block[4:-1], block[-1]
    kept = [row for row in rows if first - 1000 <= round(float(row.split()[0]) * MS) <= last + 1000]
    return "\n".join([*head[:3], "...", *kept, "...", end]) if kept else "\n".join([*head, end])


def main(arguments: Sequence[str]) -> None:
    """Prints the page."""
    (directory,) = arguments
    run = Run(Path(directory))
    print(page(run, find(run)), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
