from __future__ import annotations

from pathlib import Path

from scripts import reference

ROOT = Path(__file__).parents[2]


def test_the_reference_and_the_schema_are_up_to_date() -> None:
    hint = "run: python scripts/reference.py"
    assert (ROOT / "docs/config.md").read_text() == reference.markdown(), hint
    for_students = ROOT / "outcast/assignment/pages/config.md"
    assert for_students.read_text() == reference.markdown_alone(), hint
    assert "](" not in for_students.read_text()
    noise = (ROOT / "docs/noise.md").read_text()
    assert noise == reference.with_profiles(noise), hint
    assert (ROOT / "configs/schema.json").read_text() == reference.schema_text(), hint
