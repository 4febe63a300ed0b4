"""Reads an experiment from YAML, with one clear line for whatever is wrong, and writes it back."""

from __future__ import annotations

import copy
import functools
import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from outcast import handed_in
from outcast.errors import ConfigError, InputError
from outcast.experiment import refusals
from outcast.experiment.network import Network
from outcast.experiment.parts import FOLDER, OWN_FOLDER
from outcast.experiment.refusals import Location
from outcast.experiment.whole import Experiment


def parse_yaml(text: str, where: str) -> Any:
    """A text of YAML in which no key stands twice. Raises ConfigError, with the line."""
    return parse_with_lines(text, where)[0]


def parse_with_lines(text: str, where: str) -> tuple[Any, dict[Location, int]]:
    """Parses as `parse_yaml`, and finds the line of every key and list item, counted from 1."""
    try:
        loader = handed_in.UniqueKeyLoader(text)
        try:
            node = loader.get_single_node()
            # Before anything is made of the nodes, because that merges some of them.
            lines = _lines(node)
            return None if node is None else loader.construct_document(node), lines
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(handed_in.yaml_refusal(where, error)) from None


def _lines(document: yaml.Node | None) -> dict[Location, int]:
    lines: dict[Location, int] = {}

    def walk(node: yaml.Node | None, at: Location) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                lines[(*at, str(key.value))] = key.start_mark.line + 1
                walk(value, (*at, str(key.value)))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[(*at, index)] = value.start_mark.line + 1
                walk(value, (*at, index))

    walk(document, ())
    return lines


def dump(experiment: Experiment) -> str:
    """The experiment as YAML, from which `load` reads an equal one, also at each swept point.

    Defaults are in it, unless a point may refuse them: those of another kind, or too long a bin.
    """
    swept = experiment.sweep.keys if experiment.sweep is not None else ()
    tree = experiment.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        exclude_unset=any(key == "duration" or key.endswith(".kind") for key in swept),
    )
    network = getattr(experiment.topology, "network", None)
    if network is None:
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    tree["topology"]["network"] = _by_lines(network)
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE)


def _by_lines(network: Network) -> dict[str, Any]:
    tree = network.model_dump(mode="json", exclude_defaults=True)
    lists = ("hosts", "switches", "links")
    return {**tree, **{name: [_Line(part) for part in tree[name]] for name in lists}}


_WIDE = 2000
"""In characters; a line of a network is not broken."""


class _Line(dict[str, Any]):
    """A mapping that stands on one line."""


class _Dumper(yaml.SafeDumper):
    """Writes YAML that holds lines."""


_Dumper.add_representer(
    _Line,
    lambda dumper, line: dumper.represent_mapping(
        "tag:yaml.org,2002:map", line.items(), flow_style=True
    ),
)


