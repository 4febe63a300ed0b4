"""The values of joined captures: what was joined, on which clocks, and the command to repeat it."""

import shlex

from outcast.records.captures import CapturesManifest, QueueEstimate
from outcast.units import format_rate, format_time
from outcast.view.report.page import Table
from outcast.view.summary_words import number


def values(manifest: CapturesManifest) -> dict[str, object]:
    request = manifest.request
    given = [f"a rate of {format_rate(request.rate_bps)}"] if request.rate_bps else []
    given += [f"a limit of {request.limit_bytes:,} bytes"] if request.limit_bytes else []
    return {
        "joined": [*dict.fromkeys(capture.port for capture in request.captures)],
        "lasted_ms": f"{manifest.traffic.duration_ns / 1e6:,.3f}",
        "given": given,
        "files": _files(manifest),
        "clocks": _clocks(manifest),
        "estimates": _estimates(manifest),
        "join_again": command(manifest),
    }


def _files(manifest: CapturesManifest) -> Table:
    holds = {"in": "what came in", "out": "what left", "any": "found by the join"}
    rows = [
        (part.port, holds[part.direction], file.path, f"{file.bytes:,}", file.sha256[:16])
        for part in manifest.request.captures
        for file in (part.file,)
    ]
    head = ["port", "holds", "file", "bytes", "SHA-256, its beginning"]
    return Table("The files; manifest.json has their whole hashes", head, rows, 3)


def _clocks(manifest: CapturesManifest) -> Table | None:
    rows = [
        [
            clock.port,
            f"{clock.offset_ns / 1e3:,.3f}",
            _between(clock.low_ns, clock.high_ns, 1e3),
            f"{clock.drift_ppm:.3f}" if clock.drift_ppm else "-",
            _between(clock.drift_low_ppm, clock.drift_high_ppm),
        ]
        for clock in manifest.clocks
    ]
    head = ["capture", "added to its stamps (µs)", "bounds", "drift (ppm)", "bounds"]
    return Table("Clocks, as the packets show them", head, rows) if rows else None


def _between(low: float | None, high: float | None, unit: float = 1.0) -> str:
    return "-" if low is None or high is None else f"{low / unit:,.3f} to {high / unit:,.3f}"


def _estimates(manifest: CapturesManifest) -> Table | None:
    rows = [
        [
            part.port,
            f"{part.rate_bps / 1e6:,.3f}" if part.rate_bps else "-",
            _between(part.rate_low_bps, part.rate_high_bps, 1e6),
            _limit(part),
            number(part.limit_explains, ".2%"),
        ]
        for part in manifest.estimates
        if part.rate_bps or part.limit_unit
    ]
    head = ["output", "rate while packets wait (Mbps)", "bounds", "limit", "explains"]
    remark = (
        "A limit explains 100 % if all packets below it were taken and all above it dropped; 50 % "
        "is nothing. Outputs where too few packets waited are left out."
    )
    caption = "Rate and limit of the queues, estimated from the packets"
    return Table(caption, head, rows, remarks=[remark]) if rows else None


def _limit(estimate: QueueEstimate) -> str:
    if estimate.limit_unit is None or estimate.limit_at_least is None:
        return "-"
    below = "" if estimate.limit_below is None else f", below {estimate.limit_below:,}"
    return f"at least {estimate.limit_at_least:,}{below} {estimate.limit_unit}"


def command(manifest: CapturesManifest) -> str:
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
