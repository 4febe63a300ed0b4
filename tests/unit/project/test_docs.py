"""The pages: their files and commands are right, and guides stay short. MkDocs checks the links."""

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import outcast
from outcast import cli, experiment
from outcast.cli import whole
from scripts import api_reference, manual, reference
from scripts import fill_numbers as numbers
from scripts import reproduction_docs as docs
from tests import doc_commands

ROOT = Path(__file__).parents[3]
PAGES = doc_commands.PAGES
_FOLDERS = "benchmarks|configs|controllers|docs|outcast|scripts|tests|topologies"
# `outcast assignment new` puts these into a student's configs/, with gaps.
_HANDED_OUT = {path.name for path in ROOT.glob("outcast/uses/classroom/exercises/*/configs/*.yaml")}
_NAMED = re.compile(rf"(?<![\w/.~-])((?:{_FOLDERS})/[\w./-]*[\w/])")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page):
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


def test_every_experiment_that_the_docs_run_is_accepted_with_its_settings():
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
    ctx = click.Context(whole, info_name="outcast", **whole.context_settings)
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
    "line", sorted({found.line for found in doc_commands.commands() if "outcast " in found.line})
)
def test_every_verb_and_option_that_a_page_shows_exists(line, tmp_path, monkeypatch):
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


def test_the_reference_and_the_schema_are_up_to_date():
    hint = "run: python -m scripts.reference"
    assert (ROOT / "docs/config.md").read_text() == reference.markdown(), hint
    noise = (ROOT / "docs/noise.md").read_text()
    assert noise == reference.with_profiles(noise), hint
    analysis = (ROOT / "docs/analysis.md").read_text()
    assert analysis == reference.with_quantities(analysis), hint
    assert (ROOT / "configs/schema.json").read_text() == reference.schema_text(), hint
    for page in (ROOT / "docs/verbs").glob("*.md"):
        assert page.read_text() == reference.with_help(page.stem, page.read_text()), hint


def test_the_reference_is_what_the_code_says():
    text = api_reference.PAGE.read_text(encoding="utf-8")
    hint = "run: python scripts/api_reference.py"
    assert text.endswith(api_reference.markdown()), hint
    assert [name for name in outcast.__all__ if f"{name}`" not in text] == ["__version__"]


NO_GUIDES = {
    "analysis.md",
    "api.md",
    "config.md",
    "envelope.md",
    "findings.md",
    "numbers.md",
}
"""Reference pages, and the findings, whose length is that of the sources' claims."""
GENERATED = re.compile(r"<!--=[^>]+?-->.*?<!--/-->|<!-- (\w+) -->.*?<!-- end of \1 -->", re.DOTALL)
MOST_WORDS = 30_000
MOST_WORDS_OF_A_GUIDE = 1_500
MOST_LINES_OF_README = 90


def words() -> dict[str, int]:
    """The number of words that people wrote, by page of docs/ and of the README."""
    pages = [
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        if page.name not in NO_GUIDES and not page.name.startswith("reproduction")
    ]
    return {
        page.name: len(GENERATED.sub("", page.read_text(encoding="utf-8")).split())
        for page in (ROOT / "README.md", *pages)
    }


def test_the_guides_keep_to_their_words():
    # A new page takes words away elsewhere, or raises the number and says why.
    assert sum(words().values()) <= MOST_WORDS
    assert {name: count for name, count in words().items() if count > MOST_WORDS_OF_A_GUIDE} == {}


def test_the_readme_is_a_screen_and_a_half_without_marks():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES_OF_README
    assert "<!--" not in text


# --- The numbers in the documentation are those of the stored results


HINT = "run: python -m scripts.fill_numbers"


@pytest.fixture(scope="module")
def known() -> numbers.Values:
    return numbers.values()


def test_every_number_in_the_docs_is_what_the_results_give(known):
    for page in numbers.pages():
        name = str(page.relative_to(numbers.ROOT))
        text = page.read_text(encoding="utf-8")
        assert numbers.filled(text, known, name) == text, HINT


def test_a_number_that_is_not_what_the_results_give_is_replaced():
    known = {"P3.1": "4.5 [3.9, 5.2]", "table": "| a |\n|---|"}
    text = "the gap is <!--=P3.1-->9.9<!--/-->; 3 of 5\n<!--=table--><!--/-->\n"
    assert numbers.filled(text, known, "page.md") == (
        "the gap is <!--=P3.1-->4.5 [3.9, 5.2]<!--/-->; 3 of 5\n"
        "<!--=table-->\n\n| a |\n|---|\n\n<!--/-->\n"
    )


def test_the_page_of_the_reproduction_is_what_the_stored_results_give():
    for name, text in docs.pages(numbers.ROOT / "docs").items():
        assert (numbers.ROOT / "docs" / name).read_text(encoding="utf-8") == text, HINT


# --- manual


COMMANDS = [
    pytest.param(ctx, command, id=ctx.command_path) for ctx, command in manual.commands(cli.whole)
]


def _unescaped(text: str) -> str:
    text = re.sub(r"\\f[BR]", " ", text)
    return text.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")


def test_the_pages_of_verbs_are_those_of_verbs():
    pages = {path.stem for path in (ROOT / "docs/verbs").glob("*.md")}
    assert pages == {*cli.VERBS, "index"}


@pytest.mark.parametrize(("ctx", "command"), COMMANDS)
def test_every_help_has_an_example_that_the_command_accepts(ctx, command):
    examples = re.findall(r"^  outcast (.*)$", command.epilog or "", re.MULTILINE)
    assert examples
    for text in examples:
        words = shlex.split(text)
        verb = ctx.command_path.split()[1:]
        assert words[: len(verb)] == verb
        command.make_context(ctx.info_name, words[len(verb) :], parent=ctx.parent)
        assert f"outcast {text}" in _unescaped(manual.page())
        for config in re.findall(r"configs/\S+", text):
            assert (ROOT / config).is_file()
