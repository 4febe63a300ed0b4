"""The texts of an exercise, their placeholders, and the models of its files.

The models refuse unknown keys, names and lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from outcast import handed_in
from outcast.analysis import Measure, measures
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.experiment import Location, first_wrong, parse_with_lines


class Part(BaseModel):
    """A part of an exercise's files; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""The name of a run, a question, a parameter or a choice."""

Line = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


def _measure(value: Any) -> Any:
    tree = {"kind": value} if isinstance(value, str) else value
    if isinstance(tree, dict) and tree.get("kind") not in measures.MEASURES:
        raise ValueError(f"{tree.get('kind')!r}: allowed are {', '.join(measures.MEASURES)}")
    return tree


RunMeasure = Annotated[Measure, BeforeValidator(_measure)]
"""A measure of a run: its name, or `{kind: NAME, hops: 6}` where it takes more."""


_Model = TypeVar("_Model", bound=BaseModel)

Scalar = int | float | str
"""The types of a parameter of an exercise."""

_PLACEHOLDER = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file of YAML, with the line of every key."""

    file: Path
    tree: Any
    lines: Mapping[Location, int]

    @classmethod
    def read(cls, file: Path) -> Document:
        """A file of YAML that holds a mapping. Raises ConfigError."""
        tree, lines = parse_with_lines(read_text(file), str(file))
        if not isinstance(tree, dict):
            raise ConfigError(f"{file}: allowed is a mapping of keys, as {{KEY: VALUE}}")
        return cls(file, tree, lines)

    def filled(self, values: Mapping[str, Scalar]) -> Document:
        """The document with a value for every `{{NAME}}` in its texts.

        A text that is nothing but one `{{NAME}}` becomes the value itself, so that it can be a
        number.

        Raises ConfigError: a name has no value.
        """
        return replace(self, tree=_filled_tree(self.tree, values, self.file))

    def as_model(self, model: type[_Model]) -> _Model:
        """The document as a model that refuses unknown keys.

        Raises ConfigError: the first thing that is wrong, with its line, and what is allowed.
        """
        try:
            return model.model_validate(self.tree)
        except ValidationError as error:
            at, message = first_wrong(error, self.tree, model.model_json_schema())
            raise self.refusal(at, " ".join(message.split())) from None

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


def filled(text: str, values: Mapping[str, Scalar], file: Path) -> str:
    """The text with a value for every `{{NAME}}`. Raises ConfigError for a name without value."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            line = text.count("\n", 0, match.start()) + 1
            raise ConfigError(
                f"{file}:{line}: {{{{{name}}}}}: allowed are {', '.join(values)}"
                f"{did_you_mean(name, values)}"
            )
        return str(values[name])

    return _PLACEHOLDER.sub(value, text)


def _filled_tree(tree: Any, values: Mapping[str, Scalar], file: Path) -> Any:
    if isinstance(tree, dict):
        return {key: _filled_tree(value, values, file) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_filled_tree(value, values, file) for value in tree]
    if isinstance(tree, str):
        text = filled(tree, values, file)
        whole = _PLACEHOLDER.fullmatch(tree)
        return values[whole[1]] if whole else text
    return tree
