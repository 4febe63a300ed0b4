"""`outcast clean`: removes what a crashed run left on the machine, and nothing else."""

from outcast.cli import shared, terminal
from outcast.engines import ledger
from outcast.errors import RunError


@shared.verb("clean", "outcast clean")
def command() -> None:
    """Remove what a crashed or killed run left behind, and nothing else.

    Exit status 1 if something could not be removed.
    """
    done = ledger.undo_dead(waits=True)
    terminal.echo_lines(done or ["nothing was left behind"])
    dead = [entry.file for entry in ledger.read_entries(ledger.default_folder()) if entry.is_dead()]
    if dead:
        raise RunError(f"could not undo everything: {', '.join(map(str, dead))}")
