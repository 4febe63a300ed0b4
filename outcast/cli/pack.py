"""`outcast pack`: one archive of a run, which others can read and replay."""

from pathlib import Path
from typing import Any

import click

from outcast.cli import shared, terminal


@shared.verb(
    "pack",
    "outcast pack results/fig3c -o fig3c.zip",
    "outcast pack results/fig3c -o fig3c.zip --captures hashes",
    "outcast pack results/limits -o limits.zip --claims claims.yaml",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.output("FILE", "The archive to write, a zip file.", required=True)
@shared.option(
    "--captures",
    "Whether the captures go in, or only their hashes. A replay needs no more than these.",
    type=shared.Choice(["keep", "hashes"]),
    default="keep",
)
@shared.count_of_runs("Of a sweep: how many runs go in whole, with captures [default: 3].")
@shared.path(
    "--claims FILE",
    "Of a sweep: a list of claims with their commands, in YAML. Each command is run.",
)
def command(directory: Path, output: Path, **options: Any) -> None:
    """Make one archive of the run or sweep in DIR, for others to read and to replay.

    It holds the configuration, the plan, the manifest with all hashes, captures, tables, figures
    and the report. docs/archive.md has the format.
    """
    from outcast.api import archives
    from outcast.archive.contents import listed

    packed = archives.pack(directory, output, **options)
    for text in packed.notes:
        shared.note(text)
    if packed.left_out:
        shared.note(f"left out, because the run did not write it: {listed(packed.left_out)}")
    size_mb = packed.path.stat().st_size / 1e6
    terminal.echo_path(packed.path, f", {packed.files} files, {size_mb:.1f} MB")
