"""Has what verbs share: options with one meaning, examples in help texts, interruption."""

from __future__ import annotations

import functools
import inspect
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from outcast.cli import terminal
from outcast.errors import ConfigError, did_you_mean
from outcast.units import parse_time_ns

if TYPE_CHECKING:
    from outcast.analysis.selection import Selection, Span
    from outcast.experiment import Experiment

Verb = TypeVar("Verb", bound=Callable[..., object])

FORMATS = ("table", "csv", "json")


def examples(*command_lines: str) -> str:
    """The end of a verb's help: its examples, one a line.

    click keeps the lines of a paragraph that begins with a backspace.
    """
    title = "Examples:" if len(command_lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {line}" for line in command_lines)])


def path(metavar: str, text: str, *names: str, **more: Any) -> Callable[[Verb], Verb]:
    """An option whose value is a path."""
    return click.option(*names, type=click.Path(path_type=Path), metavar=metavar, help=text, **more)


def several(metavar: str, text: str, *names: str, **more: Any) -> Callable[[Verb], Verb]:
    """An option that can be repeated."""
    text = f"{text} Can be repeated."
    return click.option(*names, multiple=True, metavar=metavar, help=text, **more)


def output(metavar: str, text: str, *, required: bool = False) -> Callable[[Verb], Verb]:
    """The option -o, whose value is a path."""
    return path(metavar, text, "-o", "--output", required=required)


jobs = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many virtual runs go on at a time [default: as many as cores].",
)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def gathered(
    name: str, make: Callable[..., object], *options: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Several options of which a verb gets one argument of this name, which `make` makes."""
    names = tuple(inspect.signature(make).parameters)

    def decorate(verb: Callable[..., Any]) -> Any:
        @functools.wraps(verb)
        def gathering(**given: Any) -> Any:
            made = make(**{key: given.pop(key) for key in names})
            return verb(**{name: made}, **given)

        return together(*options)(gathering)

    return decorate


@dataclass(frozen=True)
class Work:
    """Where many runs are made, and which of them.

    Attributes:
        shard: a number from 1 on and a count; only this part of the runs is made.
        merge: folders of shards.
    """

    jobs: int | None
    scheduler: str | None
    shard: tuple[int, int] | None
    merge: tuple[Path, ...]
    resume: bool

    @property
    def part(self) -> str:
        """The part as --shard takes it; empty for the whole."""
        return "" if self.shard is None else f"{self.shard[0]}/{self.shard[1]}"


def _work(
    jobs: int | None,
    scheduler: str | None,
    shard: str | None,
    shards: tuple[Path, ...],
    resume: bool,
) -> Work:
    return Work(jobs, scheduler, None if shard is None else _shard(shard), shards, resume)


def work(
    what: str, merging: str, resuming: str, *more: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Gives a verb that makes so many runs the argument `work`, and more options amid its own.

    The texts are what --merge and --resume do.
    """
    workers = (
        f"Make the {what} on the workers of the Dask scheduler at ADDRESS, as tcp://host:8786."
    )
    shard = f"Make only the I-th of N parts of the {what}, as 3/10. --merge puts them together."
    return gathered(
        "work",
        _work,
        jobs,
        click.option("--scheduler", metavar="ADDRESS", help=workers),
        *more,
        click.option("--shard", metavar="I/N", help=shard),
        path("DIR", merging, "--merge", "shards", multiple=True),
        click.option("--resume", is_flag=True, help=resuming),
    )


def count_of_runs(text: str, default: int) -> Callable[[Verb], Verb]:
    """The option --runs, which `runs_of` reads."""
    return click.option("--runs", metavar="N|all", help=f"{text} [default: {default}].")


def runs_of(text: str | None, default: int) -> int | None:
    """How many runs --runs asks for; None stands for all."""
    if text is None or text == "all":
        return default if text is None else None
    if re.fullmatch("[1-9][0-9]{0,5}", text) is None:
        raise ConfigError(f"--runs: {text!r}; allowed is a number from 1 on, or all")
    return int(text)


def require_no_sweep(options: Mapping[str, object], source: Path) -> None:
    """Raises ConfigError if an option of sweeps is given for a run. A broken file is no run."""
    from outcast.archive import zips

    is_run = source.is_dir() or zips.holds(source, "")
    for name, value in options.items():
        if value is not None and is_run:
            raise ConfigError(f"{name}: is of a sweep, and {source} is none")


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


allow_programs = click.option(
    "--allow-programs",
    is_flag=True,
    help="Let programs, kernel modules and the guest of the run start here, with your rights.",
)

_FORM = "How to print: a table for people, csv or json for programs."
form = click.option("--format", "form", type=Choice(FORMATS), default="table", help=_FORM)
engine = click.option(
    "--engine",
    type=Choice(["auto", "realtime", "virtual"]),
    help="Where the network is built; overrides `engine` in CONFIG.",
)
by = several(
    "KEY",
    "Group by this column, instead of by all swept keys; a figure has the first along its axis.",
    "--by",
)
over = several("KEY", "Pool runs with different values of this swept key.", "--over")
where = several(
    "KEY=VALUE", "Only runs with this value; of several all must hold.", "--where", "conditions"
)

_FILTERS = (
    click.option("--port", metavar="PORT", help="Only packets that came in or left by this port."),
    click.option(
        "--flow", metavar="FLOW", help="Only this flow: its number, or source ADDRESS:PORT."
    ),
    click.option(
        "--dst", metavar="DST", help="Only packets to this ADDRESS, ADDRESS:PORT or host of a run."
    ),
    click.option(
        "--verdict",
        type=Choice(["forwarded", "dropped", "unknown"]),
        help="Only packets with this verdict.",
    ),
    click.option(
        "--between",
        nargs=2,
        metavar="FROM TO",
        help="Only packets that came in between these times, as 10ms 12.5ms or 03:54:45 03:55:00.",
    ),
    click.option(
        "--around",
        metavar="TIME",
        help="Only packets that came in around this time: 1.2ms, or 0.0012 in seconds.",
    ),
    click.option(
        "--blackout",
        type=int,
        metavar="N",
        help="Only packets around a blackout: its row in blackouts.parquet, from 0.",
    ),
    click.option(
        "--within",
        metavar="TIME",
        help="How far before and after --around or --blackout [default: 1ms].",
    ),
)


_ON_CLOCK = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?(?P<time>\d\d:\d\d(?::\d\d)?)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
)

