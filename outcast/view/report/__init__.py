"""report.html: a run as one page that opens offline in any browser.

The files beside this one prepare the values that templates/ show. `page` fills a template; the page
of a reproduction uses it too.
"""

import shlex
from functools import partial
from pathlib import Path

from outcast import uses
from outcast.plan import link_words
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view.events import moments, trace_sentences
from outcast.view.report import captured, measurements, overview, page, timeline
from outcast.view.report.page import Picture
from outcast.view.terminal import topology

NAME = "report.html"


def write(directory: RunDirectory) -> Path:
    """Writes the report of an analysed run. Returns the file's path. Raises InputError."""
    run = Run(directory)
    with run.reading():
        text = make(run)
    return page.write(directory.path / NAME, text)


def make(
    run: Run, most_packets: int = timeline.MOST_PACKETS, most_points: int = timeline.MOST_POINTS
) -> str:
    packed = timeline.make(run, most_packets, most_points)
    of_origin = (
        {"built": built(run), "network": network(run), **overview.settings(run)}
        if run.captured is None
        else captured.values(run.captured)
    )
    return page.render(
        "report.html",
        run=run,
        summary=run.summary,
        # A name of the user's own may have spaces.
        quoted_name=shlex.quote(run.summary.name),
        usual=run.plan and link_words.settings(link_words.usual(run.plan.links)),
        drawn=partial(page.drawn, run),
        **overview.values(run),
        **measurements.values(run),
        added=[uses.find(place)(run) for place in uses.SECTIONS],
        **timeline.values(run, packed),
        **of_origin,
    )


def built(run: Run) -> list[str]:
    """What was built, as `outcast topo` shows it, and what happened to links and queues."""
    lines = [] if run.plan is None else [*topology.built(run.experiment, run.plan), ""]
    if (blackout := run.directory.read_manifest().blackout) is not None:
        lines.append(
            f"blackout before {blackout.port}: {blackout.periods} ON periods dropped "
            f"{blackout.dropped:,} of {blackout.packets:,} packets"
        )
    lines += [f"at {moment.t_s:.4g} s {moment.text}" for moment in moments(run)]
    return [*lines, *trace_sentences(run)]


def network(run: Run) -> Picture | None:
    from outcast.view.figures.style import as_svg
    from outcast.view.figures.topology import picture

    if run.plan is None:
        return None
    words = "The network: switches by layer, hosts below, the flows' paths, and the bottleneck"
    return page.picture(as_svg(picture(run.plan, "The network", run.summary.group_by)), words)
