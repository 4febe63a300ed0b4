"""`outcast reproduce`: runs the experiments behind the sources' figures and judges the results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console

from outcast import cli
from outcast.errors import RunError
from outcast.experiment import PROFILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from outcast.uses.papers.families import Family
    from outcast.uses.papers.recipe import Recipe
    from outcast.uses.papers.result import Result


_EXACT = (
    "noise exact: nothing is random but what a configuration draws itself, so the seeds of most "
    "figures give the same packets, which count as one run; a verdict needs six different ones"
)


@cli.verb(
    "reproduce",
    "outcast reproduce --list",
    "outcast reproduce P10",
    "outcast reproduce all --full --jobs 2",
    "outcast reproduce P3 P10 --noise all",
)
@click.argument("figures", nargs=-1, metavar="FIGURE...|all")
@cli.flag("--list", "List FIGURE, or all figures, and run nothing.", "listed")
@cli.option(
    "--quick/--full",
    "Six seeds and short runs, or as many and as long as the findings are based on.",
    default=True,
)
@cli.option(
    "--noise",
    "Run each FIGURE under this profile of noise instead of its own, or in real time; can be "
    "given again.",
    multiple=True,
    type=cli.Choice([*PROFILES, "all", "real-time"]),
)
@cli.jobs
@cli.option(
    "-o, --output DIR",
    "Where results go; runs that are finished there are not repeated.",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results/reproduction"),
)
def command(
    figures: tuple[str, ...],
    listed: bool,
    quick: bool,
    noise: tuple[str, ...],
    jobs: int | None,
    output: Path,
) -> None:
    """Run the experiments behind FIGURE. Print what was reported, what is measured, the verdict.

    Exit status 1 if a figure has no verdict because runs of it failed.
    """
    from outcast.api import Planned, progress
    from outcast.api.guest import provide
    from outcast.sweep.store import locked
    from outcast.uses.papers import conclusion as reproduce
    from outcast.uses.papers import families, index, recipe, runs, state

    recipes = recipe.load_all()
    console = cli.console()
    if not figures and not listed:
        raise click.UsageError("name a figure, or all; --list prints the names")
    chosen = recipe.choose(recipes, figures or ["all"])
    if listed:
        console.print(_listing(chosen))
        return
    mode: Literal["quick", "full"] = "quick" if quick else "full"
    every = [name for word in noise for name in (PROFILES if word == "all" else [word])]
    profiles: list[str | None] = [*dict.fromkeys(every)]
    runs_by_figure = {
        (figure.id, profile): runs.planned_runs(figure, mode, profile)
        for figure in chosen
        # A computation has no noise.
        for profile in (profiles if profiles and figure.has_runs else [None])
    }
    everything = [run for of_figure in runs_by_figure.values() for run in of_figure]
    errors, at_a_time = cli.console(stderr=True), jobs or os.cpu_count() or 1
    if "exact" in profiles:
        errors.print(_EXACT, soft_wrap=True)
    cli.end_as_interrupted()
    if first := next((run.experiment for run in everything if run.experiment is not None), None):
        provide(Planned(first), progress=True)
    with locked(output) as store:
        made_by = state.hold(store, state.present())
        needed = runs.needed(everything, store, lambda text: errors.print(text, soft_wrap=True))
        if needed.missing:
            left = f"{len(needed.missing)} are left"
            cli.echo(f"{needed.finished} runs are finished, {left}", err=True)
        with progress.of_sweep(True) as display:
            failed = runs.make_missing(needed, store, at_a_time, display)
        failed = {**runs.make_effects(everything, store, at_a_time), **failed}
        for (name, profile), planned in runs_by_figure.items():
            reproduce.conclude(recipes[name], mode, planned, store, failed, made_by, profile)
        stored = reproduce.stored(output, list(recipes.values()))
        page = index.write_index(output, stored)
        verdicts = families.over_noise(stored)
        requested = [one for one in stored if (one.id, one.profile) in runs_by_figure]
        for result in requested:
            of_noise = [rows.get(result.profile or "") for rows in verdicts.values()]
            _show(console, result, [one for one in of_noise if one], output)
    cli.echo_path(page)
    _require_verdicts(requested, page)


def _require_verdicts(results: Sequence[Result], page: Path) -> None:
    """Raises RunError if a figure has no verdict because runs of it failed."""
    from outcast.uses.papers import conclusion as reproduce

    lacking = [one for one in results if one.claims[0].verdict is None]
    without = dict.fromkeys(one.id for one in lacking if reproduce.missing_runs(one))
    if without:
        raise RunError(f"no verdict on {', '.join(without)}: runs are missing; see {page}")


def _listing(recipes: Sequence[Recipe]) -> Table:
    from outcast.view import forms

    texts = ("id", "experiment", "reported")
    table = forms.table(*texts, "runs quick", "full", left=texts, wrapped=None, style="bold")
    for figure in recipes:
        points = len(figure.every_point)
        runs = (str(points * mode.repetitions) for mode in (figure.quick, figure.full))
        table.add_row(figure.id, figure.title, figure.reported, *runs)
    return table


def _show(screen: Console, result: Result, verdicts: Sequence[Family], output: Path) -> None:
    from outcast.uses.papers import conclusion as reproduce
    from outcast.uses.papers import index
    from outcast.uses.papers.verdict import verdict_text
    from outcast.view import forms

    screen.print()
    screen.print(f"{index.full_name(result)}: {result.title}", style="bold")
    screen.print(f"reported: {result.reported}")
    heads = ("claim", index.MEASURED, "p", "by itself", "family")
    table = forms.table(*heads, left=heads, wrapped=None, style="bold")
    for claim in result.claims:
        words = index.claim_text(claim.model_copy(update={"apart": ""}))
        family = "apart" if claim.apart else claim.family
        p = index.p_text(claim.p)
        table.add_row(claim.text, index.measured_text(claim), p, words, family)
    screen.print(table)
    for reason in {claim.apart: None for claim in result.claims if claim.apart}:
        screen.print(f"apart: {reason}", soft_wrap=True)
    for failure in result.failures:
        screen.print(f"left out: {failure.label}, seed {failure.seed}: {failure.reason}")
    of_figure = [one for one in verdicts if result.id in dict(one.claims)]
    for one in of_figure:
        p = f"p {index.p_text(one.p)}, corrected for all families of the page"
        screen.print(f"{one.name}: {one.sentence}: {one.tally}; {p}", soft_wrap=True)
    known = [f"{one.name} {verdict_text(one.verdict)}" for one in of_figure]
    cli.echo(
        f"verdict: {', '.join(known) or 'no claim of it counts'}, under {result.noise} "
        f"({index.seeds_text(result)}); "
        f"{reproduce.folder_of(output, result.id, result.profile) / result.figure}"
    )
