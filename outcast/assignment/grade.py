"""Submissions graded: which runs are genuine, which answers hold, what was copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from outcast.assignment import answers, copies, tasks
from outcast.assignment.evidence import Evidence, State, examine
from outcast.assignment.folder import Folder, Identity
from outcast.assignment.questions import QUESTIONS, Known
from outcast.assignment.replayed import Runner
from outcast.errors import InputError

Verdict = Literal["genuine", "consistent", "incomplete", "rejected"]

_REJECTED: frozenset[State] = frozenset({"forged", "other", "untrusted"})


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer beside what the student's own captures give."""

    key: str
    answer: float | None
    known: Known
    right: bool


@dataclass(frozen=True, slots=True)
class Graded:
    """One submission.

    Attributes:
        identity: None where the folder is none of an assignment.
        notes: what the teacher has to know, in lines.
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
        """How many numbers are right."""
        return sum(each.right for each in self.answered)


def grade(
    paths: Sequence[Path],
    runner: Runner | None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[Graded]:
    """Grades every folder by itself, then all beside each other."""
    graded = [_alone(path, runner, on_progress) for path in paths]
    names = Counter(each.identity.name for each in graded if each.identity)
    usual = names.most_common(1)[0][0] if names else ""
    handed = [
        copies.Handed(each.place, each.identity, each.runs, tuple((each.texts or {}).values()))
        for each in graded
        if each.identity
    ]
    found = copies.find(handed)
    result = []
    for each in graded:
        against = [copy for copy in found if copy.place == each.place]
        notes = [copy.reason for copy in against]
        certain = any(copy.certain for copy in against)
        if each.identity and each.identity.name != usual:
            notes.append(f"of another assignment: {each.identity.name}, most are of {usual}")
            certain = True
        verdict: Verdict = "rejected" if certain else each.verdict
        result.append(replace(each, verdict=verdict, notes=(*each.notes, *notes)))
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
