"""`outcast results`: what the runs of a sweep come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outcast import files
from outcast.cli import shared, terminal
from outcast.errors import ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl

    from outcast.sweep.dataset import Dataset
    from outcast.sweep.groups import Group


@click.command("results")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only runs that have this value. Can be given several times; all have to hold.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="KEY",
    help="Group by this column. Can be given several times [default: all swept keys].",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME",
    help="Column to average. Can be given several times [default: ratio, index, goodput].",
)
@click.option(
    "--center",
    type=shared.Choice(["mean", "geometric", "median"]),
    default="mean",
    show_default=True,
    help="What the interval is of.",
)
@click.option("--untrusted", is_flag=True, help="Count runs that cannot be trusted too.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Print the differences from this sweep.",
)
@shared.form
@click.option(
    "--figure",
    type=shared.Choice(["line", "bar", "heat", "cdf"]),
    help="Draw instead: the first --by along the axis, the others as series.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of the figure; PNG, SVG or PDF by its ending [default: DIR/VALUE-KIND.png].",
)
@click.option("--columns", is_flag=True, help="List the columns there are, and end.")
def command(
    directory: Path,
    conditions: tuple[str, ...],
    by: tuple[str, ...],
    values: tuple[str, ...],
    center: str,
    untrusted: bool,
    against: Path | None,
    form: str,
    figure: str | None,
    output: Path | None,
    columns: bool,
) -> None:
    """Means over the repetitions of the sweep in DIR, with 95 % bootstrap intervals."""
    from outcast.analysis.statistics import Kind
    from outcast.sweep import dataset, groups, render

    found = dataset.load(directory)
    if not found.runs.height:
        raise InputError(f"{directory}: no run has finished yet")
    if columns:
        terminal.echo("\n".join(found.runs.columns))
        return
    if output is not None and figure is None:
        raise ConfigError("-o: names a figure's file; allowed together with --figure")
    if figure == "cdf" and against is not None:
        raise ConfigError("--against: a difference has no cdf; allowed are line, bar and heat")
    kind: Kind = center  # type: ignore[assignment]  # click has checked it
    keys = list(by) or groups.default_by(found)
    if figure == "cdf":
        rows = _rows(found, values, conditions, untrusted)
        terminal.echo_path(_draw_cdf(rows, keys if by else keys[:1], values, directory, output))
        return
    runs = _chosen(found.runs, conditions, untrusted)
    names = list(values) or groups.default_values(runs)
    apart = 0
    if against is not None:
        other = _chosen(dataset.load(against).runs, conditions, untrusted)
        summed = groups.compare(runs, other, keys, names, kind)
        apart = sum(len(groups.grouped(each, keys)) - len(summed) for each in (runs, other))
    else:
        summed = groups.summarize(runs, keys, names, kind)
    if figure is not None:
        path = output or directory / f"{names[0]}-{figure}.png"
        title = None if against is None else _named(center, against)[1]
        terminal.echo_path(_draw(figure, summed, names[0], title, path))
        return
    if form == "csv":
        terminal.echo(render.as_csv(summed), nl=False)
    elif form == "json":
        terminal.echo(render.as_json(summed))
    else:
        _print(found, runs, summed, center, against, apart)


def _chosen(runs: pl.DataFrame, conditions: tuple[str, ...], untrusted: bool) -> pl.DataFrame:
    from outcast.sweep import groups

    chosen = groups.where(runs, conditions)
    return chosen if untrusted else groups.trusted(chosen)


def _rows(
    found: Dataset, values: tuple[str, ...], conditions: tuple[str, ...], untrusted: bool
) -> pl.DataFrame:
    """Runs, or where the value is one of flows, the flows of the chosen runs."""
    from outcast.sweep import groups

    if values and values[0] not in found.runs.columns and values[0] in found.flows.columns:
        kept = [each for each in conditions if each.partition("=")[0] in found.runs.columns]
        runs = _chosen(found.runs, tuple(kept), untrusted)
        flows = found.flows.join(runs.select("run"), on="run", how="semi")
        return groups.where(flows, [each for each in conditions if each not in kept])
    return _chosen(found.runs, conditions, untrusted)


def _print(
    found: Dataset,
    runs: pl.DataFrame,
    summed: list[Group],
    center: str,
    against: Path | None,
    apart: int,
) -> None:
    """The tables and what is to be known of them; `apart`: groups that one of two sweeps has."""
    from outcast.sweep import groups, render

    console = terminal.console()
    shown, of = _named(center, against)
    console.print(render.table(summed, shown))
    lines = [f"{of}, with 95 % bootstrap intervals over the runs; a single run has none"]
    if any(groups.are_copies(group) for group in summed):
        lines.append(
            "a group whose runs all came out the same is one run, however many seeds: without "
            "links.jitter a seed hardly changes anything, and the interval says nothing"
        )
    lines += groups.without_value(summed)
    if apart:
        lines.append(f"{apart} groups that only one of both sweeps has are left out")
    missing = found.planned - found.runs.height
    if missing:
        lines.append(f"{missing} of {found.planned} runs have no result")
    if "trusted" in found.runs.columns:
        doubtful = found.runs.height - int(found.runs["trusted"].sum())
        if doubtful and runs["trusted"].all():
            lines.append(f"{doubtful} runs that cannot be trusted are left out (--untrusted)")
    console.print("\n".join(lines), soft_wrap=True)


def _named(center: str, against: Path | None) -> tuple[str, str]:
    """What one number is, and what all of them are."""
    shown = {"mean": "mean", "geometric": "geometric mean", "median": "median"}[center]
    if against is None:
        return shown, f"{shown}s"
    if center == "geometric":
        return "ratio", f"ratios to the {shown}s in {against}"
    return "difference", f"differences from the {shown}s in {against}"


def _draw(kind: str, summed: list[Group], value: str, title: str | None, path: Path) -> Path:
    from outcast.sweep import figures

    made = {"line": figures.line, "bar": figures.bar, "heat": figures.heat}[kind](summed, value)
    if title is not None:
        made.axes[0].set_title(title, fontsize="small")
    return _save(made, path)


def _draw_cdf(
    rows: pl.DataFrame,
    by: list[str],
    values: tuple[str, ...],
    directory: Path,
    output: Path | None,
) -> Path:
    from outcast.sweep import figures

    value = values[0] if values else "outcast_ratio"
    return _save(figures.cdf(rows, by, value), output or directory / f"{value}-cdf.png")


def _save(figure: Any, path: Path) -> Path:
    import matplotlib

    from outcast.view.figures import style

    try:
        with matplotlib.rc_context(style.STYLE):
            return style.save(figure, path)
    except OSError as error:
        raise ConfigError(f"-o {files.describe(error)}") from None
    except ValueError as error:
        raise ConfigError(f"-o {path}: {error}") from None
