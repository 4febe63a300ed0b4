"""`Run`: what a finished run says about itself, and one clear line if a file is missing."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from outcast.errors import InputError
from outcast.records.run import Run
from tests.golden.run_directory import analysed_run, with_records


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    directory = analysed_run(tmp_path_factory.mktemp("run") / "run", 20_000_000, 9, 1_000)
    return directory.path


@pytest.fixture
def run(finished, tmp_path) -> Run:
    return Run(shutil.copytree(finished, tmp_path / "run"))


def test_everything_is_there(run):
    assert run.manifest.name == run.summary.name == run.experiment.name == "golden"
    assert list(run.counters.ports)
    assert run.tables == sorted(path.stem for path in run.directory.path.glob("*.parquet"))
    packets = pl.read_parquet(run.directory.path / "packets.parquet")
    assert run.table("packets").drop("packet").equals(packets)
    assert run.table("packets", whole=True).equals(packets)
    assert run.scan("packets").select("flow").collect().equals(packets.select("flow"))


def test_ports_are_named_with_their_classes(run):
    assert run.hops == [2, 3]
    assert run.port_label("s1-eth3") == "s1-eth3 (3-hop, cubic)"
    assert run.port_label("s9-eth9") == "s9-eth9"


def test_a_table_that_is_not_there_is_named_with_those_that_are(run):
    with pytest.raises(InputError, match=r"no rtt\.parquet; its tables: bins, blackouts, .*queue"):
        run.table("rtt")
    with pytest.raises(InputError, match=r"no \.\./run/packets\.parquet"):
        run.table("../run/packets")


def test_why_a_run_is_not_trusted(run):
    def reasons(**capture: object) -> list[str]:
        whole = run.summary.capture.model_copy(update=capture)
        other = with_records(run, summary=run.summary.model_copy(update={"capture": whole}))
        assert other.trusted == whole.trusted
        return other.reasons

    assert reasons(trusted=True, reasons=[]) == []
    assert reasons(trusted=False, reasons=["5 too many"]) == ["5 too many"]
    assert reasons(trusted=False, reasons=[]) == ["no reason is given"]


def test_the_time_of_a_frame(run):
    assert run.frame_ns == 12_112
    record = run.manifest.bottlenecks[0]
    unlimited = record.model_copy(
        update={"queue": record.queue.model_copy(update={"rate_bps": None})}
    )
    manifest = run.manifest.model_copy(update={"bottlenecks": [unlimited]})
    # Then it is the value that the analysis measured.
    measured = run.summary.phase[record.egress].packet_time_us * 1e3
    assert with_records(run, manifest=manifest).frame_ns == round(measured)
