"""The report's sections on joined captures: what was joined, on which clocks, and how again.

Every sentence says what packets show. What only a manifest of ours could tell is left out, and
named once.
"""

import shlex

from outcast.records.captures import CapturesManifest, QueueEstimate
from outcast.records.run import Run
from outcast.units import format_rate, format_time
from outcast.view.report.page import (
    Element,
    Part,
    bullets,
    code,
    element,
    note,
    section,
    table,
    trust,
)
from outcast.view.summary_words import number

UNTOLD = (
    "Captures do not tell the topology, the settings of queues and senders, congestion windows, "
    "the kernels' counts, or what was lost at other places. All of that is left out here. Timeouts "
    "are left out too, because what counts as one depends on the senders' least RTO."
)


def verdict(run: Run) -> Element:
    """Returns whether the captures agree with one another, which is all that can be checked."""
    capture = run.summary.capture
    packets = sum(part.packets for part in run.summary.drops.values())
    lines = [
        f"Drops: {capture.inferred_drops:,} were inferred from the captures. No counter of the "
        "queue is known to compare with.",
        f"Conservation: {packets:,} packets came in. The fate of {capture.in_flight:,} was "
        f"undecided. {capture.unmatched:,} left and no capture saw them come in.",
    ]
    lines += [f"They do not agree: {reason}" for reason in capture.reasons]
    lines += [f"Note: {text}" for text in run.summary.warnings]
    if capture.trusted:
        return trust("✓ The captures agree with one another", "good", bullets(lines))
    return trust("✗ The captures do not agree with one another", "bad", bullets(lines))


def words(manifest: CapturesManifest) -> Element:
    """Returns the section on what was joined, in sentences and tables."""
    return section(
        "experiment",
        "The captures",
        *(element("p", text) for text in sentences(manifest)),
        _files(manifest),
        _clocks(manifest),
        _estimates(manifest),
    )


def sentences(manifest: CapturesManifest) -> list[str]:
    """Returns sentences on what was joined."""
    ports = list(dict.fromkeys(capture.port for capture in manifest.request.captures))
    fed = (
        f"To {record.egress} came packets from {', '.join(record.ingress) or 'no port'}."
        for record in manifest.bottlenecks
    )
    request = manifest.request
    given = [f"a rate of {format_rate(request.rate_bps)}"] if request.rate_bps else []
    given += [f"a limit of {request.limit_bytes:,} bytes"] if request.limit_bytes else []
    return [
        f"Captures of {len(ports)} ports were joined: {', '.join(ports)}. Time 0 here is the first "
        f"packet with payload; the last one came {manifest.traffic.duration_ns / 1e6:,.3f} ms "
        "later.",
        " ".join(fed),
        *([f"The user gave the outputs {' and '.join(given)}."] if given else []),
        UNTOLD,
    ]


def _files(manifest: CapturesManifest) -> Element:
    holds = {"in": "what came in", "out": "what left", "any": "told by the join"}
    rows: list[list[Part]] = []
    for capture in manifest.request.captures:
        file = capture.file
        words = [file.path, f"{file.bytes:,}", file.sha256[:16]]
        rows.append([capture.port, holds[capture.direction], *words])
    head = ["port", "holds", "file", "bytes", "SHA-256, its beginning"]
    return table("The files; manifest.json has their whole hashes", head, rows, numbers_from=3)


def _clocks(manifest: CapturesManifest) -> Element | None:
    if not manifest.clocks:
        return None
    rows: list[list[Part]] = []
    for clock in manifest.clocks:
        offset = [f"{clock.offset_ns / 1e3:,.3f}", _between(clock.low_ns, clock.high_ns, 1e3)]
        drift = [f"{clock.drift_ppm:.3f}" if clock.drift_ppm else "-", "-"]
        if clock.drift_low_ppm is not None and clock.drift_high_ppm is not None:
            drift[1] = f"{clock.drift_low_ppm:.3f} to {clock.drift_high_ppm:.3f}"
        rows.append([clock.port, *offset, *drift])
    head = ["capture", "added to its stamps (µs)", "bounds", "drift (ppm)", "bounds"]
    return table("Clocks, as the packets show them", head, rows)


def _between(low: float | None, high: float | None, unit: float) -> str:
    if low is None or high is None:
        return "none known"
    return f"{low / unit:,.3f} to {high / unit:,.3f}"


def _estimates(manifest: CapturesManifest) -> Element | None:
    known = [part for part in manifest.estimates if part.rate_bps or part.limit_unit]
    if not known:
        return None
    rows: list[list[Part]] = []
    for part in known:
        rate = ["-", "-"]
        if part.rate_bps is not None:
            bounds = _between(part.rate_low_bps, part.rate_high_bps, 1e6)
            rate = [f"{part.rate_bps / 1e6:,.3f}", bounds if part.rate_bps else "-"]
        rows.append([part.port, *rate, _limit(part), number(part.limit_explains, ".2%")])
    head = ["output", "rate while packets wait (Mbps)", "bounds", "limit", "explains"]
    told = (
        "A limit explains 100 % if all packets below it were taken and all above it dropped; 50 % "
        "is nothing. Outputs where too few packets waited are left out."
    )
    caption = "Rate and limit of the queues, estimated from the packets"
    return element("div", table(caption, head, rows), note(told))


def _limit(estimate: QueueEstimate) -> str:
    if estimate.limit_unit is None or estimate.limit_at_least is None:
        return "-"
    below = "" if estimate.limit_below is None else f", below {estimate.limit_below:,}"
    return f"at least {estimate.limit_at_least:,}{below} {estimate.limit_unit}"


def again(manifest: CapturesManifest) -> Element:
    """Returns the section with the commands that join the captures once more."""
    where = (
        "The folder names the captures, and does not hold them. One that has moved is found again "
        "in the folder's captures/."
    )
    commands = (f"outcast analyze {shlex.quote(manifest.name)}", command(manifest))
    parts = (element("p", where), *map(code, commands), made_by(manifest.outcast))
    return section("again", "Join them again", *parts)


def made_by(version: str) -> Element:
    """Returns who made a folder, and where its numbers are."""
    return note(
        f"Made by outcast {version}. The folder's tables (packets, queue, blackouts, flows and "
        "throughput as Parquet) hold every number shown here."
    )


def command(manifest: CapturesManifest) -> str:
    """The command that joins the same captures in the same way."""
    request = manifest.request
    words = ["outcast", "join"]
    for capture in request.captures:
        named = f"{capture.port}={capture.file.path}"
        words += [named] if capture.direction == "any" else [f"--{capture.direction}", named]
    for address in request.destinations:
        words += ["--to", address]
    words += ["--routed"] if request.routed else []
    words += ["--one-clock"] if request.one_clock else []
    if request.max_sojourn_ns != 10**9:
        words += ["--max-sojourn", format_time(request.max_sojourn_ns)]
    return shlex.join([*words, "-o", f"{manifest.name}-again"])
