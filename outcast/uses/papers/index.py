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
from outcast.uses.papers import conclusion, families
from outcast.uses.papers.conclusion import folder_of
from outcast.uses.papers.families import Family
from outcast.uses.papers.recipe import load_all
from outcast.uses.papers.result import ClaimRecord, Result
from outcast.uses.papers.verdict import Verdict, number, verdict_text
from outcast.view import page

MEASURED = "median, 95 % interval"
NO_NOISE = "own noise"
"""What tables call the noise that the configurations have themselves."""
_BADGES = {
    Verdict.REPRODUCED: ("✓", "good"),
    Verdict.UNCONTROLLED: ("~", "doubtful"),
    Verdict.OTHER_SIZE: ("≈", "doubtful"),
    Verdict.MIXED: ("±", "doubtful"),
    Verdict.INCONCLUSIVE: ("?", "doubtful"),
    Verdict.VACUOUS: ("∅", "doubtful"),
    Verdict.CONTRADICTED: ("✗", "bad"),
    None: ("–", "none"),
}


def interval_text(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    if low is None:
        return f"{number(value)} (no interval)"
    return f"{number(value)} [{number(low)}, {'∞' if high is None else number(high)}]"


def measured_text(claim: ClaimRecord) -> str:
    """The median of a claim's value with its interval; of two modes their shares alone."""
    if claim.note.startswith("two modes"):
        return claim.note.partition("; ")[0]
    return interval_text(claim.median, claim.low, claim.high)


def claim_text(claim: ClaimRecord) -> str:
    """A claim's verdict by its own p, with what stands against it."""
    note = claim.note
    if note.startswith("two modes"):
        note = note.partition("; ")[2]
    return "; ".join(filter(None, (verdict_text(claim.verdict), note, claim.apart)))


def p_text(p: float | None) -> str:
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
    return write_index(folder, conclusion.stored(folder, [*load_all().values()]))


def write_index(folder: Path, results: Sequence[Result]) -> Path:
    """Writes index.html beside the recipes' folders. The page has all figures inside it.

    Raises ConfigError: the results are of different states.
    """
    families.require_one_state(results)
    verdicts = families.over_noise(results)
    # A family counts with the first noise that it was run under.
    count = Counter(next(iter(rows.values())).verdict for rows in verdicts.values())
    whole = page.render(
        Path(__file__).with_suffix(".html"),
        results=results,
        modes=sorted({result.mode for result in results}),
        counts=[(verdict, count[verdict]) for verdict in _BADGES if count[verdict]],
        badges=_BADGES,
        left_out=[f"{full_name(one)}: {line}" for one in results for line in _left_out(one)],
        families=_families(verdicts, results),
        parts=[(one, _figure(one, folder), _claims(one), _points(one)) for one in results],
        commands=_commands(folder, results),
        **{
            function.__name__: function
            for function in (claim_text, full_name, made_text, remarks, seeds_text, verdict_text)
        },
        left_out_of=_left_out,
    )
    return page.write(folder / "index.html", whole)


def full_name(result: Result) -> str:
    return result.id if result.profile is None else f"{result.id}@{result.profile}"


def _families(
    verdicts: Mapping[str, Mapping[str, Family]], results: Sequence[Result]
) -> page.Table:
    noises = list(dict.fromkeys(noise for rows in verdicts.values() for noise in rows))
    head = ["family", "figures", *(noise or NO_NOISE for noise in noises)]
    cells = []
    for rows in verdicts.values():
        one = next(iter(rows.values()))
        links = [full_name(result) for result in results if result.id in dict(one.claims)]
        cells.append([one.sentence, links, *(rows.get(noise) for noise in noises)])
    return page.Table("All families", head, cells, 9)


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


def _claims(result: Result) -> page.Table:
    cells = [
        (claim.text, claim, measured_text(claim), p_text(claim.p), claim.family, claim.rule)
        for claim in result.claims
    ]
    return page.Table("Claims", ("claim", "verdict", MEASURED, "p", "family", "rule"), cells, 9)


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
