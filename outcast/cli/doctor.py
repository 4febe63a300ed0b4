"""`outcast doctor`: what this machine can emulate."""

import json
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from outcast.cli import shared, terminal
from outcast.engines import doctor
from outcast.engines.doctor import Finding
from outcast.engines.guest import kernels, roots
from outcast.errors import FeatureMissingError


@shared.verb("doctor", "outcast doctor")
@shared.flag("--json", "Print JSON instead of a table.", "as_json")
def command(as_json: bool) -> int:
    """Show what this machine can emulate, feature by feature, and the remedy for what is missing.

    Exit status 0 if at least one engine can run the default experiment, else 3.
    """
    diagnosis = doctor.diagnose(kernels.find(), root=roots.find())
    if as_json:
        features = [finding._asdict() for finding in diagnosis.findings]
        document = {"engines": diagnosis.engines, "features": features}
        terminal.echo(json.dumps(document, indent=1))
    else:
        _print(diagnosis)
    return 0 if any(diagnosis.engines.values()) else FeatureMissingError.exit_status


_TITLES = {
    "realtime": "engine realtime: this machine's kernel and programs",
    "virtual": "engine virtual: a guest with a kernel and programs of its own",
}


def _print(diagnosis: doctor.Diagnosis) -> None:
    console = terminal.console()
    for engine, title in _TITLES.items():
        console.print(Text(title, style="bold"))
        console.print(_table(finding for finding in diagnosis.findings if finding.engine == engine))
        console.print()
    for engine, able in diagnosis.engines.items():
        console.print(
            f"engine {engine}: {'can' if able else 'cannot'} run the default experiment here"
        )


def _table(findings: Iterable[Finding]) -> Table:
    table = Table("feature", "here", "details, or what to do", box=None, pad_edge=False)
    for finding in findings:
        word, detail = Text("no", style="yellow"), finding.detail
        if finding.present:
            word = Text("loadable" if finding.state == "loadable" else "yes", style="green")
        else:
            detail = f"{detail}; {finding.remedy}" if detail else finding.remedy
        table.add_row(finding.feature, word, detail)
    return table
