"""The command line: one file for each verb, loaded when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from outcast import __version__
from outcast.cli import terminal
from outcast.errors import ConfigError, OutcastError

VERBS = (
    "doctor",
    "run",
    "sweep",
    "results",
    "reproduce",
    "analyze",
    "report",
    "join",
    "inspect",
    "topo",
    "kernel",
    "assignment",
    "clean",
    "completion",
)


class _Verbs(click.Group):
    """Looks verbs up by module name, so that `--help` need not load the analysis."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"outcast.cli.{cmd_name}").command
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="outcast")
def root() -> None:
    """Reproduces the TCP Outcast problem, and any many-to-one unfairness at a switch."""


def main(argv: list[str] | None = None) -> None:
    """The `outcast` program; its exit statuses are those of outcast/errors.py."""
    sys.exit(invoke(argv))


def invoke(argv: list[str] | None = None) -> int:
    """Runs one verb; the exit status. Errors go to standard error as one line."""
    try:
        result: Any = root.main(args=argv, prog_name="outcast", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        _complain("interrupted")
        return 1
    except click.ClickException as error:
        _complain(error.format_message())
        return ConfigError.exit_status
    except OutcastError as error:
        _complain(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _complain("interrupted")
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as with `outcast inspect | head`.
        sys.stderr.close()
        return 0


def _complain(text: str) -> None:
    terminal.tell(f"outcast: {text}")
