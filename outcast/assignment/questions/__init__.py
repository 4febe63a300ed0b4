"""The kinds of questions.

A kind is registered by its place in `Question`. By that exercise.yaml knows it, and so do
answers.yaml, the checks and the marking.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from outcast.assignment.questions.base import GAP, Marked, QuestionKind, Right, Span, State
from outcast.assignment.questions.by_teacher import Picture, Text
from outcast.assignment.questions.choices import Choice, Prediction
from outcast.assignment.questions.effect import Effect
from outcast.assignment.questions.number import Number
from outcast.assignment.questions.packets import Packets

__all__ = [
    "GAP",
    "KINDS",
    "Choice",
    "Effect",
    "Marked",
    "Number",
    "Packets",
    "Picture",
    "Prediction",
    "Question",
    "QuestionKind",
    "Right",
    "Span",
    "State",
    "Text",
]

Question = Annotated[
    Number | Choice | Text | Packets | Picture | Prediction | Effect,
    Field(discriminator="kind"),
]

KINDS: tuple[type[QuestionKind], ...] = get_args(get_args(Question)[0])
"""The classes of all kinds."""
