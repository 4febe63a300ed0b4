"""Reads files that other people hand in, so that they can neither hang, flood nor mislead us.

Configurations, captures, archives and submissions come from other people. A path can be a FIFO
that nobody writes to, a number can be infinite, and ten lines of YAML can stand for a billion
nodes. So every reader of such files begins here. It accepts only regular files of bounded size and
depth, with finite numbers and text without control characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from outcast.errors import InputError
from outcast.files import file_kind
from outcast.files import opened as opened
from outcast.files import reason as reason

_Model = TypeVar("_Model", bound=BaseModel)

MOST_BYTES = 64 << 20
"""The limit for a file of JSON or text. A manifest with tens of thousands of flows has a tenth."""
MOST_YAML_BYTES = 1 << 20
MOST_YAML_NODES = 50_000
"""An alias counts with all nodes that it stands for."""
MOST_DEPTH = 50
MOST_INTEGER = 2**63 - 1
"""The largest number that a column of a table can hold."""
_LONGEST_PROBLEM = 300
MOST_ENTRIES = 100_000
"""The limit for files and folders below a folder that is handed in."""

_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters except tabs and line ends, and surrogates, which no UTF-8 file can hold."""
_MAY_NOT_BE_PLAIN = re.compile(r"\\[bfu]|[eE]\+?[0-9]{3}|[0-9]{300}|[\x7f-\x9f\ud800-\udfff]")
"""What JSON needs for a control character or an infinite number; json.loads refuses raw ones."""


class Record(BaseModel):
    """A part of a file that others may have made: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Versioned(Record):
    """A record whose file carries the version of its format, which `read_model` compares.

    Unknown keys are refused. So after the first release a record raises the default of `format`
    when it gets a key, and when a reader of the old format would misread the new one.
    """

    format: int = 1

    @classmethod
    def require_format(cls, tree: Any) -> None:
        """Raises ValueError if a parsed file has a format that we do not read."""
        if not isinstance(tree, dict):
            return  # which the model itself refuses
        number = tree.get("format")
        newest = cls.model_fields["format"].default
        if type(number) is not int or number < 1:
            raise ValueError("format: allowed is a whole number above 0")
        if number > newest:
            known = f"1 to {newest}" if newest > 1 else "1"
            # Newer, or from before the first release, when the numbers were higher.
            raise ValueError(f"made by another version: format {number}, this reads {known}")


def require_plain(folder: Path, most_bytes: int | None = None) -> None:
    """Checks that a folder that was handed in holds only regular files and folders.

    A link could lead a copy or a hash of the folder to any file of the machine.

    Args:
        folder: the folder.
        most_bytes: the limit for all its files together, for a folder that will be copied and
            hashed. Holes in files count.

    Raises InputError if it holds anything else, or too much.
    """
    size = 0
    for _, status in _walk(folder):
        size += status.st_size
        if most_bytes is not None and size > most_bytes:
            raise InputError(f"{folder}: larger than {most_bytes >> 30} GiB in all")


def plain_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted by name. Raises as `require_plain` does."""
    return sorted(path for path, status in _walk(folder) if stat.S_ISREG(status.st_mode))


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    waiting = [(folder, 1)]
    seen = 0
    while waiting:
        inner, level = waiting.pop()
        try:
            entries = _statuses(inner)
        except OSError as error:
            raise InputError(f"{inner}: cannot be read: {reason(error)}") from None
        seen += len(entries)
        if seen > MOST_ENTRIES or level > MOST_DEPTH:
            raise InputError(
                f"{folder}: holds more than {MOST_ENTRIES} files or {MOST_DEPTH} levels"
            )
        for name, status in entries:
            path = inner / name
            if stat.S_ISDIR(status.st_mode):
                waiting.append((path, level + 1))
            elif not stat.S_ISREG(status.st_mode):
                raise InputError(
                    f"{path}: is {file_kind(status.st_mode)}; allowed are files and folders"
                )
            yield path, status


