"""Files with a format version, and the one comparison of a run's files with its manifest."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel

from outcast import handed_in
from outcast.records import kept_captures
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.records.summary import Summary
from tests.golden.run_directory import analysed_run

RECORDS: Mapping[str, type[BaseModel]] = {"manifest.json": Manifest, "summary.json": Summary}


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    directory = analysed_run(tmp_path / "run", 20_000_000, 1, 300)
    directory.seal()
    return directory


def newest(record: type[BaseModel]) -> int:
    return int(record.model_fields["format"].default)


def with_format(path: Path, number: object) -> None:
    tree = json.loads(path.read_text())
    assert tree.pop("format") == newest(RECORDS[path.name])
    if number is not None:
        # A newer outcast may also have written keys that are unknown here.
        tree = {"format": number, "a_new_key": 1, **tree}
    path.write_text(json.dumps(tree))


def test_formats_begin_at_1_and_older_ones_are_read():
    """Nothing was released before format 1; each later format reads it."""
    assert {newest(record) for record in RECORDS.values()} == {1}

    class Later(handed_in.Versioned):
        format: int = 3

    Later.require_format({"format": 2})
    with pytest.raises(ValueError, match="format 4, this reads 1 to 3"):
        Later.require_format({"format": 4})


def test_a_verb_refuses_a_newer_run_in_one_line(run, verb):
    with_format(run.manifest, 9)
    (line,) = verb("analyze", run.path, status=2).err.splitlines()
    assert "made by another version" in line


def test_files_are_compared_with_the_manifest(run):
    manifest = run.read_manifest()
    assert kept_captures.differences(run, manifest) == kept_captures.Differences((), (), ())
    run.summary.write_text("{}")
    run.counters.unlink()
    (run.captures / "more.pcap").write_bytes(b"")
    assert kept_captures.differences(run, manifest) == kept_captures.Differences(
        changed=("summary.json",), missing=("counters.json",), added=("captures/more.pcap",)
    )
    assert "plan.json" in manifest.files
