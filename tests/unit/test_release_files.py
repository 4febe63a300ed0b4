"""The files that a stranger looks for before he depends on a project: they agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import outcast

ROOT = Path(__file__).parents[2]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_version_and_its_date_are_the_same_everywhere() -> None:
    citation = read("CITATION.cff")
    heading = re.search(r"^## (\d\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading is not None
    assert heading.groups() == (citation["version"], citation["date-released"])
    assert citation["version"] == outcast.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_hosted_ci_runs_what_ci_runs_and_nothing_else() -> None:
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert "NOT run on a hosted service" in (ROOT / ".github/workflows/ci.yml").read_text()


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: str(path.name)
)
def test_a_template_is_yaml_with_what_the_site_needs(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name == "ISSUE_TEMPLATE" and path.stem != "config":
        assert {"name", "description", "body"} <= content.keys()
        fields = [part["id"] for part in content["body"] if part["type"] != "markdown"]
        assert len(set(fields)) == len(fields) > 0


def test_the_readme_leads_to_support_safety_and_citation() -> None:
    text = (ROOT / "README.md").read_text()
    assert "**Support**" in text
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "CHANGELOG.md"):
        assert f"({name})" in text
        assert (ROOT / name).is_file()
