"""The second half of docs/api.md, made from the docstrings of what `import outcast` offers.

`python scripts/api_reference.py` writes it. A test fails if the page differs from the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import outcast

PAGE = Path(__file__).parents[1] / "docs/api.md"
HEADING = "## Reference\n"

FUNCTIONS = (
    *("load", "run", "open_run", "analyze", "pack", "replay", "trace"),
    *("run_sweep", "open_sweep", "exec_in", "join_captures", "whatif_each", "fate", "compare"),
)
CLASSES = (
    "Experiment",
    "Run",
    "Program",
    "Execution",
    "Packed",
    "Replay",
    "KernelTrace",
    "Counterfactual",
    "Sweep",
    "Comparison",
    "Executed",
    "Join",
)


def markdown() -> str:
    """Returns the reference: functions, classes with their members, and errors."""
    errors = [name for name in outcast.__all__ if name.endswith("Error")]
    parts = [HEADING]
    parts += [_function(getattr(outcast, name), f"outcast.{name}", "###") for name in FUNCTIONS]
    parts += [_class(getattr(outcast, name)) for name in CLASSES]
    parts.append("### Errors\n")
    parts.append("| exception | exit status of the verb | meaning |\n|---|---|---|")
    for error in sorted(errors, key=lambda name: (name != "OutcastError", name)):
        kind = getattr(outcast, error)
        first = " ".join(str(inspect.getdoc(kind)).split("\n\n")[0].split())
        parts.append(f"| `{error}` | {kind.exit_status} | {first} |")
    return "\n".join(parts) + "\n"


def _function(function: Any, name: str, level: str) -> str:
    # Annotations are texts here, and the signature quotes them.
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    return f"{level} `{name}`\n\n```python\n{name}{signature}\n```\n\n{_text(function)}\n"


def _class(kind: type) -> str:
    parts = [f"### `outcast.{kind.__name__}`\n\n{_text(kind)}\n"]
    members = [] if kind is outcast.Experiment else list(_members(kind))
    if members:
        parts.append("| member | what it is |\n|---|---|")
        parts += [f"| `{name}` | {text} |" for name, text in members]
        parts.append("")
    return "\n".join(parts)


def _members(kind: type) -> Iterator[tuple[str, str]]:
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or inspect.isclass(member):
            continue
        text = " ".join(str(inspect.getdoc(member)).split("\n\n")[0].split())
        if callable(member):
            name += "(" + ", ".join([*inspect.signature(member).parameters][1:]) + ")"
        elif not hasattr(member, "__get__") and not isinstance(member, property):
            continue
        yield name, text


def _text(documented: Any) -> str:
    """A docstring as Markdown: its sections of arguments and errors become lists."""
    lines = []
    in_code = False
    for line in str(inspect.getdoc(documented)).splitlines():
        in_code ^= line.startswith("```")
        if not in_code and line in ("Args:", "Raises:", "Returns:", "Attributes:"):
            title = "Arguments" if line == "Args:" else line[:-1]
            lines.append(f"**{title}**\n")
        elif not in_code and line.startswith("    ") and line[4] != " " and ": " in line:
            name, _, rest = line.strip().partition(": ")
            lines.append(f"- `{name}`: {rest}")
        elif not in_code and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Rewrites the reference in docs/api.md."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(HEADING)] + markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
