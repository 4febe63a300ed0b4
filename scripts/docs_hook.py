"""MkDocs' hook: makes pages that read well in the repository read well on the site too.

- The README is the first page, and the other pages of the root have their place.
- A page may link to a file of the repository (`../outcast/emulation/inner_run.py`). The site has no
  such file, so there the link becomes the file's path.
- In a table's code the repository's viewer needs an escaped bar, Python-Markdown a plain one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
}
"""Pages of the site that stand beside docs/, and their names on the site."""

_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Adds pages that the navigation does not name at its end, so that every page is reachable.

    Studies below design/ stay out: the page on contributing links them.
    """
    docs = Path(config.docs_dir)
    named = set(_pages(config.nav))
    others = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    if more := [
        path for path in others if path not in named and path.partition("/")[0] != "design"
    ]:
        config.nav.append({"More": more})
    return config


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(part)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of ROOT_PAGES, their links as seen from docs/."""
    root = Path(config.docs_dir).parent
    for name, on_site in ROOT_PAGES.items():
        text = (root / name).read_text()
        text = re.sub(r"\]\(docs/", "](", text)
        text = _LINK.sub(lambda match: _from_docs(match, root), text)
        files.append(File.generated(config, on_site, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replaces links from docs/ to files of the repository, and escaped bars in tables."""
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        target = folder / match[2]
        if ":" in match[2] or not target.exists() or target.resolve().is_relative_to(docs):
            return match[0]
        path = PurePosixPath(target.resolve().relative_to(docs.parent))
        if on_site := ROOT_PAGES.get(str(path)):
            return f"[{match[1]}]({os.path.relpath(docs / on_site, folder)}{match[3] or ''})"
        named = f"`{path}`"
        return named if match[1].strip("`") in (path.name, str(path)) else f"{match[1]} ({named})"

    lines = (
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line[:1] == "|" else line
        for line in markdown.split("\n")
    )
    return _LINK.sub(replaced, "\n".join(lines))


def _from_docs(match: re.Match[str], root: Path) -> str:
    """A link of a root page to what is not in docs/, as seen from docs/."""
    if on_site := ROOT_PAGES.get(match[2]):
        return f"[{match[1]}]({on_site}{match[3] or ''})"
    if (root / match[2]).exists() and not (root / "docs" / match[2]).exists():
        return f"[{match[1]}](../{match[2]}{match[3] or ''})"
    return match[0]
