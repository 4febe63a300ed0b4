"""How the settings of a recipe's runs differ from those that its source names.

sources.yaml has the sources' settings, by the keys of a configuration. A recipe declares each key
that differs, with the reason, as `departs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import configs
from outcast import experiment
from outcast.api.experiments import load
from outcast.errors import ConfigError
from outcast.experiment import Experiment
from outcast.uses.papers.recipe import Point, Recipe

FILE = Path(__file__).parents[1] / "outcast/uses/papers/sources.yaml"
HOPS = "hops"
"""Stands for the classes of senders, which no single key of a configuration has."""


@dataclass(frozen=True)
class Difference:
    """A key whose values are not the source's.

    Attributes:
        key: of a configuration, with dots between levels.
        source: the values that the source names.
        here: those of the recipe's points.
    """

    key: str
    source: tuple[str, ...]
    here: tuple[str, ...]

    def text(self, reason: str) -> str:
        """One line for people."""
        here, source = (" and ".join(values) or "none" for values in (self.here, self.source))
        return f"`{self.key}` is {here}, and {source} in the source: {reason}"


def of_sources() -> dict[str, dict[str, Any]]:
    """What the sources say, by the identifiers of recipes."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["rows"]
    return rows


def differences(recipe: Recipe, named: Mapping[str, Any]) -> list[Difference]:
    """The keys whose values at the recipe's points, in full mode, are not those that are named.

    A list of values is that of the points together: each has one of them, and each is there.

    Raises:
        ConfigError: a point's configuration is refused.
    """
    made = [_Made.of(recipe, point) for point in recipe.points if point.config is not None]
    found = []
    for key, value in named.items():
        if key == HOPS:
            here = {_hops(each.experiment) for each in made}
            is_same = here == {tuple(value)}
            wanted = [", ".join(map(str, value))]
            texts = [", ".join(map(str, classes)) for classes in sorted(here)]
        else:
            values = value if isinstance(value, list) else [value]
            fits = [[choice for choice in values if each.has(key, choice)] for each in made]
            is_same = all(fits) and all(any(choice in some for some in fits) for choice in values)
            wanted = [_text(choice) for choice in values]
            texts = [_text(each.at(key)) for each in made]
        if not is_same:
            found.append(Difference(key, tuple(wanted), tuple(dict.fromkeys(texts))))
    return found


def undeclared(recipe: Recipe, named: Mapping[str, Any]) -> list[str]:
    """What is wrong with a recipe's `departs`: a line for each key."""
    found = {each.key: each for each in differences(recipe, named)}
    return [
        *(each.text("not declared") for key, each in found.items() if key not in recipe.departs),
        *(f"`{key}` is declared and does not differ" for key in recipe.departs if key not in found),
    ]


def lines(recipe: Recipe) -> list[str]:
    """The declared differences of a recipe, for people."""
    named = of_sources().get(recipe.id, {})
    return [each.text(recipe.departs.get(each.key, "")) for each in differences(recipe, named)]


@dataclass(frozen=True)
class _Made:
    """The experiment of a recipe's point, and its tree in a configuration's own words."""

    config: Path
    settings: Mapping[str, Any]
    experiment: Experiment
    tree: Any

    @classmethod
    def of(cls, recipe: Recipe, point: Point) -> _Made:
        assert point.config is not None
        config, settings = configs.find(point.config), recipe.settings(point, recipe.full)
        made = _load(config, settings)
        return cls(config, settings, made, yaml.safe_load(experiment.dump(made)))

    def at(self, key: str) -> Any:
        """The value of a dotted key."""
        tree = self.tree
        for part in key.split("."):
            if isinstance(tree, list):
                tree = tree[int(part)] if int(part) < len(tree) else None
            else:
                tree = tree.get(part) if isinstance(tree, dict) else None
        return tree

    def has(self, key: str, value: Any) -> bool:
        """Whether the key has this value: setting it changes nothing."""
        # Most have it in the same words, and a configuration takes a tenth of a second to load.
        if self.at(key) == value:
            return True
        try:
            return _load(self.config, {**self.settings, key: value}) == self.experiment
        except ConfigError:
            return False


def _load(config: Path, settings: Mapping[str, Any]) -> Experiment:
    return load(config, settings).resolved("virtual")


def _hops(made: Experiment) -> tuple[int, ...]:
    names = [name for group in made.flows for name in _names(group.source)]
    return tuple(sorted({int(found[1]) for name in names if (found := _CLASS.fullmatch(name))}))


_CLASS = re.compile(r"(\d+)-hop")


def _names(source: str | Sequence[str]) -> Sequence[str]:
    return [source] if isinstance(source, str) else source


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items() if part is not None)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else str(value)
