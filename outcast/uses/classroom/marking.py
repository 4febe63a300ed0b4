"""Grades one submission by itself: its ticket, its runs, its answers.

Runs are repeated with other seeds for questions about effects. All students of a class get the same
seeds, which only the key gives. A run that several students need, such as the exercise's own, is
made once for all.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from outcast import experiment, files, handed_in
from outcast.analysis import Measure, measures
from outcast.errors import InputError, OutcastError
from outcast.experiment import Experiment
from outcast.records import Run
from outcast.uses.classroom import packed
from outcast.uses.classroom.answers import Answers, read_answers
from outcast.uses.classroom.classes import Class
from outcast.uses.classroom.evidence import Evidence, Examined, Runner, WantedRun, examine
from outcast.uses.classroom.exercise import Exercise
from outcast.uses.classroom.folder import MOST_BYTES, Folder, Identity
from outcast.uses.classroom.question_kind import Marked, Right
from outcast.uses.classroom.questions import Effect, Question, Text

Verdict = Literal["genuine", "consistent", "incomplete", "rejected"]
"""
genuine: every run came out the same when it was made again, and every question is answered.
consistent: nothing is wrong with what was handed in, but a run came from another guest or version.
incomplete: a run or an answer is missing, or a run is not the one that the task asks for.
rejected: something was forged, or was not issued to this student. A person decides.
"""


@dataclass(frozen=True, slots=True)
class Graded:
    """A graded submission.

    Attributes:
        student: who handed it in; None if that is unknown.
        place: what the teacher named, a folder or a file.
        notes: why runs do not count and what is missing, in lines; the student may read them.
        for_teacher: further remarks, which students do not see.
        texts: the answers in words, by question.
        counts: false if another submission of the same student counts instead.
    """

    student: str | None
    place: str
    verdict: Verdict
    marked: tuple[Marked, ...] = ()
    runs: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    for_teacher: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    counts: bool = True

    @property
    def points(self) -> float:
        """The points so far; those that are given by hand are not in it."""
        return sum(marked.points for marked in self.marked)

    @property
    def most_points(self) -> float:
        """All points that a submission can get."""
        return sum(marked.most_points for marked in self.marked)

    @property
    def by_hand_points(self) -> float:
        """The points that wait for a person."""
        return sum(marked.most_points for marked in self.marked if marked.state == "by_hand")


_ORDER: tuple[Verdict, ...] = ("genuine", "consistent", "incomplete", "rejected")


def chosen(graded: Sequence[Graded], dates_s: Sequence[float]) -> list[Graded]:
    """The submissions. If a student has several, one counts, and the others say why they do not.

    The best verdict counts, because a bad copy in a student's name must not harm her. Of equal ones
    the first counts, because otherwise handing in many answers would pay. `dates_s` has the time
    of each submission, in seconds since any instant.
    """
    by_student: dict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(graded):
        if each.student is not None:
            by_student[each.student].append(number)

    def merit(number: int) -> tuple[int, float, str]:
        each = graded[number]
        return _ORDER.index(each.verdict), dates_s[number], each.place

    marked = list(graded)
    for student, numbers in by_student.items():
        first, *others = sorted(numbers, key=merit)
        best = graded[first]
        for number in others:
            each = graded[number]
            why = "came first" if each.verdict == best.verdict else f"is {best.verdict}"
            note = f"does not count: {best.place}, also handed in for {student}, {why}"
            marked[number] = replace(each, for_teacher=(*each.for_teacher, note), counts=False)
    return marked


@dataclass(frozen=True, slots=True)
class Repeated:
    """Measures of repeated runs, in a folder that gradings share; `scratch` is for the runs."""

    folder: Path
    runner: Runner
    scratch: Path

    def values(self, requested: Experiment, wanted: Sequence[Measure]) -> list[float]:
        """The measures of the run of an experiment; NaN for one that the run does not have.

        Another process that makes the same run is waited for. The deadline of this process bounds
        that (`outcast.uses.classroom.grade`).

        Raises OutcastError: the run failed.
        """
        # The measures are in the name, because another exercise may need others.
        parts = [experiment.dump(requested), *(measure.model_dump_json() for measure in wanted)]
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                target = self.scratch / "repeated"
                run = Run(self.runner.run(requested, target))
                try:
                    with run.reading():
                        files.write_json(path, [measures.take(run, each) for each in wanted])
                finally:
                    shutil.rmtree(target)
            known: list[float] = json.loads(path.read_bytes())
        return known


_UNFINISHED = frozenset({"missing", "other", "disagreeing", "unchecked"})


def mark(
    class_: Class, place: Path, runner: Runner, scratch: Path, shared: Path | None = None
) -> Graded:
    """Grades one submission.

    `scratch` is a new folder for what is unpacked and run. `shared` is the folder of measures that
    gradings share; None shares none.

    Raises ConfigError: the class is not valid.
    """
    try:
        folder = opened(place, scratch / "unpacked", class_.exercise)
        identity = folder.identity()
        require_issued(class_, identity)
    except (InputError, OSError) as error:
        text = str(error).removeprefix(f"{place}: ").replace(f"{scratch}/unpacked/", "")
        return Graded(None, str(place), "rejected", notes=(text,))
    exercise = class_.exercise.with_values(identity.values)
    answers = read_answers(folder.path, exercise.questions)
    repeated = Repeated(shared or scratch / "shared", runner, scratch)
    submission = _Submission(class_, folder, identity, exercise, answers, runner, scratch, repeated)
    return submission.graded(str(place))


def opened(place: Path, scratch: Path, exercise: Exercise) -> Folder:
    """A submission as a student's folder; the guard of all that is read of it.

    A folder may also hold the submission alone, as the downloads of Moodle do. `scratch` is a new
    folder for what is unpacked.

    Raises:
        InputError: it is no submission.
        OSError: it cannot be read, or unpacked.
    """
    place = _inner(place)
    if not place.is_dir():
        scratch.mkdir()
        packed.unpack(place, scratch, packed.most_bytes(exercise.questions))
        return Folder(scratch)
    # A link could show the teacher, and later a student, any file of this machine.
    handed_in.require_plain(place, most_bytes=MOST_BYTES)
    return Folder(place)


def _inner(place: Path) -> Path:
    """The submission inside a folder, as the downloads of Moodle have it."""
    if place.is_dir() and not (place / "assignment.yaml").exists():
        # macOS adds files such as .DS_Store and __MACOSX to a zip file.
        inner = [path for path in place.iterdir() if not path.name.startswith((".", "__"))]
        if len(inner) == 1 and not inner[0].is_symlink():
            only = inner[0]
            if only.is_file() or (only / "assignment.yaml").is_file():
                return only
    return place


def require_issued(class_: Class, identity: Identity) -> None:
    """Raises InputError if the class has not issued this to a student."""
    for what, stated, here in (
        ("class", identity.class_name, class_.name),
        ("exercise", identity.exercise, class_.exercise.name),
    ):
        if stated != here:
            raise InputError(f"assignment.yaml: {what}: belongs to {stated}; allowed is {here}")
    if not class_.key.is_genuine(identity):
        raise InputError(
            f"assignment.yaml: ticket: this was not issued to {identity.student}; the file was "
            "changed, or comes from another class"
        )


@dataclass(frozen=True, slots=True)
class _Submission:
    class_: Class
    folder: Folder
    identity: Identity
    exercise: Exercise
    answers: Answers
    runner: Runner
    scratch: Path
    repeated: Repeated

    def graded(self, place: str) -> Graded:
        examined = {name: self._examined(name) for name in self.exercise.runs}
        runs = tuple(each.evidence for each in examined.values())
        given, marked, notes = self.answers.given, [], []
        texts = [each.key for each in self.exercise.questions if isinstance(each, Text)]
        for question in self.exercise.questions:
            right: Right | None = None
            try:
                right = self._right(question, examined)
            except OutcastError as error:
                why = str(error).replace(f"{self.scratch}/", "")
                notes.append(f"{question.key}: not computed: {why}")
            marked.append(question.mark(given.get(question.key), right))
        return Graded(
            student=self.identity.student,
            place=place,
            verdict=_verdict(runs, bool(self.answers.missing)),
            marked=tuple(marked),
            runs=runs,
            notes=(*(reason for run in runs for reason in run.reasons), *self.answers.missing),
            for_teacher=tuple(notes),
            texts={key: given[key] for key in texts if key in given},
        )

    def _examined(self, name: str) -> Examined:
        task = self.exercise.runs[name]
        run = WantedRun(name, task, self.exercise.expected(name, self.identity.seed))
        scratch = self.scratch / name
        scratch.mkdir()
        return examine(self.folder, run, self.runner, scratch)

    def _right(self, question: Question, examined: Mapping[str, Examined]) -> Right | None:
        """The right answers; None if the run that they come from does not count."""
        if isinstance(question, Effect):
            return self._effect(question, examined)
        truth = examined[question.run].truth if question.run is not None else None
        if question.run is not None and truth is None:
            return None
        return question.right_answers(None if truth is None else Run(truth))

    def _effect(self, question: Effect, examined: Mapping[str, Examined]) -> Right | None:
        """The interval over repeated runs: the student's experiment against the exercise's own."""
        assert question.run is not None
        ours = examined[question.run].experiment
        if ours is None:
            return None
        theirs = self.exercise.expected(question.against, 1)
        seeds = [self.class_.seed("", f"repeat {number}") for number in range(question.seeds)]
        values = [
            [self._measured(question, name, experiment, seed) for seed in seeds]
            for name, experiment in ((question.run, ours), (question.against, theirs))
        ]
        return question.right_of(question.interval(*values))

    def _measured(self, question: Effect, name: str, experiment: Experiment, seed: int) -> float:
        """The measure of one repeated run, which is made once for all questions about it."""
        wanted = [
            other.measure
            for other in self.exercise.questions
            if isinstance(other, Effect) and name in (other.run, other.against)
        ]
        values = self.repeated.values(experiment.model_copy(update={"seed": seed}), wanted)
        return values[wanted.index(question.measure)]


def _verdict(runs: tuple[Evidence, ...], unanswered: bool) -> Verdict:
    states = {run.state for run in runs}
    if "forged" in states:
        return "rejected"
    if states & _UNFINISHED or unanswered:
        return "incomplete"
    return "genuine" if states == {"genuine"} else "consistent"


def digest(place: Path) -> str:
    """A hash of all that was handed in, by which a later grading knows the submission again.

    Raises:
        InputError: it holds anything but files and folders, or too much.
        OSError: a file cannot be read.
    """
    if not place.is_dir():
        return files.sha256(place)
    handed_in.require_plain(place, most_bytes=MOST_BYTES)
    whole = hashlib.sha256()
    for path in handed_in.plain_files(place):
        whole.update(f"{path.relative_to(place)}\0{files.sha256(path)}\0".encode(errors="replace"))
    return whole.hexdigest()
