"""The report's parts on the queue and on drops."""

from __future__ import annotations

from outcast.records.run import Run
from outcast.view.figures.drops import chain_counts
from outcast.view.report import pictures
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import note, section
from outcast.view.terminal.tables import loss_rate, loss_sentence

MOST_PORTS = 40
"""The most ports that are listed; summary.json has all of them."""
LONGEST = 10
"""Chains that are longer than this share one column."""


def queue(run: Run) -> Element:
    """Returns the section on the queue: its length over time, and its distribution."""
    parts: list[Part] = [pictures.drawn(run, "link")]
    rows: list[list[Part]] = []
    for port, part in run.summary.queue.items():
        of_what = ", of packets forwarded" if part.counted == "forwarded" else ""
        empty_ms = part.switch_latency_us / 1e3
        of_empty = f", {empty_ms:.4f} where it is empty" if empty_ms else ""
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
        parts.append(note("A sojourn time is from port to port. It includes the link's own delay."))
    parts += [element("p", text) for text in _capacity(run)]
    return section("queue", "The queue", *parts)


def _capacity(run: Run) -> list[str]:
    texts = []
    for port, part in run.summary.queue.items():
        capacity = part.capacity
        if capacity is None:
            continue
        upto = f" and less than {capacity.below:,}" if capacity.below is not None else ""
        verdict = {
            True: f"; the configured {capacity.configured} agrees",
            False: f"; the configured {capacity.configured} does not agree",
            None: "",
        }[capacity.agrees]
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
        text = "The run did not record what ports other than the captured ones lost."
        if run.captured is not None:
            text = "Captures show the losses of the outputs below, and nothing of other places."
        return section("losses", "Losses of every port", element("p", text))
    ordered = sorted(losses.ports.items(), key=lambda item: -sum(item[1].lost.values()))
    rows: list[list[Part]] = [
        [
            *(port, part.node, part.neighbour, ", ".join(part.lost)),
            *(f"{part.packets:,}", f"{sum(part.lost.values()):,}", loss_rate(part)),
            f"{part.elsewhere:,}",
        ]
        for port, part in ordered
        if part.lost
    ]
    head = ["port", "from", "to", "cause", "sent", "lost", "rate", "not in the drops below"]
    sentence = loss_sentence(run.summary, losses)
    counted = (
        f"{sentence[0].upper()}{sentence[1:]}. Counted by the kernel at {len(losses.ports)} ports "
        "that sent something."
    )
    listed = table("Ports that lost packets", head, rows[:MOST_PORTS], 4) if rows else None
    more = None
    if len(rows) > MOST_PORTS:
        more = note(f"The first {MOST_PORTS} of {len(rows)}; summary.json has them all.")
    return section("losses", "Losses of every port", element("p", counted), listed, more)


def drops(run: Run) -> Element:
    """Returns the section on drops: how many each input port lost, and how many in a row."""
    rows: list[list[Part]] = [
        [
            way.label,
            f"{part.packets:,}",
            f"{part.dropped:,}",
            f"{part.dropped / part.packets:.2%}" if part.packets else "-",
            f"{part.longest_chain:,}",
            f"{part.blackouts:,}",
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
    columns = min(longest, LONGEST)
    head = ["drops in a row", *(str(length) for length in range(1, columns + 1))]
    if longest > LONGEST:
        head.append(f"> {LONGEST}")
    rows: list[list[Part]] = []
    for port, way in run.ways.items():
        counts = chain_counts(run.summary.drops[port].chains, LONGEST)
        lengths = [*counts[:columns], *counts[LONGEST:]] if longest > LONGEST else counts[:columns]
        rows.append([way.label, *(f"{count:,}" for count in lengths)])
    return table("Number of chains by length: packets of a port dropped in a row", head, rows)
