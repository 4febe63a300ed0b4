"""index.html: the results of many recipes on one page."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from outcast.errors import InputError
from outcast.sweep.points import as_text
from outcast.uses.papers import conclusion, together
from outcast.uses.papers.conclusion import folder_of
from outcast.uses.papers.pictures import curves as band_picture
from outcast.uses.papers.recipe import load_all
from outcast.uses.papers.result import ClaimRecord, Result, number
from outcast.uses.papers.together import Row, ShownClaim
from outcast.uses.papers.verdict import Verdict, verdict_text
from outcast.view import page

MEASURED = "measured, 95 % interval"
_BADGES = {
    Verdict.REPRODUCED: ("✓", "good"),
    Verdict.UNCONTROLLED: ("~", "doubtful"),
    Verdict.OTHER_SIZE: ("≈", "doubtful"),
    Verdict.INCONCLUSIVE: ("?", "doubtful"),
    Verdict.VACUOUS: ("∅", "doubtful"),
    Verdict.CONTRADICTED: ("✗", "bad"),
    None: ("–", "none"),
}


def interval_text(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None:
        return "-"
    if low is None or high is None:
        return f"{number(mean)} (no interval)"
    return f"{number(mean)} [{number(low)}, {number(high)}]"


def measured_text(claim: ClaimRecord) -> str:
    """The mean of a claim's measure with its interval, and how many runs were stationary."""
    text = interval_text(claim.mean, claim.low, claim.high)
    if claim.mean is None or claim.stationary is None:
        return text
    text += f"; stationary: {claim.stationary[0]} of {claim.stationary[1]} runs"
    return (
        f"{text} ({claim.starved} more but for flows that got nothing)" if claim.starved else text
    )


def claim_text(claim: ShownClaim) -> str:
    """A claim's verdict, with what stands against it."""
    note = claim.record.note
    return verdict_text(claim.verdict) + (f"; {note}" if note else "")


def p_text(p: float | None) -> str:
    """A p-value, corrected for all claims of a row."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"


def remarks(result: Result) -> list[tuple[str, str]]:
    """The recipe's remarks on the comparison: a title and a text for each."""
    known = (
        ("Differs from the source", result.differs),
        ("Why", result.reason),
        ("Not judged", result.unjudged),
    )
    return [(title, text) for title, text in known if text]


def made_text(result: Result) -> str:
    """Which state, noise and engine made a result's runs."""
    return f"{result.state}; noise {result.noise}; {result.engine} engine"


def seeds_text(result: Result) -> str:
    runs = sum(len(point.seeds) for point in result.points)
    seeds = sorted({seed for point in result.points for seed in point.seeds})
    span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]) if seeds else "none"
    return f"{runs} runs, seeds {span}"


def write_again(folder: Path) -> Path:
    """Writes index.html by the results that a folder holds."""
    stored = conclusion.stored(folder, [*load_all().values()])
    return write_index(folder, together.rows(stored))


def write_index(folder: Path, all_rows: Sequence[Row]) -> Path:
    """Writes index.html beside the recipes' folders. The page has all figures inside it."""
    own = together.with_sections(all_rows)
    results = [row.result for row in own]
    count = Counter(row.verdict for row in all_rows)
    bands = together.over_noise(all_rows)
    whole = page.render(
        Path(__file__).with_suffix(".html"),
        results=results,
        modes=sorted({row.result.mode for row in all_rows}),
        counts=[(verdict, count[verdict]) for verdict in _BADGES],
        badges=_BADGES,
        left_out=[f"{row.result.id}: {line}" for row in all_rows for line in _left_out(row.result)],
        control_text=together.control_text(all_rows),
        all_rows=_all_rows(own),
        bands=[f"{name}: {together.band_text(band)}" for name, band in bands.items()],
        about_bands=ABOUT_BAND,
        bands_picture=_bands_picture(bands, folder) if bands else None,
        rows_by_noise=_by_noise(bands),
        parts=[
            (row, _figure(row.result, folder), _claims(row), _points(row.result)) for row in own
        ],
        commands=_commands(folder, results),
        **{
            function.__name__: function
            for function in (
                *(anchor, claim_text, full_name, made_text, measured_text, remarks, seeds_text),
                verdict_text,
            )
        },
        left_out_of=_left_out,
    )
    return page.write(folder / "index.html", whole)


