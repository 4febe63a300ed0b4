"""`import outcast`: its members, and that each does what its verb does, in any Python program."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import outcast
from outcast import errors
from outcast.engines import ledger
from outcast.experiment import load as load_experiment
from outcast.records.run_directory import RunDirectory
from outcast.sweep import scheduler
from tests.golden import fake_run
from tests.golden.run_directory import make_run

CONFIGS = Path(__file__).parents[3] / "configs"
FIG3C = CONFIGS / "fig3c.yaml"


class GoldenEngine:
    """Leaves the golden captures in place of a network's."""

    name: Literal["realtime", "virtual"] = "virtual"

    def require(self, experiment: object, plan: object) -> None:
        """Nothing is missing."""

    def run(self, directory: RunDirectory, entry: object, on_event: Any) -> Mapping[str, float]:
        on_event({"event": "phase", "phase": "setup"})
        golden = make_run(directory.path / "golden", 20_000_000, 9, 1_000)
        for path in golden.path.iterdir():
            shutil.move(path, directory.path / path.name)
        golden.path.rmdir()
        return {"setup": 0.1}


@pytest.fixture
def golden(tmp_path, monkeypatch) -> Path:
    """A folder to run in, on an engine that takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ledger, "default_folder", lambda: tmp_path / "ledger")
    monkeypatch.setattr("outcast.engines.choose", lambda *asked: GoldenEngine())
    monkeypatch.setattr("outcast.api.guest.provide", lambda experiment, progress=None: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    directory = make_run(tmp_path_factory.mktemp("run") / "run", 20_000_000, 9, 1_000)
    return outcast.analyze(directory.path).path


def test_the_members_are_these():
    assert outcast.__all__ == sorted(outcast.__all__)
    for name in outcast.__all__:
        member = getattr(outcast, name)
        assert name == "__version__" or member.__doc__, name
    raised = {
        name
        for name, member in vars(errors).items()
        if isinstance(member, type)
        and issubclass(member, errors.OutcastError)
        # Parts of a RunError that only the inner program tells apart.
        and member not in (errors.CommandError, errors.DeadlineError, errors.ReadBackError)
        and member is not errors.ProcessLostError
        # A GuestError that only the virtual engine tells apart.
        and member is not errors.StallError
        # A FeatureMissingError of the wheel outcast-test.
        and member is not errors.NoAnalysisError
        # Only the command line is stopped; Python programs get KeyboardInterrupt.
        and member is not errors.StoppedError
    }
    assert raised <= set(outcast.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'runs'"):
        _ = outcast.runs
    assert dir(outcast) == outcast.__all__


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_nothing():
    code = (
        "import sys; before = set(sys.modules)\n"
        "import outcast\n"
        "print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}))"
    )
    loaded = set(python(code).split())
    assert loaded & {"matplotlib", "numpy", "polars", "pydantic", "rich", "yaml"} == set()


def test_an_experiment_with_overrides():
    experiment = outcast.load(
        str(FIG3C), {"flows.1.hosts": 6, "seed": np.int64(4), "analysis.windows": ("100ms",)}
    )
    assert isinstance(experiment, outcast.Experiment)
    assert (experiment.flows[1].hosts, experiment.seed) == (6, 4)
    assert experiment == load_experiment(
        FIG3C, ["flows.1.hosts=6", "seed=4", "analysis.windows=[100ms]"]
    )


@pytest.mark.usefixtures("pictures")
def test_a_run_from_the_experiment_to_its_figures(golden):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    environment = dict(os.environ)
    run = outcast.run(outcast.load(FIG3C), "results/one", progress=False)
    assert run.path == Path("results/one")
    assert repr(run) == "Run('results/one')"
    assert (run.trusted, run.reasons) == (True, [])
    assert run.summary.outcast_ratio is not None
    assert run.table("packets").height > 0
    assert (run.path / "report.html").exists()
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert environment == dict(os.environ)
    (default,) = (golden / "results").glob("one")
    assert outcast.open_run(default).summary == run.summary
    with pytest.raises(outcast.ConfigError, match="results/one: exists already"):
        outcast.run(outcast.load(FIG3C), "results/one")


def test_a_run_that_is_none_is_refused_at_once(tmp_path):
    (tmp_path / "elsewhere").symlink_to("/")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.yaml").touch()
    with pytest.raises(outcast.InputError, match="is a sweep; `outcast results "):
        outcast.open_run(tmp_path / "sweep")
    for path, why in (
        (tmp_path, r"no manifest\.json; a folder that"),
        (tmp_path / "none", "there is no such folder"),
    ):
        with pytest.raises(outcast.InputError, match=why):
            outcast.open_run(path)
        with pytest.raises(outcast.InputError, match=why):
            outcast.analyze(path)
        with pytest.raises(outcast.InputError, match=r"no sweep\.yaml; a folder that"):
            outcast.open_sweep(path)


@pytest.fixture
def faked(golden, monkeypatch) -> Path:
    """A folder for sweeps whose runs take no time."""
    monkeypatch.setattr(
        scheduler.run_sweep,
        "__kwdefaults__",
        {**(scheduler.run_sweep.__kwdefaults__ or {}), "executor": fake_run.NAME},
    )
    return golden


def test_a_sweep_from_the_experiment_to_its_table(faked):
    limits = ["16KB", "64KB"]
    sweep = outcast.run_sweep(
        outcast.load(FIG3C),
        {"queue.limit": limits},
        repetitions=2,
        jobs=2,
        directory=faked / "s",
        progress=False,
    )
    table = sweep.table()
    assert table.height == 4
    assert sorted(set(table["queue.limit"])) == limits
    assert (sweep.complete, sweep.failures, sweep.disagreeing, sweep.left) == (True, {}, {}, [])
    opened = outcast.open_sweep(faked / "s")
    assert opened.table().equals(table)
    assert opened.flows().height >= 4
    assert opened.experiment.repetitions == 2
    assert opened.run(table["run"][0]).summary.outcast_ratio == table["outcast_ratio"][0]
    assert repr(opened) == f"Sweep({str(faked / 's')!r})"
    with pytest.raises(outcast.InputError, match="no finished run x; the 4"):
        opened.run("x")
    with pytest.raises(outcast.ConfigError, match="holds a sweep already"):
        outcast.run_sweep(outcast.load(FIG3C), {"seed": [1]}, directory=faked / "s")
