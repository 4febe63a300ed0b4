"""Which of a student's submissions counts, and what is said of copies."""

from __future__ import annotations

from outcast.assignment import copies
from outcast.assignment.graded import Evidence, Graded, RunState, Verdict


def handed(
    student: str | None,
    place: str = "",
    *,
    verdict: Verdict = "genuine",
    state: RunState = "genuine",
    captures: tuple[str, ...] = (),
    **texts: str,
) -> Graded:
    run = Evidence("unfair", state, captures=captures)
    return Graded(student, place or str(student), verdict, runs=(run,), texts=texts)


def compared(*graded: Graded) -> list[Graded]:
    """In the order in which they came."""
    return copies.compare(graded, range(len(graded)))


def test_two_that_have_nothing_in_common() -> None:
    both = handed("ana", captures=("a",), why="one"), handed("ben", captures=("b",), why="two")
    assert compared(*both) == list(both)


def test_of_a_students_submissions_the_best_counts_and_of_equal_ones_the_first() -> None:
    bad, first, second = compared(
        handed("ana", "bad", verdict="rejected"), handed("ana", "first"), handed("ana", "second")
    )
    assert [bad.counts, first.counts, second.counts] == [False, True, False]
    assert bad.for_teacher == ("does not count: first, also handed in for ana, is genuine",)
    assert second.for_teacher == ("does not count: first, also handed in for ana, came first",)


def test_the_first_is_so_by_its_date() -> None:
    """Not by its place, which the student names."""
    later, first = copies.compare([handed("ana", "a"), handed("ana", "b")], [2, 1])
    assert [later.counts, first.counts] == [False, True]


def test_without_a_name_nothing_is_a_second_submission() -> None:
    assert all(each.counts for each in compared(handed(None, "a"), handed(None, "b")))


def test_captures_of_another_are_not_held_against_who_made_them() -> None:
    hers, his = compared(
        handed("ana", captures=("a",)),
        handed("ben", captures=("a",), state="other", verdict="incomplete"),
    )
    assert (hers.verdict, hers.for_teacher) == ("genuine", ())
    assert his.verdict == "rejected"
    assert his.for_teacher == ("runs/unfair: its captures are those of ana, runs/unfair",)


def test_nobody_is_blamed_for_equal_captures_of_other_guests() -> None:
    both = compared(
        *(
            handed(name, captures=("a",), state="consistent", verdict="consistent")
            for name in ("ana", "ben")
        )
    )
    assert [each.verdict for each in both] == ["consistent", "consistent"]
    assert all("its captures are those of" in each.for_teacher[0] for each in both)


def test_words_alike_give_one_remark_for_each_pair() -> None:
    hers, his, its = compared(
        handed("ana", why="A  queue\nfills", cost="state"),
        handed("ben", why="a queue fills", cost="state"),
        handed("cem", why="no idea", cost="none"),
    )
    assert hers.for_teacher == ("why, cost: word for word as in ben",)
    assert his.for_teacher == ("why, cost: word for word as in ana",)
    assert its.for_teacher == ()
    assert {each.verdict for each in (hers, his, its)} == {"genuine"}
