"""Which of a student's submissions counts.

The key says which seed is whose, and a replay says whether a run is that seed's. So a copied run
needs no comparison to be found: it is `other` or `forged` by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from outcast.assignment.graded import Graded, Verdict

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
