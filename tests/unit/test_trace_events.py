"""Events that a run did not record, or whose tables were changed, are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from outcast.analysis.trace.events import OF_SENDERS, read_events
from outcast.errors import InputError
from outcast.records.run_directory import RunDirectory
from outcast.records.trace import Traced, table_name
from tests.golden import model
from tests.golden.run_directory import write_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    traffic = model.drop_tail(model.make_traffic(3, 20), 16_384, 10**9)
    return write_run(tmp_path / "run", traffic, 20_000_000)


def ran_in(run: RunDirectory, engine: str) -> None:
    manifest = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps(manifest | {"engine": engine}))


def refusal(run: RunDirectory) -> str:
    with pytest.raises(InputError) as caught:
        read_events(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_without_events_says_how_to_record_them(run: RunDirectory) -> None:
    ran_in(run, "virtual")
    assert refusal(run).endswith(f"`outcast trace {run.path}` records them")
    ran_in(run, "realtime")
    assert refusal(run).endswith("allowed are runs of the virtual engine")
    assert "no manifest.json" in refusal(RunDirectory(run.path / "nowhere"))


def test_a_table_with_other_columns_is_refused(run: RunDirectory) -> None:
    run.trace.mkdir()
    run.write_traced(Traced(outcast="0", events=dict.fromkeys(OF_SENDERS, 1)))
    for event in OF_SENDERS:
        path = run.trace / f"{table_name(event)}.parquet"
        pl.DataFrame({"t_ns": [1]}).write_parquet(path)
    assert 'cannot be read as a table of events: unable to find column "order"' in refusal(run)
