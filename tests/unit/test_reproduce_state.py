"""Results know what made them, and a folder holds results of one state."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from outcast.errors import CommandError, ConfigError
from outcast.records.run_directory import GuestRecord, Manifest
from outcast.reproduce import state
from outcast.reproduce.result import ClaimRecord
from outcast.reproduce.state import MadeBy, State
from outcast.sweep.store import SweepDirectory, locked

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
    (folder / "outcast/reproduce").mkdir()
    for name in state._FILES:
        (folder / "outcast" / name).write_text("b = 1\n")
    (folder / ".git").mkdir()
    (folder / "outcast/analysis/a.py").write_text("a = 1\n")
    (folder / "outcast/view/v.py").write_text("v = 1\n")
    return folder


def test_the_code_is_that_which_decides_numbers(tmp_path: Path) -> None:
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


def test_a_commit_with_changes_says_so_and_no_checkout_has_none(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    assert state.present(folder, FakeGit("f" * 40, " M a.py")).commit == f"{'f' * 40}+changes"
    assert state.present(folder, FakeGit(None)).commit is None
    (folder / ".git").rmdir()
    assert state.present(folder, FakeGit("f" * 40)).commit is None


def test_this_checkout_has_a_commit() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=state._OURS, capture_output=True, text=True, check=False
    )
    if head.returncode:
        pytest.skip("no checkout")
    assert (state.present().commit or "").startswith(head.stdout.strip())


def test_a_folder_holds_runs_of_one_state(tmp_path: Path) -> None:
    with locked(tmp_path / "made") as store:
        assert state.hold(store, OURS) == OURS
        # Another commit with the same code makes the same numbers.
        later = OURS.model_copy(update={"commit": "b" * 40})
        assert state.hold(store, later) == OURS
        with pytest.raises(ConfigError) as refusal:
            state.hold(store, OURS.model_copy(update={"code": "0ther"}))
    assert str(refusal.value) == (
        f"{tmp_path / 'made'}: its runs are of code c0de (commit aaaaaaaaaaaa), and this is code "
        "0ther (commit aaaaaaaaaaaa); allowed is another folder (-o), which makes them anew"
    )


def test_results_of_a_state_that_nobody_recorded_are_not_continued(tmp_path: Path) -> None:
    (tmp_path / "P3").mkdir()
    (tmp_path / "P3/result.json").write_text("{}")
    with pytest.raises(ConfigError, match="of a state that was not recorded; allowed is another"):
        state.hold(SweepDirectory(tmp_path), OURS)
    assert not (tmp_path / state.FILE).exists()


def manifest(sha256: str, root: str | None, code: str | None = None) -> Manifest:
    guest = None if root is None else GuestRecord(root=root, code=code)
    kernel = {"release": "7.3.4", "sha256": sha256}
    return Manifest.model_construct(kernel=kernel, guest=guest)


def test_the_state_of_runs_has_their_kernel_and_root() -> None:
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


def test_a_computation_stands_beside_any_kernel_but_not_beside_other_code() -> None:
    run = State(**OURS.model_dump(), kernel="7.3.4", root="r")
    computed = run.model_copy(update={"kernel": None, "root": None})
    assert run.is_same(computed)
    assert not run.is_same(run.model_copy(update={"kernel": "6.1"}))
    assert not run.is_same(run.model_copy(update={"root": "s"}))
    assert not computed.is_same(computed.model_copy(update={"code": None}))
    unknown = State(outcast="0.1.0", commit=None, code=None, kernel="7.3.4", root=None)
    assert "of a state that was not recorded" in str(unknown)


@pytest.mark.parametrize("p", [-1, 2, 1e308])
def test_a_stored_p_that_is_no_probability_is_refused(p: float) -> None:
    claim = {"text": "", "rule": "", "mean": 1, "low": 1, "high": 1, "verdict": None}
    assert ClaimRecord.model_validate({**claim, "p": 1.0}).p == 1
    with pytest.raises(ValidationError, match="p\n"):
        ClaimRecord.model_validate({**claim, "p": p})
