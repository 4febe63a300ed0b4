"""Figures drawn beside a run: the same files, errors in one line, nothing left behind."""

import contextlib
import json
import os
import sys
import time

import pytest

from outcast.errors import UntrustedError
from outcast.records.run_directory import RunDirectory
from outcast.view import drawing, figures, report
from outcast.view.drawing import Drawing
from tests.golden.run_directory import analysed_run

_DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("drawing") / "run", 40_000_000, 9, 3_000)


def by_script(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Has a Python script draw."""
    argv = [sys.executable, "-S", "-c", f"import os, signal, time\n{script}"]
    monkeypatch.setattr(drawing, "python_module", lambda name: argv)


@pytest.mark.usefixtures("pictures")
def test_the_same_files_in_the_same_order_whatever_the_user_has(run, tmp_path, monkeypatch):
    # Of a user's environment, perhaps for another matplotlib.
    monkeypatch.setenv("MPLBACKEND", "unknown")
    (tmp_path / "matplotlibrc").write_text(
        "text.usetex: True\nfont.size: 30\nlines.linewidth: 9\naxes.facecolor: red\n"
    )
    monkeypatch.setenv("MATPLOTLIBRC", str(tmp_path))
    paths = [*figures.draw(run), report.write(run)]
    expected = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    # It has no data, so its file of an earlier analysis goes.
    (run.path / "rtt.png").write_text("old")
    with Drawing(run) as processes:
        assert processes.draw() == paths
    assert [path.read_bytes() for path in paths] == expected
    assert not (run.path / "rtt.png").exists()
    assert not list(run.path.glob(".*"))


def test_an_error_keeps_its_class_and_nothing_is_left(tmp_path, monkeypatch):
    line = json.dumps({"error": "UntrustedError", "message": "packets contradict"})
    by_script(
        monkeypatch,
        f"os.write(1, {line.encode()!r})\nif os.fork(): os._exit(1)\nos.close(1)\ntime.sleep(1000)",
    )
    with Drawing(RunDirectory(tmp_path)) as processes:
        with pytest.raises(UntrustedError, match=r"^packets contradict$"):
            processes.draw()
        os.killpg(processes.pid, 0)
    end = time.monotonic() + _DEADLINE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(processes.pid, 0)
            time.sleep(0.01)
        pytest.fail("a process is left")
