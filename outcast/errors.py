"""Every exception of outcast, and the exit status each one maps to.

The exit statuses are part of the command line's contract: 0 done; 1 the run failed; 2 bad usage
or configuration; 3 the machine lacks a feature; 4 the run finished but its captures or counters
cannot be trusted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_LONGEST_WORD = 100
"""Characters; a longer one is no slip of the keyboard, and comparing it takes long."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a refusal: `; did you mean 'limit'?` where `word` is nearly one of `known`."""
    if len(word) > _LONGEST_WORD:
        return ""
    spelled = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""


class OutcastError(Exception):
    """The root of the tree. Its text is one line that a user can act on."""

    exit_status = 1


class ConfigError(OutcastError):
    """A configuration that cannot be accepted: where, what is wrong, what is allowed."""

    exit_status = 2


class InputError(OutcastError):
    """A file or folder given to a verb that cannot be used: a broken capture, a missing run."""

    exit_status = 2


class FeatureMissingError(OutcastError):
    """The machine lacks something that the experiment needs; the text names it and its remedy."""

    exit_status = 3


class RunError(OutcastError):
    """A run that could not be built, started or finished."""


class CommandError(RunError):
    """An external command that failed.

    Attributes:
        argv: the command as it was started.
        status: its exit status; negative for a signal, as in `subprocess`.
        stderr: what it wrote to standard error.
    """

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        self.argv = tuple(argv)
        self.status = status
        self.stderr = stderr
        said = " ".join(stderr.split()) or "it printed no error"
        super().__init__(f"{' '.join(argv)}: exit status {status}: {said}")


class DeadlineError(RunError):
    """A wait that was not fulfilled in time; the text says what was waited for."""

    def __init__(self, waited_for: str, seconds: float, detail: str = "") -> None:
        text = f"waited {seconds:g} s for {waited_for}"
        super().__init__(f"{text}: {detail}" if detail else text)


class BusyError(RunError):
    """What cannot be shared is in use by another process; it works once that has ended."""


class ProcessLostError(RunError):
    """The process that made a run was killed, or ended without a word."""


class WorkerLostError(RunError):
    """The worker of Dask that made a run went away before its end."""


class ReadBackError(RunError):
    """A setting that the kernel does not show as it was requested."""

    def __init__(self, where: str, setting: str, requested: object, effective: object) -> None:
        super().__init__(f"{where}: {setting}: requested {requested}, the kernel shows {effective}")


class KernelError(OutcastError):
    """The virtual engine's kernel could not be found, patched, configured or used."""


class GuestError(RunError):
    """The virtual engine's guest did not boot, panicked, hung or was ended from outside."""


class UntrustedError(OutcastError):
    """The run finished, but its captures or counters contradict each other."""

    exit_status = 4


class ReplayError(OutcastError):
    """Two runs of the same experiment and seed differ; the text says what differs first."""
