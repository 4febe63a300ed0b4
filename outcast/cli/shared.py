"""What several verbs have in common: options that mean the same, and how a long run is ended."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from outcast.cli import terminal
from outcast.errors import did_you_mean

FORMATS = ("table", "csv", "json")

jobs = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="So many virtual runs at a time [default: as many as cores].",
)


class Choice(click.Choice[str]):
    """One of some words; of others the one that was probably meant is suggested."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        refusal = super().get_invalid_choice_message(value, ctx).removesuffix(".")
        return refusal + did_you_mean(str(value), self.choices)


form = click.option("--format", "form", type=Choice(FORMATS), default="table", show_default=True)

overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key, dots between levels: links.rate=1gbit. Can be given several times.",
)


def print_drawn(paths: Sequence[Path]) -> None:
    """Says in one line where a run's report is, the last of `paths`, and its figures beside it."""
    *figures, report = paths
    beside = f", with {len(figures)} figures (*.png) beside it" if figures else ""
    terminal.echo_path(report, beside)


def note(text: str) -> None:
    """One line to standard error that is no failure."""
    terminal.tell(f"outcast: {text}")


def end_as_interrupted() -> None:
    """Being asked to end is as Ctrl-C from now on: what a run made is removed on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
