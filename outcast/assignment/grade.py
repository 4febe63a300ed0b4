"""Grades submissions: which runs are genuine, which answers are right, what was copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from outcast.assignment import copies
from outcast.assignment import old_answers as answers
from outcast.assignment import old_tasks as tasks
from outcast.assignment.evidence import Evidence, State, examine
from outcast.assignment.old_folder import Folder, Identity
from outcast.assignment.old_questions import QUESTIONS, Known
from outcast.assignment.replayed import Runner
from outcast.errors import InputError

Verdict = Literal["genuine", "consistent", "incomplete", "rejected"]

_REJECTED: frozenset[State] = frozenset({"forged", "other", "untrusted"})


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer beside the right answers from the student's own captures."""

    key: str
    answer: float | None
    known: Known
    right: bool


@dataclass(frozen=True, slots=True)
class Graded:
    """One graded submission.

    Attributes:
        identity: None if the folder is not that of an assignment.
        notes: remarks for the teacher, in lines.
    """

    place: str
    identity: Identity | None
    verdict: Verdict
    runs: tuple[Evidence, ...] = ()
    answered: tuple[Answered, ...] = ()
    texts: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def right(self) -> int:
        """The number of right answers."""
        return sum(answer.right for answer in self.answered)


def grade(
    paths: Sequence[Path],
    runner: Runner | None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[Graded]:
    """Grades every folder by itself, and then compares all of them."""
    graded = [_alone(path, runner, on_progress) for path in paths]
    names = Counter(folder.identity.name for folder in graded if folder.identity)
    usual = names.most_common(1)[0][0] if names else ""
    submissions = [
        copies.Submission(
            folder.place, folder.identity, folder.runs, tuple((folder.texts or {}).values())
        )
        for folder in graded
        if folder.identity
    ]
    suspicions = copies.find(submissions)
    result = []
    for folder in graded:
        against = [copy for copy in suspicions if copy.place == folder.place]
        notes = [copy.reason for copy in against]
        is_certain = any(copy.certain for copy in against)
        if folder.identity and folder.identity.name != usual:
            notes.append(
                f"belongs to another assignment: {folder.identity.name}; most belong to {usual}"
            )
            is_certain = True
        verdict: Verdict = "rejected" if is_certain else folder.verdict
        result.append(replace(folder, verdict=verdict, notes=(*folder.notes, *notes)))
    return result


def _alone(path: Path, runner: Runner | None, on_progress: Callable[[str], None]) -> Graded:
    folder = Folder(path)
    try:
        identity = folder.identity()
    except InputError as error:
        return Graded(str(path), None, "rejected", notes=(str(error).removeprefix(f"{path}: "),))
    runs = []
    for task in tasks.TASKS:
        on_progress(f"{path}/runs/{task.name}")
        runs.append(examine(folder, identity, task, runner))
    given = answers.read_answers(folder.answers)
    known = {key: values for run in runs for key, values in run.known.items()}
    answered = tuple(
        Answered(
            question.key,
            number := given.numbers.get(question.key),
            values := known.get(question.key, ()),
            number is not None and question.holds(number, values),
        )
        for question in QUESTIONS
    )
    notes = [reason for run in runs for reason in run.reasons]
    return Graded(
        place=str(path),
        identity=identity,
        verdict=_verdict([run.state for run in runs], bool(given.missing)),
        runs=tuple(runs),
        answered=answered,
        texts=given.texts,
        notes=(*notes, *given.missing),
    )


def _verdict(states: Sequence[State], unanswered: bool) -> Verdict:
    if _REJECTED & set(states):
        return "rejected"
    if "missing" in states or unanswered:
        return "incomplete"
    return "genuine" if set(states) == {"genuine"} else "consistent"
