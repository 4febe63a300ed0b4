"""Our code and our programs in C for the guest: what is taken, its name, and that it is whole."""

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outcast.emulation import c_programs
from outcast.engines.chroot import Programs
from outcast.engines.guest import code, world
from outcast.engines.guest.roots import Root

PROGRAMS = {program.name: b"\x7fELF" for program in c_programs.IN_GUEST}


class ThisPython:
    """Compiles by the Python of the tests, in place of a root's."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, argv: Sequence[str], *, cwd: Path, environment: Any = None, **_: Any) -> str:
        self.calls += 1
        assert argv[0].endswith("ld-linux-x86-64.so.2")
        return Programs().run([sys.executable, *argv[4:]], cwd=cwd, environment=environment)


def root(folder: Path, key: str = "of-the-root") -> Root:
    return Root(folder, key, "of-the-lock", {})


def provide(tmp_path: Path, run: Programs | None = None, **changes: str) -> code.Code:
    made = root(tmp_path / "root", **changes)
    return code.provide(made, PROGRAMS, folder=tmp_path / "cache", run=run or ThisPython())


def test_the_code_alone_is_enough_for_the_inner_program(tmp_path):
    place = provide(tmp_path).layer / world.CODE.removeprefix("/")
    argv = [
        sys.executable,
        "-P",
        "-c",
        "import outcast.emulation.inner_run, outcast as o; print(o)",
    ]
    for module in (
        "outcast.emulation.programs.launch",
        "outcast.emulation.network.changes",
        "controllers",
    ):
        argv[-1] = f"import {module}; {argv[-1]}"
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(place) in done.stdout
    # What people look at results with is not there.
    assert not (place / "outcast/view").exists()
    assert not list(place.rglob("*.c"))


def test_the_code_is_the_same_under_any_umask_and_at_any_time(tmp_path):
    before = os.umask(0o077)
    try:
        made = provide(tmp_path)
    finally:
        os.umask(before)
    for path in (made.layer, *made.layer.rglob("*")):
        status = path.lstat()
        is_program = path.parent == made.layer / "opt/outcast/programs"
        mode = 0o755 if path.is_dir() or is_program else 0o644
        assert (stat.S_IMODE(status.st_mode), status.st_mtime) == (mode, 1_000_000_000)
    compiled = list(made.layer.rglob("*.pyc"))
    assert len(compiled) == len(list(made.layer.rglob("*.py"))) > 50
    for path in compiled:
        # Unchecked: the flags say so (PEP 552). No path of the host is in it.
        assert path.read_bytes()[4:8] == b"\1\0\0\0"
        assert str(tmp_path).encode() not in path.read_bytes()


def test_the_key_names_all_that_is_in_it(tmp_path, monkeypatch):
    run = ThisPython()
    first = provide(tmp_path, run)
    calls = run.calls
    assert provide(tmp_path, run) == first
    assert run.calls == calls
    assert provide(tmp_path, key="another").key != first.key
    monkeypatch.setitem(PROGRAMS, "stream", b"other")
    assert provide(tmp_path).key != first.key
    monkeypatch.undo()
    contents = code.sources()
    contents["outcast/units.py"] += b"# other\n"
    monkeypatch.setattr(code, "sources", lambda: contents)
    assert provide(tmp_path).key != first.key


def test_changed_code_is_built_again(tmp_path):
    run = ThisPython()
    made = provide(tmp_path, run)
    calls = run.calls
    path = sorted(made.layer.rglob("*.pyc"))[0]
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(whole[:-1] + b"?")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert code.find(made.key, tmp_path / "cache") is None
    assert provide(tmp_path, run) == made
    assert run.calls == 2 * calls
    assert path.read_bytes() == whole
    (made.layer / "added").write_bytes(b"")
    assert provide(tmp_path, run) == made
    assert run.calls == 3 * calls
    assert not (made.layer / "added").exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [made.key]


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    """Our programs, as a compiler of the key `one` made them. Each has its name in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = code.programs_folder("one")
    folder.mkdir(parents=True)
    for program in c_programs.IN_GUEST:
        (folder / program.name).write_bytes(program.name.encode())
    code.write_hashes(folder)
    return folder


def test_programs_are_named_by_their_sources_and_their_compiler(kept, tmp_path, monkeypatch):
    assert kept == code.programs_folder("one") != code.programs_folder("another")
    assert code.find_programs("another") is None
    assert code.find_programs("one") == {p.name: p.name.encode() for p in c_programs.IN_GUEST}
    source = tmp_path / "tcprand.c"
    source.write_text("int other;\n")
    other = c_programs.CProgram("tcprand.so", (source,))
    monkeypatch.setattr(
        c_programs, "IN_GUEST", (c_programs.IN_GUEST[0], other, *c_programs.IN_GUEST[2:])
    )
    assert code.programs_folder("one") != kept


def test_ready_programs_are_taken_and_others_compiled(tmp_path, monkeypatch):
    class Compiles:
        argv: Sequence[str] = ()

        def run(self, argv: Sequence[str]) -> str:
            self.argv = argv
            return ""

    commands = Compiles()
    assert c_programs.provide(c_programs.STREAM, tmp_path, commands) == tmp_path / "stream"
    assert list(commands.argv[:4]) == ["cc", "-O2", "-o", str(tmp_path / "stream")]
    assert commands.argv[-1] == "-lm"
    monkeypatch.setenv(c_programs.READY, "/opt/ready")
    assert c_programs.provide(c_programs.TCPRAND, tmp_path, None) == Path("/opt/ready/tcprand.so")
