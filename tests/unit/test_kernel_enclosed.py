"""Programs in a root of their own: how it is laid out and entered, and what they see."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outcast.engines import chroot
from outcast.engines.chroot import EnclosedPrograms, Programs, enclose
from outcast.errors import CommandError
from tests.fakes import FakeMachine

PROGRAMS = ("sh", "env", "cat", "ls")


@pytest.fixture
def packages(tmp_path) -> Path:
    folder = tmp_path / "packages"
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin/gcc-12").write_text("compiler")
    (folder / "bin").symlink_to("usr/bin")
    return folder


def test_a_root_is_laid_out_without_a_change_of_the_packages(packages, tmp_path):
    root = tmp_path / "root"
    enclose(packages, root, FakeMachine("mount"))
    assert (root / "bin").readlink() == Path("usr/bin")
    assert (root / "usr/bin/gcc-12").samefile(packages / "usr/bin/gcc-12")
    assert (root / "dev/null").exists()
    assert sorted(path.name for path in packages.rglob("*")) == ["bin", "bin", "gcc-12", "usr"]


@pytest.mark.parametrize(("allowed", "tries"), [("mount", 1), ("user", 2), ("chroot", 3)])
def test_the_first_way_that_works_is_used(packages, tmp_path, allowed, tries):
    machine = FakeMachine(allowed)
    programs = enclose(packages, tmp_path / "root", machine)
    assert len(machine.ran) == tries
    assert programs.run(["make"], cwd=tmp_path / "root/tmp") == "said"


def test_paths_are_those_inside(tmp_path):
    machine = FakeMachine("mount")
    root = tmp_path / "root"
    inside = EnclosedPrograms(root, chroot.WAYS[0], machine)
    inside.run(["make", f"O={root}/build/output", "all"], cwd=root / "build/source")
    (argv,) = machine.ran
    assert argv[argv.index(str(root)) + 1 :][:3] == ["/usr/bin/env", "-i", "--chdir=/build/source"]
    assert argv[-3:] == ["make", "O=/build/output", "all"]


def test_a_failure_names_the_program_and_not_the_way_in(tmp_path):
    inside = EnclosedPrograms(tmp_path, chroot.WAYS[0], FakeMachine())
    with pytest.raises(CommandError, match=r"^make all: exit status 1"):
        inside.run(["make", "all"], cwd=tmp_path)


def can_enter() -> bool:
    argv = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return os.geteuid() == 0 or not subprocess.run(argv, capture_output=True).returncode


@pytest.fixture
def machines_own(tmp_path) -> Path:
    """A root with a few of this machine's own programs and the libraries that they need."""
    folder = tmp_path / "machine"
    for program in PROGRAMS:
        path = shutil.which(program)
        assert path is not None
        needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        libraries = [word for word in needed.split() if word.startswith("/")]
        for source, target in [(path, f"/usr/bin/{program}"), *((lib, lib) for lib in libraries)]:
            copy = folder / target.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    (folder / "bin").symlink_to("usr/bin")
    return folder


@pytest.mark.skipif(not can_enter(), reason="no user namespaces here")
def test_programs_see_the_root_alone(machines_own, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    root = tmp_path / "root"
    programs = enclose(machines_own, root, Programs())
    seen = set(programs.run(["ls", "/"], cwd=root).split())
    assert seen <= {"bin", "dev", "lib", "lib64", "tmp", "usr"}
    told = programs.run(["env"], cwd=root / "tmp", environment={"A": "1"})
    usual = {f"{name}={text}" for name, text in chroot.ENVIRONMENT.items()}
    assert set(told.splitlines()) - {"PWD=/tmp"} == {"A=1", *usual}
    assert programs.run(["cat", "/dev/null"], cwd=root) == ""
    lines: list[str] = []
    programs.run(["sh", "-c", "umask; echo 2 >&2"], cwd=root, on_line=lines.append)
    assert lines == ["0022", "2"]
