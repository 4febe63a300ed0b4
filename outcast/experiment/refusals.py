"""Words pydantic's refusals: the error that explains most, and what is allowed instead."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from outcast.errors import did_you_mean
from outcast.handed_in import own_words

_WORDS = (
    ("Input should be", "allowed is"),
    ("a valid tuple", "a list"),
    ("a valid integer", "a whole number"),
    ("a valid boolean", "true or false"),
    ("a valid number", "a number"),
    ("a valid string", "a text, in quotes where YAML needs them"),
    (" after validation", ""),
)
"""Pydantic's English, and what people write in YAML."""

_MAPPINGS = ("model_type", "model_attributes_type", "dict_type")
_TOLD_APART = {"$ref", "discriminator", "oneOf"}


def first_wrong(error: ValidationError) -> ErrorDetails:
    """The error to tell. An unknown key comes first: it often explains a key that is missing."""
    return min(error.errors(), key=lambda wrong: wrong["type"] != "extra_forbidden")


def worded(wrong: ErrorDetails, keys: Sequence[str] = ()) -> tuple[str, str]:
    """The key below the error's place that is meant, or "", and what is wrong and allowed."""
    kind, context = wrong["type"], wrong.get("ctx", {})
    if kind == "extra_forbidden":
        listed = f"; allowed are {', '.join(keys)}" if keys else ""
        return "", f"unknown key{listed}{did_you_mean(str(wrong['loc'][-1]), keys)}"
    if kind in ("missing", "union_tag_not_found"):
        return "" if kind == "missing" else "kind", "is missing"
    if kind == "union_tag_invalid":
        tag, expected = str(context["tag"]), context["expected_tags"]
        near = did_you_mean(tag, _quoted(expected))
        return "kind", f"{short(tag)} is unknown; allowed are {expected}{near}"
    if wrong["msg"] != own_words(wrong):
        return "", own_words(wrong)
    given = short(wrong["input"])
    if kind == "string_pattern_mismatch":
        return "", f"{given}: allowed is text of the form {context['pattern']}"
    if kind in _MAPPINGS:
        return "", f"{given}: allowed is a mapping of keys, as {{KEY: VALUE}}"
    message = wrong["msg"]
    for pydantics, ours in _WORDS:
        message = message.replace(pydantics, ours)
    message = re.sub(r", unable to (parse|interpret) .*", "", message)
    # "Tuple should have at most 2 items, not 3"
    message = re.sub(r"[A-Z][a-z]+ should have", "allowed is", message)
    if kind == "literal_error":
        message += did_you_mean(str(wrong["input"]), _quoted(context["expected"]))
    return "", f"{given}: {message}"


def _quoted(listing: str) -> list[str]:
    """The words in a listing of pydantic's, such as `'a', 'b' or 'c'`."""
    return re.findall(r"'([^']*)'", listing)


def short(value: object) -> str:
    """A value of YAML in a message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def allowed_keys(schema: Mapping[str, Any], location: Sequence[str | int]) -> list[str]:
    """The keys that stand beside the last one of pydantic's location; empty if not known."""
    node: Any = schema
    for part in location[:-1]:
        kinds = node.get("discriminator", {}).get("mapping", {})
        if isinstance(part, int):
            node = node.get("items", {})
        elif part in kinds:
            node = {"$ref": kinds[part]}
        elif part.startswith("["):
            # Forms that are told apart by their keys have the class's name in brackets as a tag.
            node = {"$ref": f"#/$defs/{part.strip('[]')}"}
        else:
            inner = node.get("properties", {}).get(part)
            node = inner or node.get("additionalProperties") or node
        # An optional part is a union with null.
        union = [*node.get("anyOf", ())]
        union += [] if "discriminator" in node else node.get("oneOf", ())
        node = next((member for member in union if not _TOLD_APART.isdisjoint(member)), node)
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return list(node.get("properties", {}))
