"""Finds what submissions have in common, and whom that is held against: never the owner of a seed.

The key says which seed is whose, and a replay says whether a run is that seed's. So a copied run
needs no comparison to be found: it is `other` or `forged` by itself. What is compared here tells
the teacher where it comes from, and which submission of a student counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from outcast.archive.contents import listed
from outcast.assignment.graded import Graded, Verdict

_ORDER: tuple[Verdict, ...] = ("genuine", "consistent", "incomplete", "rejected")


def compare(graded: Sequence[Graded], dates_s: Sequence[float]) -> list[Graded]:
    """The submissions, each with remarks on what it has in common with others.

    `dates_s` says when each was handed in, in seconds since any instant. One does not count if
    another one of the same student does.
    """
    again, copied = list(_again(graded, dates_s)), list(_runs(graded))
    notes: dict[int, list[str]] = defaultdict(list)
    for number, note in (*again, *copied, *_texts(graded)):
        notes[number].append(note)
    not_counted = {number for number, _ in again}
    rejected = {
        number
        for number, _ in copied
        if any(run.state in ("other", "forged") for run in graded[number].runs)
    }
    return [
        replace(
            each,
            for_teacher=(*each.for_teacher, *notes[number]),
            verdict="rejected" if number in rejected else each.verdict,
            counts=number not in not_counted,
        )
        for number, each in enumerate(graded)
    ]


def _again(graded: Sequence[Graded], dates_s: Sequence[float]) -> Iterator[tuple[int, str]]:
    """Submissions of a student besides the one that counts.

    That is the one with the best verdict, because a bad copy in a student's name must not harm her,
    and of equal ones the first, because otherwise handing in many answers would pay.
    """
    by_student: dict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(graded):
        if each.student is not None:
            by_student[each.student].append(number)

    def merit(number: int) -> tuple[int, float, str]:
        each = graded[number]
        return _ORDER.index(each.verdict), dates_s[number], each.place

    for student, numbers in by_student.items():
        first, *others = sorted(numbers, key=merit)
        best = graded[first]
        for number in others:
            is_as_good = graded[number].verdict == best.verdict
            why = "came first" if is_as_good else f"is {best.verdict}"
            yield number, f"does not count: {best.place}, also handed in for {student}, {why}"


def _runs(graded: Sequence[Graded]) -> Iterator[tuple[int, str]]:
    """Runs whose captures another student has too, where they are not proved to be one's own."""
    owners: dict[str, dict[int, str]] = defaultdict(dict)
    for number, each in enumerate(graded):
        for run in each.runs:
            for capture in run.captures:
                owners[capture][number] = run.name
    said: set[tuple[int, int, str]] = set()
    for having in owners.values():
        for number, name in having.items():
            mine = graded[number]
            state = next(run.state for run in mine.runs if run.name == name)
            for other, its_name in having.items():
                if graded[other].student == mine.student or state == "genuine":
                    continue
                if (number, other, name) not in said:
                    said.add((number, other, name))
                    theirs = f"{graded[other].place}, runs/{its_name}"
                    yield number, f"runs/{name}: its captures are those of {theirs}"


def _texts(graded: Sequence[Graded]) -> Iterator[tuple[int, str]]:
    """Answers in words that are the same word for word; one remark for the same answers."""
    having: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, each in enumerate(graded):
        for key, text in each.texts.items():
            having[key, " ".join(text.lower().split())].append(number)
    alike: dict[tuple[int, int], list[str]] = defaultdict(list)
    for (key, _), numbers in having.items():
        for number in numbers:
            for other in numbers:
                if graded[number].student != graded[other].student:
                    alike[number, other].append(key)
    places: dict[tuple[int, str], list[str]] = defaultdict(list)
    for (number, other), keys in alike.items():
        places[number, ", ".join(keys)].append(graded[other].place)
    for (number, told), others in places.items():
        yield number, f"{told}: word for word as in {listed(others)}"
