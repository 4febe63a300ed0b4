"""What gives hostile inputs to verbs, and judges the answers: in one line, in time, harmless.

Verbs run within a process that is kept, because starting one takes longer than most inputs do. One
that hangs is ended, and another is started.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.golden import fuzz

HUNG_S = 120.0
"""Of wall time, because what waits takes none of the processor's. A grading takes 2.4 s of it in a
process of its own, which is more than 30 s of wall time on a busy machine."""
SLOW_S = 10.0
"""Of the processor's time."""
MEMORY_BYTES = 24 << 30
"""Of address space, so memory that is asked for and never used counts."""
STATUSES = (0, 1, 2, 3, 4)

CONFIGS = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True)
class Bases:
    """The originals that are edited; made once, whole and right."""

    run: Path
    submission: Path
    captures: tuple[bytes, ...]


def make_bases(folder: Path) -> Bases:
    """Makes the originals."""
    from tests.golden import class_folder
    from tests.golden.run_directory import analysed_run

    run = analysed_run(folder / "run", 20_000_000, 1, 300)
    klass = class_folder.make_class(folder / "class", "ana")
    class_folder.submit(klass, "ana", folder / "submission")
    return Bases(run.path, folder / "submission", tuple(fuzz.seeds()))


@dataclass(frozen=True)
class Answer:
    """What a verb did.

    Attributes:
        status: None if it was ended, or could not be ended.
        opened: files of the machine that it opened in Python: those in the folder `precious`.
    """

    status: int | None
    out: str
    err: str
    cpu_s: float
    opened: tuple[str, ...] = ()


_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NO_ERROR = re.compile("grading |no report of ")


def judge(verb: str, answer: Answer) -> list[str]:
    """What is wrong with an answer."""
    wrong = []
    if answer.status not in STATUSES:
        wrong.append(f"status {answer.status}")
    if answer.cpu_s > SLOW_S:
        wrong.append(f"took {answer.cpu_s:.0f} s")
    if "Traceback" in answer.err or "panicked" in answer.err:
        wrong.append(f"traceback: {answer.err[-500:]!a}")
    errors = [line for line in answer.err.splitlines() if not _NO_ERROR.match(line)]
    # What `join` tells of captures' flaws and clocks is no error, nor that no packet fits; an error
    # comes last.
    if verb in ("join", "inspect"):
        errors = errors[-1:] if answer.status else []
    if len(errors) != (1 if answer.status else 0):
        wrong.append(f"{len(errors)} lines of error with status {answer.status}: {errors[-3:]}")
    if found := _CONTROL.search(answer.out + answer.err):
        at = found.start()
        wrong.append(f"for the terminal: {(answer.out + answer.err)[max(0, at - 40) : at + 20]!a}")
    return wrong


class Server:
    """A process that runs one verb after another."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, arguments: Sequence[str], place: Path) -> Answer:
        """Runs a verb in the folder `here` of `place`."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
            self._pipe.poll(120)
            self._pipe.recv()
        self._pipe.send((list(arguments), str(place)))
        answered = self._pipe.poll(HUNG_S)
        try:
            status, cpu_s, opened = self._pipe.recv() if answered else (None, HUNG_S, ())
        except EOFError:
            status, cpu_s, opened = None, 0.0, ()
        if status is None:
            self.close()
        out, err = ((place / name).read_text(errors="surrogateescape") for name in ("out", "err"))
        for name in ("out", "err"):
            (place / name).unlink()
        return Answer(status, out, err, cpu_s, opened)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = self._pipe = None


def _use_ledger(folder: Path) -> None:
    """Keeps verbs from the machine's own ledger, because `clean` would act on it."""
    from outcast.engines import ledger

    vars(ledger)["default_folder"] = lambda: folder


def _run_nothing() -> None:
    """Keeps verbs from starting a run: no input may get so far that it needs one."""
    from outcast import workflow
    from outcast.api import guest
    from outcast.errors import RunError
    from outcast.uses.classroom import grade
    from tests.golden import handed_class

    grade.GUEST = handed_class.RUNNER

    def refuse(*_: object, **__: object) -> None:
        raise RunError("nothing is run here")

    for module, name in (
        *((workflow, "execute"), (workflow, "execute_command"), (guest, "provide")),
    ):
        assert hasattr(module, name)
        setattr(module, name, refuse)


_opened: list[str] = []


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if "/precious/" in path:
            _opened.append(path)


def _serve(pipe: Connection) -> None:
    from outcast import cli

    _run_nothing()
    sys.addaudithook(_note_opened)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for name in ("NO_COLOR", "COLUMNS"):
        os.environ[name] = "100"
    pipe.send("ready")
    while True:
        try:
            arguments, place = pipe.recv()
        except EOFError:
            return
        os.chdir(Path(place) / "here")
        _use_ledger(Path(place) / "given/outcast")
        os.environ["TMPDIR"] = tempfile.tempdir = f"{place}/tmp"
        for descriptor, name in ((1, "out"), (2, "err")):
            file = os.open(f"{place}/{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(file, descriptor)
            os.close(file)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), errors="surrogateescape")
            for descriptor in (1, 2)
        )
        _opened.clear()
        began = time.process_time()
        try:
            status = cli.invoke(arguments)
        except BaseException:
            status = 99
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.send((status, time.process_time() - began, tuple(_opened)))
