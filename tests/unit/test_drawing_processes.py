"""Figures drawn beside a run: the same files, errors in one line, nothing left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outcast.emulation.commands import python_module
from outcast.engines.ledger import ProcessMark
from outcast.errors import DeadlineError, FeatureMissingError, InputError, RunError, UntrustedError
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


def test_what_is_wrong_is_said_as_in_this_process(tmp_path):
    directory = RunDirectory(tmp_path)
    with pytest.raises(InputError) as here:
        figures.draw(directory)
    with Drawing(directory) as processes, pytest.raises(InputError) as beside:
        processes.draw()
    assert str(beside.value) == str(here.value)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("os.read(0, 1); raise ValueError('no colours')", "exit status 1: ValueError: no colours"),
        ("os.kill(os.getpid(), signal.SIGKILL)", r"killed by signal 9 \(SIGKILL\)"),
    ],
)
def test_a_process_that_ends_is_one_line(tmp_path, monkeypatch, script, said):
    by_script(monkeypatch, script)
    with Drawing(RunDirectory(tmp_path)) as processes:
        with pytest.raises(RunError, match=f"^the process that draws the figures.*{said}$") as told:
            processes.draw()
        assert "\n" not in str(told.value)


def test_a_library_that_is_missing_is_a_feature(tmp_path, monkeypatch):
    broken = "raise ImportError('libfreetype.so.6: cannot open shared object file')"
    (tmp_path / "matplotlib.py").write_text(broken)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        Drawing(RunDirectory(tmp_path / "run")) as processes,
        pytest.raises(FeatureMissingError, match=r"libfreetype.*file; scripts/install\.sh"),
    ):
        processes.draw()


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


def test_a_wait_without_end_ends(tmp_path, monkeypatch):
    by_script(monkeypatch, "time.sleep(1000)")
    with (
        Drawing(RunDirectory(tmp_path), longest_s=0.05) as processes,
        pytest.raises(DeadlineError, match="for the figures"),
    ):
        processes.draw()


def test_a_process_that_does_not_end_is_left_behind(tmp_path, monkeypatch):
    by_script(monkeypatch, "time.sleep(1000)")
    monkeypatch.setattr(drawing, "_END_S", 0.05)
    # As one that waits for a disk, which no signal ends.
    monkeypatch.setattr(os, "killpg", lambda group, number: None)
    with Drawing(RunDirectory(tmp_path)) as processes:
        mark = ProcessMark.of(processes.pid)
    assert mark.is_alive()
    os.kill(mark.pid, signal.SIGKILL)
    processes._popen.wait(_DEADLINE_S)


def test_all_end_when_we_are_killed(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from outcast.records.run_directory import RunDirectory\n"
        "from outcast.view.drawing import Drawing\n"
        f"print(Drawing(RunDirectory(Path({str(tmp_path)!r}))).pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        first = ProcessMark.of(int(owner.stdout.readline()))
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children")
        end = time.monotonic() + _DEADLINE_S
        while not (numbers := children.read_text().split()):
            assert time.monotonic() < end
            time.sleep(0.05)
        marks = [first, *(ProcessMark.of(int(number)) for number in numbers)]
        os.kill(owner.pid, signal.SIGKILL)
    while any(mark.is_alive() for mark in marks):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_run_imports_what_reads_results_while_it_goes_on():
    """Before the guest boots nothing waits for polars, and for matplotlib nothing ever does."""
    code = (
        "import sys, outcast.cli.run, outcast.workflow\n"
        "from outcast.api import experiments, guest, making\n"
        "from outcast.engines import choice, virtual\n"
        "print([name for name in ('numpy', 'polars', 'pyroute2') if name in sys.modules])\n"
        "import outcast.api.runs\n"
        "from outcast.analysis import run_analysis\n"
        "from outcast.view.terminal import tables\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False"]


def test_it_does_not_outlive_a_process_that_was_killed_at_once():
    argv = [*python_module("outcast.view.drawing"), "run", str(os.getpid() + 1)]
    done = subprocess.run(argv, stdin=subprocess.PIPE, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 1
