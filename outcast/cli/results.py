"""`outcast results`: the averages of a sweep's runs."""

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


@click.command(
    "results",
    epilog=shared.examples(
        "outcast results results/limits --by queue.limit --value outcast_ratio",
        "outcast results results/limits --value jain_index --figure line",
    ),
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only runs with this value. Can be repeated; then all conditions must hold.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="KEY",
    help="Group by this column. Can be repeated [default: all swept keys].",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME",
    help="Column to average. Can be repeated [default: ratio, Jain's index, goodput].",
)
@click.option(
    "--center",
    type=shared.Choice(["mean", "geometric", "median"]),
    default="mean",
    show_default=True,
    help="The average that is computed and that the interval belongs to.",
)
@click.option("--untrusted", is_flag=True, help="Include runs that cannot be trusted.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Print the differences from the sweep in this folder.",
)
@shared.form
@click.option(
    "--figure",
    type=shared.Choice(["line", "bar", "heat", "cdf"]),
    help="Draw instead of printing: the first --by along the axis, the others as series.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the figure goes: .png, .svg or .pdf [default: DIR/VALUE-KIND.png].",
)
@click.option("--columns", is_flag=True, help="List all columns, and do nothing else.")
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
    """Print the means over the repetitions of the sweep in DIR, with 95 % bootstrap intervals."""
    from outcast.analysis.statistics import Kind
    from outcast.sweep import dataset, groups, render

    results = dataset.load(directory)
    if not results.runs.height:
        raise InputError(f"{directory}: no run has finished yet")
    if columns:
        terminal.echo("\n".join(results.runs.columns))
        return
    if output is not None and figure is None:
        raise ConfigError("-o: names a figure's file; allowed only together with --figure")
    if figure == "cdf" and against is not None:
        raise ConfigError("--against: a difference has no cdf; allowed are line, bar and heat")
    kind: Kind = center  # type: ignore[assignment]  # click has checked it
    keys = list(by) or groups.default_by(results)
    if figure == "cdf":
        rows = _rows(results, values, conditions, untrusted)
        terminal.echo_path(_draw_cdf(rows, keys if by else keys[:1], values, directory, output))
        return
    runs = _chosen(results.runs, conditions, untrusted)
    names = list(values) or groups.default_values(runs)
    unmatched = 0
    if against is not None:
        other = _chosen(dataset.load(against).runs, conditions, untrusted)
        summed = groups.compare(runs, other, keys, names, kind)
        unmatched = sum(len(groups.grouped(rows, keys)) - len(summed) for rows in (runs, other))
    else:
        summed = groups.summarize(runs, keys, names, kind)
    if figure is not None:
        path = output or directory / f"{names[0].replace(' ', '-')}-{figure}.png"
        title = None if against is None else _named(center, against)[1]
        terminal.echo_path(_draw(figure, summed, names[0], title, path))
        return
    if form == "csv":
        terminal.echo(render.as_csv(summed), nl=False)
    elif form == "json":
        terminal.echo(render.as_json(summed))
    else:
        _print(results, runs, summed, center, against, unmatched)


def _chosen(runs: pl.DataFrame, conditions: tuple[str, ...], untrusted: bool) -> pl.DataFrame:
    from outcast.sweep import groups

    chosen = groups.where(runs, conditions)
    return chosen if untrusted else groups.trusted(chosen)


def _rows(
    results: Dataset, values: tuple[str, ...], conditions: tuple[str, ...], untrusted: bool
) -> pl.DataFrame:
    """The chosen runs; or the flows of these, if only the table of flows has the value."""
    from outcast.sweep import groups

    runs, flows = results.runs, results.flows
    if not values or values[0] in runs.columns or values[0] not in flows.columns:
        return _chosen(runs, conditions, untrusted)
    of_runs = [text for text in conditions if text.partition("=")[0] in runs.columns]
    chosen = _chosen(runs, tuple(of_runs), untrusted)
    of_chosen = flows.join(chosen.select("run"), on="run", how="semi")
    return groups.where(of_chosen, [text for text in conditions if text not in of_runs])


def _print(
    results: Dataset,
    runs: pl.DataFrame,
    summed: list[Group],
    center: str,
    against: Path | None,
    unmatched: int,
) -> None:
    """Prints the table and the remarks on it; only one of two sweeps has `unmatched` groups."""
    from outcast.sweep import groups, render

    console = terminal.console()
    shown, plural = _named(center, against)
    console.print(render.table(summed, shown))
    lines = [f"{plural}, with 95 % bootstrap intervals over the runs; a single run has no interval"]
    if any(groups.are_copies(group) for group in summed):
        lines.append(
            "where all runs of a group gave the same values, they count as one run, and the "
            "interval says nothing: without links.jitter a seed hardly changes anything"
        )
    lines += groups.without_value(summed)
    lines += groups.remarks_on_losses(runs)
    if unmatched:
        lines.append(f"{unmatched} groups are left out, because only one of the sweeps has them")
    missing = results.planned - results.runs.height
    if missing:
        lines.append(f"{missing} of {results.planned} runs have no result")
    if "trusted" in results.runs.columns:
        doubtful = results.runs.height - int(results.runs["trusted"].sum())
        if doubtful and runs["trusted"].all():
            lines.append(f"{doubtful} runs that cannot be trusted are left out (--untrusted)")
    console.print("\n".join(lines), soft_wrap=True)


def _named(center: str, against: Path | None) -> tuple[str, str]:
    """The name of a number in the table, and that of all of them."""
    shown = {"mean": "mean", "geometric": "geometric mean", "median": "median"}[center]
    if against is None:
        return shown, f"{shown}s"
    if center == "geometric":
        return "ratio", f"ratios to the {shown}s in {against}"
    return "difference", f"differences from the {shown}s in {against}"


def _draw(kind: str, summed: list[Group], value: str, title: str | None, path: Path) -> Path:
    from outcast.sweep import figures

    figure = {"line": figures.line, "bar": figures.bar, "heat": figures.heat}[kind](summed, value)
    if title is not None:
        figure.axes[0].set_title(title, fontsize="small")
    return _save(figure, path)


def _draw_cdf(
    rows: pl.DataFrame,
    by: list[str],
    values: tuple[str, ...],
    directory: Path,
    output: Path | None,
) -> Path:
    from outcast.sweep import figures, groups

    value = values[0] if values else groups.default_values(rows)[0]
    return _save(
        figures.cdf(rows, by, value), output or directory / f"{value.replace(' ', '-')}-cdf.png"
    )


def _save(figure: Any, path: Path) -> Path:
    from outcast.view.figures import style

    try:
        with style.styled():
            return style.save(figure, path)
    except OSError as error:
        raise ConfigError(f"-o {files.describe(error)}") from None
    except ValueError as error:
        raise ConfigError(f"-o {path}: {error}") from None
