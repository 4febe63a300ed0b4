"""Every kind of forgery of one run, and changes that are no forgery."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from outcast import analysis, experiment
from outcast.assignment import evidence, replayed
from outcast.assignment import old_tasks as tasks
from outcast.assignment.old_folder import Folder, Identity
from outcast.engines.kernel import cache
from outcast.errors import GuestError
from outcast.files import sha256
from outcast.records.run_directory import RunDirectory
from tests.golden.submission import KERNEL, GoldenRunner, golden_run, submit, wanted

ANA = Identity("nets", "ana")
UNFAIR = tasks.UNFAIR


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return submit(tmp_path_factory.mktemp("honest") / "ana", ANA)


@pytest.fixture
def made(honest: Folder, tmp_path: Path) -> Folder:
    """The honest submission as it arrives: in another place, without its files' times."""
    shutil.copytree(honest.path, tmp_path / "inbox/ana", copy_function=shutil.copyfile)
    return Folder(tmp_path / "inbox/ana")


def examine(made: Folder, runner: replayed.Runner | None = None) -> evidence.Evidence:
    return evidence.examine(made, ANA, UNFAIR, runner)


def edit(path: Path, change: Callable[[Any], None]) -> None:
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def rehash(run: RunDirectory) -> None:
    run.seal()


def analyze_again(run: RunDirectory) -> None:
    analysis.analyze(run)
    run.seal()


def test_an_honest_run_is_genuine(made: Folder) -> None:
    found = examine(made, GoldenRunner())
    assert (found.state, found.reasons) == ("genuine", ())
    assert found.known["packet_time_us"] == (12.112,)


def test_without_a_replay_it_is_consistent(made: Folder) -> None:
    found = examine(made)
    assert (found.state, found.reasons) == ("consistent", ())


def test_wall_clock_times_are_no_evidence(made: Folder) -> None:
    run = made.run(UNFAIR)
    manifest = run.read_manifest()
    run.write_manifest(manifest.model_copy(update={"wall_s": {"boot": 99.0}}))
    assert examine(made, GoldenRunner()).state == "genuine"


def edited_summary(run: RunDirectory) -> None:
    edit(run.summary, lambda tree: tree.update(outcast_ratio=1.0))


def slightly_edited_summary(run: RunDirectory) -> None:
    edit(run.summary, lambda tree: tree.update(outcast_ratio=tree["outcast_ratio"] * 1.000001))


def edited_table(run: RunDirectory) -> None:
    path = run.path / "flows.parquet"
    pl.read_parquet(path).with_columns(goodput_bps=pl.col("goodput_bps") * 2).write_parquet(path)


def edited_capture(run: RunDirectory) -> None:
    """The first packet leaves a nanosecond earlier or later."""
    path = run.captures / "s1-eth1.out.pcap"
    content = bytearray(path.read_bytes())
    file_header, seconds = 24, 4
    content[file_header + seconds] ^= 1
    path.write_bytes(bytes(content))


def edited_counters(run: RunDirectory) -> None:
    def change(tree: Any) -> None:
        host = next(iter(tree["hosts"].values()))
        host["after"]["TcpExtTCPTimeouts"] += 1

    edit(run.counters, change)


def edited_drop_counter(run: RunDirectory) -> None:
    def change(tree: Any) -> None:
        tree["ports"]["s1-eth1"]["after"]["drops"] += 1

    edit(run.counters, change)


def edited_manifest(run: RunDirectory) -> None:
    edit(run.manifest, lambda tree: tree["effective"].update({"bottleneck.limit_bytes": 16384}))


FORGERIES = (edited_summary, edited_table, edited_capture, edited_counters, edited_drop_counter)


@pytest.mark.parametrize("forge", FORGERIES)
def test_an_edited_file_does_not_fit_its_hash(
    forge: Callable[[RunDirectory], None], made: Folder
) -> None:
    forge(made.run(UNFAIR))
    found = examine(made)
    assert found.state == "forged"
    assert "changed after the run" in found.reasons[0]


@pytest.mark.parametrize("forge", [edited_summary, slightly_edited_summary, edited_table])
def test_an_edited_result_with_new_hashes_is_not_what_the_captures_give(
    forge: Callable[[RunDirectory], None], made: Folder
) -> None:
    forge(made.run(UNFAIR))
    rehash(made.run(UNFAIR))
    found = examine(made)
    assert found.state == "forged"
    assert "is not what the captures give" in found.reasons[0]


@pytest.mark.parametrize("forge", [edited_capture, edited_counters, edited_manifest])
def test_what_was_edited_analysed_and_hashed_anew_differs_from_the_replay(
    forge: Callable[[RunDirectory], None], made: Folder
) -> None:
    forge(made.run(UNFAIR))
    analyze_again(made.run(UNFAIR))
    assert examine(made).state == "consistent"
    found = examine(made, GoldenRunner())
    assert found.state == "forged"
    assert found.reasons[0].startswith("runs/unfair: run again, ")


def test_captures_against_counters_are_not_trusted_even_without_a_replay(made: Folder) -> None:
    edited_drop_counter(made.run(UNFAIR))
    analyze_again(made.run(UNFAIR))
    found = examine(made)
    assert found.state == "untrusted"
    assert "its queue counted" in found.reasons[0]


