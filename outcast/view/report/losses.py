"""The report's parts on queues: drops, who is lost, noise at the inputs, classes of service."""

from outcast.records.port_summaries import NoiseSummary
from outcast.records.run import Run
from outcast.view import summary_words as words
from outcast.view.figures.drops import CHAIN_LENGTHS, chain_counts
from outcast.view.figures.phase import contests_by_port, ports_shown
from outcast.view.report import pictures
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import note, section
from outcast.view.terminal import service_classes as classes

MOST_PORTS = 40
"""The most ports that are listed; summary.json has all of them."""


def queue(run: Run) -> Element:
    """Returns the section on the queue: its length over time, and its distribution."""
    parts: list[Part] = [pictures.drawn(run, "link")]
    rows: list[list[Part]] = []
    for port, part in run.summary.queue.items():
        of_what = ", of packets forwarded" if part.counted == "forwarded" else ""
        empty_ms = part.switch_latency_us / 1e3
        of_empty = f", median {empty_ms:.4f} of those that find it empty" if empty_ms else ""
        for what, spread, form, scale in (
            (f"length (KiB){of_what}", part.length_bytes, ".2f", 1024),
            (f"sojourn time (ms){of_empty}", part.sojourn_ms, ".4f", 1),
        ):
            if spread is not None:
                numbers = (spread.mean, spread.p50, spread.p90, spread.p99, spread.max)
                rows.append([f"{port}: {what}", *(format(n / scale, form) for n in numbers)])
    if rows:
        head = ["queue", "mean", "median", "90 %", "99 %", "most"]
        parts.append(table("The queue's length, and the sojourn time of packets", head, rows))
        text = (
            "A sojourn time is from port to port. It includes the link's own delay. A packet that "
        )
        parts.append(note(text + "finds the queue empty may still wait for a frame on the link."))
    parts += [element("p", text) for text in _capacity(run)]
    return section("queue", "The queue", *parts)


def _capacity(run: Run) -> list[str]:
    texts = []
    for port, part in run.summary.queue.items():
        capacity = part.capacity
        if capacity is None:
            continue
        upto = f" and less than {capacity.below:,}" if capacity.below is not None else ""
        verdict = ""
        if capacity.agrees is not None:
            agrees = "agrees" if capacity.agrees else "does not agree"
            verdict = f"; the configured {capacity.configured} {agrees}"
        texts.append(
            f"By the packets that it took and those that it dropped, the queue of "
            f"{port} has room for at least {capacity.at_least:,}{upto} {capacity.unit}. That "
            f"explains {capacity.confidence:.1%} of both (50 % would be nothing){verdict}."
        )
    return texts


def network(run: Run) -> Element:
    """Returns the section on what every port of the network lost."""
    losses = run.summary.losses
    if losses is None:
        text = "Captures show the losses of the outputs below, and nothing of other places."
        return section("losses", "Losses of every port", element("p", text))
    ordered = sorted(losses.ports.items(), key=lambda item: -sum(item[1].lost.values()))
    rows: list[list[Part]] = [
        [
            *(port, part.node, part.neighbour, ", ".join(part.lost)),
            *(f"{part.packets:,}", f"{sum(part.lost.values()):,}", words.loss_rate(part)),
            f"{part.elsewhere:,}",
        ]
        for port, part in ordered
        if part.lost
    ]
    head = ["port", "from", "to", "cause", "sent", "lost", "rate", "not in the drops below"]
    sentence = words.loss_sentence(run.summary, losses)
    counted = (
        f"{words.begun(sentence)}. Counted by the kernel at {len(losses.ports)} ports "
        "that sent something."
    )
    listed = table("Ports that lost packets", head, rows[:MOST_PORTS], 4) if rows else None
    more = f"The first {MOST_PORTS} of {len(rows)}; summary.json has them all."
    parts = (element("p", counted), listed, note(more) if len(rows) > MOST_PORTS else None)
    return section("losses", "Losses of every port", *parts)


