"""The command line: one file for each verb, loaded when it is called."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import stat
import sys
from typing import Any, NoReturn

import click

from outcast import __version__, files
from outcast.cli import terminal
from outcast.emulation.commands import leave_working_folder
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which suggests only verbs that are loaded already."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=VERBS, ctx=ctx
            ) from None


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="outcast")
def root() -> None:
    """Reproduces the TCP Outcast problem, and any many-to-one unfairness at a switch."""


def main(argv: list[str] | None = None) -> None:
    """The `outcast` program; its exit statuses are those of outcast/errors.py."""
    if sys.getfilesystemencoding() != "utf-8":
        _start_again_in_utf8()
    sys.exit(invoke(argv))


def _start_again_in_utf8() -> NoReturn:
    """Starts this program over in Python's UTF-8 mode (PEP 540), and with it all that it starts.

    In another encoding Python can name files that polars cannot, which takes every name as UTF-8.
    """
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def invoke(argv: list[str] | None = None) -> int:
    """Runs one verb; the exit status. Errors go to standard error as one line."""
    leave_working_folder(os.environ)
    try:
        result: Any = root.main(args=argv, prog_name="outcast", standalone_mode=False)
        # What was printed may still be on its way, to a disk that is full. There is no stream where
        # we were started with a closed one.
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        _complain("interrupted")
        return 1
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ConfigError.exit_status
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
    except OSError as error:
        # The machine's, not ours: a full disk, a folder that nobody may write to.
        _complain(_of_the_machine(error))
        return OutcastError.exit_status


def _of_the_machine(error: OSError) -> str:
    """One line; an error that names no file is standard output's where that takes no more."""
    if not _takes_output():
        # Python would try once more at its end, and print a traceback.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if error.filename is None:
            return f"standard output: {error.strerror}"
    return files.describe(error)


def _takes_output() -> bool:
    """Whether there is room where standard output goes to."""
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
        os.write(descriptor, b"")
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return not is_file or os.fstatvfs(descriptor).f_bavail > 0
    except io.UnsupportedOperation:
        # In memory, as tests have it.
        return True
    except OSError:
        return False


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        terminal.tell(f"outcast: {text}")
