"""The files that make machines for outcast, as far as they can be checked without making one."""

import json
import os
import re
import shutil
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
# A fake Vagrant that knows the settings that the file may use, and prints what it is told.
_VAGRANT = """
class Part
  KNOWN = %w[vm box hostname synced_folder provider provision cpus memory].freeze
  def initialize(path) = @path = path
  def respond_to_missing?(name, _ = false) = KNOWN.include?(name.to_s.delete("="))
  def method_missing(name, *arguments, **options)
    raise NoMethodError, "no setting #{name}" unless respond_to_missing?(name)
    path = @path + [name.to_s.delete("=")]
    puts((path + arguments + options.map { |key, value| "#{key}=#{value}" }).join(" "))
    yield Part.new(path) if block_given?
    Part.new(path)
  end
end
module Vagrant
  def self.configure(version)
    raise ArgumentError, version unless version == "2"
    yield Part.new([])
  end
end
load ARGV[0]
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_and_executable(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/usr/bin/env bash\n")


def stub(path: Path, line: str) -> None:
    """Writes a program of one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("kernel", [False, True])
def test_the_demo_shows_an_earlier_run_before_it_installs(kernel, tmp_path):
    for name in ("scripts/demo.sh", "docs/first-run.md"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    stub(tmp_path / "scripts/install.sh", "echo INSTALL")
    verbs = f"case $1 in guest) exit {int(not kernel)} ;; run) echo RUN $* ;; esac"
    stub(tmp_path / ".venv/bin/outcast", verbs)

    def shown() -> str:
        words = [tmp_path / "scripts/demo.sh", "--set", "seed=2"]
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout

    before, after = shown().split("INSTALL\n")
    assert "this run is one draw" in after
    _, end = after.split("RUN run configs/fig3c.yaml --set seed=2\n")
    assert end.startswith("demo: done. Open the report above in a browser.")
    assert ("kernel is built, once" in before) is not kernel
    assert ("installation: one to five minutes" in before) is not kernel
    built = tmp_path / "cache/outcast/kernels/0123/linux"
    built.parent.mkdir(parents=True)
    built.touch()
    assert "kernel is built, once" not in shown()
    assert (f"is there: {built}; another" in shown()) is not kernel
    told = (
        "fig3c: virtual engine",
        "captures and counters agree",
        "blackouts",
        "docs/images/goodput.png",
    )
    assert all((word in before) is not kernel for word in told)


def test_the_demo_ends_with_the_runs_status(tmp_path):
    stub(tmp_path / "scripts/install.sh", "")
    stub(tmp_path / ".venv/bin/outcast", "[ $1 = guest ]")
    shutil.copy(ROOT / "scripts/demo.sh", tmp_path / "scripts/demo.sh")
    done = subprocess.run([tmp_path / "scripts/demo.sh"], capture_output=True, text=True)
    assert (done.returncode, "demo: done" in done.stdout) == (1, False)


@pytest.mark.parametrize(
    "name", ["install", "test", "provision-check", "test-vm", "classroom", "test-programs"]
)
def test_an_unknown_word_is_bad_usage(name):
    argv = [str(ROOT / f"scripts/{name}.sh"), "--nonsense"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{name}.sh" in done.stderr


@pytest.mark.skipif(shutil.which("ruby") is None, reason="no ruby to read the Vagrantfile with")
def test_the_vagrantfile_sets_what_vagrant_knows(tmp_path):
    subprocess.run(["ruby", "-c", str(ROOT / "Vagrantfile")], check=True, capture_output=True)
    (tmp_path / "vagrant.rb").write_text(_VAGRANT)
    done = subprocess.run(
        ["ruby", str(tmp_path / "vagrant.rb"), str(ROOT / "Vagrantfile")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (provision,) = re.findall(r"^vm provision shell inline=(.*)$", done.stdout, re.MULTILINE)
    (folder,) = re.findall(r"^vm synced_folder \. (\S+)", done.stdout, re.MULTILINE)
    script = Path(provision).relative_to(folder)
    assert (ROOT / script).is_file()


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


def test_the_editors_container_is_that_of_the_containerfile():
    container = described(ROOT)
    path = ROOT / ".devcontainer" / container["build"]["dockerfile"]
    assert path.resolve() == ROOT / "Containerfile"
    assert f"USER {container['remoteUser']}" in (ROOT / "Containerfile").read_text()


def test_a_class_finds_what_its_script_installs():
    container = described(CLASSROOM)
    script = (CLASSROOM / ".devcontainer" / "install.sh").read_text()
    (venv,) = re.findall(r"^venv=\$HOME(/\S+)$", script, re.MULTILINE)
    folder = f"/home/{container['remoteUser']}{venv}/bin"
    assert container["remoteEnv"]["PATH"] == f"{folder}:${{containerEnv:PATH}}"
    for name in container["customizations"]["codespaces"]["openFiles"]:
        assert (CLASSROOM / name).is_file()
    settings = container["customizations"]["vscode"]["settings"]
    assert settings["python.defaultInterpreterPath"] == f"{folder}/python"


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("aarch64", "this machine's processor is aarch64.*GitHub Codespaces"),
        ("x86_64", r"wheels/outcast_testbed-\*\.whl is missing; .*scripts/classroom\.sh puts it"),
    ],
)
def test_what_a_class_is_told_that_cannot_install(tmp_path, machine, said):
    shutil.copytree(CLASSROOM, tmp_path / "class")
    stub(tmp_path / "uname", f"echo {machine}")
    done = subprocess.run(
        ["bash", str(tmp_path / "class/.devcontainer/install.sh")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.match(f"install: error: {said}", line)
