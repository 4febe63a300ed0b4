"""Starts this machine's programs that compile what a guest runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from outcast.emulation.commands import end_with_parent
from outcast.errors import CommandError, FeatureMissingError

_ERROR_LINES = 12


class Programs:
    """Starts programs. An interrupt ends one and all that it started."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        """Runs a program to its end. Returns its standard output. Raises CommandError.

        Of our environment, the program gets PATH, HOME and proxies alone.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "HOME") or name.lower().endswith("_proxy")
        }
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**kept, "LC_ALL": "C.UTF-8", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        except FileNotFoundError:
            raise FeatureMissingError(f"{argv[0]} is missing on this machine") from None
        lines: list[str] = []
        last: deque[str] = deque(maxlen=_ERROR_LINES)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                last.append(line.strip())
                if on_line is not None:
                    on_line(line.rstrip("\n"))
            status = process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if status:
            raise CommandError(argv, status, " | ".join(last))
        return "".join(lines)
