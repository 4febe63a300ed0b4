"""The table of every value has every value of the schema, and names tests that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from outcast import experiment
from outcast.engines import doctor

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/matrix.md").read_text()
_TEST = re.compile(r"`((?:unit|emulation|virtual|physics|browser)/test_\w+\.py)(?:::(\w+))?`")


def _section(title: str) -> str:
    match = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", TEXT, flags=re.MULTILINE | re.DOTALL)
    return match[1]


def _rows(title: str) -> list[list[str]]:
    lines = [line for line in _section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _kinds(part: Any, schema: dict[str, Any]) -> Iterator[str]:
    """The values of `kind` that a section of the schema takes."""
    if isinstance(part, dict):
        if "const" in part.get("properties", {}).get("kind", {}):
            yield part["properties"]["kind"]["const"]
        if "$ref" in part:
            yield from _kinds(schema["$defs"][part["$ref"].removeprefix("#/$defs/")], schema)
        for key in ("items", "oneOf", "anyOf"):
            yield from _kinds(part.get(key), schema)
    elif isinstance(part, list):
        for each in part:
            yield from _kinds(each, schema)


@cache
def _tests_of(name: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / name).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(
    ("section", "title", "form"),
    [
        ("topology", "Topologies", "`{}`"),
        ("routing", "Routing", "`{}`"),
        ("queue", "Queues", "`{}`"),
        ("workloads", "Traffic", "`workloads.kind: {}`"),
    ],
)
def test_every_kind_of_the_schema_has_a_row(section, title, form):
    schema = experiment.json_schema()
    kinds = set(_kinds(schema["properties"][section], schema))
    assert len(kinds) >= 4
    first = {row[0] for row in _rows(title)}
    assert {form.format(kind) for kind in kinds} - first == set()
    if title != "Traffic":
        assert first - {form.format(kind) for kind in kinds} == set()


def test_every_key_and_congestion_control_of_transport_has_a_row():
    keys = set(experiment.json_schema()["$defs"]["Transport"]["properties"])
    first = {row[0].strip("`") for row in _rows("Transports")}
    controls = {f"congestion_control: {name}" for name in doctor.CONGESTION_CONTROLS}
    assert first == (keys - {"congestion_control"}) | controls


@pytest.mark.parametrize(
    "title", ["Topologies", "Routing", "Queues", "Transports", "Traffic", "Measurements"]
)
def test_every_row_names_a_test(title):
    rows = _rows(title)
    assert rows
    assert [row[0] for row in rows if not _TEST.search(row[-1])] == []


def test_every_test_that_is_named_exists():
    named = _TEST.findall(TEXT)
    assert len(named) > 50
    assert [f"{file}::{test}" for file, test in named if test and test not in _tests_of(file)] == []
