"""answers.yaml: written with gaps, and read back with what is wrong about each answer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import handed_in
from outcast.assignment.questions import GAP, Question
from outcast.errors import InputError

FILE = "answers.yaml"
_MOST_UNKNOWN = 5
"""How many unknown keys are named; a file can have thousands."""


@dataclass(frozen=True, slots=True)
class Answers:
    """A student's answers by question, as `read` returned them; and what is wrong or missing."""

    given: Mapping[str, Any]
    missing: tuple[str, ...]


def blank(questions: Sequence[Question]) -> str:
    """The text of the file with a gap for every answer."""
    lines = [
        f"# Replace each {GAP} by your answer. The comment above it names the run to read.",
    ]
    for question in questions:
        points = f"{question.points:g} point{'' if question.points == 1 else 's'}"
        told = [*_wrapped(question.asked)]
        told.append(f"# runs/{question.run}; {points}" if question.run else f"# {points}")
        if question.hint:
            told += _wrapped(f"Hint: {question.hint}")
        lines += ["", *told, *question.blank()]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    prefix = "# "
    return textwrap.wrap(text, 96, initial_indent=prefix, subsequent_indent=prefix)


def read_answers(folder: Path, questions: Iterable[Question]) -> Answers:
    """Reads the answers of a student's folder. If the file cannot be read, `missing` says why."""
    path = folder / FILE
    try:
        tree: Any = handed_in.read_yaml(path)
    except FileNotFoundError:
        return Answers({}, (f"{FILE}: there is no such file",))
    except InputError as error:
        return Answers({}, (str(error).replace(f"{folder}/", ""),))
    if not isinstance(tree, dict):
        return Answers({}, (f"{FILE}: allowed is a mapping from questions to answers",))
    given: dict[str, Any] = {}
    missing = []
    slots = {question.key: question for question in questions if question.HAS_SLOT}
    for key, question in slots.items():
        value = tree.get(key)
        if question.is_blank(value):
            missing.append(f"{FILE}: {key}: not answered")
            continue
        try:
            given[key] = question.read(value, folder)
        except ValueError as error:
            missing.append(f"{FILE}: {key}: {error}")
    unknown = [" ".join(str(key)[:40].split()) for key in tree if key not in slots]
    missing += [f"{FILE}: {key}: there is no such question" for key in unknown[:_MOST_UNKNOWN]]
    if len(unknown) > _MOST_UNKNOWN:
        missing.append(f"{FILE}: {len(unknown) - _MOST_UNKNOWN} more keys that are no questions")
    return Answers(given, tuple(missing))
