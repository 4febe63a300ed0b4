"""The results of many recipes side by side: index.html, and reproduction.md for the docs."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from outcast.reproduce.result import ClaimRecord, Result
from outcast.reproduce.verdict import Verdict
from outcast.run import write_text

_COLOURS = {
    Verdict.REPRODUCED: "#0b6e4f",
    Verdict.OTHER_SIZE: "#8a5a00",
    Verdict.NOT_SEEN: "#a4161a",
    None: "#555555",
}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a}
body{max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ccc}
img{max-width:100%;height:auto}
.verdict{font-weight:600}
article{border-top:2px solid #1a1a1a;margin-top:3rem;padding-top:.5rem;break-inside:avoid}
code{background:#f2f2f2;padding:.1rem .3rem;overflow-wrap:anywhere}
"""


def verdict_text(verdict: Verdict | None) -> str:
    """The verdict in words."""
    return "no result" if verdict is None else str(verdict)


def measured_text(claim: ClaimRecord) -> str:
    """The mean with its interval."""
    if claim.mean is None:
        return "-"
    if claim.low is None or claim.high is None:
        return f"{claim.mean:.3g} (one value, no interval)"
    return f"{claim.mean:.3g} [{claim.low:.3g}, {claim.high:.3g}]"


def seeds_text(result: Result) -> str:
    """How many runs, and which seeds."""
    runs = sum(len(point.seeds) for point in result.points)
    seeds = sorted({seed for point in result.points for seed in point.seeds})
    span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]) if seeds else "none"
    return f"{runs} runs, seeds {span}"


def write_index(folder: Path, results: Sequence[Result]) -> Path:
    """Writes index.html beside the recipes' folders; figures are linked, not embedded."""
    rows = "".join(
        f'<tr><td><a href="#{e(r.id)}">{e(r.id)}</a></td><td>{e(r.title)}</td>'
        f"<td>{_verdict(r.verdict)}</td><td>{e(r.mode)}</td></tr>"
        for r in results
    )
    articles = "".join(_article(result) for result in results)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Reproduction</title><style>{_STYLE}</style></head><body>"
        "<h1>The sources' figures, run again</h1>"
        "<table><thead><tr><th>Id</th><th>Experiment</th><th>Verdict</th><th>Mode</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>{articles}</body></html>\n"
    )
    path = folder / "index.html"
    write_text(path, page)
    return path


e = html.escape


def _verdict(verdict: Verdict | None) -> str:
    return f'<span class="verdict" style="color:{_COLOURS[verdict]}">{verdict_text(verdict)}</span>'


def _article(result: Result) -> str:
    claims = "".join(
        f"<tr><td>{e(c.text)}</td><td>{e(c.rule)}</td><td>{e(measured_text(c))}</td>"
        f"<td>{_verdict(c.verdict)}</td></tr>"
        for c in result.claims
    )
    notes = "".join(
        f"<p><b>{title}:</b> {e(text)}</p>"
        for title, text in (("Differs", result.differs), ("Why", result.reason))
        if text
    )
    failures = "".join(
        f"<li>{e(f.label)}, seed {f.seed}: {e(f.reason)}</li>" for f in result.failures
    )
    return (
        f'<article id="{e(result.id)}"><h2>{e(result.id)}: {e(result.title)}</h2>'
        f"<p>{e(result.source)}. Reported: {e(result.reported)}.</p>"
        f"<p>Verdict: {_verdict(result.verdict)} ({seeds_text(result)}, {e(result.mode)} mode)</p>"
        f'<img src="{e(result.id)}/{e(result.figure)}" alt="Figure of {e(result.title)}">'
        "<table><thead><tr><th>Claim</th><th>Rule</th><th>Measured, 95 % interval</th>"
        f"<th>Verdict</th></tr></thead><tbody>{claims}</tbody></table>{notes}"
        + (f"<p>Runs left out:</p><ul>{failures}</ul>" if failures else "")
        + f"<p>Again: <code>{e(result.command)}</code>; outcast {e(result.outcast)}, "
        f"{e(result.engine)} engine, kernel {e(result.kernel)}</p></article>"
    )