def _statuses(folder: Path) -> list[tuple[str, os.stat_result]]:
    """The names in a folder, and what they are.

    What goes away meanwhile is left out: the processes that draw a run write there at the same
    time, and a file has a temporary name until it is complete.
    """
    statuses = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                statuses.append((entry.name, entry.stat(follow_symlinks=False)))
    return statuses


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Reads a whole file.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if it is not a regular file, is too large or cannot be read.
    """
    try:
        with opened(path) as stream:
            parts = []
            remaining = most_bytes + 1
            while remaining > 0 and (part := stream.read(min(remaining, 1 << 20))):
                parts.append(part)
                remaining -= len(part)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from None
    if remaining <= 0:
        raise InputError(f"{path}: larger than {most_bytes >> 20} MiB, the limit for such a file")
    return b"".join(parts)


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Reads a whole file of text. Raises as `read_bytes`, and InputError if it is not UTF-8."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as text: {error}") from None


def read_json(path: Path) -> Any:
    """Reads a file of JSON. Raises as `read_text`, and InputError if `parse_json` refuses it."""
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def read_model(path: Path, model: type[_Model]) -> _Model:
    """Reads a file of JSON as a record.

    The format of a `Versioned` record is compared before its keys are. So a file of another version
    of outcast is refused with a sentence that says so.

    Raises as `read_json`, and InputError with the name of a key that is not valid.
    """
    return as_model(path, read_json(path), model)


def as_model(path: Path, tree: Any, model: type[_Model]) -> _Model:
    """Returns a record from the parsed content of its file. Raises InputError as `read_model`."""
    try:
        if issubclass(model, Versioned):
            model.require_format(tree)
        return model.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def own_words(wrong: ErrorDetails) -> str:
    """Says what is wrong, without pydantic's words before outcast's message."""
    return wrong["msg"].removeprefix("Value error, ")


_MAPPING = "a mapping of keys is needed"
_PLAIN = {"model_type": _MAPPING, "dict_type": _MAPPING, "missing": "is missing"}


def first_problem(error: ValidationError) -> str:
    """The first key that is not valid, and why, in one short line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    # The message holds keys and values of the file, which may have line ends and any length.
    words = _PLAIN.get(first["type"]) or own_words(first)
    text = " ".join(f"{where}: {words}".split())
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[: _LONGEST_PROBLEM - 3]}..."


def parse_json(text: str) -> Any:
    """Parses JSON with finite numbers, bounded depth and text without control characters.

    Raises ValueError if it is refused; the text says what is wrong in one line.
    """
    try:
        tree = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"nested more than {MOST_DEPTH} levels deep") from None
    _require_shallow(tree)
    # To look at each value takes longer than to parse the text.
    if _MAY_NOT_BE_PLAIN.search(text):
        _require_plain_values(tree)
    return tree


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON; allowed are finite numbers")


def _integer(text: str) -> int:
    # The length comes first, because Python refuses thousands of digits with another message.
    if len(text) > 20 or abs(value := int(text)) > MOST_INTEGER:
        raise ValueError(f"{_short(text)} is too large; allowed are 64 bits")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _require_shallow(tree: Any) -> None:
    depth, level = 0, [tree] if isinstance(tree, (dict, list)) else []
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"nested more than {MOST_DEPTH} levels deep")
        level = [
            value
            for outer in level
            for value in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(value, (dict, list))
        ]


def _require_plain_values(tree: Any) -> None:
    values = [tree]
    while values:
        value = values.pop()
        if isinstance(value, str):
            _require_printable(value)
        elif isinstance(value, float):
            if value - value != 0:
                raise ValueError("a number is too large; allowed are finite numbers")
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list):
            values += value


def _require_printable(text: str) -> None:
    if _CONTROL.search(text):
        raise ValueError(f"{_short(text)!a} holds a control character")


