"""Every exception of outcast, and the exit status each one maps to.

The exit statuses are part of the command line's contract: 0 done; 1 the run failed; 2 bad usage
or configuration; 3 the machine lacks a feature; 4 the run finished but its captures or counters
cannot be trusted.
"""

from __future__ import annotations

import difflib
import shlex
import signal
from collections.abc import Iterable, Sequence

_LONGEST_WORD = 100
"""Characters; a longer one is no slip of the keyboard, and comparing it takes long."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'limit'?` if `word` is nearly one of `known`, else nothing.

    A word of a much different length is no slip of the keyboard, though difflib calls it close.
    """
    if len(word) > _LONGEST_WORD:
        return ""
    most_letters_apart = max(1, len(word) // 3)
    spelled = {
        name.lower(): name for name in known if abs(len(name) - len(word)) <= most_letters_apart
    }
    near = difflib.get_close_matches(word.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""


_COMMAND_CHARACTERS = 60
_SAID_CHARACTERS = 400


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

    Its text begins with what ended and how, and is short; `in_full` has the rest for the log.

    Attributes:
        argv: the command as it was started.
        status: its exit status; negative for a signal, as in `subprocess`.
        stderr: what it wrote to standard error.
        name: what it is to a reader, as "tcpdump on s1-eth1".
    """

    def __init__(
        self, argv: Sequence[str], status: int, stderr: str, name: str = "", when: str = ""
    ) -> None:
        self.argv = tuple(argv)
        self.status = status
        self.stderr = stderr
        self.name = name or shortened(shlex.join(argv), _COMMAND_CHARACTERS)
        text = f"{self.name}{how_ended(status)}{when and f' during {when}'}"
        # One that was killed had no time to say why.
        super().__init__(text if status < 0 else f"{text}: {gist(stderr) or 'it said nothing'}")

    def during(self, when: str) -> CommandError:
        """The same, with the part of the run in which it happened."""
        return CommandError(self.argv, self.status, self.stderr, self.name, when)

    def in_full(self) -> str:
        """The whole command, and all that it wrote to standard error."""
        return f"{self.name}: {shlex.join(self.argv)}{how_ended(self.status)}\n{self.stderr}"


def how_ended(status: int) -> str:
    """A process's end in words, to be put after its name; `status` is as in `subprocess`."""
    if status >= 0:
        return f": exit status {status}"
    try:
        return f" was killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f" was killed by signal {-status}"


def gist(output: str) -> str:
    """What a failed program said, as one line of bounded length; of Python's trace, its end."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        lines = lines[-1:]
    return shortened(" ".join(lines), _SAID_CHARACTERS)


def shortened(text: str, characters: int) -> str:
    """The text with its middle left out where it is longer."""
    if len(text) <= characters:
        return text
    return f"{text[: characters // 3]} ... {text[-(characters - characters // 3) :]}"


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
