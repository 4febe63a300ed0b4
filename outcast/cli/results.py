"""`outcast results`: the averages of a sweep's runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outcast.cli import shared, terminal
from outcast.cli.show import save
from outcast.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from outcast.analysis.statistics import Kind
    from outcast.sweep.dataset import Dataset
    from outcast.sweep.groups import Group
    from outcast.sweep.render import Labels


@shared.verb(
    "results",
    "outcast results results/limits --by queue.limit --value outcast_ratio",
    "outcast results results/limits --value jain_index --figure line",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.where
@shared.by
@shared.over
@shared.option(
    "--value NAME",
    "Column to average. Can be repeated [default: ratio, Jain's index, goodput].",
    "values",
    multiple=True,
)
@shared.option(
    "--center",
    "The average that is computed and that the interval belongs to.",
    type=shared.Choice(["mean", "geometric", "median"]),
    default="mean",
)
@shared.flag("--disagreeing", "Include runs whose captures and counters do not agree.")
@shared.path("--against DIR", "Print the differences from the sweep in this folder.")
@shared.option(
    "--difference A B",
    "Print how the runs with the swept value B differ from those with A.",
    nargs=2,
    default=None,
)
@shared.form
@shared.option(
    "--figure",
    "Draw instead of printing: the first --by along the axis, the others as series.",
    type=shared.Choice(["line", "bar", "heat", "cdf"]),
)
@shared.output("FILE", "Where the figure goes: .png, .svg or .pdf [default: DIR/VALUE-KIND.png].")
@shared.flag("--columns", "List all columns, and do nothing else.")
def command(
    directory: Path,
    values: tuple[str, ...],
    center: Kind,
    against: Path | None,
    difference: tuple[str, str] | None,
    form: str,
    figure: str | None,
    output: Path | None,
    columns: bool,
    **runs: Any,
) -> None:
    """Print the means over the repetitions of the sweep in DIR, with their 95 % intervals."""
    from outcast.sweep import dataset, groups, render
    from outcast.sweep import figures as draw
    from outcast.sweep.render import Labels
    from outcast.sweep.store import SweepDirectory

    results = dataset.load(directory)
    if not results.runs.height:
        raise InputError(f"{directory}: no run has finished yet")
    if columns:
        terminal.echo("\n".join(results.runs.columns))
        return
    _require_fitting(directory, output, figure, against, difference)
    labels = Labels(SweepDirectory(directory).read_experiment())
    names = ("conditions", "by", "over", "disagreeing")
    conditions, by, over, disagreeing = (runs[name] for name in names)
    keys = list(by) or groups.default_by(results, over)
    if figure == "cdf":
        value = values[0] if values else groups.default_values(results.runs)[0]
        choice = draw.Choice(value, by, conditions, center, disagreeing, over)
        save(draw.figure(directory, figure, choice), output or _default(directory, value, figure))
        return
    chosen = draw.chosen(results.runs, conditions, disagreeing)
    other, base = None, ""
    if difference is not None:
        key, other, chosen = groups.sides(chosen, results.keys, *difference)
        keys = [each for each in keys if set(chosen[each]) & set(other[each])]
        base = f"at {key} {difference[0].removeprefix(f'{key}=')}"
        groups.pooled(other, results.keys, keys, over)
    mixed = groups.pooled(chosen, results.keys, keys, over)
    averaged = list(values) or groups.default_values(chosen)
    unmatched = 0
    if against is not None:
        others = dataset.load(against)
        other, base = draw.chosen(others.runs, conditions, disagreeing), f"in {against}"
        groups.pooled(other, others.keys, keys, [key for key in over if key in others.keys])
    if other is not None:
        summed = groups.compare(chosen, other, keys, averaged, center)
        unmatched = sum(len(groups.grouped(rows, keys)) - len(summed) for rows in (chosen, other))
    else:
        summed = groups.summarize(chosen, keys, averaged, center)
    if figure is not None:
        drawn = draw.of_groups(summed, figure, averaged[0], labels)
        if base:
            drawn.axes[0].set_title(_named(center, base)[1], fontsize="small")
        save(drawn, output or _default(directory, averaged[0], figure))
    elif form == "csv":
        terminal.echo(render.as_csv(summed), nl=False)
    elif form == "json":
        terminal.echo(render.as_json(summed))
    else:
        _print(results, chosen, summed, center, base, unmatched, labels, mixed)


def _require_fitting(
    directory: Path,
    output: Path | None,
    figure: str | None,
    against: Path | None,
    difference: tuple[str, str] | None,
) -> None:
    """Raises ConfigError for options of which one excludes the other."""
    if output is not None and figure is None:
        raise ConfigError("-o: names a figure's file; allowed only together with --figure")
    if against is not None and difference is not None:
        raise ConfigError("--difference: allowed only without --against")
    if figure == "cdf" and (against is not None or difference is not None):
        raise ConfigError("--figure: a difference has no cdf; allowed are line, bar and heat")
    if against is not None and against.resolve() == directory.resolve():
        raise ConfigError(
            "--against: is the sweep itself, so all differences are 0; allowed is another sweep"
        )


def _print(
    results: Dataset,
    runs: pl.DataFrame,
    summed: list[Group],
    center: str,
    base: str,
    unmatched: int,
    labels: Labels,
    mixed: Mapping[str, Sequence[str]],
) -> None:
    """Prints the table and the remarks on it; only one of two sweeps has `unmatched` groups."""
    from outcast.sweep import groups, render

    console = terminal.console()
    singular, plural = _named(center, base)
    console.print(render.table(summed, singular, labels))
    lines = [f"{plural}, with 95 % intervals over the runs; a single run has no interval"]
    if any(groups.are_copies(group) for group in summed):
        lines.append(
            "where all runs of a group gave the same values, they count as one run, and the "
            "interval says nothing: without noise a seed hardly changes anything"
        )
    lines += [f"pooled over {key}: {', '.join(values)}" for key, values in mixed.items()]
    lines += groups.remarks_on_trends(summed)
    lines += [*groups.without_value(summed), *groups.remarks_on_intervals(runs)]
    if unmatched:
        lines.append(f"{unmatched} groups are left out, because only one of the two has them")
    if missing := results.planned - results.runs.height:
        lines.append(f"{missing} of {results.planned} runs have no result")
    if "trusted" in results.runs.columns:
        doubtful = results.runs.height - int(results.runs["trusted"].sum())
        if doubtful and runs["trusted"].all():
            why = "whose captures and counters do not agree"
            lines.append(f"{doubtful} runs {why} are left out (--disagreeing)")
    console.print("\n".join(lines), soft_wrap=True)


def _named(center: str, base: str) -> tuple[str, str]:
    """The name of a number in the table, and that of all; `base` is what they differ from."""
    singular = {"mean": "mean", "geometric": "geometric mean", "median": "median"}[center]
    if not base:
        return singular, f"{singular}s"
    if center == "geometric":
        return "ratio", f"ratios to the {singular}s {base}"
    return "difference", f"differences from the {singular}s {base}"


def _default(directory: Path, value: str, kind: str) -> Path:
    return directory / f"{value.replace(' ', '-')}-{kind}.png"
