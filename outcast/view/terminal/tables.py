"""A run's result on the terminal: one screen at its end, and all tables for `outcast show`."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from outcast.plan.hints import beforehand
from outcast.records.run import Run
from outcast.units import counted
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.events import moments, trace_sentences
from outcast.view.listings import Listing
from outcast.view.terminal import forms
from outcast.view.terminal.joined import queue_lines

_MOST_WARNINGS = 4
_MOST_OF_HEADLINE = 3
_LEAST_ROWS = 2
"""A table that would get fewer is left to `outcast show`."""
_MOST_LINES = 22
_WIDTH = 80
_STYLES = {"✓": "green", "✗": "red", "?": "yellow"}

TABLES: Mapping[str, tuple[Callable[[Run, str], Listing | None], ...]] = {
    "flows": (
        *(listings.groups, listings.flows, listings.streams, listings.workloads),
        *(listings.programs, listings.probes),
    ),
    "ports": (listings.inputs, listings.outputs, listings.service_classes),
    "losses": (listings.lossy_ports,),
    "limits": (listings.limits,),
}
"""What each option of `outcast show` prints."""


def screen(run: Run, *, notes_shown: bool = False, alone: bool = True) -> RenderableType:
    """The result of a run of any kind, in at most 22 lines of 80 columns.

    With `notes_shown` it leaves out warnings that were shown before the traffic, and unless `alone`
    all that `sentences` says.
    """
    found = textwrap.wrap(words.headline(run), _WIDTH)
    lines = [Text(line, style="bold") for line in found[:_MOST_OF_HEADLINE]]
    lines += _checks(run)
    if alone:
        lines += [Text(draw)] if (draw := words.draw_sentence(run)) else []
        lines += _warnings(run, notes_shown=notes_shown)
    tables = listings.shown(run, "run", listings.SCREEN)
    room = _MOST_LINES - 2 - len(lines) - sum(1 + table.head_lines for table in tables)
    while len(tables) > 1 and room < _LEAST_ROWS * len(tables):
        room += 1 + tables.pop().head_lines
    parts: list[RenderableType] = [_heading(run)]
    for place, table in enumerate(tables):
        made = table.cut(room // (len(tables) - place))
        room -= len(made.rows)
        parts += ["", forms.listing(made)]
    return Group(*parts, "", *lines)


def where_more(run: Run) -> str:
    more = f"more: outcast show {shlex.quote(str(run.directory.path))} --all"
    return f"{more}; words after !: docs/warnings.md" if run.summary.warnings else more


def _heading(run: Run) -> Text:
    summary = run.summary
    why = {"whole": "", "all active": " (all flows active)", "asked": " (analysis.from and to)"}
    made = "joined captures"
    if summary.engine is not None:
        made = f"{summary.engine} engine, seed {run.directory.read_manifest().seed}"
    covered = f"{summary.start_s:g} to {summary.end_s:g} s{why[summary.interval]}"
    return Text(f"{summary.name}: {made}, {covered}", style="bold")


def _checks(run: Run) -> Iterator[Text]:
    line = Text()
    for mark, *texts in words.checks(run):
        text = ": ".join(filter(None, texts))
        if len(line) + len(text) + 4 > _WIDTH:
            yield line
            line = Text()
        line.append("; " if line else "").append(f"{mark} ", style=_STYLES[mark]).append(text)
    yield line


def _warnings(run: Run, *, notes_shown: bool) -> Iterator[Text]:
    """A line for each warning, which begins with its word in docs/warnings.md."""
    summary, shown = run.summary, list[str]()
    if notes_shown and (plan := run.plan) is not None:
        shown = beforehand(run.experiment, plan, summary.engine or "virtual")
    reasons = [f"disagree: {reason}" for reason in summary.capture.reasons]
    new = [text for text in summary.warnings if text not in shown]
    lines = [*reasons, *(f"{words.word_of(text)}: {text}" for text in new)]
    for line in lines[:_MOST_WARNINGS]:
        yield Text(f"! {textwrap.shorten(line, _WIDTH - 2, placeholder=' ...')}", style="yellow")
    if len(lines) > _MOST_WARNINGS:
        yield Text(f"! {counted(len(lines) - _MOST_WARNINGS, 'more warning')}", style="yellow")


def rest(run: Run, wanted: Collection[str], *, alone: bool = True) -> RenderableType:
    """The tables that options of `outcast show` name; with the losses in words if `alone`."""
    summary = run.summary
    parts: list[RenderableType] = []
    for name, tables in TABLES.items():
        if name not in wanted:
            continue
        for table in listings.shown(run, "show", tables):
            parts += [Text(table.title, style="bold"), forms.listing(table)]
            parts += [Text(f"  {text}", style="dim") for text in table.remarks]
            parts.append("")
        if name == "ports" and run.captured is not None:
            parts += [Text(line) for part in run.captured.estimates for line in queue_lines(part)]
        if name == "losses" and alone:
            losses = summary.losses
            none = "captures show no losses of other places"
            parts.append(Text(none if losses is None else words.loss_sentence(summary, losses)))
    return Group(*parts)


def everything(run: Run) -> RenderableType:
    parts = (screen(run, alone=False), "", sentences(run), "", rest(run, TABLES, alone=False))
    return Group(*parts)


def sentences(run: Run) -> RenderableType:
    """The lines below the screen of `outcast show`: steadiness, events, and whole warnings."""
    lines = words.doubts(run)
    lines += [f"at {moment.t_s:.7g} s {moment.text}" for moment in moments(run)]
    lines += trace_sentences(run)
    lines += [f"disagree: {reason}" for reason in run.summary.capture.reasons]
    lines += [f"! {words.word_of(text)}: {text}" for text in run.summary.warnings]
    return Group(*map(Text, lines))


def link_table(frame: pl.DataFrame) -> RenderableType:
    """A table of the links' directions in use. Its caption counts the others."""
    used = frame.filter(
        (pl.col("packets") > 0) | (pl.col("flows") > 0) | (pl.col("acknowledged") > 0)
    )
    counted = [name for name in ("packets", "bytes", "lost") if name in frame.columns]
    numbers = ("flows", "acknowledged", *counted)
    table = forms.table("port", "to", *numbers, "utilisation", left=("port", "to"), wrapped=None)
    table.caption = f"{frame.height - used.height} more directions sent nothing"
    for row in used.iter_rows(named=True):
        cells = (str(row[name]) for name in numbers)
        table.add_row(row["port"], row["neighbour"], *cells, f"{100 * row['utilisation']:.1f}%")
    return table
