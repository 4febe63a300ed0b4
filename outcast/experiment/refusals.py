"""Words pydantic's refusals: the error that explains most, and what is allowed instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from outcast import units
from outcast.errors import did_you_mean
from outcast.experiment.measure import EVENT_PATTERN
from outcast.experiment.parts import NAME_PATTERN, UNIT_SCHEMA
from outcast.experiment.transport import CONGESTION_CONTROL_PATTERN
from outcast.handed_in import own_words

_WORDS = (
    ("Input should be", "allowed is"),
    ("a valid tuple", "a list"),
    ("a valid list", "a list"),
    ("a valid integer", "a whole number"),
    ("a valid boolean", "true or false"),
    ("a valid number", "a number"),
    ("a valid string", "a text, in quotes where YAML needs them"),
    (" after validation", ""),
)
"""Pydantic's English, and what people write in YAML."""

_FORMS = {
    NAME_PATTERN: "up to 64 letters, digits, '.', '_' and '-', the first a letter or a digit",
    CONGESTION_CONTROL_PATTERN: "a name in small letters, digits and '_', as cubic",
    EVENT_PATTERN: "a group and an event, as tcp:tcp_probe",
}
_FORMATS: Mapping[str, Callable[[int], str]] = {
    UNIT_SCHEMA["rate"]: units.format_rate,
    UNIT_SCHEMA["size"]: units.format_size,
    UNIT_SCHEMA["time"]: units.format_time,
}
"""How numbers are written that have units, by the pattern in the JSON schema."""
_BOUNDS = {"ge": "{} or more", "gt": "more than {}", "le": "up to {}", "lt": "less than {}"}
_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")

_MAPPINGS = ("model_type", "model_attributes_type", "dict_type")
_TOLD_APART = {"$ref", "discriminator", "oneOf"}
_ALLOWED = "allowed is "
_KEY = "[key]"

Schema = Mapping[str, Any]
Location = tuple[str | int, ...]
"""A place in a parsed tree: the keys and list indices from the root to it."""


def first_wrong(error: ValidationError, tree: object, schema: Schema) -> tuple[Location, str]:
    """The error to show: where in the tree that was validated, and what is wrong and allowed.

    An unknown key comes first: it often explains a key that is missing. Where one of several forms
    is allowed, all of them are named. `schema` is the JSON schema of the model.
    """
    wrong = min(error.errors(), key=_rank)
    at = _place(wrong, tree)
    below, message = _worded(wrong, schema)
    for other in error.errors():
        words = _worded(other, schema)[1].partition(_ALLOWED)[2]
        if _ALLOWED in message and words and words not in message and _place(other, tree) == at:
            message += f", or {words}"
    return (*at, below) if below else at, message


def _rank(wrong: ErrorDetails) -> int:
    """The lower, the sooner an error is shown. No mapping is said to need a list."""
    is_other_form = wrong["type"] == "tuple_type" and isinstance(wrong["input"], Mapping)
    return (wrong["type"] != "extra_forbidden") + is_other_form


def _place(wrong: ErrorDetails, tree: object) -> Location:
    """Where in the tree an error is: its location without pydantic's names of unions' members."""
    kept: list[str | int] = []
    node: Any = tree
    for number, part in enumerate(wrong["loc"], 1):
        within = range(len(node)) if isinstance(node, (list, tuple)) else node
        if isinstance(within, (range, Mapping)) and part in within:
            node = node[part]
        elif part == _KEY or number < len(wrong["loc"]) or wrong["type"] != "missing":
            continue
        kept.append(part)
    return tuple(kept)


