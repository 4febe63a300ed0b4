"""The report's parts on queues: drops, who is lost, noise at the inputs, classes of service."""

from outcast.records.port_summaries import NoiseSummary
from outcast.records.run import Run
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.figures.drops import CHAIN_LENGTHS, chain_counts
from outcast.view.figures.phase import contests_by_port, ports_shown
from outcast.view.report import page
from outcast.view.report.page import Element, Part, element, listed, section, table


def queue(run: Run) -> Element:
    """Returns the section on the queue: its length over time, and its distribution."""
    parts: list[Part] = [page.drawn(run, "link")]
    parts.append(listed(listings.outputs(run, "report")))
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
    sentence = words.loss_sentence(run.summary, losses)
    counted = (
        f"{words.begun(sentence)}. Counted by the kernel at {len(losses.ports)} ports "
        "that sent something."
    )
    table_of = listed(listings.lossy_ports(run, "report"))
    return section("losses", "Losses of every port", element("p", counted), table_of)


def drops(run: Run) -> Element:
    """Returns the section on drops: how many each input port lost, and how many in a row."""
    table_of = listed(listings.inputs(run, "report"))
    return section("drops", "Drops", table_of, _chains(run))


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
    parts = (element("p", text), table(caption, head, rows), page.drawn(run, "phase"))
    return section("phase", "Who takes the free place", *parts)


def noise(run: Run) -> Element | None:
    """Returns the section on the noise that each output saw; None in results without it."""
    summaries = run.summary.noise
    if not summaries:
        return None
    parts: list[Part] = []
    for egress, summary in summaries.items():
        parts += [element("p", text) for text in _departures(egress, summary)]
    if not parts:
        return None
    return section("noise", "Noise", *parts)


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
    table_of = listed(listings.service_classes(run, "report"))
    return None if table_of is None else section("classes", "Classes of service", table_of)
