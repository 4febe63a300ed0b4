"""Programs in a root of their own: how it is laid out and entered."""

from pathlib import Path

import pytest

from outcast.engines import chroot
from outcast.engines.chroot import EnclosedPrograms, enclose
from outcast.errors import CommandError
from tests.fakes import FakeMachine


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
