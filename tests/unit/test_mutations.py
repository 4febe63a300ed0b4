"""Every mutation of tests/golden/mutations.py still finds the text that it replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.mutations import MUTATIONS, TESTS, Mutation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_its_module(mutation: Mutation) -> None:
    text = mutation.path(ROOT).read_text()
    assert text.replace(mutation.text, mutation.replacement) != text


def test_the_tests_that_are_run_exist() -> None:
    assert [name for name in TESTS if not (ROOT / f"tests/unit/test_{name}.py").exists()] == []
