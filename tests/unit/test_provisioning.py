"""The files that make machines for outcast, as far as they can be checked without making one."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLASSROOM = ROOT / "classroom"
SCRIPTS = [
    *sorted((ROOT / "scripts").glob("*.sh")),
    ROOT / "tests" / "vm" / "checks.sh",
    CLASSROOM / ".devcontainer" / "install.sh",
]
# From the reference of containers.dev. What gives a container rights is not among them.
KEYS = {"name", "image", "build", "features", "hostRequirements", "remoteUser", "remoteEnv"}
KEYS |= {"overrideCommand", "onCreateCommand", "customizations"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_and_executable(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/usr/bin/env bash\n")


def test_the_container_ends_as_a_user_and_runs_a_configuration_that_exists():
    steps = [
        line.split(" ", 1)
        for line in (ROOT / "Containerfile").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    words = [word for word, _ in steps]
    assert words[0] == "FROM"
    last = dict(steps)
    assert last["USER"] != "root"
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert json.loads(last["ENTRYPOINT"]) == [".venv/bin/outcast"]
    verb, config = json.loads(last["CMD"])
    assert verb == "run"
    assert (ROOT / config).is_file()


def described(folder: Path) -> dict[str, Any]:
    """A folder's devcontainer.json, without the lines that are comments."""
    lines = (folder / ".devcontainer/devcontainer.json").read_text().splitlines()
    read: dict[str, Any] = json.loads(
        "\n".join(line for line in lines if not line.lstrip().startswith("//"))
    )
    return read


@pytest.mark.parametrize("folder", [ROOT, CLASSROOM], ids=["checkout", "classroom"])
def test_an_editors_container_asks_for_no_right(folder):
    container = described(folder)
    assert container.keys() <= KEYS
    assert ("image" in container) != ("build" in container)
    assert container["remoteUser"] != "root"
    needs = container["hostRequirements"]
    assert (needs["cpus"], needs["memory"]) == (2, "4gb")
    (command,) = re.findall(r"(\S+\.sh)\b", container["onCreateCommand"])
    assert (folder / command).is_file()
