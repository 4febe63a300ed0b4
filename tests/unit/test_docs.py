"""The site builds without a warning, and every link, file and command in the pages is right."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

from outcast import experiment
from outcast.cli import whole
from outcast.view.figures import FIGURES
from tests import doc_commands

ROOT = Path(__file__).parents[2]
PAGES = doc_commands.PAGES
_FOLDERS = "benchmarks|configs|controllers|docs|outcast|scripts|tests|topologies"
# `outcast assignment new` puts these into a student's configs/, with gaps.
_HANDED_OUT = {path.name for path in ROOT.glob("outcast/assignment/exercises/*/configs/*.yaml")}
_NAMED = re.compile(rf"(?<![\w/.~-])((?:{_FOLDERS})/[\w./-]*[\w/])")


class _Page(HTMLParser):
    """The anchors of a page, and the addresses that it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            if value := values.get(name):
                self.anchors.add(value)
        for name in ("href", "src"):
            if value := values.get(name):
                self.references.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) >= len(PAGES)
    broken, checked = [], 0
    for path, page in pages.items():
        if path.name == "404.html":
            # Its addresses start at the root of the server, not of the site.
            continue
        for reference in page.references:
            parts = urlsplit(reference)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{path.relative_to(site)}: {reference}")
    assert broken == []
    assert checked > 500


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*"
        r"rel=[\"']?(?:stylesheet|preconnect)[^>]*href=[\"']?(?:https?:)?//"
    )
    assert [path.name for path in site.rglob("*.html") if loading.search(path.read_text())] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    # The reader fills in a word in capitals: recipes/ID.yaml.
    named = [Path(name) for name in _NAMED.findall(page.read_text())]
    missing = [
        str(name)
        for name in named
        if not name.stem.isupper()
        and not (ROOT / name).exists()
        and not (name.parent == Path("configs") and name.name in _HANDED_OUT)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    paths = [urlsplit(link).path for link in links if not urlsplit(link).scheme]
    assert [path for path in paths if path and not (page.parent / path).exists()] == []


def _commands() -> list[list[str]]:
    """The words of every `outcast run|topo|sweep CONFIG ...` in the docs, with placeholders."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ").replace("mine.yaml", "configs/fig3c.yaml")
        for line in re.findall(r"outcast ((?:run|topo|sweep) configs/[^\n`|#]*)", text):
            # A command in a paragraph can continue in the next line, and its quotes do not match.
            with contextlib.suppress(ValueError):
                found.append(shlex.split(line))
    return found


def test_every_experiment_that_the_docs_run_is_accepted_with_its_settings() -> None:
    commands = _commands()
    assert len(commands) >= 15
    for _verb, config, *words in commands:
        pairs = list(itertools.pairwise(words))
        overrides = [value for word, value in pairs if word == "--set"]
        if any("..." in value or value.partition("=")[2].isupper() for value in overrides):
            continue
        if Path(config).name in _HANDED_OUT:
            continue
        experiment.load(ROOT / config.rstrip(":,;)"), overrides)


def _parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises click.ClickException if `outcast WORDS` is bad usage. Nothing is run."""
    command: click.Command = whole
    ctx = click.Context(whole, info_name="outcast")
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(ctx, words)
        assert found is not None, name
        ctx, command = click.Context(found, info_name=name, parent=ctx), found
    # A file of the reader's need not be there.
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            monkeypatch.setattr(parameter.type, "exists", False)
    command.parse_args(ctx, words)


@pytest.mark.parametrize(
    "line",
    sorted({found.line for found in doc_commands.commands() if "outcast " in found.line}),
)
def test_every_verb_and_option_that_a_page_shows_exists(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in _words_of(line):
        _parse(words, monkeypatch)


def _words_of(line: str) -> Iterator[list[str]]:
    """The words after each `outcast` that a line starts."""
    for part in re.split(r"[|;&]{1,2}(?=(?:[^']*'[^']*')*[^']*$)", line.partition(" > ")[0]):
        words = shlex.split(part)
        names = [Path(word).name for word in words]
        # `podman build -t outcast` and `ln` start nothing.
        if "outcast" in names and not {"build", "ln"} & set(words):
            yield words[names.index("outcast") + 1 :]


def test_what_no_test_runs_is_in_the_pages() -> None:
    keys = [found.key for found in doc_commands.commands()]
    for start in doc_commands.NOT_RUN:
        assert any(key.startswith(start) for key in keys), start


def test_every_picture_has_a_row() -> None:
    rows = (ROOT / "docs/analysis.md").read_text()
    for name in FIGURES:
        assert f"| `{name}.png` |" in rows
