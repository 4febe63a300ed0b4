"""The runs that a reproduction needs: which are made, and which are taken from the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outcast.cli import reproduce as cli
from outcast.engines import choice
from outcast.reproduce import recipe, runs
from outcast.sweep import scheduler
from outcast.sweep.store import RESULT, SweepDirectory, locked
from outcast.sweep.task import Task
from tests.golden import fake_run
from tests.unit.test_sweep import Quiet


class Chosen:
    name = "virtual"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were asked for; each is made by the tests' executor, at once."""
    names: list[str] = []

    def make(tasks: list[Task], before: int, store: SweepDirectory, *_: object) -> object:
        names.extend(task.name for task in tasks)
        return scheduler.Report({}, (), None, scheduler.Progress(len(tasks) + before, before))

    # The sizes ask for an engine too.
    monkeypatch.setattr(choice, "choose", lambda asked: Chosen())
    monkeypatch.setattr(scheduler, "run", make)
    return names


def test_a_run_in_the_folder_of_another_is_made_again(tmp_path: Path, made: list[str]) -> None:
    planned = runs.planned_runs(recipe.load_all()["P3"], "quick")
    three = [planned[0], planned[1], planned[-1]]
    with locked(tmp_path) as store:
        for run in three:
            assert run.experiment is not None
            store.attempt(run.name).mkdir()
            fake_run.execute(run.experiment, store.attempt(run.name) / RESULT)
            store.accept(run.name)
        first, last = (store.run(run.name).path for run in (three[0], three[-1]))
        first.rename(tmp_path / "aside")
        last.rename(first)
        (tmp_path / "aside").rename(last)
        quiet = Quiet()
        needed = runs.needed(three, store, quiet.note)
        runs.make_missing(needed, store, 1, quiet)
        assert made == [three[0].name, three[-1].name]
        told = "".join(quiet.notes)
        assert all(f"set aside and made again: {path}: " in told for path in (first, last))
        assert [runs.finished(run, store) is None for run in three] == [True, False, True]


def test_the_time_of_a_reproduction_is_told_before_it_starts(
    tmp_path: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    planned = runs.planned_runs(recipe.load_all()["P3"], "quick")
    with locked(tmp_path) as store:
        needed = runs.needed(planned, store, Quiet().note)
        each_s = cli._expected(needed, 2)
        told = capsys.readouterr().err
        assert f"0 runs are finished, {len(planned)} are left\nestimate: about " in told
        assert each_s is not None
        assert each_s > 1
        assert cli._expected(replace(needed, missing={}, sizes={}), 2) is None
