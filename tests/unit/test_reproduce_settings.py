"""What a recipe's runs have other than its source names is declared."""

from __future__ import annotations

from typing import Any

import pytest

from outcast.reproduce.recipe import Recipe, load_all
from scripts import reproduction_settings as settings

RECIPES = load_all()
SOURCES = settings.of_sources()
NO_SOURCE = {"T5", "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9"}


def test_every_row_of_a_source_has_its_settings() -> None:
    assert {*SOURCES} == {*RECIPES} - NO_SOURCE
    assert not [name for name in NO_SOURCE if RECIPES[name].departs]


@pytest.mark.parametrize("name", SOURCES)
def test_what_differs_is_declared(name: str) -> None:
    assert settings.undeclared(RECIPES[name], SOURCES[name]) == []


def p3(**changes: Any) -> Recipe:
    return RECIPES["P3"].model_copy(update=changes)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"transport.min_rto": "2000us"}, None),
        ({"transport.min_rto": "200ms"}, "`transport.min_rto` is 2ms, and 200ms in the source"),
        ({"links.rate": "1000mbit"}, None),
        ({"queue.limit": ["16KB", "32KB"]}, "`queue.limit` is 16KB, and 16KB and 32KB in"),
        ({"hops": [2, 6]}, None),
        ({"hops": [2, 4, 6]}, "`hops` is 2, 6, and 2, 4, 6 in the source"),
        ({"flows.1.hosts": [2, 6, 12]}, None),
        ({"flows.1.hosts": [2, 6]}, "`flows.1.hosts` is 2 and 6 and 12, and 2 and 6 in the source"),
        ({"transport.sack": False}, "`transport.sack` is on, and off in the source"),
    ],
)
def test_values_are_compared_as_configurations_are(named: dict[str, Any], said: str | None) -> None:
    wrong = settings.undeclared(p3(), named)
    assert [line.startswith(said or "") for line in wrong] == ([] if said is None else [True])


def test_a_declaration_needs_a_difference() -> None:
    named = {"transport.min_rto": "200ms"}
    assert settings.undeclared(p3(departs={"transport.min_rto": "why"}), named) == []
    (line,) = settings.undeclared(p3(departs={"transport.sack": "why"}), {"transport.sack": True})
    assert line == "`transport.sack` is declared and does not differ"