def _worded(wrong: ErrorDetails, schema: Schema) -> tuple[str, str]:
    """The key below the error's place that is meant, or "", and what is wrong and allowed."""
    kind, context = wrong["type"], wrong.get("ctx", {})
    if kind == "extra_forbidden":
        keys = [*_node(schema, wrong["loc"][:-1]).get("properties", {})]
        listed = f"; allowed are {', '.join(keys)}" if keys else ""
        return "", f"unknown key{listed}{did_you_mean(str(wrong['loc'][-1]), keys)}"
    if kind == "union_tag_not_found":
        return "kind", f"is missing; allowed are {', '.join(_kinds(_node(schema, wrong['loc'])))}"
    if kind == "missing":
        node = _node(schema, wrong["loc"])
        word = "kinds" if _kinds(node) else "keys"
        names = ", ".join(_kinds(node) or node.get("properties", ()))
        return "", f"is missing; its {word} are {names}" if names else "is missing"
    if kind == "union_tag_invalid":
        tag, expected = str(context["tag"]), context["expected_tags"]
        near = did_you_mean(tag, _quoted(expected))
        return "kind", f"{short(tag)} is unknown; allowed are {expected}{near}"
    if wrong["msg"] != own_words(wrong):
        return "", own_words(wrong)
    given, node = short(wrong["input"]), _node(schema, wrong["loc"])
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return "", f"{given}: {_ALLOWED}{_FORMS.get(pattern, f'text of the form {pattern}')}"
    if kind in _MAPPINGS:
        return "", f"{given}: {_ALLOWED}{_mapping(node, wrong['input'])}"
    if bound := next((bound for bound in _BOUNDS if bound in context), ""):
        written = _FORMATS.get(node.get("pattern", ""), str)
        given = written(wrong["input"]) if type(wrong["input"]) is int else given
        words = _range(node) or _BOUNDS[bound].format(written(context[bound]))
        return "", f"{given}: {_ALLOWED}{words}"
    message = wrong["msg"]
    for pydantics, ours in _WORDS:
        message = message.replace(pydantics, ours)
    message = re.sub(r", (unable to (parse|interpret)|got a number with) .*", "", message)
    # "Tuple should have at most 2 items, not 3"
    message = re.sub(r"[A-Z][a-z]+ should have", "allowed is", message)
    if kind == "literal_error":
        message += did_you_mean(str(wrong["input"]), _quoted(context["expected"]))
    return "", f"{given}: {message}"


def _mapping(node: Schema, given: object) -> str:
    if kinds := [*_kinds(node)]:
        kind = given if given in kinds else kinds[0]
        return f"a mapping of keys, as {{kind: {kind}}}"
    keys = [*node.get("properties", {})]
    return f"a mapping of the keys {', '.join(keys)}" if keys else "a mapping, as {KEY: VALUE}"


def _range(node: Schema) -> str:
    """The range of a number in words; "" if the schema has none."""
    low, high = (next((key for key in keys if key in node), "") for keys in (_LOW, _HIGH))
    if low == _LOW[0] and high == _HIGH[0]:
        return f"from {node[low]} to {node[high]}"
    told = dict(zip((*_LOW, *_HIGH), _BOUNDS, strict=True))
    return " and ".join(_BOUNDS[told[key]].format(node[key]) for key in (low, high) if key)


def _quoted(listing: str) -> list[str]:
    """The words in a listing of pydantic's, such as `'a', 'b' or 'c'`."""
    return re.findall(r"'([^']*)'", listing)


def short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _kinds(node: Schema) -> Mapping[str, str]:
    """The kinds of a mapping and the places of their schemas; empty if it has none."""
    return dict(node.get("discriminator", {}).get("mapping", {}))


def _node(schema: Schema, location: Sequence[str | int]) -> Schema:
    """The schema of what stands at pydantic's location; one without keys if not known."""
    node = schema
    for part in location:
        kinds = _kinds(node)
        if part == _KEY:  # Where a mapping's key itself is wrong.
            node = node.get("propertyNames", {})
        elif isinstance(part, int):
            node = node.get("items", {})
        elif part in kinds:
            node = {"$ref": kinds[part]}
        elif part.strip("[]") in schema.get("$defs", ()) and part.startswith("["):
            # Forms that differ in their keys have the class's name in brackets as a tag.
            node = {"$ref": f"#/$defs/{part.strip('[]')}"}
        else:
            inner = node.get("properties", {}).get(part) or node.get("additionalProperties")
            node = inner if isinstance(inner, Mapping) else node
        # An optional part is a union with null.
        union = [*node.get("anyOf", ())]
        union += [] if "discriminator" in node else node.get("oneOf", ())
        usual = next((member for member in union if member.get("type") != "null"), node)
        node = next((member for member in union if not _TOLD_APART.isdisjoint(member)), usual)
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return node
