"""Every mutation of tests/golden/mutations.py still finds the text that it replaces."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.golden import mutations
from tests.golden.mutation import Mutation
from tests.golden.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_its_module(mutation: Mutation) -> None:
    text = mutation.path(ROOT).read_text()
    assert text.replace(mutation.text, mutation.replacement) != text


def test_the_tests_that_are_run_exist() -> None:
    names = {name for mutation in MUTATIONS for name in mutation.tests}
    assert [name for name in names if not (ROOT / f"tests/unit/test_{name}.py").exists()] == []


def test_mutations_run_as_a_user_who_owns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(mutations.subprocess, "run", run)
    assert mutations.passes(tmp_path, ["ledger"])
    ((first, *words),) = started
    assert first == "unshare"
    assert {"--mount", "--pid", f"--reuid={mutations.OWNS_NOTHING}", "--clear-groups"} <= {*words}
    monkeypatch.setattr(mutations.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="root is needed"):
        mutations.main()