def read_yaml(path: Path) -> Any:
    """Reads a file of YAML.

    Raises as `read_text`, and InputError with the line if `YamlLoader` refuses the file.
    """
    text = read_text(path, MOST_YAML_BYTES)
    try:
        return yaml.load(text, YamlLoader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise InputError(yaml_refusal(str(path), error)) from None


def yaml_refusal(where: str, error: yaml.YAMLError) -> str:
    """Says what is wrong with a file of YAML, in one line that begins with the place."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        what = "" if isinstance(error, _Refused) else "not valid YAML: "
        return f"{where}{line}: {what}{error.problem or error.context}"
    if isinstance(error, yaml.reader.ReaderError):
        # Of a text it is a character's number, of bytes it would be a word.
        letter = chr(error.character) if isinstance(error.character, int) else error.character
        return f"{where}: {letter!a}: allowed is UTF-8 without control characters"
    return f"{where}: not valid YAML: {' '.join(str(error).split())}"


_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MOST_DIGITS = 40
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*|([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?)")
"""The numbers of YAML that mean what people read. YAML 1.1 takes 010 as 8 and 1:30 as 90."""


class YamlLoader(yaml.SafeLoader):
    """Loads YAML with bounded depth and size, and with finite decimal numbers.

    An alias counts with all nodes that it stands for. Every refusal is a yaml.YAMLError, which has
    the line if there is one.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0
        self._nodes_of: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._nodes
        self._nodes += 1
        if isinstance(event, yaml.AliasEvent) and event.anchor in self.anchors:
            if event.anchor not in self._nodes_of:
                raise _refusal("an alias stands inside of what it means", event.start_mark)
            self._nodes += self._nodes_of[event.anchor]
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _refusal(f"nested more than {MOST_DEPTH} levels deep", event.start_mark)
        if self._nodes > MOST_YAML_NODES:
            raise _refusal(
                f"more than {MOST_YAML_NODES} values, aliases written out", event.start_mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if not isinstance(event, yaml.AliasEvent) and event.anchor is not None:
            self._nodes_of[event.anchor] = self._nodes - before
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # PyYAML multiplies out a number's digits, and its parts between colons, one by one.
        if node.tag in _NUMBERS and len(node.value) > _MOST_DIGITS:
            raise _refusal(f"{_short(node.value)}: too many digits", node.start_mark)
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, str):
                _require_printable(value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # PyYAML looks up and converts `!!bool x` and the like without a check.
            kind = node.tag.rpartition(":")[2]
            what = str(error) if isinstance(error, ValueError) else f"not of the type {kind}"
            raise _refusal(" ".join(what.split()), node.start_mark) from None
        if isinstance(value, float) and value - value != 0:
            raise _refusal(f"{_short(node.value)}: allowed are finite numbers", node.start_mark)
        if isinstance(value, int) and abs(value) > MOST_INTEGER:
            raise _refusal(f"{_short(node.value)}: allowed are 64 bits", node.start_mark)
        if node.tag in _NUMBERS and not _DECIMAL.fullmatch(node.value):
            raise _refusal(
                f"{_short(node.value)}: allowed are decimal numbers, as 12; a text has quotes",
                node.start_mark,
            )
        return value


class UniqueKeyLoader(YamlLoader):
    """Refuses a key that stands twice, where YAML's own rules would let the last one count."""

    def construct_unique_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise _construction_error("allowed as a key is a word", key_node)
            if key in seen:
                raise _construction_error(f"the key {key!r} stands twice", key_node)
            seen.add(key)
        return self.construct_mapping(node, deep=True)


UniqueKeyLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, UniqueKeyLoader.construct_unique_mapping
)


def _construction_error(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


class _Refused(yaml.MarkedYAMLError):
    """The refusal of a file that is valid YAML."""


def _refusal(problem: str, mark: Any) -> _Refused:
    return _Refused(problem=problem, problem_mark=mark)


def require_file_name(name: str) -> str:
    """Returns the name of a file below a folder. Raises ValueError if it could lead out of it."""
    parts = name.split("/")
    path = PurePosixPath(name)
    if path.is_absolute() or {"", ".", ".."} & set(parts) or "\0" in name:
        raise ValueError(f"{_short(name)!a}: allowed is the name of a file in the folder")
    return name


FileName = Annotated[str, AfterValidator(require_file_name)]
"""The name of a file in a folder's records. It cannot lead out of the folder."""
