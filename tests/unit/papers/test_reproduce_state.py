"""Results know what made them; which runs they need, and their settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outcast.errors import CommandError, ConfigError, FeatureMissingError
from outcast.experiment import load
from outcast.plan.model import Planned
from outcast.records.run_directory import GuestRecord, Manifest
from outcast.sweep import scheduler
from outcast.sweep import store as sweeps
from outcast.sweep.pool import Task
from outcast.sweep.store import RESULT, SweepDirectory, locked
from outcast.uses.papers import recipe, runs, state
from outcast.uses.papers.recipe import load_all
from outcast.uses.papers.state import MadeBy, State
from scripts import reproduction_settings as settings
from tests.golden import fake_run
from tests.unit.sweep.test_sweep import Quiet

OURS = MadeBy(outcast="0.1.0", commit="a" * 40, code="c0de")


class FakeGit:
    def __init__(self, commit: str | None, changes: str = "") -> None:
        self.answers = {"rev-parse": commit, "status": changes}

    def run(self, argv: Sequence[str], **_: Any) -> str:
        answer = self.answers[argv[1]]
        if answer is None:
            raise CommandError(list(argv), 128, "no repository")
        return f"{answer}\n"


def checkout(folder: Path) -> Path:
    (folder / "outcast/analysis").mkdir(parents=True)
    (folder / "outcast/view").mkdir()
    (folder / "outcast/uses/papers").mkdir(parents=True)
    for name in state._FILES:
        (folder / "outcast" / name).write_text("b = 1\n")
    (folder / ".git").mkdir()
    (folder / "outcast/analysis/a.py").write_text("a = 1\n")
    (folder / "outcast/view/v.py").write_text("v = 1\n")
    return folder


def test_the_code_is_that_which_decides_numbers(tmp_path):
    folder = checkout(tmp_path)
    git = FakeGit("f" * 40)
    first = state.present(folder, git)
    assert first.commit == "f" * 40
    (folder / "outcast/view/v.py").write_text("v = 2\n")
    assert state.present(folder, git) == first
    (folder / "outcast/analysis/a.py").write_text("a = 2\n")
    second = state.present(folder, git)
    assert second.code != first.code
    (folder / "outcast/netlink.py").write_text("b = 2\n")
    assert state.present(folder, git).code != second.code


def test_a_commit_with_changes_says_so_and_no_checkout_has_none(tmp_path):
    folder = checkout(tmp_path)
    assert state.present(folder, FakeGit("f" * 40, " M a.py")).commit == f"{'f' * 40}+changes"
    assert state.present(folder, FakeGit(None)).commit is None
    (folder / ".git").rmdir()
    assert state.present(folder, FakeGit("f" * 40)).commit is None


def test_a_folder_holds_runs_of_one_state(tmp_path):
    with locked(tmp_path / "made") as store:
        assert state.hold(store, OURS) == OURS
        # Another commit with the same code makes the same numbers.
        later = OURS.model_copy(update={"commit": "b" * 40})
        assert state.hold(store, later) == OURS
        with pytest.raises(ConfigError) as refusal:
            state.hold(store, OURS.model_copy(update={"code": "0ther"}))
    assert str(refusal.value) == (
        f"{tmp_path / 'made'}: its runs are of code c0de (commit aaaaaaaaaaaa), and this is code "
        "0ther (commit aaaaaaaaaaaa); allowed is another folder (-o), which makes them again"
    )


def manifest(sha256: str, root: str | None, code: str | None = None) -> Manifest:
    guest = None if root is None else GuestRecord(root=root, code=code)
    kernel = {"release": "7.3.4", "sha256": sha256}
    return Manifest.model_construct(kernel=kernel, guest=guest)


def test_the_state_of_runs_has_their_kernel_and_root():
    made = state.of_runs(OURS, [manifest("0123456789abcdef", "fedcba9876543210")] * 2)
    assert str(made) == (
        "outcast 0.1.0 (commit aaaaaaaaaaaa, code c0de), kernel 7.3.4 0123456789ab, "
        "root fedcba987654"
    )
    assert state.of_runs(OURS, []).kernel is None
    with pytest.raises(ConfigError, match=r"different kernels: 7\.3\.4 01 and 7\.3\.4 23"):
        state.of_runs(OURS, [manifest("01", "r"), manifest("23", "r")])
    with pytest.raises(ConfigError, match="different roots: host and r"):
        state.of_runs(OURS, [manifest("01", "r"), manifest("01", None)])
    with pytest.raises(ConfigError, match="different codes in the guest: c and d"):
        state.of_runs(OURS, [manifest("01", "r", "c"), manifest("01", "r", "d")])


def test_a_computation_stands_beside_any_kernel_but_not_beside_other_code():
    run = State(**OURS.model_dump(), kernel="7.3.4", root="r")
    computed = run.model_copy(update={"kernel": None, "root": None})
    assert run.is_same(computed)
    assert not run.is_same(run.model_copy(update={"kernel": "6.1"}))
    assert not run.is_same(run.model_copy(update={"root": "s"}))
    assert not computed.is_same(computed.model_copy(update={"code": "other"}))


RECIPES = load_all()
SOURCES = settings.of_sources()
NO_SOURCE = {"T5", "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9"}


def test_every_row_of_a_source_has_its_settings():
    assert {*SOURCES} == {*RECIPES} - NO_SOURCE
    assert not [name for name in NO_SOURCE if RECIPES[name].departs]


@pytest.mark.parametrize("name", SOURCES)
def test_what_differs_is_declared(name):
    assert settings.undeclared(RECIPES[name], SOURCES[name]) == []


class Chosen:
    name = "virtual"


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """The names of the runs that were asked for; each is made by the tests' executor, at once."""
    names: list[str] = []

    def make(tasks: list[Task], before: int, store: SweepDirectory, *_: object) -> object:
        names.extend(task.name for task in tasks)
        return scheduler.Progress(len(tasks) + before, before)

    # The sizes ask for an engine too.
    monkeypatch.setattr("outcast.engines.choose", lambda asked: Chosen())
    monkeypatch.setattr(scheduler, "run", make)
    return names


