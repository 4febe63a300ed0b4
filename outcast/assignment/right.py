"""The right answers of a question, from an analysed run that the teacher trusts."""

from __future__ import annotations

from outcast.assignment.expression import Expression
from outcast.assignment.questions import Question, Right
from outcast.errors import InputError
from outcast.records.run import Run


def right_answers(question: Question, run: Run | None) -> Right | None:
    """All right answers; empty if the run has none.

    Args:
        question: of any kind but `effect` and `prediction`, which runs and seeds decide.
        run: the run that the question names, analysed by us; None if there is none.

    Returns:
        None if the question has no right answer, or needs a run that is not there.

    Raises:
        InputError: the question's query does not fit the run's tables.
    """
    answer = question.answer
    if answer is None:
        return None
    if not isinstance(answer, Expression):
        return (answer,)
    if run is None:
        return None
    try:
        return question.right_from(answer.rows(run))
    except ValueError as error:
        raise InputError(f"{run.directory.path}: {question.key}: {error}") from None
