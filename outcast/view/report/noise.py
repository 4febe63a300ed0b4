"""The section on noise: whether the inputs of an output march in step with it."""

from __future__ import annotations

from outcast.records.run import Run
from outcast.records.summary import NoiseInput, NoiseSummary
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import section


def noise(run: Run) -> Element | None:
    """Returns the section on the noise that each output saw; None in results without it."""
    summaries = run.summary.noise
    if not summaries:
        return None
    parts: list[Part] = []
    for egress, summary in summaries.items():
        parts.append(element("p", f"Phases at {egress}: {summary.sentence}."))
        parts += [element("p", text) for text in _departures(summary)]
        rows: list[list[Part]] = [
            [port, *row(seen)] for port, seen in summary.inputs.items() if seen.arrivals
        ]
        if rows:
            head = ["input", "arrivals", "spread", "phase kept", "phase lasts (packet times)"]
            parts.append(table(f"Phases of full frames to {egress}", head, rows))
    return section("noise", "Noise", *parts)


def row(seen: NoiseInput) -> list[str]:
    """What one input showed, in words: arrivals, spread, the share kept, and how long it lasts."""
    share = ["-" if value is None else f"{value:.1%}" for value in (seen.spread, seen.kept)]
    lasts = "-" if seen.lasts is None else f"{seen.lasts:,.0f}"
    bound = "" if seen.lasts is None or seen.lasts_bound == "is" else f"{seen.lasts_bound} "
    return [f"{seen.arrivals:,}", *share, f"{bound}{lasts}"]


def _departures(summary: NoiseSummary) -> list[str]:
    if summary.packet_time_us is None or summary.gap_spread is None:
        return []
    nominal = ""
    if summary.of_nominal is not None:
        nominal = f" ({summary.of_nominal:.4f} times what the link's rate says)"
    texts = [
        f"Full frames left {summary.packet_time_us:.6g} µs apart{nominal}. Nine of ten of these "
        f"{summary.back_to_back:,} gaps lie within {summary.gap_spread:.2%} of one another."
    ]
    if summary.latency_kept is not None:
        how = {
            "setting": "by the settings of its port",
            "idle packets": "by packets that found the output idle",
            None: "",
        }[summary.latency_told_by]
        texts.append(
            f"On the way from an input to the queue {summary.latency_kept:.1%} of a phase is kept, "
            f"{how}."
        )
    return texts