@dataclass(frozen=True)
class Source:
    """A configuration from its file, with overrides applied, before it is validated.

    Attributes:
        lines: the line of every key and list item that no override replaced.
        overridden: from the place of every overridden key to its name in a message.
        folder: what relative paths in the configuration are relative to; the working folder where
            the configuration comes from no file.
        point: the settings of a sweep's point, for messages; empty for all else.
        files_from: the folder that a topology's own file is read from; None where no file that the
            configuration names is read, as where it comes from a result.
        own_folder: the only folder that files are read from, for a configuration that somebody else
            handed in; None reads what the user's own configuration names, wherever it is.
    """

    tree: Mapping[Any, Any]
    file: str
    lines: Mapping[Location, int] = field(default_factory=dict)
    overridden: Mapping[Location, str] = field(default_factory=dict)
    folder: Path = Path()
    point: str = ""
    files_from: Path | None = None
    own_folder: Path | None = None

    @property
    def where(self) -> str:
        """Says what the whole experiment comes from, for messages: the file and every override."""
        return self.place(())

    def place(self, at: Location) -> str:
        """The source of what stands at `at`, for messages: an override, or a line of the file.

        If both give a part of it, both are named.
        """
        for length in range(len(at), 0, -1):
            if at[:length] in self.overridden:
                return self._at_point(self.overridden[at[:length]])
            if at[:length] in self.lines:
                break
        # Another `kind` beside a key can be why the key is wrong, or what made the part at all.
        part = at[:-1]
        is_made = bool(part) and part not in self.lines and at not in self.lines
        below = [
            name
            for spot, name in self.overridden.items()
            if spot[: len(at)] == at
            or spot == (*part, "kind")
            or (is_made and spot[: len(part)] == part)
        ]
        return self._line(at, below)

    def refusal(self, at: Location, message: str) -> str:
        """What is wrong at a place: the source, the key, and the message."""
        place, key = self.place(at), ".".join(map(str, at))
        is_named = place in (f"--set {key}", f"override {key}")
        return f"{place}: {message}" if is_named else f"{place}: {key}: {message}"

    def located(self, refusal: str) -> str:
        """A refusal that begins with a key, with the key's line and every override before it.

        It is for what is wrong with several keys together, such as flows in too small a topology.
        """
        key = refusal.partition(":")[0].split(".")
        at = tuple(int(part) if part.isdecimal() else part for part in key)
        return f"{self._line(at, list(self.overridden.values()))}: {refusal}"

    def _line(self, at: Location, overrides: Sequence[str]) -> str:
        """The file, the line of what stands at `at` or above it, and these overrides."""
        numbers = (self.lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self.lines)
        line = next(numbers, None)
        place = f"{self.file}:{line}" if line else self.file
        names = ", ".join(dict.fromkeys(overrides))
        return self._at_point(f"{place} with {names}" if names else place)

    def _at_point(self, place: str) -> str:
        return f"{place}: sweep, at {self.point}" if self.point else place

    @classmethod
    def of(cls, experiment: Experiment) -> Source:
        """The source of an experiment: the keys that were given, without the defaults."""
        tree = experiment.model_dump(mode="json", by_alias=True, exclude_unset=True)
        origin = getattr(experiment.topology, "origin", None)
        return cls(tree, experiment.name, files_from=origin.folder if origin else None)

    def changed(self, changes: Overrides) -> Source:
        """Returns a copy with other values at these keys (dots between levels).

        Raises ConfigError: YAML cannot hold a value, or there is no such place.
        """
        tree = copy.deepcopy(dict(self.tree))
        lines, overridden = self.lines, self.overridden
        for key, value, name in _overrides(changes):
            at = _set(tree, key, value, name)
            lines, overridden = _without(lines, at), _without(overridden, at)
            overridden[at] = name
        return replace(self, tree=tree, lines=lines, overridden=overridden)

    def experiment(self) -> Experiment:
        """The validated experiment. Raises ConfigError, see `load`."""
        try:
            context = {FOLDER: self.folder, OWN_FOLDER: self.own_folder}
            return Experiment.model_validate(self.tree, context=context)
        except ValidationError as error:
            raise ConfigError(_refusal(error, self)) from None

    def at_point(self, settings: Mapping[str, Any]) -> Source:
        """A sweep's point: these values at these keys (dots between levels), and no sweep.

        The line of such a key is that of its list below `sweep`.

        Raises ConfigError: there is no such place; the error names the settings.
        """
        keys_of_the_sweep = ("sweep", "repetitions")
        tree = copy.deepcopy({k: v for k, v in self.tree.items() if k not in keys_of_the_sweep})
        named = ", ".join(f"{key}={refusals.short(value)}" for key, value in settings.items())
        lines, overridden = self.lines, self.overridden
        for key, value in settings.items():
            swept = self._swept_at(key, settings)
            where = replace(self, point=named).place(swept)
            at = _set(tree, key, copy.deepcopy(value), where)
            lines, overridden = _without(lines, at), _without(overridden, at)
            prefixes = [swept[:length] for length in range(len(swept), 0, -1)]
            source = next((p for p in prefixes if p in self.overridden or p in self.lines), ())
            if source in self.overridden:
                overridden[at] = self.overridden[source]
            elif source in self.lines:
                lines[at] = self.lines[source]
        return replace(self, tree=tree, lines=lines, overridden=overridden, point=named)

    def _swept_at(self, key: str, settings: Mapping[str, Any]) -> Location:
        """The place below `sweep` that gives a key its value: a list, or one of the `points`."""
        sweep = self.tree.get("sweep")
        points = sweep.get("points") if isinstance(sweep, Mapping) else None
        for index, point in enumerate(points if isinstance(points, list) else ()):
            if isinstance(point, Mapping) and key in point and point.items() <= settings.items():
                return ("sweep", "points", index, key)
        below = (at for at in (*self.overridden, *self.lines) if at[:1] == ("sweep",))
        lists = (at for at in below if ".".join(map(str, at[1:])) == key)
        return next(lists, ("sweep", key))


def _without(places: Mapping[Location, Known], at: Location) -> dict[Location, Known]:
    """Returns what is known of places that are neither `at` nor below it."""
    return {place: known for place, known in places.items() if place[: len(at)] != at}


Known = TypeVar("Known")
Overrides = Sequence[str] | Mapping[str, Any]
"""Values for keys, with dots between levels: `KEY=VALUE` in YAML, or a mapping of values."""


def load(path: Path, overrides: Overrides = (), *, own_folder: Path | None = None) -> Experiment:
    """Reads a YAML file, applies the overrides, and validates.

    Raises ConfigError: it names the file, the line or key, what is wrong and what is allowed.
    """
    return read(path, overrides, own_folder=own_folder).experiment()


