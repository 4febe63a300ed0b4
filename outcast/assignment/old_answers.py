"""answers.yaml: written with gaps, and read back with what is wrong about each answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import handed_in
from outcast.assignment.old_questions import ESSAYS, LEAST_WORDS, QUESTIONS
from outcast.assignment.old_tasks import GAP
from outcast.errors import InputError


@dataclass(frozen=True, slots=True)
class Answers:
    """A student's answers.

    Attributes:
        numbers: by question, the answers that are numbers.
        texts: by question, the answers in words.
        missing: the questions without a valid answer, in lines.
    """

    numbers: Mapping[str, float]
    texts: Mapping[str, str]
    missing: tuple[str, ...]


def blank() -> str:
    """The text of the file with a gap for every answer."""
    lines = [
        f"# Replace each {GAP} by your answer. The comment above it names the run to read.",
        "# Most answers are numbers, in the unit behind them. The last ones are in words:",
        f"# write at least {LEAST_WORDS} words each.",
    ]
    for question in QUESTIONS:
        lines += [
            "",
            f"# {question.asked}",
            f"# runs/{question.task.name}: {question.where}",
            f"{question.key}: {GAP}  # {question.unit or 'a number without a unit'}",
        ]
    for essay in ESSAYS:
        lines += ["", f"# {essay.asked}", f"{essay.key}: |", f"  {GAP}"]
    return "\n".join(lines) + "\n"


def read_answers(path: Path) -> Answers:
    """Reads the answers. If the file cannot be read, `missing` says why."""
    try:
        tree: Any = handed_in.read_yaml(path)
    except FileNotFoundError:
        return Answers({}, {}, (f"{path.name}: there is no such file",))
    except InputError as error:
        return Answers({}, {}, (str(error).replace(f"{path.parent}/", ""),))
    if not isinstance(tree, dict):
        return Answers({}, {}, (f"{path.name}: allowed is a mapping from questions to answers",))
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    missing = []
    for question in QUESTIONS:
        value = tree.get(question.key)
        if value is None or value == GAP:
            missing.append(f"{path.name}: {question.key}: not answered")
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            missing.append(
                f"{path.name}: {question.key}: {str(value)[:40]!r} is not a number; "
                + (
                    "allowed is 12.5, for example"
                    + (question.unit and f" for 12.5 {question.unit}")
                )
            )
        else:
            numbers[question.key] = float(value)
    for essay in ESSAYS:
        text = str(tree.get(essay.key) or "").strip()
        if not text or GAP in text:
            missing.append(f"{path.name}: {essay.key}: not answered")
        elif len(text.split()) < LEAST_WORDS:
            missing.append(f"{path.name}: {essay.key}: fewer than {LEAST_WORDS} words")
        else:
            texts[essay.key] = text
    known = {item.key for item in (*QUESTIONS, *ESSAYS)}
    missing += [
        f"{path.name}: {key}: there is no such question" for key in tree if key not in known
    ]
    return Answers(numbers, texts, tuple(missing))
