"""The command line: a table of verbs, of which each is loaded when it is called."""

import contextlib
import gc
import io
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from controllers import slim
from outcast import __version__, files, uses
from outcast.cli import shared, terminal
from outcast.cli.shared import (
    Choice,
    allow_programs,
    end_as_interrupted,
    flag,
    form,
    jobs,
    note,
    option,
    output,
    overrides,
    parsed,
    path,
    print_drawn,
    several,
    span_between,
    verb,
    verbs,
    work,
)
from outcast.cli.terminal import console, echo, echo_lines, echo_path, tell
from outcast.emulation.commands import leave_working_folder
from outcast.errors import ConfigError, FeatureMissingError, OutcastError, StoppedError, shortened

PROJECT = "outcast-testbed"
"""pip calls this program so; `outcast` on the Python package index is another one."""

VERBS = {
    "doctor": "outcast.cli.machine:doctor",
    "run": "outcast.cli.run:command",
    "exec": "outcast.cli.exec:command",
    "sweep": "outcast.cli.sweep:command",
    "results": "outcast.cli.results:command",
    "analyze": "outcast.cli.show:analyze",
    "show": "outcast.cli.show:show",
    "report": "outcast.cli.show:report",
    "figure": "outcast.cli.show:figure",
    "pack": "outcast.cli.pack:pack",
    "replay": "outcast.cli.pack:replay",
    "trace": uses.VERBS["trace"],
    "join": "outcast.cli.join:command",
    "inspect": "outcast.cli.inspect:command",
    "export": "outcast.cli.show:export",
    "topo": "outcast.cli.topo:command",
    "guest": "outcast.cli.machine:guest",
    **uses.VERBS,
    "clean": "outcast.cli.machine:clean",
    "completion": "outcast.cli.machine:completion",
}
"""Each verb's place, in the order of `--help`."""


