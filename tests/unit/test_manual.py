import re
import shlex
from pathlib import Path

import pytest

from outcast import cli
from scripts import manual

ROOT = Path(__file__).parents[2]
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
