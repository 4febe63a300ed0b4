"""Reads the YAML files of exercises and classes; what is wrong becomes one line with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from outcast import handed_in
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.experiment import refusals, yaml_text

_Model = TypeVar("_Model", bound=BaseModel)

Scalar = int | float | str
"""The types of a parameter of an exercise."""

_PLACEHOLDER = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file of YAML, with the line of every key."""

    file: Path
    tree: Any
    lines: Mapping[refusals.Location, int]

    def refusal(self, at: Sequence[str | int], message: str) -> ConfigError:
        """The error for what stands at a place."""
        place = tuple(at)
        known = (self.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self.lines)
        line = next(known, None)
        file = f"{self.file}:{line}" if line else str(self.file)
        key = ".".join(str(part) for part in place)
        return ConfigError(f"{file}: {key}: {message}" if key else f"{file}: {message}")


def read_text(path: Path) -> str:
    """The text of a file. Raises ConfigError if it cannot be read."""
    try:
        return handed_in.read_text(path, handed_in.MOST_YAML_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except InputError as error:
        raise ConfigError(str(error)) from None


def parse(text: str, file: Path) -> Document:
    """The text of a file of YAML that holds a mapping. Raises ConfigError."""
    tree, lines = yaml_text.parse_with_lines(text, str(file))
    if not isinstance(tree, dict):
        raise ConfigError(f"{file}: allowed is a mapping of keys, as {{KEY: VALUE}}")
    return Document(file, tree, lines)


def as_model(document: Document, model: type[_Model]) -> _Model:
    """The document as a model.

    Args:
        document: what was read.
        model: a model that refuses unknown keys.

    Raises:
        ConfigError: the first thing that is wrong, with its line, and what is allowed.
    """
    try:
        return model.model_validate(document.tree)
    except ValidationError as error:
        at, message = refusals.first_wrong(error, document.tree, model.model_json_schema())
        raise document.refusal(at, " ".join(message.split())) from None


def placeholders(text: str) -> list[tuple[int, str]]:
    """The line, counted from 1, and the name of each `{{NAME}}`."""
    return [
        (text.count("\n", 0, match.start()) + 1, match[1]) for match in _PLACEHOLDER.finditer(text)
    ]


def filled(text: str, values: Mapping[str, Scalar], file: Path) -> str:
    """The text with a value for every `{{NAME}}`. Raises ConfigError for a name without value."""
    for line, name in placeholders(text):
        if name not in values:
            raise ConfigError(
                f"{file}:{line}: {{{{{name}}}}}: allowed are {', '.join(values)}"
                f"{did_you_mean(name, values)}"
            )
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), text)


def filled_tree(tree: Any, values: Mapping[str, Scalar], file: Path) -> Any:
    """Parsed YAML with a value for every `{{NAME}}` in its texts.

    A text that is nothing but one `{{NAME}}` becomes the value itself, so that it can be a number.

    Raises:
        ConfigError: a name has no value.
    """
    if isinstance(tree, dict):
        return {key: filled_tree(value, values, file) for key, value in tree.items()}
    if isinstance(tree, list):
        return [filled_tree(value, values, file) for value in tree]
    if isinstance(tree, str):
        text = filled(tree, values, file)
        whole = _PLACEHOLDER.fullmatch(tree)
        return values[whole[1]] if whole else text
    return tree