def test_a_module_names_runs_by_its_bytes(tmp_path):
    """So a store goes on in another checkout, whose folders have other names."""
    names = []
    for folder, source in (("one", "int a;"), ("two", "int a;"), ("three", "int b;")):
        (tmp_path / folder).mkdir()
        module = tmp_path / folder / "sch_own.c"
        module.write_text(source)
        own = [f"kernel={{modules: [{module}]}}", "queue={kind: custom, qdisc: own, options: [1]}"]
        names.append(runs._digest(load(Path("configs/fig3c.yaml"), own)))
    assert names[0] == names[1] != names[2]


def test_a_run_in_the_folder_of_another_is_made_again(tmp_path, made):
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


def test_captures_of_ports_that_a_point_names_stay(tmp_path, made):
    """A measure reads them, so a run that lost them is made again."""
    (run, *_), (other, *_) = (
        runs.planned_runs(recipe.load_all()[figure], "quick") for figure in ("P2", "P3")
    )
    with locked(tmp_path) as store:
        for each in (run, other):
            assert each.experiment is not None
            store.attempt(each.name).mkdir()
            fake_run.execute(each.experiment, store.attempt(each.name) / RESULT)
            store.accept(each.name)
            sweeps.reduce(store.run(each.name), "drop")
        quiet = Quiet()
        needed = runs.needed([run, other], store, quiet.note)
        assert needed.kept == {run.name: "compress", other.name: "drop"}
        assert list(needed.missing) == [run.name]


def test_what_a_machine_cannot_make_is_left_out_with_the_reason(tmp_path, made, monkeypatch):
    """As on a kernel without the qdisc of a control, in real time."""
    planned = runs.planned_runs(recipe.load_all()["P3"], "quick")

    def choose(asked: Planned) -> Chosen:
        if asked.experiment.queue.kind == "sfq":
            raise FeatureMissingError("this kernel has no qdisc sfq")
        return Chosen()

    monkeypatch.setattr("outcast.engines.choose", choose)
    controls = [run.name for run in planned if run.experiment.queue.kind == "sfq"]
    with locked(tmp_path) as store:
        quiet = Quiet()
        needed = runs.needed(planned, store, quiet.note)
        why = "this kernel has no qdisc sfq"
        assert quiet.notes == [f"{len(controls)} runs cannot be made here: {why}"]
        failed = runs.make_missing(needed, store, 1, quiet)
        assert sorted(made) == sorted(run.name for run in planned if run.name not in controls)
        assert {name: run.message for name, run in failed.items()} == dict.fromkeys(controls, why)
    with locked(tmp_path / "none") as store, pytest.raises(FeatureMissingError, match=why):
        runs.needed([run for run in planned if run.name in controls], store, quiet.note)