def drops(run: Run) -> Element:
    """Returns the section on drops: how many each input port lost, and how many in a row."""
    rows: list[list[Part]] = [
        [
            *(way.label, f"{part.packets:,}", f"{part.dropped:,}"),
            words.share(part.dropped, part.packets),
            *(f"{part.longest_chain:,}", f"{part.blackouts:,}"),
        ]
        for port, way in run.ways.items()
        for part in [run.summary.drops[port]]
    ]
    head = ["input port", "packets", "dropped", "rate", "longest chain", "blackouts"]
    listed = table("By input port", head, rows)
    if len(run.ways) < len(run.summary.drops):
        text = "Ports whose packets were all forwarded are left out; summary.json has them."
        listed = element("div", listed, note(text))
    return section("drops", "Drops", listed, _chains(run))


def _chains(run: Run) -> Element | None:
    longest = max((part.longest_chain for part in run.summary.drops.values()), default=0)
    if not longest:
        return None
    head = ["drops in a row", *CHAIN_LENGTHS[:longest]]
    rows: list[list[Part]] = []
    for port, way in run.ways.items():
        counts = chain_counts(run.summary.drops[port].chains)[:longest]
        rows.append([way.label, *(f"{count:,}" for count in counts)])
    return table("Number of chains by length: packets of a port dropped in a row", head, rows)


def phase(run: Run) -> Element | None:
    """Returns the section with the clocks of arrivals; None where nothing contends for places."""
    found = [contests_by_port(run, record) for record in run.manifest.bottlenecks]
    rows: list[list[Part]] = []
    for port, seen in (pair for those in found if ports_shown(those) for pair in those.items()):
        texts = [words.number(seen.lost_share(second), ".1%") for second in (False, True)]
        rows.append([run.port_label(port), f"{seen.second.mean():.1%}", *texts])
    if not rows:
        return None
    head = ["input", "came second", "lost, of those that came first", "lost, of those second"]
    text = (
        "A departure from a full queue frees one place. A packet came second if a packet of "
        "another port had been taken since the last departure."
    )
    caption = "Full frames that reached the nearly full queue"
    parts = (element("p", text), table(caption, head, rows), pictures.drawn(run, "phase"))
    return section("phase", "Who takes the free place", *parts)


def noise(run: Run) -> Element | None:
    """Returns the section on the noise that each output saw; None in results without it."""
    summaries = run.summary.noise
    if not summaries:
        return None
    parts: list[Part] = []
    for egress, summary in summaries.items():
        parts += [element("p", text) for text in _departures(egress, summary)]
        rows: list[list[Part]] = [
            [port, f"{seen.arrivals:,}", words.number(seen.kept, ".1%")]
            for port, seen in summary.inputs.items()
            if seen.arrivals
        ]
        if rows:
            head = ["input", "arrivals", "phase kept"]
            parts.append(table(f"Phases of full frames to {egress}", head, rows))
    if not parts:
        return None
    return section("noise", "Noise", *parts, note(f"{words.begun(words.PHASE_KEPT)}."))


def _departures(egress: str, summary: NoiseSummary) -> list[str]:
    if summary.packet_time_us is None or summary.gap_spread is None:
        return []
    nominal = ""
    if summary.of_nominal is not None:
        nominal = f" ({summary.of_nominal:.4f} times what the link's rate says)"
    return [
        f"Full frames left {egress} {summary.packet_time_us:.6g} µs apart{nominal}. Nine of ten of "
        f"these {summary.back_to_back:,} gaps lie within {summary.gap_spread:.2%} of one another."
    ]


def service_classes(run: Run) -> Element | None:
    """Returns the section with a row for each class; None where no queue has any."""
    rows: list[list[Part]] = [
        [f"{port}: {name}", points, *cells]
        for port, name, points, *cells in classes.rows(run.summary)
    ]
    if not rows:
        return None
    text = (
        "A packet's class is told by its DSCP. Queueing is the median time from the input to the "
        "output, without the link's delay. The rate is that of the frames that left."
    )
    compared = classes.counted(run.summary)
    return section(
        "classes",
        "Classes of service",
        table("What came in, was dropped and left", ["class", *classes.HEAD], rows, numbers_from=2),
        element("p", text),
        note(f"{words.begun(compared)}."),
    )
