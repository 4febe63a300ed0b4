"""What several verbs share: options with one meaning, examples in help texts, interruption."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from outcast.cli import terminal
from outcast.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from outcast.experiment import Experiment

FORMATS = ("table", "csv", "json")


def examples(*command_lines: str) -> str:
    """The end of a verb's help: its examples, one a line.

    click keeps the lines of a paragraph that begins with a backspace.
    """
    title = "Examples:" if len(command_lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {line}" for line in command_lines)])


jobs = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many virtual runs go on at a time [default: as many as cores].",
)


class Choice(click.Choice[str]):
    """One of a few words. The refusal of another word suggests the one that was probably meant."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        refusal = super().get_invalid_choice_message(value, ctx).removesuffix(".")
        return refusal + did_you_mean(str(value), self.choices)


class PngPath(click.Path):
    """The name of a picture to write. Only PNG is written, so the name has to say so."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() != ".png":
            raise ConfigError(f"--png {path}: allowed are names that end in .png")
        return path


form = click.option(
    "--format",
    "form",
    type=Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print: a table for people, csv or json for programs.",
)

overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of CONFIG; dots separate levels: links.rate=1gbit. Can be repeated.",
)


def print_drawn(run: Path) -> None:
    """Prints one line: the path of the run's report, and the number of its figures."""
    figures = len(list(run.glob("*.png")))
    beside = f", with {figures} figures (*.png) beside it" if figures else ""
    terminal.echo_path(run / "report.html", beside)


def note(text: str) -> None:
    """Prints a notice on standard error; nothing has failed."""
    terminal.tell(f"outcast: {text}")


def note_left_out(experiment: Experiment) -> None:
    """Says what a user's own topology file asks for and outcast leaves out."""
    network = getattr(experiment.topology, "network", None)
    for text in network.notes if network else ():
        note(f"not used: {text}")


def end_as_interrupted() -> None:
    """Treats SIGTERM and SIGHUP like Ctrl-C, because that removes what an unfinished run made."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