def full_name(result: Result) -> str:
    return result.id if result.profile is None else f"{result.id}, {result.profile}"


def anchor(result: Result) -> str:
    return result.id if result.profile is None else f"{result.id}-{result.profile}"


def burst_text(result: Result) -> str:
    """The burst ratio of the flows with the fewest hops, with its interval."""
    burst = result.burst
    if burst is None or burst.mean is None:
        return "-"
    return f"{interval_text(burst.mean, burst.low, burst.high)} ({burst.hops}-hop)"


BAND = ["id", "noise", "main claim, measured", "burst ratio", "verdict", "claims"]
ABOUT_BAND = (
    "The same rows under several profiles of noise. The burst ratio compares chains of drops, of "
    "the flows with the fewest hops, with those of chance at the same loss rate: at 1 drops have "
    "no memory. Rows may have other numbers of seeds than the table above, so the same profile can "
    "have another verdict here."
)
ABOUT_PICTURE = (
    "Each figure under each profile of noise: its main claim's measure with the 95 % interval, by "
    "that claim's verdict, and the burst ratio. The grey line is where each would be without it"
)


def _all_rows(rows: Sequence[Row]) -> page.Table:
    head = ["id", "verdict", "claims", "experiment", "reported", "main claim, measured"]
    cells = [
        (result, row, row.tally, result.title, result.reported, result.claims[0])
        for row in rows
        for result in (row.result,)
    ]
    return page.Table("All rows", head, cells, 9)


def _by_noise(bands: Mapping[str, Sequence[Row]]) -> page.Table:
    cells = []
    for row in (row for band in bands.values() for row in band):
        result = row.result
        measured = measured_text(result.claims[0])
        cells.append((result.id, result.noise, measured, burst_text(result), row, row.tally))
    return page.Table("Rows by noise", BAND, cells, 9)


def _lighter(path: Path) -> bytes:
    """A stored PNG with 128 colours, which takes a third of its bytes. Raises InputError."""
    try:
        with Image.open(path) as picture:
            fewer = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    stream = io.BytesIO()
    fewer.save(stream, "PNG")
    return stream.getvalue()


def _bands_picture(bands: Mapping[str, Sequence[Row]], folder: Path) -> page.Picture:
    drawn = folder / band_picture.FILE
    band_picture.draw_band(bands, load_all(), drawn)
    return page.picture(_lighter(drawn), ABOUT_PICTURE, 900, "png")


def _left_out(result: Result) -> list[str]:
    return [
        f"{failure.label}, seed {failure.seed}: {failure.reason}" for failure in result.failures
    ]


def _figure(result: Result, folder: Path) -> page.Picture | None:
    path = folder_of(folder, result.id, result.profile) / result.figure
    if not path.exists():
        return None
    words = f"The figure of {result.title}; the table below has the numbers behind the verdict."
    return page.picture(_lighter(path), words, 1000, "png")


def _claims(row: Row) -> page.Table:
    cells = [
        (claim.record.text, claim, measured_text(claim.record), p_text(claim.p), claim.record.rule)
        for claim in row.claims
    ]
    return page.Table("Claims", ("claim", "verdict", MEASURED, "p, corrected", "rule"), cells, 9)


def _points(result: Result) -> page.Table:
    cells = []
    for point in result.points:
        settings = ", ".join(f"{key}={as_text(value)}" for key, value in point.set.items())
        for measure, values in (point.values or {"-": []}).items():
            listed = ", ".join("-" if value is None else f"{value:.4g}" for value in values)
            seeds = ", ".join(str(seed) for seed in point.seeds)
            config = " with ".join(part for part in (point.config, settings) if part)
            cells.append([point.label, measure, listed or "-", seeds or "-", config or "computed"])
    head = ["point", "measure", "values", "of the seeds", "configuration"]
    return page.Table("By seed", head, cells, 9)


def _commands(folder: Path, results: Sequence[Result]) -> list[str]:
    output = shlex.quote(folder.absolute().name)
    modes = sorted({result.mode for result in results if result.profile is None})
    commands = [f"outcast reproduce all --{mode}" for mode in modes]
    commands += [result.command for result in results if result.profile is not None]
    return [f"{command} -o {output}" for command in commands]
