"""Classes of service in tables: what each sent, lost and waited."""

from collections.abc import Iterator

from rich.table import Table

from outcast.records.port_summaries import ServiceClassSummary
from outcast.records.summary import Summary
from outcast.units import format_bps
from outcast.view.summary_words import format_ms
from outcast.view.terminal import forms

HEAD = ("DSCP", "packets", "dropped", "rate", "queueing", "99 %")


def rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    """A row for each class: its port and name, then what `HEAD` says."""
    for port, part in summary.queue.items():
        for name, of_class in (part.classes or {}).items():
            yield (port, name, *_cells(of_class))


def _cells(part: ServiceClassSummary) -> Iterator[str]:
    yield "others" if part.dscp is None else ", ".join(map(str, part.dscp))
    yield from (f"{part.packets:,}", f"{part.dropped:,}", format_bps(part.rate_bps))
    waits = part.queueing_ms
    yield from ("-", "-") if waits is None else (format_ms(waits.p50), format_ms(waits.p99))


def counted(summary: Summary) -> str:
    """What captures and the kernel counted of classes in the whole run, in a sentence."""
    compared = [
        (f"{name} of {port}", part.captured, part.counted)
        for port, queue in summary.queue.items()
        for name, part in (queue.classes or {}).items()
        if part.counted is not None
    ]
    if not compared:
        return "the kernel's counters of classes were not recorded"
    differ = [
        f"{name}: {ours.sent:,} sent and {ours.dropped:,} dropped by the captures, "
        f"{theirs.sent:,} and {theirs.dropped:,} by the kernel"
        for name, ours, theirs in compared
        if ours != theirs
    ]
    if differ:
        return "in the whole run " + "; ".join(differ)
    return "in the whole run the kernel counted the same packets and drops of each class"


def table(summary: Summary) -> Table | None:
    """A table of the classes of all measured ports; None where no queue has any."""
    of_classes = [*rows(summary)]
    if not of_classes:
        return None
    head = ("output", "class", *HEAD)
    made = forms.table(*head, left=head[:3], style="bold")
    made.caption = counted(summary)
    for row in of_classes:
        made.add_row(*row)
    return made
