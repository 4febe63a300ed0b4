"""Sweeps in archives: packed, replayed, and refused where somebody changed them."""

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest

from outcast.cli import invoke as main
from outcast.engines import ledger
from tests import quick_sweeps, zips

TEXT = """
name: fake
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit, overrides: [{from: s1, to: h1, rate: {trace: TRACE, repeat: true}}]}
queue: {kind: tbf, limit: 16KB}
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 100ms
analysis: {bin: 10ms}
repetitions: 2
sweep:
  queue.limit: [16KB, 64KB]
  links.overrides.0.rate.trace: [traces/a.csv, traces/b.csv]
"""
TRACE = "time_ms,rate_mbps\n0,50\n50,20\n100,50\n"


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes sweeps in this folder take no time. Temporary folders are made in `scratch`."""
    quick_sweeps.prepare(folder, monkeypatch)
    monkeypatch.setattr(ledger, "default_folder", lambda: folder / "ledger")
    (folder / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "scratch"))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a sweep and its archive, made once; nothing of the author's is left."""
    folder = tmp_path_factory.mktemp("made")
    author = folder / "author"
    (author / "traces").mkdir(parents=True)
    for name in ("traces/a.csv", "traces/b.csv", "../far.csv"):
        (author / name).write_text(TRACE)
    (author / "mine.yaml").write_text(TEXT.replace("TRACE", str(folder / "far.csv")))
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepare(folder, monkeypatch)
        monkeypatch.chdir(author)
        assert main(["sweep", "mine.yaml", "-o", str(folder / "sweep")]) == 0
        file = folder / "sweep.zip"
        assert main(["pack", str(folder / "sweep"), "-o", str(file), "--runs", "1"]) == 0
    for name in ("author", "far.csv"):
        (folder / name).rename(folder / f"{name}-gone")
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    prepare(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def packed(made, place) -> Path:
    return Path(shutil.copy(made / "sweep.zip", place))


@pytest.fixture
def sweep(made, place) -> Path:
    return shutil.copytree(made / "sweep", place / "sweep")


def edited(file: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The archive with other contents, and with the hashes of these."""
    held = zips.contents(file)
    change(held)
    return zips.rewritten(file.with_name("edited.zip"), held)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out.strip(), err.strip().splitlines()[-1] if err.strip() else ""


def test_an_archive_has_all_runs_and_some_captures(packed):
    held = zips.contents(packed)
    runs = {name.split("/")[2] for name in held if name.startswith("sweep/runs/")}
    captures = [name for name in held if "/captures/" in name]
    assert (len(runs), len(captures)) == (8, 1)
    assert {"sweep/traces/a.csv", "sweep/traces/b.csv", "sweep/sources/0/far.csv"} <= held.keys()
    assert b"trace: sources/0/far.csv" in held["sweep/sweep.yaml"]
    readme = held["README.txt"].decode()
    assert "outcast results sweep\n" in readme
    assert "outcast replay sweep.zip --runs all\n" in readme


def test_a_reviewer_makes_it_again(packed, made, place, capsys):
    status, out, _ = answer(capsys, "replay", packed, "--runs", "all", "-o", place / "again")
    assert (status, out.split(",")[0]) == (0, "equal: 8 of 8 runs")
    status, out, _ = answer(capsys, "replay", packed, "--runs", "3", "--json")
    assert (status, json.loads(out)["equal"], len(json.loads(out)["runs"])) == (0, True, 3)
    # The sweep itself is enough too, and goes on in the unpacked folder.
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(place / "unpacked")
    there = place / "unpacked" / "sweep"
    status, out, _ = answer(capsys, "sweep", there / "sweep.yaml", "--resume", "-o", there)
    assert (status, "8 of 8 runs finished" in out) == (0, True)
    status, _, _ = answer(capsys, "sweep", there / "sweep.yaml", "-o", place / "elsewhere")
    assert status == 0
    tables = [place / name / "runs.parquet" for name in ("again", "elsewhere")]
    tables += [made / "sweep/runs.parquet", there / "runs.parquet"]
    assert len({table.read_bytes() for table in tables}) == 1


def test_what_differs_is_named(sweep, capsys):
    file = next(sweep.glob("runs/*/summary.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"outcast_ratio": 77.0}))
    status, out, err = answer(capsys, "replay", sweep, "--runs", "all")
    assert status == 1
    assert f"{file.parent.name}: outcast_ratio: 77.0 there, " in out
    assert "not equal: 1 differences; 8 of 8 runs made again" in err


def test_an_incomplete_sweep_is_not_packed(sweep, place, capsys):
    run = next((sweep / "runs").iterdir())
    run.rename(place / "taken")
    status, _, err = answer(capsys, "pack", sweep, "-o", place / "sweep.zip")
    assert (status, "1 of 8 runs have no result" in err) == (2, True)
    assert not (place / "sweep.zip").exists()


def config(text: Mapping[str, str]) -> Callable[[dict[str, bytes]], object]:
    """Changes sweep.yaml."""

    def change(held: dict[str, bytes]) -> None:
        whole = held["sweep/sweep.yaml"].decode()
        for old, new in text.items():
            assert old in whole
            whole = whole.replace(old, new)
        held["sweep/sweep.yaml"] = whole.encode()

    return change


def config_of_a_run(old: str, new: str) -> Callable[[dict[str, bytes]], object]:
    """Changes one run's config.yaml, and its hash in the manifest."""

    def change(held: dict[str, bytes]) -> None:
        name = next(name for name in held if name.endswith("/config.yaml"))
        assert old.encode() in held[name]
        held[name] = held[name].replace(old.encode(), new.encode())
        record = name.replace("config.yaml", "manifest.json")
        manifest = json.loads(held[record])
        manifest["files"]["config.yaml"] = hashlib.sha256(held[name]).hexdigest()
        held[record] = json.dumps(manifest).encode()

    return change


def table(
    name: str, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> Callable[[dict[str, bytes]], object]:
    """Changes a table of all runs."""

    def edit(held: dict[str, bytes]) -> None:
        file = f"sweep/{name}.parquet"
        written = io.BytesIO()
        change(pl.read_parquet(io.BytesIO(held[file]))).write_parquet(written)
        held[file] = written.getvalue()

    return edit


FALSE = "its tables are not what its runs give"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (config({"sources/0/far.csv": "/etc/passwd"}), "reads only the run's own files"),
        (config({"traces/a.csv": "../../../../../etc/passwd"}), "plans other runs"),
        (config({"repetitions: 2": "repetitions: 10000"}), "plans other runs"),
        (config({"16KB": "17KB"}), "plans other runs"),
        (config({"programs: []": "programs: [{name: x, host: h1, command: [id]}]"}), "'id'"),
        (lambda held: held.pop("sweep/runs.parquet"), "runs.parquet: there is no such file"),
        (lambda held: held.update({"sweep/runs.parquet": b"garbage"}), "cannot be read as a table"),
        (table("runs", lambda frame: frame.with_columns(pl.col("outcast_ratio") + 1)), FALSE),
        (table("runs", lambda frame: frame[1:]), FALSE),
        (table("run_flows", lambda frame: pl.concat([frame, frame[:1]])), FALSE),
        (table("run_flows", lambda frame: frame.with_columns(more=1)), "cannot be compared"),
        (config_of_a_run("rate: 100mbit", "rate: 50mbit"), "has another links than sweep.yaml"),
        (config_of_a_run("duration: ", "duration: 1"), "has another duration than sweep.yaml"),
        (config_of_a_run("/a.csv", "/passwd"), "has another links than sweep.yaml"),
        (lambda held: held.update({"sweep/../x": b""}), "allowed are regular files"),
        (lambda held: held.update({"sweep/runs/x/y": b""}), "x: no manifest.json"),
    ],
)
def test_hostile_archives_are_refused(change, words, packed, place, capsys):
    status, _, err = answer(capsys, "replay", edited(packed, change), "--runs", "all")
    assert status == 2
    assert words in err
    assert "Traceback" not in err
    assert not any((place / "scratch").iterdir())