class _Verbs(click.Group):
    """Loads a verb when it is called, so that no other verb is waited for."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb. Of click's own an interrupted one would begin with an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise StoppedError("interrupted") from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = uses.find(VERBS[cmd_name])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs with their whole summaries; click's own cuts them to one line."""
        rows = [(name, uses.find(VERBS[name]).get_short_help_str(1000)) for name in VERBS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Adds where the pages are that messages name."""
        super().format_epilog(ctx, formatter)
        if (folder := pages_folder()) is not None:
            formatter.write_paragraph()
            formatter.write_text("Messages name pages, as docs/limits.md. They are in this folder:")
            # Not as text, because that would be broken into lines.
            formatter.write(f"  {folder}\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests any verb for a misspelt one; click's own suggests only those already loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=VERBS, ctx=ctx
            ) from None


_A_PAGE = "limits.md"


def pages_folder() -> Path | None:
    """The folder with the documentation: the checkout's, or the installed wheel's. None without."""
    # It takes milliseconds, and only `--help` needs it.
    from importlib import metadata

    checkout = Path(__file__).parents[2] / "docs"
    if (checkout / _A_PAGE).is_file():
        return checkout
    try:
        installed = metadata.files(PROJECT) or ()
    except metadata.PackageNotFoundError:
        return None
    pages = (Path(str(file.locate())) for file in installed if file.name == _A_PAGE)
    return next((page.resolve().parent for page in pages if page.is_file()), None)


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=shared.examples(
        "outcast doctor",
        "outcast run configs/fig3c.yaml -o results/fig3c",
        "outcast run --help",
    ),
)
@click.version_option(__version__, prog_name="outcast")
@click.pass_context
def whole(ctx: click.Context) -> None:
    """Reproduces the TCP Outcast problem, and any many-to-one unfairness at a switch."""
    if ctx.obj is not None:
        ctx.obj()
    # Planning, and reading a plan, take only its class Graph. This process is nobody else's.
    slim.slim(*slim.GRAPHS)


def main(argv: list[str] | None = None, on_verb: Callable[[], None] | None = None) -> None:
    """The `outcast` program; its exit statuses are those of outcast/errors.py.

    `on_verb` is called when a verb's modules are imported and it begins.
    """
    if sys.getfilesystemencoding() != "utf-8":
        _start_again_in_utf8()
    # What imports make stays. Looking through it for garbage takes a tenth of a verb's start.
    gc.set_threshold(_MANY_OBJECTS)
    sys.exit(invoke(argv, on_verb))


_MANY_OBJECTS = 300_000
"""The number of new objects that starts a search for garbage; Python's own is 700."""


def _start_again_in_utf8() -> NoReturn:
    """Restarts this program in Python's UTF-8 mode (PEP 540), which its child processes inherit.

    In another encoding Python can name files that polars cannot open, because polars takes every
    name as UTF-8.
    """
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def invoke(argv: list[str] | None = None, on_verb: Callable[[], None] | None = None) -> int:
    """Runs one verb and returns the exit status. An error is one line on standard error."""
    leave_working_folder(os.environ)
    try:
        result: Any = whole.main(args=argv, prog_name="outcast", standalone_mode=False, obj=on_verb)
        # Flushed here because the disk may be full, which is an error like any other. There is no
        # stream if we were started with standard output closed.
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ConfigError.exit_status
    except click.ClickException as error:
        _complain(error.format_message())
        return ConfigError.exit_status
    except OutcastError as error:
        _complain(str(error))
        return error.exit_status
    except (click.exceptions.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return StoppedError.exit_status
    except BrokenPipeError:
        # The reader of our output has ended, as in `outcast inspect | head`.
        sys.stderr.close()
        return 0
    except ImportError as error:
        _complain(_library_fault(error))
        return FeatureMissingError.exit_status
    except (MemoryError, SystemError) as error:
        # Python's parts in C report an allocation that failed in a shell's limit as a SystemError.
        if isinstance(error, SystemError) and shared.memory_limit_bytes() is None:
            raise
        _complain(f"out of memory{f': {error}' if str(error) else ''}; {_memory_remedy()}")
        return OutcastError.exit_status
    except OSError as error:
        # For a library that cannot be loaded, ctypes raises an OSError without a number.
        if error.errno is None and "shared object" in str(error):
            _complain(_library_fault(error))
            return FeatureMissingError.exit_status
        # The machine is at fault, not the program: a full disk, a folder without permission.
        _complain(_machine_fault(error))
        return OutcastError.exit_status
    except Exception as error:
        if not type(error).__module__.startswith("polars"):
            raise
        _complain(f"a table cannot be read: {str(error).partition(chr(10))[0]}")
        return ConfigError.exit_status


def _library_fault(error: Exception) -> str:
    """Says what could not be loaded, and the remedy. Numpy's own text is many lines long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    names_file = (line for line in lines if "shared object" in line or ".so" in line)
    what = next(names_file, lines[0] if lines else repr(error))
    what = shortened(what.partition(". ")[0], _LIBRARY_CHARACTERS)
    remedy = "scripts/install.sh installs all libraries"
    if isinstance(error, ModuleNotFoundError) and error.name == "mininet":
        from outcast.engines.guest.roots import MININET_REMEDY

        return f"{what}, which plans the network; {MININET_REMEDY}"
    if shared.memory_limit_bytes() is not None:
        remedy = f"{_memory_remedy()}; if that does not help, {remedy}"
    return f"a library cannot be loaded: {what}; {remedy}"


_LIBRARY_CHARACTERS = 200
"""The length of a loader's error that fits into one line beside the remedy."""


def _memory_remedy() -> str:
    limit_bytes = shared.memory_limit_bytes()
    if limit_bytes is None:
        return "free memory, or use a machine with more"
    return f"this shell allows {limit_bytes // 1024} KB (ulimit -v); allow more"


def _machine_fault(error: OSError) -> str:
    """One line about the error. An error without a file is standard output's if that is full."""
    if not _takes_output():
        # Python would flush once more when it ends, and print a traceback.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if error.filename is None:
            return f"standard output: {error.strerror}"
    return files.describe_with_remedy(error)


def _takes_output() -> bool:
    """Whether standard output can take more: its disk has room."""
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
        os.write(descriptor, b"")
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return not is_file or os.fstatvfs(descriptor).f_bavail > 0
    except io.UnsupportedOperation:
        # Standard output is in memory, as it is in tests.
        return True
    except OSError:
        return False


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        terminal.tell(f"outcast: {text}")
