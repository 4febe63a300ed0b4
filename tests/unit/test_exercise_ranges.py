"""The table of expected answers, which docs/teaching.md shows."""

from __future__ import annotations

from outcast.assignment.lint import Line, Linted
from scripts import exercise_ranges


def test_the_table_has_what_was_computed() -> None:
    lines = (
        Line("ratio", "number", "2.1 to 9.5", ()),
        Line("why", "text", "", ()),
    )
    head, *rows = exercise_ranges.table(Linted(lines, (), 20))
    assert head == ["question", f"right answers of {exercise_ranges.STUDENTS} students"]
    assert rows == [["`ratio`", "2.1 to 9.5"]]
