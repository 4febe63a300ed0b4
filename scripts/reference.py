"""Makes the configuration reference and the editors' schema from the models.

`python -m scripts.reference` writes docs/config.md, configs/schema.json, the help of each verb in
docs/verbs, the profiles in docs/noise.md and the quantities in docs/analysis.md. A test fails if
they are not up to date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from outcast import cli, experiment, quantities
from outcast.experiment.noise import PROFILES
from outcast.experiment.parts import Part
from scripts import manual

Schema = Mapping[str, Any]

_INTRODUCTION = """# Configuration reference

One YAML file describes one experiment. Times, rates and sizes carry their unit (`2ms`, `1gbit`,
`16KB`; a KB is 1024 bytes). Rates count bits: `100mbps` is read as `100mbit`, although tc(8)
takes it for bytes. A key that is not listed here is refused, with its line.

An editor with the YAML language server checks and completes a file that begins with

```yaml
# yaml-language-server: $schema=schema.json
```

`configs/schema.json` and this page are made from the same models. On the command line,
`--set` overrides a key, with dots between levels: `--set links.rate=100mbit`,
`--set flows.1.hosts=6`. An error in an override names `--set KEY` instead of a line.
"""

_WRITTEN = "network"
"""A key that outcast writes into a run's configuration, and that nobody writes by hand."""


def schema_text() -> str:
    """Returns the text of configs/schema.json."""
    return json.dumps(experiment.json_schema(), indent=1, ensure_ascii=False) + "\n"


def markdown() -> str:
    """Returns the text of docs/config.md."""
    schema = experiment.json_schema()
    lines = [_INTRODUCTION, "## At the top\n", *_table(schema, schema)]
    for name, part in schema["properties"].items():
        definitions = list(_definitions(part, schema))
        if not definitions:
            continue
        lines.append(f"\n## {name}\n")
        if len(definitions) == 1:
            lines += _described(definitions[0], schema)
        for definition in definitions if len(definitions) > 1 else ():
            kind = definition["properties"]["kind"]["const"]
            lines += [f"### {name}: kind {kind}\n", *_described(definition, schema), ""]
    return "\n".join(lines).rstrip() + "\n"


def _between(name: str, text: str, made: str) -> str:
    """The text with what is made in the place that its marks show."""
    marks = rf"(<!-- {name} -->\n).*(<!-- end of {name} -->\n)"
    return re.sub(marks, lambda match: match[1] + made + match[2], text, flags=re.DOTALL)


def with_help(verb: str, text: str) -> str:
    """Returns the text of docs/verbs/VERB.md with the help of the verb in its place."""
    made = ""
    for ctx, command in manual.commands(cli.whole):
        if ctx.command_path.split()[1] == verb:
            # The width of a terminal would decide otherwise.
            ctx.terminal_width = 78
            made += f"```text\n{command.get_help(ctx).rstrip()}\n```\n"
    return _between("help", text, made)


def with_quantities(text: str) -> str:
    """Returns the text of docs/analysis.md with the quantities in their place."""
    rows = ["| of a | key or column | name | unit | what it is |", "|---|---|---|---|---|"]
    rows += [
        f"| {each.level} | `{each.key}` | {each.label} | {each.form.unit} | {each.definition} |"
        for each in quantities.TABLE
        if not each.is_text
    ]
    return _between("quantities", text, "\n".join(rows) + "\n")


def with_profiles(text: str) -> str:
    """Returns the text of docs/noise.md with the profiles in their place."""
    rows = []
    for name, profile in PROFILES.items():
        latency = "as much as keeps packets in order" if profile.greatest_jitter else "0"
        if profile.switch_latency_ns:
            latency = f"{profile.switch_latency_ns} ns up and down"
        numbers = {
            "oscillators": f"{profile.oscillators_ppm:g} ppm",
            "interrupts": str(profile.interrupts) if profile.interrupts else "at once",
            "sender": str(profile.sender) if profile.sender else "at once",
            "switch_latency": latency,
            "offloads": "on" if profile.offloads else "off",
        }
        rows += [f"### {name}", "", f"{profile.about[0].upper()}{profile.about[1:]}.", ""]
        rows += ["| part | | source |", "|---|---|---|"]
        rows += [
            f"| `{part}` | {number} | {profile.sources.get(part, '')} |"
            for part, number in numbers.items()
        ]
        rows.append("")
    return _between("profiles", text, "\n".join(rows))


