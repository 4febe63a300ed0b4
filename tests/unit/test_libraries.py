"""Shared libraries of programs' files: found by ldd, copied beside them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from outcast import experiment
from outcast.engines import program_files
from outcast.errors import ConfigError
from outcast.records.run_directory import RunDirectory

CONFIG = """
name: libraries
topology: {kind: linear, rivals: 1}
links: {rate: 100mbit, delay: 5us}
queue: {kind: pfifo, limit: 20 packets}
duration: 100ms
programs:
  - {name: greet, host: h1, to: [h2], command: [./greet], files: [greet], libraries: true}
"""
NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def program(folder: Path) -> Path:
    """A program with a library that only this folder has."""
    (folder / "lib.c").write_text('const char *greeting(void) { return "hello"; }')
    (folder / "greet.c").write_text(
        "#include <stdio.h>\nconst char *greeting(void);\n"
        "int main(void) { puts(greeting()); return 0; }"
    )
    library, made = folder / "libgreeting.so.1", folder / "greet"
    soname = f"-Wl,-soname,{library.name}"
    for argv in (
        ["cc", "-shared", "-fPIC", soname, "-o", str(library), str(folder / "lib.c")],
        ["cc", "-o", str(made), str(folder / "greet.c"), str(library), f"-Wl,-rpath,{folder}"],
    ):
        subprocess.run(argv, check=True)
    return made


@NEEDS_CC
def test_libraries_are_copied_beside_the_program(tmp_path):
    made = program(tmp_path)
    assert program_files.needed_by(made, "x") == {"libgreeting.so.1": tmp_path / "libgreeting.so.1"}
    (tmp_path / "net.yaml").write_text(CONFIG)
    loaded = experiment.load(tmp_path / "net.yaml")
    directory = RunDirectory(tmp_path / "run")
    taken = program_files.take_files(loaded, directory).programs[0]
    files = [str(path.relative_to("programs/greet/files")) for path in taken.files]
    assert files == ["greet", "libraries"]
    # So a run made again takes these, and no others.
    assert not taken.libraries
    assert (directory.path / taken.files[1] / "libgreeting.so.1").is_file()


@NEEDS_CC
def test_a_library_that_is_not_there_is_named(tmp_path):
    made = program(tmp_path)
    (tmp_path / "libgreeting.so.1").unlink()
    with pytest.raises(ConfigError, match=r"^x: greet needs libgreeting\.so\.1, which this"):
        program_files.needed_by(made, "x")
