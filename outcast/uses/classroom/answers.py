"""answers.yaml: written with gaps, and read back with what is wrong about each answer."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import handed_in
from outcast.errors import ConfigError, InputError
from outcast.experiment import parse_yaml
from outcast.uses.classroom.question_kind import GAP
from outcast.uses.classroom.questions import Question

FILE = "answers.yaml"
_MOST_UNKNOWN = 5
"""How many unknown keys are named; a file can have thousands."""


@dataclass(frozen=True, slots=True)
class Answers:
    """A student's answers by question, as `read` returned them, and what is wrong or missing."""

    given: Mapping[str, Any]
    missing: tuple[str, ...]


def blank(questions: Sequence[Question]) -> str:
    lines = [
        f"# Replace each {GAP} by your answer. The comment above it names the run to read.",
    ]
    for question in questions:
        points = f"{question.points:g} point{'' if question.points == 1 else 's'}"
        comment = [*_wrapped(question.asked)]
        comment.append(f"# runs/{question.run}; {points}" if question.run else f"# {points}")
        if question.hint:
            comment += _wrapped(f"Hint: {question.hint}")
        lines += ["", *comment, *question.blank()]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    prefix = "# "
    return textwrap.wrap(text, 96, initial_indent=prefix, subsequent_indent=prefix)


def read_answers(folder: Path, questions: Iterable[Question]) -> Answers:
    """Reads the answers of a student's folder, each by itself.

    A fault in one answer, such as a byte that is not UTF-8, does not touch the others. If the file
    cannot be read at all, `missing` says why.
    """
    try:
        content = handed_in.read_bytes(folder / FILE, handed_in.MOST_YAML_BYTES)
    except FileNotFoundError:
        return Answers({}, (f"{FILE}: there is no such file",))
    except InputError as error:
        return Answers({}, (str(error).replace(f"{folder}/", ""),))
    slots = {question.key: question for question in questions if question.HAS_SLOT}
    try:
        values, refused = _values(content, slots)
    except ConfigError as error:
        return Answers({}, (str(error),))
    given: dict[str, Any] = {}
    missing = []
    for key, question in slots.items():
        value = values.get(key)
        if key in refused:
            missing.append(refused[key])
            continue
        if question.is_blank(value):
            missing.append(f"{FILE}: {key}: not answered")
            continue
        try:
            given[key] = question.read(value, folder)
        except ValueError as error:
            missing.append(f"{FILE}: {key}: {error}")
    unknown = [" ".join(str(key)[:40].split()) for key in values if key not in slots]
    missing += [f"{FILE}: {key}: there is no such question" for key in unknown[:_MOST_UNKNOWN]]
    if len(unknown) > _MOST_UNKNOWN:
        missing.append(f"{FILE}: {len(unknown) - _MOST_UNKNOWN} more keys that are no questions")
    return Answers(given, tuple(missing))


_KEY = re.compile(r"""^(["']?)([A-Za-z0-9_.-]+)\1[ \t]*:(?:[ \t]|$)""", re.MULTILINE)
"""A key of the file's mapping: it begins a line."""


def _values(content: bytes, slots: Container[str]) -> tuple[dict[Any, Any], dict[str, str]]:
    """The values of the file by key, and by key what is wrong with the others.

    Raises ConfigError: the file cannot be read, and has no lines that begin with a question's key.
    """
    # A surrogate stands for a byte that is not UTF-8, and is refused like a control character.
    text = content.decode("utf-8-sig", errors="surrogateescape")
    try:
        tree = parse_yaml(text, FILE)
    except ConfigError as error:
        problem = error
    else:
        if tree is None or isinstance(tree, dict):
            return tree or {}, {}
        problem = ConfigError(f"{FILE}: allowed is a mapping from questions to answers")
    values: dict[Any, Any] = {}
    refused: dict[str, str] = {}
    begins = list(_KEY.finditer(text))
    ends = [*(each.start() for each in begins), len(text)][1:]
    for found, end in zip(begins, ends, strict=True):
        key = found[2]
        if key in values or key in refused:
            refused[key] = f"{FILE}: {key}: stands twice"
            continue
        values[key] = None
        if key in slots:
            # The empty lines keep the numbers of lines in what is said.
            before = "\n" * text.count("\n", 0, found.start())
            try:
                values[key] = parse_yaml(before + text[found.start() : end], FILE)[key]
            except ConfigError as error:
                refused[key] = f"{error} ({key})"
    if not any(key in slots for key in values):
        raise problem
    return values, refused
