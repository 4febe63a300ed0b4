"""The commands of the pages, as printed."""

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outcast import cli
from tests import doc_commands, guest_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where a reader types: what the pages call `results/fig3c` and `results/mine` is there."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "configs").symlink_to(doc_commands.ROOT / "configs")
    for line in (
        "outcast run configs/fig3c.yaml --engine virtual -o results/fig3c",
        "outcast trace results/fig3c",
        "outcast run configs/examples/parking-lot.yaml --engine virtual --set capture.ports=all "
        "--set duration=500ms -o results/parking-lot",
    ):
        done = type_in(folder, line)
        assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "results/fig3c", folder / "results/mine")
    return folder


def type_in(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """What became of a line. A verb alone needs no process, which takes a second.

    But exec hands the bytes of a command on, for which the streams of a test have no place.
    """
    words = shlex.split(line)
    if words[0] == "outcast" and words[1] != "exec" and not {"|", ">"} & set(words):
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = cli.invoke(words[1:])
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path}
    return guest_runs.ran(["bash", "-c", line], cwd=folder, env=own, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "command",
    [command for command in doc_commands.commands() if command.why_not_run is None],
    ids=lambda command: command.key,
)
def test_a_command_of_a_page_runs(command, folder):
    if command.line.startswith("tshark") and shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    done = type_in(folder, command.line)
    assert done.returncode == 0, done.stderr
    # A pipe's status is that of its last program. Only a packed run without captures has a note.
    told = [line for line in done.stderr.splitlines() if line.startswith("outcast: ")]
    assert not [line for line in told if "only the hashes" not in line]