_MOST_NS = 10**18
"""30 years. The sum with a time of day still fits into 64 bits."""


def _selected(
    port: str | None,
    flow: str | None,
    dst: str | None,
    verdict: str | None,
    between: tuple[str, str] | None,
    around: str | None,
    blackout: int | None,
    within: str | None,
) -> Selection:
    from outcast.analysis.selection import AROUND_BLACKOUT_NS, Selection, Span

    spans = {"--between": between, "--around": around, "--blackout": blackout}
    given = [name for name, value in spans.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]}: not together with {given[1]}")
    if within is not None and given not in (["--around"], ["--blackout"]):
        raise ConfigError("--within: only together with --around or --blackout")
    try:
        within_ns = AROUND_BLACKOUT_NS if within is None else parse_time_ns(within)
    except ValueError as error:
        raise ConfigError(f"--within: {error}") from None
    if within_ns > _MOST_NS:
        raise ConfigError(f"--within {within}: allowed is at most {_MOST_NS // 10**9}s")
    span = None if between is None else span_between(between)
    if around is not None:
        middle_ns, clock = _instant(around, "--around")
        span = Span(middle_ns - within_ns, middle_ns + within_ns, f"--around {around}", clock)
    return Selection(port, flow, dst, verdict, span, blackout, within_ns)


selection = gathered("selection", _selected, *_FILTERS)
"""Gives a verb the filters of packets as one argument, `selection`."""


def _instant(text: str, option: str) -> tuple[int, Literal["traffic", "day", "epoch"]]:
    """Parses a time of the run, or one on the clock, in nanoseconds. Raises ConfigError."""
    match = _ON_CLOCK.fullmatch(text.strip())
    if match is None:
        return instant_ns(text, option, ", or on the clock, as 03:54:45.5"), "traffic"
    try:
        at = datetime.fromisoformat(f"{match['date'] or '1970-01-01'} {match['time']}")
        fraction_ns = int((match["fraction"] or "").ljust(9, "0"))
        if match["date"]:
            return int(at.timestamp()) * 10**9 + fraction_ns, "epoch"
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{option} {text}: no time of day; allowed are 00:00:00 to 23:59:59, also behind a "
            "date as 2026-03-31T"
        ) from None
    return (at.hour * 3600 + at.minute * 60 + at.second) * 10**9 + fraction_ns, "day"


def span_between(between: tuple[str, str], *, on_clock: bool = True) -> Span:
    """The span of the option --between. Raises ConfigError."""
    from outcast.analysis.selection import Span

    if on_clock:
        (from_ns, clock), (to_ns, other) = (_instant(text, "--between") for text in between)
    else:
        from_ns, to_ns = (instant_ns(text, "--between") for text in between)
        clock = other = "traffic"
    span = Span(from_ns, to_ns, f"--between {' '.join(between)}", clock)
    if clock != other:
        raise ConfigError(f"{span.asked}: allowed are two times of one kind")
    if to_ns < from_ns:
        raise ConfigError(f"{span.asked}: ends before it begins")
    return span


def instant_ns(text: str, option: str, also: str = "") -> int:
    """Parses a time of the run: seconds, or a number with a unit; negative before the start."""
    try:
        time_ns = float(text) * 1e9
    except ValueError:
        bare = text.strip()
        sign = -1 if bare.startswith("-") else 1
        try:
            time_ns = sign * parse_time_ns(bare.removeprefix("-"))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}, or in seconds, as 0.002{also}") from None
    # Written with `not` because every comparison with NaN is false.
    if not abs(time_ns) <= _MOST_NS:
        raise ConfigError(f"{option} {text}: allowed is a time of the run")
    return round(time_ns)


overrides = several(
    *("KEY=VALUE", "Override a key of CONFIG; dots separate levels: links.rate=1gbit."),
    *("--set", "overrides"),
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


def _shard(text: str) -> tuple[int, int]:
    """The number and the count of a shard."""
    match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(f"--shard: {text!r}; allowed is I/N with I from 1 to N, as 3/10")
    return int(match[1]), int(match[2])