def test_a_run_of_another_seed_under_the_own_one(made: Folder) -> None:
    """A friend's run with one's own seed wherever it stands, analysed and hashed anew."""
    run = made.run(UNFAIR)
    shutil.rmtree(run.path)
    golden_run(run.path, wanted(UNFAIR, 77))
    assert examine(made).state == "other"
    run.config.write_text(run.config.read_text().replace("seed: 77", f"seed: {ANA.seed}"))
    run.write_manifest(run.read_manifest().model_copy(update={"seed": ANA.seed}))
    analyze_again(run)
    assert examine(made).state == "consistent"
    found = examine(made, GoldenRunner())
    assert found.state == "forged"
    assert "differs first" in found.reasons[0]


def test_a_manifest_that_says_another_seed_than_the_configuration(made: Folder) -> None:
    run = made.run(UNFAIR)
    run.write_manifest(run.read_manifest().model_copy(update={"seed": 5}))
    found = examine(made)
    assert found.state == "other"
    assert "manifest.json says seed 5" in found.reasons[0]


def test_a_run_of_another_configuration_is_not_replayed(made: Folder) -> None:
    config = made.config(UNFAIR)
    text = config.read_text().replace("limit: 16KB", "limit: 64KB")
    config.write_text(text)
    runner = GoldenRunner()
    found = examine(made, runner)
    assert found.state == "other"
    assert "configs/unfair.yaml has changed since" in found.reasons[0]
    assert runner.made == 0


def test_another_kernel_is_said_and_not_held_against_the_student(made: Folder) -> None:
    runner = GoldenRunner(kernel="other")
    found = examine(made, runner)
    assert found.state == "consistent"
    assert f"made by kernel {KERNEL}" in found.reasons[0]
    assert runner.made == 0


def test_a_difference_beside_another_programs_version_proves_nothing(made: Folder) -> None:
    run = made.run(UNFAIR)
    run.write_manifest(run.read_manifest().model_copy(update={"versions": {"iperf": "2.1.9"}}))
    runner = GoldenRunner({"versions": {"iperf": "2.1.8"}})
    assert examine(made, runner).state == "genuine"
    edited_capture(run)
    analyze_again(run)
    found = examine(made, runner)
    assert found.state == "consistent"
    assert "made with iperf 2.1.9, here is 2.1.8" in found.reasons[0]


def test_a_replay_that_fails_here_is_not_held_against_the_student(made: Folder) -> None:
    class Failing(GoldenRunner):
        def run(self, wanted: experiment.Experiment, target: Path) -> RunDirectory:
            raise GuestError("the guest has gone")

    found = examine(made, Failing())
    assert found.state == "consistent"
    assert "running it again failed: the guest has gone" in found.reasons[0]


def remove_capture(run: RunDirectory) -> None:
    (run.captures / "s1-eth1.out.pcap").unlink()


def add_flow_log(run: RunDirectory) -> None:
    run.flows.mkdir(exist_ok=True)
    (run.flows / "sockets.json").write_text("[]")


def name_another_runs_capture(run: RunDirectory) -> None:
    def change(tree: Any) -> None:
        tree["captures"][0]["file"] = "../remedy/captures/s1-eth2.in.pcap"

    edit(run.manifest, change)


def empty_manifest(run: RunDirectory) -> None:
    run.manifest.write_text("{}")


def without_counters_of_the_queue(run: RunDirectory) -> None:
    edit(run.counters, lambda tree: tree.update(ports={}))
    rehash(run)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove_capture, "s1-eth1.out.pcap missing"),
        (add_flow_log, "flows/sockets.json added after the run"),
        (name_another_runs_capture, "allowed is the name of a file in the folder"),
        (empty_manifest, "manifest.json"),
        (without_counters_of_the_queue, "is not what the captures give"),
    ],
)
def test_damage_is_named_and_never_a_traceback(
    damage: Callable[[RunDirectory], None], said: str, made: Folder
) -> None:
    damage(made.run(UNFAIR))
    found = examine(made)
    assert found.state == "forged"
    assert said in " ".join(found.reasons)


def test_captures_of_idle_ports_are_nobodys(made: Folder) -> None:
    before = examine(made).captures
    assert len(before) >= 1
    (made.run(UNFAIR).captures / "idle.in.pcap").write_bytes(b"a header alone")
    assert examine(made).captures == before


def test_no_run_at_all(made: Folder) -> None:
    shutil.rmtree(made.run(UNFAIR).path)
    assert examine(made).state == "missing"


def test_what_the_guest_cannot_replay(made: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = made.run(UNFAIR).read_manifest()
    guest = replayed.Guest()
    monkeypatch.setattr(cache, "find", lambda: None)
    assert "outcast kernel build" in guest.obstacle(manifest)
    here = cache.Kernel("s", "v", "r", "7.3", 1.0, "0" * 64, Path("linux"))
    monkeypatch.setattr(cache, "find", lambda: here)
    assert guest.obstacle(manifest) == f"made by kernel {KERNEL[:12]}, here is 000000000000"
    same = manifest.model_copy(update={"kernel": {"sha256": "0" * 64}})
    assert guest.obstacle(same) == ""
    assert "realtime" in guest.obstacle(same.model_copy(update={"engine": "realtime"}))


def test_hashes_of_captures_are_taken_from_the_files(made: Folder) -> None:
    run = made.run(UNFAIR)
    largest = max(run.captures.iterdir(), key=lambda path: path.stat().st_size)
    edit(run.manifest, lambda tree: tree["files"].update({f"captures/{largest.name}": "0" * 64}))
    assert sha256(largest) in examine(made).captures
