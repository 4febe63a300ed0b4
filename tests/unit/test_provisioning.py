"""The files that make machines for outcast, as far as they can be checked without making one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / "tests" / "vm" / "checks.sh"]
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
def test_scripts_are_bash_and_executable(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("name", ["install.sh", "test.sh", "provision-check.sh", "test-vm.sh"])
def test_an_unknown_word_is_bad_usage(name: str) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / name), "--nonsense"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert name in done.stderr


@pytest.mark.skipif(shutil.which("ruby") is None, reason="no ruby to read the Vagrantfile with")
def test_the_vagrantfile_sets_what_vagrant_knows(tmp_path: Path) -> None:
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


def test_the_container_ends_as_a_user_and_runs_a_configuration_that_exists() -> None:
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


def test_the_editors_container_is_that_of_the_containerfile() -> None:
    path = ROOT / ".devcontainer/devcontainer.json"
    lines = path.read_text().splitlines()
    described = json.loads("\n".join(line for line in lines if not line.startswith("//")))
    assert (path.parent / described["build"]["dockerfile"]).resolve() == ROOT / "Containerfile"
    assert f"USER {described['remoteUser']}" in (ROOT / "Containerfile").read_text()
    assert (ROOT / described["postCreateCommand"].split()[0]).is_file()