def read(path: Path, overrides: Overrides = (), *, own_folder: Path | None = None) -> Source:
    """Does what `load` does up to the validation. Raises ConfigError.

    If `configs/NAME.yaml` is not there, the file of this name that comes with outcast is read.
    """
    if not path.exists():
        path = _shipped(path) or path
    try:
        text = handed_in.read_text(path, handed_in.MOST_YAML_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except InputError as error:
        raise ConfigError(str(error)) from None
    return of_text(text, path, own_folder).changed(overrides)


def of_text(text: str, path: Path, own_folder: Path | None = None) -> Source:
    """The text of a configuration, whose file is or will be `path`. Raises ConfigError."""
    tree, lines = parse_with_lines(text, str(path))
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a mapping of keys is needed (name, topology, links, ...)")
    return Source(
        tree,
        str(path),
        lines,
        folder=path.parent,
        files_from=path.parent,
        own_folder=own_folder,
    )


def _shipped(path: Path) -> Path | None:
    """The file of outcast's own `configs/` that a relative path would name in a checkout."""
    if path.parts[:1] != ("configs",) or ".." in path.parts:
        return None
    # The guest has no configurations, and needs none.
    import configs

    shipped = Path(configs.__file__).parent.joinpath(*path.parts[1:])
    return shipped if shipped.is_file() else None


def _overrides(overrides: Overrides) -> Iterator[tuple[str, Any, str]]:
    """Each key (dots between levels) with its value, and how a message names it."""
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            if not isinstance(key, str) or not key:
                raise ConfigError(f"override {key!r}: allowed is the name of a key, as links.rate")
            yield key, plain(value, f"override {key}"), f"override {key}"
        return
    for text in overrides:
        key, separator, yaml_text = text.partition("=")
        if not separator or not key:
            raise ConfigError(f"--set {text}: allowed is KEY=VALUE, as links.rate=100mbit")
        yield key, parse_yaml(yaml_text, f"--set {key}"), f"--set {key}"


def plain(value: object, where: str) -> Any:
    """A Python value as YAML could hold it: tuples are lists, numpy's numbers are numbers."""
    try:
        return handed_in.parse_json(json.dumps(value, default=_converted))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    except (TypeError, RecursionError):
        raise ConfigError(
            f"{where}: {type(value).__name__}; allowed are text, numbers, True, False, None, "
            "lists and mappings"
        ) from None


def _converted(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Arrays and numbers of numpy and polars have a method that converts to Python's own.
    convert = getattr(value, "tolist", None) or getattr(value, "to_list", None)
    if convert is None:
        raise TypeError
    return convert()


def _set(tree: dict[Any, Any], key: str, value: Any, where: str) -> Location:
    """Sets one key of the tree; returns its place. Raises ConfigError, beginning with `where`."""
    node: Any = tree
    # The keys under `sweep` contain dots themselves.
    parts = key.split(".", 1 if key.startswith("sweep.") else -1)
    for depth, part in enumerate(parts):
        at: Any = part
        if isinstance(node, list):
            if not part.isdecimal() or int(part) >= len(node):
                raise ConfigError(
                    f"{where}: this list has no {part!r}; allowed are 0 to {len(node) - 1}"
                )
            at = int(part)
        elif not isinstance(node, dict):
            above = ".".join(parts[:depth])
            raise ConfigError(
                f"{where}: nothing can be set below {above}, which is {refusals.short(node)}"
            )
        if depth == len(parts) - 1:
            node[at] = value
        else:
            node = node[at] if isinstance(node, list) else node.setdefault(at, {})
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def validate(tree: Mapping[str, Any], where: str) -> Experiment:
    """A parsed tree as an experiment. Raises ConfigError, which begins with `where`."""
    return Source(tree, where).experiment()


def _refusal(error: ValidationError, source: Source) -> str:
    """One line that names the source, the key, what is wrong and what is allowed."""
    at, message = refusals.first_wrong(error, source.tree, json_schema())
    if not at:
        return source.located(message)
    key, _, rest = message.partition(": ")
    part = functools.reduce(operator.getitem, at, source.tree) if rest else None
    if isinstance(part, Mapping) and key in part:
        return f"{source.place(at)}: {'.'.join(map(str, at))}.{key}: {rest}"
    return source.refusal(at, message)


@functools.cache
def json_schema() -> Mapping[str, Any]:
    return Experiment.model_json_schema(by_alias=True)


def load_resolved(path: Path) -> Experiment:
    """The experiment in a folder's own config.yaml. Raises InputError if it cannot be read.

    Nothing outside of that folder is read, because results come from other people too.
    """
    try:
        return read(path, own_folder=path.parent).experiment()
    except ConfigError as error:
        raise InputError(str(error)) from None
