"""What a configuration that somebody handed in can make us read: nothing outside of its folder."""

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from outcast.errors import ConfigError, InputError
from outcast.experiment import Experiment, Source, json_schema, load, load_resolved
from outcast.experiment.parts import leaves

SCHEMA = json_schema()
MINIMAL = """\
name: tried
topology: {kind: star, hosts: 3}
links: {rate: 10mbit, delay: 1ms}
queue: {kind: bfifo, limit: 16KB}
flows: [{from: h2, to: h1}]
duration: 100ms
engine: virtual
"""
SECRET = "nobody-may-read-this"
SUFFIXES = (".csv", ".c", ".py", ".graphml", ".json", ".yaml", "")

_opened: list[str] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _opened.append(os.path.realpath(os.fsdecode(arguments[0])))


@pytest.fixture(scope="module", autouse=True)
def watched() -> None:
    """Notes every file that this process opens. A hook of Python's cannot be taken off again."""
    sys.addaudithook(lambda *event: _hook(*event) if _is_watching else None)


_is_watching = False


def variants(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas that a part may have."""
    if "$ref" in node:
        return variants(SCHEMA["$defs"][node["$ref"].rpartition("/")[2]])
    unions = [*node.get("oneOf", ()), *node.get("anyOf", ())]
    return [kind for union in unions for kind in variants(union)] if unions else [node]


def sample(node: dict[str, Any]) -> Any:
    """A value for a required key beside the one that is tried."""
    kind = variants(node)[0]
    if "const" in kind or "enum" in kind:
        return kind.get("const", kind.get("enum", [None])[0])
    if kind.get("type") == "object":
        properties = kind.get("properties", {})
        return {key: sample(properties[key]) for key in kind.get("required", ())}
    by_type = {"array": [], "integer": 1, "number": 1, "boolean": True}
    return by_type.get(str(kind.get("type")), "x")


def places(node: dict[str, Any], text: str, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that takes text, with a tree that has this text there."""
    for kind in variants(node):
        types = kind.get("type", ["string"])
        if "const" in kind or "enum" in kind:
            continue
        if "string" in types:
            yield key, text
        if "object" in types:
            properties = kind.get("properties", {})
            fixed = {
                name: sample(part)
                for name, part in properties.items()
                if name in kind.get("required", ()) or "const" in part
            }
            for name, part in properties.items():
                for at, value in places(part, text, f"{key}.{name}"):
                    yield at, {**fixed, name: value}
            if kind.get("additionalProperties") not in (None, False):
                yield f"{key}.*", {**fixed, "x": text}
        if "array" in types:
            yield from ((at, [value]) for at, value in places(kind.get("items", {}), text, key))


@functools.cache
def minimal() -> dict[str, Any]:
    """A small configuration."""
    tree: dict[str, Any] = yaml.safe_load(MINIMAL)
    return tree


def opened_by(tree: dict[str, Any], folder: Path, own_folder: Path | None) -> tuple[set[str], str]:
    """Files that validating a configuration opens; and what it said."""
    global _is_watching
    _opened.clear()
    _is_watching = True
    try:
        Source(tree, "own.yaml", folder=folder, own_folder=own_folder).experiment()
        said = ""
    except ConfigError as error:
        said = str(error)
    finally:
        _is_watching = False
    return set(_opened), said


@pytest.fixture
def handed(tmp_path) -> Path:
    """A folder that was handed in, beside files that are no part of it."""
    folder = tmp_path / "handed"
    folder.mkdir()
    for suffix in SUFFIXES:
        secret = tmp_path / f"secret{suffix}"
        secret.write_text(f"{SECRET}\n")
        (folder / f"link{suffix}").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    return folder


def test_no_key_makes_us_read_a_file_outside_of_the_folder(handed):
    outside = str(handed.parent / "secret")
    csv = [f"{place}.csv" for place in (outside, "../secret", "link", "linked/secret")]
    secrets = {os.path.realpath(path) for path in handed.parent.glob("secret*")}
    tried, could_be_read = set(), set()
    for name in (*csv, *(f"{outside}{suffix}" for suffix in SUFFIXES)):
        for key, tree in places(SCHEMA, name):
            tried.add(key)
            opened, said = opened_by({**minimal(), **tree}, handed, handed)
            assert not opened & secrets, (key, name)
            assert SECRET not in said
            if name in csv:
                opened, _ = opened_by({**minimal(), **tree}, handed, None)
                could_be_read |= {(key, name)} if opened & secrets else set()
    # The walk comes by the keys that name files, and sees it when one is read.
    assert {".topology.path", ".programs.files", ".links.overrides.rate.trace"} <= tried
    assert {".kernel.modules.path", ".kernel.build"} <= tried
    assert could_be_read == {(".workloads.sizes", name) for name in csv}


def test_a_file_in_the_folder_is_read(handed):
    (handed / "own.csv").write_text("1000,1\n")
    tree = {**minimal(), "workloads": [{"kind": "background", "load": 0.1, "sizes": "own.csv"}]}
    (handed / "config.yaml").write_text(yaml.safe_dump(tree))
    for made in (
        load(handed / "config.yaml", own_folder=handed),
        load_resolved(handed / "config.yaml"),
    ):
        assert 1000.0 in leaves(made.workloads)


def test_a_result_reads_no_file_outside_of_it(handed):
    outside = handed.parent / "secret.csv"
    tree = {**minimal(), "workloads": [{"kind": "background", "load": 0.1, "sizes": str(outside)}]}
    (handed / "config.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError, match="is not read, because this configuration was handed in"):
        load_resolved(handed / "config.yaml")


def test_the_keys_that_name_files_are_those_that_replays_are_tried_with():
    """A new key of this kind belongs into `test_files_of_this_machine_are_not_read` too."""

    def models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
        waiting, seen = [kind], {kind}
        while waiting:
            model = waiting.pop()
            yield model
            for part in _types(model):
                if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen:
                    seen.add(part)
                    waiting.append(part)

    found = {
        f"{model.__name__}.{name}"
        for model in models(Experiment)
        for name, field in model.model_fields.items()
        if Path in _inner(field.annotation)
    }
    assert found == {"RateTrace.trace", "Program.files", "Module.path"}


def _types(model: type[BaseModel]) -> set[Any]:
    return {part for field in model.model_fields.values() for part in _inner(field.annotation)}


def _inner(annotation: Any) -> set[Any]:
    """The types that an annotation is made of."""
    inner = getattr(annotation, "__args__", ())
    return {annotation}.union(*map(_inner, inner)) if inner else {annotation}
