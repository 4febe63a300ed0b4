"""MkDocs' hook: the README is the first page, and files beside the docs are named, not linked.

In a table's code a viewer of the repository wants a bar to be escaped, Python-Markdown does not.

A page may link to a file of the repository (`../outcast/emulation/traffic.py`), which a viewer of
the repository follows; the site holds the docs alone, so there the link becomes the file's path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)\)")


def on_config(config: Any) -> Any:
    """Puts pages that the navigation does not name at its end, so that none is out of reach."""
    docs = Path(config.docs_dir)
    named = set(_pages(config.nav))
    others = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    if more := [path for path in others if path not in named]:
        config.nav.append({"More": more})
    return config


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(part)


def on_files(files: Files, config: Any) -> Files:
    """Adds the README as index.md, its links as seen from docs/."""
    root = Path(config.docs_dir).parent
    text = (root / "README.md").read_text()
    text = re.sub(r"\]\(docs/", "](", text)
    text = _LINK.sub(lambda match: _from_docs(match, root), text)
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replaces links that leave docs/ for a file of the repository, and escaped bars in tables."""
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        target = folder / match[2]
        if ":" in match[2] or not target.exists() or target.resolve().is_relative_to(docs):
            return match[0]
        path = PurePosixPath(target.resolve().relative_to(docs.parent))
        named = f"`{path}`"
        return named if match[1].strip("`") in (path.name, str(path)) else f"{match[1]} ({named})"

    lines = (
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line[:1] == "|" else line
        for line in markdown.split("\n")
    )
    return _LINK.sub(replaced, "\n".join(lines))


def _from_docs(match: re.Match[str], root: Path) -> str:
    """A link of the README to what is not in docs/, as seen from docs/."""
    if (root / match[2]).exists() and not (root / "docs" / match[2]).exists():
        return f"[{match[1]}](../{match[2]})"
    return match[0]
