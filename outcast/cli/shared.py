"""What verbs share: options with one meaning, examples in help texts, interruption."""

from __future__ import annotations

import functools
import inspect
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from outcast.cli import terminal
from outcast.errors import ConfigError, did_you_mean
from outcast.units import parse_time_ns

if TYPE_CHECKING:
    from outcast.analysis.selection import Span
    from outcast.plan.model import Planned

Verb = TypeVar("Verb", bound=Callable[..., object])
Value = TypeVar("Value")

FORMATS = ("table", "csv", "json")


def examples(*command_lines: str) -> str:
    """The end of a verb's help: its examples, one a line.

    click keeps the lines of a paragraph that begins with a backspace.
    """
    title = "Examples:" if len(command_lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {line}" for line in command_lines)])


def verb(
    name: str, *command_lines: str, group: click.Group | None = None, **more: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A verb, of a group of them or of outcast itself, whose help ends with these examples."""
    made = click.command if group is None else group.command
    return made(name, epilog=examples(*command_lines), **more)


def verbs(
    name: str, *command_lines: str, **more: Any
) -> Callable[[Callable[..., Any]], click.Group]:
    """A group of verbs."""
    return click.group(name, epilog=examples(*command_lines), **more)


def option(
    declared: str, text: str, name: str | None = None, **more: Any
) -> Callable[[Verb], Verb]:
    """An option as `--help` shows it, `--set KEY=VALUE`; `name` is that of the argument."""
    words = declared.split()
    names = [word.rstrip(",") for word in words if word.startswith("-")]
    if "is_flag" not in more:
        more["metavar"] = " ".join(words[len(names) :]) or None
    return click.option(*names, *filter(None, [name]), help=text, **more)


def flag(declared: str, text: str, name: str | None = None) -> Callable[[Verb], Verb]:
    """An option without a value."""
    return option(declared, text, name, is_flag=True)


def path(declared: str, text: str, name: str | None = None, **more: Any) -> Callable[[Verb], Verb]:
    """An option whose value is a path."""
    return option(declared, text, name, type=click.Path(path_type=Path), **more)


def several(
    declared: str, text: str, name: str | None = None, **more: Any
) -> Callable[[Verb], Verb]:
    """An option that can be repeated."""
    return option(declared, f"{text} Can be repeated.", name, multiple=True, **more)


def output(metavar: str, text: str, *, required: bool = False) -> Callable[[Verb], Verb]:
    return path(f"-o, --output {metavar}", text, required=required)


def parsed(option: str, text: str, parse: Callable[[str], Value]) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


jobs = option(
    "--jobs N",
    "How many virtual runs go on at a time [default: as many as cores].",
    type=click.IntRange(min=1),
)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, in this order."""

    def decorate(function: Any) -> Any:
        for each in reversed(options):
            function = each(function)
        return function

    return decorate


def gathered(
    name: str, make: Callable[..., object], *options: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Several options as one argument of a verb, named `name`, which `make` makes of them."""
    names = tuple(inspect.signature(make).parameters)

    def decorate(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def gathering(**given: Any) -> Any:
            made = make(**{key: given.pop(key) for key in names})
            return function(**{name: made}, **given)

        return together(*options)(gathering)

    return decorate


def work(what: str, resuming: str) -> Callable[[Any], Any]:
    """Gives a verb that makes many runs `jobs`, `scheduler` and `resume`."""
    workers = (
        f"Make the {what} on the workers of the Dask scheduler at ADDRESS, as tcp://host:8786."
    )
    return together(jobs, option("--scheduler ADDRESS", workers), flag("--resume", resuming))


def count_of_runs(text: str) -> Callable[[Verb], Verb]:
    """The option --runs, a number or `all`."""

    def read(_ctx: click.Context, _option: click.Parameter, text: str | None) -> int | str | None:
        if text is None or text == "all":
            return text
        if re.fullmatch("[1-9][0-9]{0,5}", text) is None:
            raise ConfigError(f"--runs: {text!r}; allowed is a number from 1 on, or all")
        return int(text)

    return option("--runs N|all", text, callback=read)


class Choice(click.Choice[str]):
    """One of a few words. The error for another word suggests the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        refusal = super().get_invalid_choice_message(value, ctx).removesuffix(".")
        return refusal + did_you_mean(str(value), self.choices)


class PngPath(click.Path):
    """The name of a picture to write, which has to end in .png."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() != ".png":
            raise ConfigError(f"--png {path}: allowed are names that end in .png")
        return path


allow_programs = flag(
    "--allow-programs",
    "Let programs and kernel modules of the run start here, with your rights.",
)

_FORM = "How to print: a table for people, csv or json for programs."
form = option("--format", _FORM, "form", type=Choice(FORMATS), default="table")
engine = option(
    "--engine",
    "Where the network is built; overrides `engine` in CONFIG.",
    type=Choice(["auto", "realtime", "virtual"]),
)
by = several(
    "--by KEY",
    "Group by this column, instead of by all swept keys; a figure has the first along its axis.",
)
over = several("--over KEY", "Pool runs with different values of this swept key.")
where = several(
    "--where KEY=VALUE", "Only runs with this value; of several all must hold.", "conditions"
)

overrides = several(
    "--set KEY=VALUE",
    "Override a key of CONFIG; dots separate levels: links.rate=1gbit.",
    "overrides",
)


def print_drawn(path: Path) -> None:
    """Prints where the run's report is, and how to see more of its result."""
    from outcast.records.run import Run
    from outcast.view.terminal import tables

    figures = len(list(path.glob("*.png")))
    beside = f", with {figures} figures (*.png) beside it" if figures else ""
    terminal.echo_path(path / "report.html", beside)
    terminal.echo(tables.where_more(Run(path)))


def note(text: str) -> None:
    """Prints a notice on standard error; nothing has failed."""
    terminal.tell(f"outcast: {text}")


def chosen(config: Path, engine: str | None, overrides: tuple[str, ...]) -> Planned:
    """The planned experiment of a configuration. Prints what of its topology is not used."""
    from outcast import experiment
    from outcast.api import experiments

    if engine is not None:
        overrides = (*overrides, f"engine={engine}")
    made = experiments.checked(experiment.read(config, overrides))
    network = getattr(made.experiment.topology, "network", None)
    for text in network.notes if network else ():
        note(f"not used: {text}")
    return made


def memory_limit_bytes() -> int | None:
    """The limit of this process's address space (getrlimit(2), RLIMIT_AS); None without one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def end_as_interrupted() -> None:
    """Treats signals that end a process like Ctrl-C: that removes what an unfinished run made."""
    from outcast.sweep.pool import interrupted_by_signals

    interrupted_by_signals()


MOST_NS = 10**18
"""30 years. The sum with a time since 1970 still fits into 64 bits."""


def span_between(between: tuple[str, str]) -> Span:
    """The span of the option --between. Raises ConfigError."""
    from outcast.analysis.selection import Span

    from_ns, to_ns = (instant_ns(text, "--between") for text in between)
    span = Span(from_ns, to_ns, f"--between {' '.join(between)}")
    if to_ns < from_ns:
        raise ConfigError(f"{span.option}: ends before it begins")
    return span


def instant_ns(text: str, option: str) -> int:
    """Parses a time of the run: seconds, or a number with a unit; negative before the start."""
    try:
        time_ns = float(text) * 1e9
    except ValueError:
        bare = text.strip()
        sign = -1 if bare.startswith("-") else 1
        try:
            time_ns = sign * parse_time_ns(bare.removeprefix("-"))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}, or in seconds, as 0.002") from None
    # Written with `not` because every comparison with NaN is false.
    if not abs(time_ns) <= MOST_NS:
        raise ConfigError(f"{option} {text}: allowed is a time of the run")
    return round(time_ns)
