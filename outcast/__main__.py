"""The program `outcast`, and `python -m outcast`.

Imports take half a second, and there is nothing to clean up yet. So until a verb begins, Ctrl-C
ends the process at once.
"""

from __future__ import annotations

# Not `signal`, because its enumerations take milliseconds in which Ctrl-C is not handled.
import _signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended, as shells have it."""


def main() -> None:
    """Runs one verb, and exits with its status."""
    end_at_once()
    from outcast import cli

    try:
        cli.main(on_verb=end_in_order)
    finally:
        end_at_once()


def end_at_once() -> None:
    """From now on Ctrl-C ends the process, unless a shell has it ignored in the background."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)


def end_in_order() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, on which a verb removes what it has made."""
    if _signal.getsignal(_signal.SIGINT) is _end:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"outcast: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
