"""Configurations as texts of YAML: no key stands twice, and the lines of all keys are known."""

from __future__ import annotations

from typing import Any

import yaml

from outcast import handed_in
from outcast.errors import ConfigError
from outcast.experiment.network import Network
from outcast.experiment.refusals import Location
from outcast.experiment.whole import Experiment


class _UniqueKeyLoader(handed_in.YamlLoader):
    """A YAML loader that refuses a key given twice, which YAML's own rules would let override."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    """A mapping's contents. Raises ConstructorError for a key that stands twice."""
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, (str, int, float, bool, type(None))):
            raise yaml.constructor.ConstructorError(
                None, None, "allowed as a key is a word", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def parse_yaml(text: str, where: str) -> Any:
    """A text of YAML in which no key stands twice. Raises ConfigError, with the line."""
    return parse_with_lines(text, where)[0]


def parse_with_lines(text: str, where: str) -> tuple[Any, dict[Location, int]]:
    """Parses as `parse_yaml`, and finds the line of every key and list item, counted from 1."""
    try:
        loader = _UniqueKeyLoader(text)
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
    """A network with each node and each link on a line of its own."""
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
