"""Finds what two submissions have in common but should not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outcast.assignment.evidence import Evidence
from outcast.assignment.old_folder import Identity


@dataclass(frozen=True, slots=True)
class Submission:
    """The parts of a submission that are compared; `place` is the folder the teacher named."""

    place: str
    identity: Identity
    runs: Sequence[Evidence]
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Copy:
    """One thing that a submission has in common with another.

    Attributes:
        place: the submission that is suspected.
        reason: the suspicion in one line.
        certain: false if the other side copied, or if the teacher has to judge.
    """

    place: str
    reason: str
    certain: bool = True


def find(handed: Sequence[Submission]) -> list[Copy]:
    """Every copy, for each submission that has not proved its own runs to be genuine."""
    return [*_students(handed), *_runs(handed), *_texts(handed)]


def _students(handed: Sequence[Submission]) -> Iterator[Copy]:
    places: dict[Identity, list[str]] = defaultdict(list)
    for submission in handed:
        places[submission.identity].append(submission.place)
    for identity, of_student in places.items():
        for place in of_student:
            others = ", ".join(other for other in of_student if other != place)
            if others:
                yield Copy(place, f"{identity.student} handed in twice, see {others}")


def _runs(handed: Sequence[Submission]) -> Iterator[Copy]:
    pairs = [(submission, run) for submission in handed for run in submission.runs]
    for mine, run in pairs:
        for other, its in pairs:
            if other is mine or other.identity == mine.identity:
                continue
            where = f"runs/{run.task.name}"
            if run.captures & its.captures:
                yield Copy(
                    mine.place,
                    f"{where}: the captures are those of {other.place}/runs/{its.task.name}",
                    certain=not _rightful(run, its),
                )
            elif run.seed is not None and run.task == its.task and run.seed == its.seed:
                yield Copy(
                    mine.place,
                    f"{where}: seed {run.seed} is used by {other.place} too",
                    certain=run.seed != mine.identity.seed,
                )


def _rightful(mine: Evidence, its: Evidence) -> bool:
    """Whether the first of two runs with the same captures is the original."""
    if mine.state == "genuine":
        return True
    return mine.state == "consistent" and its.state in ("other", "forged")


def _texts(handed: Sequence[Submission]) -> Iterator[Copy]:
    places: dict[str, list[Submission]] = defaultdict(list)
    for submission in handed:
        for text in {" ".join(text.lower().split()) for text in submission.texts}:
            places[text].append(submission)
    for text, alike in places.items():
        for mine in alike:
            others = [other.place for other in alike if other.identity != mine.identity]
            if others:
                reason = f"answer {text[:40]!r}... word for word as in {', '.join(others)}"
                yield Copy(mine.place, reason, certain=False)
