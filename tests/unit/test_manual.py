import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from outcast import cli
from scripts import manual

ROOT = Path(__file__).parents[2]
COMMANDS = [
    pytest.param(ctx, command, id=ctx.command_path) for ctx, command in manual.commands(cli.whole)
]


OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def _unescaped(text: str) -> str:
    text = re.sub(r"\\f[BR]", " ", text)
    return text.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")


def _own_options(ctx: click.Context, command: click.Command) -> list[set[str]]:
    """The spellings of each of its options, except `--help`, which all verbs have."""
    return [
        {*parameter.opts, *parameter.secondary_opts}
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
    ]


@pytest.mark.parametrize(("ctx", "command"), COMMANDS)
def test_the_manual_has_every_command_and_option(ctx, command):
    sections = re.split(r"^\.SS ", _unescaped(manual.page()), flags=re.MULTILINE)
    found = [text for text in sections if re.match(rf"{ctx.command_path}(\s|$)", text)]
    (section,) = found
    assert set().union(*_own_options(ctx, command)) <= set(OPTION.findall(section))
    assert " ".join((command.get_short_help_str(1000)).split()).rstrip(".") in " ".join(
        section.split()
    )


@pytest.mark.parametrize(("ctx", "command"), COMMANDS)
def test_every_command_has_a_page_with_its_options(ctx, command):
    verb = ctx.command_path.split()[1]
    page = (ROOT / "docs/verbs" / f"{verb}.md").read_text()
    assert f"# outcast {verb}" in page
    assert re.search(rf"(outcast |`){' '.join(ctx.command_path.split()[1:])}", page) or (
        f"`{ctx.info_name}`" in page
    )
    named = OPTION.findall(page)
    missing = [names for names in _own_options(ctx, command) if names.isdisjoint(named)]
    assert not missing, f"docs/verbs/{verb}.md does not name {missing}"


def test_the_pages_of_verbs_are_those_of_verbs():
    pages = {path.stem for path in (ROOT / "docs/verbs").glob("*.md")}
    assert pages == {*cli.VERBS, "index"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff to read the page with")
def test_the_manual_is_formatted_without_a_warning(tmp_path):
    page = tmp_path / "man1" / "outcast.1"
    manual.main([str(page)])
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in page.parent.iterdir()] == ["outcast.1"]


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