def _definitions(part: Schema, schema: Schema) -> Iterator[Schema]:
    """Yields the models that a value can have: one, several with a `kind`, or a list's items."""
    if "items" in part:
        yield from _definitions(part["items"], schema)
    for member in part.get("anyOf", ()):
        yield from _definitions(member, schema)
    for reference in (part, *part.get("oneOf", ())):
        if "$ref" in reference:
            definition = schema["$defs"][reference["$ref"].removeprefix("#/$defs/")]
            if "properties" in definition:
                yield definition


def _described(definition: Schema, schema: Schema, path: str = "") -> list[str]:
    """The text and the table of a model, followed by those of the models among its values.

    Args:
        definition: the model's definition.
        schema: the whole schema.
        path: its place among its section's keys, with dots; empty for the section itself.
    """
    text = " ".join(definition.get("description", "").split())
    lines = [text, "", *_table(definition, schema)]
    inner: dict[str, tuple[Schema, list[str]]] = {}
    for name, part in definition["properties"].items():
        for model in _definitions(part, schema):
            if "kind" not in model["properties"] and name != _WRITTEN:
                inner.setdefault(model["title"], (model, []))[1].append(f"{path}{name}")
    for model, names in inner.values():
        lines += ["", f"### {', '.join(names)}", ""]
        lines += _described(model, schema, f"{names[0]}." if len(names) == 1 else "")
    return lines


def _table(definition: Schema, schema: Schema) -> list[str]:
    required = definition.get("required", ())
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, part in definition["properties"].items():
        default = "required" if name in required else _default(definition, name, part)
        meaning = re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", part.get("description", ""))
        value = "written by outcast" if name == _WRITTEN else _value(part, schema)
        rows.append(f"| `{name}` | {value} | {default} | {meaning} |")
    return rows


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for derived in model.__subclasses__():
        yield from _below(derived)


_DEFAULTS = {model.__name__: model for model in _below(Part)}


def _default(definition: Schema, name: str, part: Schema) -> str:
    """The default as a configuration would have it."""
    model = _DEFAULTS[definition["title"]]
    field = next(field for key, field in model.model_fields.items() if name in (key, field.alias))
    value = field.default
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return "see below"
    serializers = [
        each for each in field.metadata if hasattr(each, "func") and hasattr(each, "when_used")
    ]
    if serializers:
        return f"`{serializers[0].func(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != () else "none"


def _value(part: Schema, schema: Schema) -> str:
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{each}`" for each in part["enum"])
    if "anyOf" in part:
        return " or ".join(
            _value(each, schema) for each in part["anyOf"] if each.get("type") != "null"
        )
    if "$ref" in part or "oneOf" in part:
        return "see below"
    match part.get("type"):
        case "array" if "prefixItems" in part:
            return f"[{', '.join(_value(each, schema) for each in part['prefixItems'])}]"
        case "array" if "items" not in part:
            return "list"
        case "array":
            return f"list of {_value(part['items'], schema)}".replace(
                "list of see below", "list, see below"
            )
        case "string" if "pattern" in part and part["pattern"] in experiment.UNIT_SCHEMA.values():
            kinds = {pattern: kind for kind, pattern in experiment.UNIT_SCHEMA.items()}
            return kinds[part["pattern"]]
        case "string" if "examples" in part:
            return " or ".join(f"`{each}`" for each in part["examples"])
        case "string":
            return "text"
        case "integer" | "number" as kind:
            return {"integer": "whole number", "number": "number"}[kind] + _range(part)
        case "object":
            return "mapping"
        case "boolean":
            return "`true`, `false`"
    return "any"


def _range(part: Schema) -> str:
    low, above = part.get("minimum"), part.get("exclusiveMinimum")
    high, below = part.get("maximum"), part.get("exclusiveMaximum")
    words = [f"from {low}"] if low is not None else []
    words += [f"above {above}"] if above is not None else []
    words += [f"{'up ' * (low is None)}to {high}"] if high is not None and high < 10**9 else []
    words += [f"below {below}"] if below is not None and below < 10**9 else []
    return " " + (" " if low is not None else " and ").join(words) if words else ""


def main() -> None:
    """Writes the files into this module's checkout."""
    root = Path(__file__).parents[1]
    (root / "docs/config.md").write_text(markdown(), encoding="utf-8")
    (root / "configs/schema.json").write_text(schema_text(), encoding="utf-8")
    for path in sorted((root / "docs/verbs").glob("*.md")):
        path.write_text(with_help(path.stem, path.read_text("utf-8")), encoding="utf-8")
    for page, fill in (("noise", with_profiles), ("analysis", with_quantities)):
        place = root / f"docs/{page}.md"
        place.write_text(fill(place.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
