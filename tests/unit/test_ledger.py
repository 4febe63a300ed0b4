from __future__ import annotations

import os
import subprocess
from pathlib import Path

from outcast import ledger
from outcast.ledger import Entry, ProcessMark


def dead_entry(folder: Path, **things: object) -> Entry:
    """A page whose run is dead: its owner is a process that has ended."""
    entry = ledger.open_entry(folder)
    entry.owner = ProcessMark(pid=os.getpid(), start_ticks=1)
    for name, value in things.items():
        setattr(entry, name, value)
    entry.write()
    return entry


def test_a_dead_runs_things_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "half-done"
    (folder / "captures").mkdir(parents=True)
    setting = tmp_path / "allowed"
    setting.write_text("reno cubic")
    child = subprocess.Popen(["sleep", "60"])
    try:
        dead_entry(
            tmp_path / "ledger",
            processes=[ProcessMark.of(child.pid)],
            folders=[str(folder)],
            settings={str(setting): "reno"},
        )
        done = ledger.clean(tmp_path / "ledger")
        assert child.wait(5) != 0
    finally:
        child.kill()
        child.wait()
    assert not folder.exists()
    assert setting.read_text() == "reno"
    assert len(done) == 3
    assert ledger.clean(tmp_path / "ledger") == []


def test_a_running_runs_things_stay(tmp_path: Path) -> None:
    folder = tmp_path / "busy"
    folder.mkdir()
    entry = ledger.open_entry(tmp_path / "ledger")
    entry.folders.append(str(folder))
    entry.write()
    assert ledger.clean(tmp_path / "ledger") == []
    assert folder.exists()


def test_a_process_with_a_reused_number_is_spared(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        mark = ProcessMark.of(child.pid)
        dead_entry(tmp_path / "ledger", processes=[ProcessMark(mark.pid, mark.start_ticks - 1)])
        assert ledger.clean(tmp_path / "ledger") == []
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_pages_that_are_no_pages_are_passed_by(tmp_path: Path) -> None:
    (tmp_path / "run-1.json").write_text("{")
    (tmp_path / "other.txt").write_text("x")
    assert ledger.clean(tmp_path) == []
    assert (tmp_path / "other.txt").exists()


def test_a_dead_runs_settings_are_put_back_before_the_next_run(tmp_path: Path) -> None:
    setting, folder = tmp_path / "stamps", tmp_path / "half-done"
    setting.write_text("0")
    folder.mkdir()
    dead_entry(tmp_path / "ledger", settings={str(setting): "1"}, folders=[str(folder)])
    ledger.restore_settings(tmp_path / "ledger")
    assert setting.read_text() == "1"
    setting.write_text("7")
    assert ledger.clean(tmp_path / "ledger") == [f"removed {folder}"]
    assert setting.read_text() == "7"
