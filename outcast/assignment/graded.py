"""What grading finds out about a submission, and which of a student's submissions counts.

The key says which seed is whose, and a replay says whether a run is that seed's. So a copied run
needs no comparison to be found: it is `other` or `forged` by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outcast.assignment.question_kind import Marked

Verdict = Literal["genuine", "consistent", "incomplete", "rejected"]
"""
genuine: every run came out the same when it was made again, and every question is answered.
consistent: nothing is wrong with what was handed in, but a run came from another guest or version.
incomplete: a run or an answer is missing, or a run is not the one that the task asks for.
rejected: something was forged, or was not issued to this student. A person decides.
"""

RunState = Literal[
    "genuine", "consistent", "disagreeing", "unchecked", "other", "forged", "missing"
]
"""
genuine: made again from its configuration and seed, the run came out the same to the byte.
consistent: it was made with another guest or version, so it cannot be the same to the byte.
disagreeing: its captures and counters do not agree.
unchecked: nothing shows what is in it, because it could not be made again here.
other: it is a run, but not the one that the task asks of this student.
forged: something in it was changed, or cannot come from this configuration and seed.
missing: the run is not there.
"""

COUNTING: frozenset[RunState] = frozenset({"genuine", "consistent"})
"""Only a run in one of these states gives points to the questions about it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of one run of one student, with the seed that it states.

    `reasons` says why it has its state, in lines.
    """

    name: str
    state: RunState
    reasons: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Graded:
    """A graded submission.

    Attributes:
        student: whose it is; None if that cannot be told.
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
    """The submissions; of a student's several ones all but one do not count, and say why.

    That is the one with the best verdict, because a bad copy in a student's name must not harm her,
    and of equal ones the first, because otherwise handing in many answers would pay. `dates_s` says
    when each was handed in, in seconds since any instant.
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
