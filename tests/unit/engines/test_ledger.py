import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outcast.engines import ledger
from outcast.engines.ledger import Entry, ProcessMark
from outcast.errors import ConfigError


def dead_entry(folder: Path, **things: object) -> Entry:
    """A page of a dead run: its owner is a process that has ended."""
    entry = ledger.open_entry(folder)
    entry.owner = ProcessMark(pid=os.getpid(), start_ticks=1)
    for name, value in things.items():
        setattr(entry, name, value)
    entry.write()
    return entry


def left_folder(path: Path) -> Path:
    """A folder as a run leaves one when it is killed."""
    folder = path / ".half-done.17.partial"
    folder.mkdir()
    return folder


def setting(path: Path, value: str) -> str:
    """A file that stands for a setting of the machine."""
    path.write_text(value)
    return str(path)


def test_a_dead_runs_things_are_removed(tmp_path):
    folder = left_folder(tmp_path)
    (folder / "captures").mkdir()
    (folder / "log.txt").write_text("it began")
    allowed = setting(tmp_path / "allowed", "reno cubic")
    dead_entry(
        tmp_path / "ledger",
        folders=[str(folder)],
        settings={allowed: "reno"},
    )
    done = ledger.undo_dead(folder=tmp_path / "ledger")
    assert not folder.exists()
    assert Path(allowed).read_text() == "reno"
    assert len(done) == 2
    assert ledger.undo_dead(folder=tmp_path / "ledger") == []


def test_a_new_run_removes_what_dead_ones_left(tmp_path, monkeypatch):
    place = tmp_path / "ledger"
    monkeypatch.setattr(ledger, "default_folder", lambda: place)
    for number in range(2):
        left = tmp_path / f".left.{number}.partial"
        left.mkdir()
        dead_entry(place, folders=[str(left)])
    going_on = ledger.open_entry(place)
    told: list[str] = []
    mine = ledger.begin(told.append)
    (line,) = told
    assert line.startswith("left by a killed run: removed ")
    assert line.count(f"removed {tmp_path}/.left.") == 2
    assert not list(tmp_path.glob(".left*"))
    assert {page.file for page in ledger.read_entries(place)} == {mine.file, going_on.file}


def test_runs_that_begin_at_once_remove_what_is_left_once(tmp_path):
    left = left_folder(tmp_path)
    dead_entry(tmp_path / "ledger", folders=[str(left)])
    begin = (
        "import sys\nfrom pathlib import Path\nfrom outcast.engines import ledger\n"
        f"print(ledger.undo_dead(folder=Path({str(tmp_path / 'ledger')!r})))"
    )
    argv = [sys.executable, "-c", begin]
    runs = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = sorted(run.communicate(timeout=60)[0].strip() for run in runs)
    assert said == [f"['removed {left}']", *["[]"] * 3]


def test_a_run_does_not_wait_for_another_that_removes(tmp_path):
    dead_entry(tmp_path / "ledger", folders=[str(tmp_path / ".left.1.partial")])
    with open(tmp_path / "ledger/undo.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert ledger.undo_dead(folder=tmp_path / "ledger") == []
        assert len(ledger.read_entries(tmp_path / "ledger")) == 1


def test_a_process_that_has_ended_is_dead_though_nobody_waited_for_it():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        mark = ProcessMark.of(child.pid)
        child.stdin.close()
        # Waits without taking its number back, so it is a zombie then.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not mark.is_alive()


def test_a_process_with_a_reused_number_is_dead():
    mark = ProcessMark.of(os.getpid())
    assert mark.is_alive()
    assert not ProcessMark(pid=mark.pid, start_ticks=mark.start_ticks - 1).is_alive()


def test_what_could_not_be_undone_stays_for_the_next_time(tmp_path, monkeypatch):
    one, two = tmp_path / ".one.1.partial", tmp_path / ".two.1.partial"
    for folder in (one, two):
        folder.mkdir()
    dead_entry(tmp_path / "ledger", folders=[str(one), str(two)])
    real = shutil.rmtree

    def refusing(name: str) -> None:
        if name == str(one):
            raise PermissionError(13, "Permission denied", name)
        real(name)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refusing)
        done = ledger.undo_dead(folder=tmp_path / "ledger")
    assert done == [f"left {one}: Permission denied", f"removed {two}"]
    assert ledger.undo_dead(folder=tmp_path / "ledger") == [f"removed {one}"]


def test_a_folder_is_removed_but_nothing_that_a_link_leads_to(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    folder, link = left_folder(tmp_path), tmp_path / ".link.1.partial"
    (folder / "inner").symlink_to(tmp_path / "precious")
    link.symlink_to(tmp_path / "precious")
    dead_entry(tmp_path / "ledger", folders=[str(folder), str(link)])
    removed, left = ledger.undo_dead(folder=tmp_path / "ledger")
    assert removed == f"removed {folder}"
    assert left.startswith(f"left {link}: ")
    assert (tmp_path / "precious/file").exists()


def test_an_entry_on_disk_is_readable_by_its_owner_alone(tmp_path):
    entry = ledger.open_entry(tmp_path / "ledger")
    assert entry.file.parent.stat().st_mode & 0o077 == 0
    assert json.loads(entry.file.read_text())["owner"]["pid"] == os.getpid()
    entry.remove()
    assert list((tmp_path / "ledger").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_folder_of_another_user_is_refused(tmp_path):
    folder = tmp_path / "ledger"
    entry = dead_entry(folder)
    os.chown(folder, 12345, -1)
    for use in (lambda folder: ledger.undo_dead(folder=folder), ledger.open_entry):
        with pytest.raises(ConfigError, match="only you can write to"):
            use(folder)
    assert entry.file.exists()
