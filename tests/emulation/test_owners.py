"""Two users on one machine, sudo, full disks and mounts, which only root can set up."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcast import files
from tests.golden import model
from tests.golden.run_directory import write_run
from tests.guest_runs import OUTCAST, outcast

NOBODY = 65534
CONFIGS = Path(__file__).parents[2] / "configs"
FIG3C = CONFIGS / "fig3c.yaml"


def make_run(folder: Path) -> None:
    """A run directory of some 300 KB whose captures can be analysed."""
    folder.mkdir()
    traffic = model.drop_tail(model.make_traffic(7, 2_000), 16_384, 10**9)
    write_run(folder, traffic, 100_000_000)


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_what_root_made_is_given_to_who_called_by_sudo(tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    (tmp_path / "secret").write_text("root's")
    os.link(tmp_path / "secret", tmp_path / "secret too")
    folder = tmp_path / "run"
    (folder / "captures").mkdir(parents=True)
    (folder / "captures/a.pcap").write_text("")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    os.link(tmp_path / "secret", folder / "second name")
    (folder / "another's").write_text("")
    os.chown(folder / "another's", 77, 77)
    files.hand_over(folder)
    assert (tmp_path / "secret").stat().st_uid == 0
    assert tmp_path.stat().st_uid == 0
    assert (folder / "another's").stat().st_uid == 77
    for name in (".", "captures", "captures/a.pcap"):
        assert (folder / name).stat().st_uid == 1234
        assert (folder / name).stat().st_gid == 1234


def test_results_under_sudo_belong_to_who_called(tmp_path):
    sudo = {"SUDO_UID": "1234", "SUDO_GID": "1234"}
    made = tmp_path / "made"
    made.mkdir()
    done = outcast("assignment", "new", "hw1", "-o", str(made / "deep/hw1"), **sudo)
    assert done.returncode == 0, done.stderr
    assert owners(made / "deep") == {1234}
    done = outcast("topo", str(FIG3C), "--png", str(made / "fig.png"), **sudo)
    assert done.returncode == 0, done.stderr
    assert (made / "fig.png").stat().st_uid == 1234
    short = ("--set", "duration=500ms", "--set", "analysis.windows=[500ms]")
    target = made / "results/run"
    done = outcast("run", str(CONFIGS / "linear-12.yaml"), *short, "-o", str(target), **sudo)
    assert done.returncode == 0, done.stderr
    assert owners(made / "results") == {1234}


def test_a_full_disk_is_one_line_and_nothing_half_is_left(small):
    run = small / "run"
    make_run(run)
    before = sorted(path.name for path in run.iterdir())
    ballast = os.open(small / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(ballast, bytes(4096))
    finally:
        os.close(ballast)
    for argv in (
        ("report", str(run)),
        ("analyze", str(run)),
        ("topo", str(FIG3C), "--png", str(small / "fig.png")),
        ("assignment", "new", "hw1", "-o", str(small / "hw1")),
        ("run", str(FIG3C), "--engine", "virtual", "-o", str(small / "new")),
        ("sweep", str(FIG3C), "--set", "engine=virtual", "-o", str(small / "sweep")),
    ):
        done = outcast(*argv)
        assert done.returncode in (1, 2), (argv, done)
        last = done.stderr.splitlines()[-1]
        assert last.startswith("outcast: "), (argv, done.stderr)
        assert "No space left" in last or argv[0] == "report", (argv, done.stderr)
        assert "Traceback" not in done.stderr
    with (small / "output").open("w") as full:
        argv = [*OUTCAST, "topo", str(FIG3C)]
        said = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert said.stderr == "outcast: standard output: No space left on device\n"
    assert sorted(path.name for path in run.iterdir()) == before
    assert not (small / "fig.png").exists()
    assert not (small / "hw1/task.md").exists()
