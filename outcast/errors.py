"""All exceptions of outcast, and the exit status of each.

The exit statuses are a contract of the command line: 0 done; 1 the run failed; 2 bad usage or
configuration; 3 the machine lacks a feature; 4 the run finished, but its captures and
counters do not agree; 130 interrupted.
"""

from __future__ import annotations

import difflib
import shlex
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

_LONGEST_WORD = 100
"""In characters. Longer words get no suggestion, because comparing them takes long."""


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


def some_of(names: Iterable[str], most: int = 6) -> str:
    """The first of these names for a message, and dots where there are more."""
    names = list(names)
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


KEPT_IN = " (what was written up to then: "
"""Begins the end of a failed run's error, which names the folder with what the run has left."""


def with_folder(text: str, folder: object) -> str:
    """The text of a failed run's error, with the folder that has what the run has left."""
    return f"{text}{KEPT_IN}{folder})"


def without_folder(text: str) -> str:
    """The text without that folder, for who cannot look into it: there it names files alone."""
    what, _, folder = text.partition(KEPT_IN)
    return what.replace(f"{folder.removesuffix(')')}/", "") if folder else what


_COMMAND_CHARACTERS = 60
_OUTPUT_CHARACTERS = 1000


class OutcastError(Exception):
    """The base of all our exceptions. Its text is one line that a user can act on."""

    exit_status = 1


class ConfigError(OutcastError):
    """A configuration is refused. The text says where, what is wrong and what is allowed."""

    exit_status = 2


@contextmanager
def refusals_at(where: str) -> Iterator[None]:
    """Raises ConfigError for a ValueError within; its text begins with `where`."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


class InputError(OutcastError):
    """A file or folder given to a verb cannot be used: a broken capture, a missing run."""

    exit_status = 2


class NothingSentError(InputError):
    """No packet passed what was captured, so there is nothing to analyse."""


class FeatureMissingError(OutcastError):
    """The machine lacks a feature that the experiment needs. The text names it and its remedy."""

    exit_status = 3


class NoAnalysisError(FeatureMissingError):
    """outcast-test is installed, which runs networks and lacks what analyses their captures."""


class StoppedError(OutcastError):
    exit_status = 130


class RunError(OutcastError):
    """A run could not be built, started or finished."""


class CommandError(RunError):
    """An external command failed.

    The text is short and begins with the command and how it ended. `in_full` has all of it.

    Attributes:
        status: its exit status; negative for a signal, as in `subprocess`.
        name: its name for a reader, as "tcpdump on s1-eth1".
    """

    def __init__(
        self, argv: Sequence[str], status: int, stderr: str, name: str = "", when: str = ""
    ) -> None:
        self.argv = tuple(argv)
        self.status = status
        self.stderr = stderr
        self.name = name or shortened(shlex.join(argv), _COMMAND_CHARACTERS)
        text = f"{self.name}{how_ended(status)}{when and f' during {when}'}"
        # A command that was killed had no time to write why.
        reason = gist(stderr) or "it wrote no reason"
        super().__init__(text if status < 0 else f"{text}: {reason}")

    def during(self, when: str) -> CommandError:
        """The same error, with the part of the run in which it happened."""
        return CommandError(self.argv, self.status, self.stderr, self.name, when)

    def in_full(self) -> str:
        """The whole command and everything it wrote to standard error, for the log."""
        return f"{self.name}: {shlex.join(self.argv)}{how_ended(self.status)}\n{self.stderr}"


def how_ended(status: int) -> str:
    """How a process ended, as the words after its name; `status` is as in `subprocess`."""
    if status >= 0:
        return f": exit status {status}"
    try:
        return f" was killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f" was killed by signal {-status}"


def gist(output: str) -> str:
    """A failed program's output as one line of bounded length; the last line of a traceback."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        lines = lines[-1:]
    return shortened(" ".join(lines), _OUTPUT_CHARACTERS)


def shortened(text: str, characters: int) -> str:
    """The text, without its middle if it has more characters than this."""
    if len(text) <= characters:
        return text
    return f"{text[: characters // 3]} ... {text[-(characters - characters // 3) :]}"


class DeadlineError(RunError):
    """Something did not happen in time. The text says what was waited for."""

    def __init__(self, waited_for: str, seconds: float, detail: str = "") -> None:
        text = f"waited {seconds:g} s for {waited_for}"
        super().__init__(f"{text}: {detail}" if detail else text)


class BusyError(RunError):
    """Another process uses what cannot be shared. It works once that process has ended."""


class ProcessLostError(RunError):
    """The process that made a run was killed, or ended without saying why."""


class ReadBackError(RunError):
    """The kernel shows another value of a setting than was requested."""

    def __init__(self, where: str, setting: str, requested: object, effective: object) -> None:
        super().__init__(f"{where}: {setting}: requested {requested}, the kernel shows {effective}")


class KernelError(OutcastError):
    """The virtual engine's kernel could not be found, patched, configured or used."""


class RootError(OutcastError):
    """The guest's root could not be fetched, made or used."""


class GuestError(RunError):
    """The virtual engine's guest did not boot, panicked, hung or was ended from outside."""


class StallError(GuestError):
    """The virtual engine's guest showed no sign of life for too long."""


class UntrustedError(OutcastError):
    """The run finished, but its captures and counters contradict each other.

    Likewise captures of others that cannot be joined, because packets contradict each other.
    """

    exit_status = 4


class ReplayError(OutcastError):
    """Two runs of the same experiment and seed differ. The text says what differs first."""


def rebuilt(kind: str, message: str) -> OutcastError:
    """An error of another process of outcast, by its class's name and its text.

    It has none of its class's other attributes. Another name than those classes have is a RunError.
    """
    known = globals().get(kind)
    of_class = known if isinstance(known, type) and issubclass(known, OutcastError) else RunError
    # Some classes take other arguments than a text.
    error: OutcastError = of_class.__new__(of_class, message)
    Exception.__init__(error, message)
    return error
