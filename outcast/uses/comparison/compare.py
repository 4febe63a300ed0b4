"""`outcast compare`: two experiments over the same seeds."""

import re
from pathlib import Path
from typing import Any

import click

from outcast import cli

_STATUS = {"no worse": 0, "worse": 4, "not settled": 5}


@cli.verb(
    "compare",
    "outcast compare configs/fig3c.yaml --set transport.congestion_control=cubic "
    "--against transport.congestion_control=bbr --value total_goodput_bps",
    "outcast compare before.yaml after.yaml --seeds 50 --margin 3%",
)
@click.argument("a", type=click.Path(path_type=Path), metavar="A.yaml")
@click.argument("b", type=click.Path(path_type=Path), metavar="[B.yaml]", required=False)
@cli.overrides
@cli.option(
    "--against KEY=VALUE",
    "What B has in place of A's. Can be repeated.",
    "against",
    multiple=True,
)
@cli.option("--seeds N", "The most pairs of runs.", type=int, default=30)
@cli.option(
    "--value NAME",
    "What is compared: columns of `outcast results DIR --columns`. The first one decides "
    "[default: goodput, Jain's index, ratio].",
    "values",
    multiple=True,
)
@cli.option("--margin SHARE", "How much worse B may be, as 3%, of A's mean.", default="0%")
@cli.flag("--less", "Less of the first value is better.", "less")
@cli.work("runs", "Continue the comparison in the folder.")
@cli.output("DIR", "The comparison's folder [default: results/NAME-compare].")
def command(
    a: Path,
    b: Path | None,
    overrides: tuple[str, ...],
    against: tuple[str, ...],
    seeds: int,
    values: tuple[str, ...],
    margin: str,
    less: bool,
    output: Path | None,
    **work: Any,
) -> int:
    """Run A and B over the same seeds, until it is settled whether B is worse.

    B is another configuration, or A with the values of --against; --set is for both. After each
    fifth of the pairs the difference gets an interval. The runs end at the first that answers.

    Exit status 0 if B is no worse than A, 4 if it is worse, 5 if that is not settled.
    """
    from outcast import api, experiment
    from outcast.uses.comparison import pairs

    cli.end_as_interrupted()
    sources = (experiment.read(a, overrides), experiment.read(b or a, (*overrides, *against)))
    first, second = (api.checked(source).experiment for source in sources)
    share = cli.parsed("--margin", margin, _share)
    found = pairs.compare(
        first,
        second,
        seeds=seeds,
        values=values,
        margin=share,
        less_is_better=less,
        directory=output,
        progress=True,
        **work,
    )
    cli.echo_lines(pairs.words(found))
    cli.echo(f"{found.directory}/compare.json and compare.png; outcast results {found.directory}")
    return _STATUS[found.verdict]


def _share(text: str) -> float:
    """A share from 0 to 1: `3%` or `0.03`. Raises ValueError where it is none."""
    share = re.fullmatch(r"([0-9.]+)(%?)", text)
    try:
        value = float(share[1]) / (100 if share[2] else 1) if share else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r}; allowed are 0% to 100%")
    return value
