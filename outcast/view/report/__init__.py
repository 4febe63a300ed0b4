"""report.html: a run as one page that opens offline in any browser.

Each part of the page is a function that returns a section. `page.document` puts sections into one
page. The index over several runs uses it too.
"""

from pathlib import Path

from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view.report import (
    captured,
    experiment,
    losses,
    measurements,
    overview,
    page,
    senders,
    timeline,
    viewer,
    whatif,
)
from outcast.view.report.page import Element, element

NAME = "report.html"


def write(directory: RunDirectory) -> Path:
    """Writes the report of an analysed run. Returns the file's path. Raises InputError."""
    run = Run(directory)
    with run.reading():
        text = make(run)
    return page.write(directory.path / NAME, text)


def make(
    run: Run, most_packets: int = timeline.MOST_PACKETS, most_points: int = senders.MOST_POINTS
) -> str:
    """Returns the report as HTML."""
    packed = timeline.make(run, most_packets, most_points)
    of_queues = (losses.service_classes(run), losses.phase(run), losses.noise(run))
    told = run.captured
    first = [
        *(section for section in (whatif.what_if(run), whatif.fate(run)) if section is not None),
        *([overview.goodput(run)] if run.manifest.flows else []),
        viewer.part(run, packed),
    ]
    more = [
        experiment.words(run, network(run)) if told is None else captured.words(told),
        *([overview.detail(run), overview.fairness(run)] if run.manifest.flows else []),
        losses.network(run),
        losses.queue(run),
        losses.drops(run),
        *(section for section in of_queues if section is not None),
        *measurements.sections(run),
        *(
            [overview.settings(run), overview.again(run)]
            if told is None
            else [captured.again(told)]
        ),
        overview.glossary(bool(run.manifest.flows), run.manifest.tells_senders),
    ]
    as_json = {"type": "application/json", "id": "viewer-header"}
    data = [
        # Escaped, the same JSON cannot end the element.
        element("script", packed.header.replace("<", "\\u003c"), **as_json),
        element("script", packed.payload, type="text/plain", id="viewer-data"),
    ]
    title = f"{run.summary.name}: report"
    return page.document(title, overview.header(run), first, data, viewer.SCRIPTS, more=more)


def network(run: Run) -> Element:
    """Returns the drawing of the run's plan, or a sentence if the folder has none."""
    from outcast.view.figures.style import as_svg
    from outcast.view.figures.topology import picture

    if run.plan is None:
        return element("p", "No drawing of the topology: the folder has no plan.json.")
    drawing = as_svg(picture(run.plan, "The network", run.summary.group_by))
    words = "The network: switches by layer, hosts below, the flows' paths, and the bottleneck"
    return page.picture("", words, drawing, "image/svg+xml")
