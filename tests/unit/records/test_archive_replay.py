"""Runs that are made again from an archive or a folder, on an engine that takes no time."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

import outcast
from outcast.cli import invoke
from outcast.engines import ledger
from outcast.engines.guest.kernels import Kernel
from outcast.errors import InputError, RunError
from outcast.experiment import load_resolved
from outcast.records.run_directory import RunDirectory
from tests import zips
from tests.golden.run_directory import CONFIG, make_run

MS_20 = 20_000_000


class SeededEngine:
    """Leaves captures that follow from the seed in place of a network's."""

    name: Literal["realtime", "virtual"] = "virtual"

    def require(self, experiment: object, plan: object) -> None:
        """Nothing is missing."""

    def run(self, directory: RunDirectory, entry: object, on_event: Any) -> Mapping[str, float]:
        seed = load_resolved(directory.config).seed
        golden = make_run(directory.path / "golden", MS_20, seed, 1_000)
        golden.write_manifest(
            golden.read_manifest().model_copy(update={"engine": self.name, "seed": seed})
        )
        for path in golden.path.iterdir():
            if path.name not in ("config.yaml", "plan.json"):
                shutil.move(path, directory.path / path.name)
        shutil.rmtree(golden.path)
        return {"setup": 0.1}


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes runs in this folder take no time. Temporary folders are made in `scratch`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(ledger, "default_folder", lambda: folder / "ledger")
    monkeypatch.setattr("outcast.engines.choose", lambda *asked: SeededEngine())
    monkeypatch.setattr("outcast.api.guest.provide", lambda experiment, progress=None: None)
    (folder / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "scratch"))
    monkeypatch.chdir(folder)
    text = CONFIG.replace("{duration}", "20000us").replace("{window}", "10000us")
    (folder / "golden.yaml").write_text(text)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run, made once."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepare(folder, monkeypatch)
        return outcast.run(outcast.load("golden.yaml"), folder / "run").path


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder to run in."""
    prepare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def run(made, place) -> Path:
    return shutil.copytree(made, place / "run")


@pytest.fixture
def packed(run, place) -> Path:
    return outcast.pack(run, place / "run.zip").path


def edited(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """The archive with another configuration and manifest, and with all hashes renewed."""
    held = zips.contents(file)
    config = yaml.safe_load(held["run/config.yaml"])
    manifest = json.loads(held["run/manifest.json"])
    change(config, manifest)
    held["run/config.yaml"] = yaml.safe_dump(config).encode()
    manifest["files"]["config.yaml"] = hashlib.sha256(held["run/config.yaml"]).hexdigest()
    held["run/manifest.json"] = json.dumps(manifest).encode()
    return zips.rewritten(file.with_name("edited.zip"), held)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    status = invoke([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err.strip().splitlines()[-1] if err.strip() else ""


def test_a_packed_run_replays(packed, place):
    outcome = outcast.replay(packed)
    assert (outcome.equal, outcome.captures, outcome.difference) == (True, 3, "")
    assert outcome.directory is None
    assert list((place / "scratch").iterdir()) == []
    assert list((place / "ledger").glob("*.json")) == []


@pytest.mark.parametrize("captures", ["keep", "hashes"])
def test_the_verbs(captures, run, place, capsys):
    status, out, err = answer(capsys, "pack", run, "-o", "a.zip", "--captures", captures)
    assert status == 0
    assert out.startswith("a.zip, ")
    assert ("only the hashes" in err) == (captures == "hashes")
    status, out, err = answer(capsys, "replay", "a.zip")
    assert (status, out) == (0, "equal: 3 captures\n")
    seed = edited(place / "a.zip", lambda config, manifest: config.update(seed=2))
    status, out, err = answer(capsys, "replay", seed)
    assert (status, out) == (1, "")
    where = "which packet is unknown" if captures == "hashes" else "in captures/s1-eth"
    assert err.startswith(f"outcast: {seed}: not equal: ")
    assert where in err
    assert err.endswith("; --explain says more")
    status, out, err = answer(capsys, "replay", seed, "--explain")
    assert status == 1
    assert out.startswith("different: 3 of 3 captures\n")
    assert "seed: 1 and 2" in out
    status, out, err = answer(capsys, "replay", seed, "--json", "-o", "again")
    assert status == 1
    told = json.loads(out)
    assert told["equal"] is told["explanation"]["equal"] is False
    assert err.endswith(told["difference"])
    assert told["directory"] == "again"
    assert outcast.open_run("again").manifest.seed == 2


def test_a_folder_replays_too(run, capsys):
    status, out, _ = answer(capsys, "replay", run, "-o", "again")
    assert status == 0
    assert out.startswith("equal: 3 captures\n")
    assert "again/report.html" in out
    (run / "captures/s1-eth1.out.pcap").write_bytes(b"another")
    status, _, err = answer(capsys, "replay", run)
    assert status == 2
    assert "captures/s1-eth1.out.pcap: changed after the run" in err


@pytest.mark.parametrize("where", ["config", "manifest", "both"])
def test_realtime_runs_are_not_replayed(where, packed):
    """A configuration that says realtime would run on this machine's network, as root."""

    def change(config: dict[str, Any], manifest: dict[str, Any]) -> None:
        for name, tree in (("config", config), ("manifest", manifest)):
            if where in (name, "both"):
                tree["engine"] = "realtime"

    with pytest.raises(InputError, match=r"edited\.zip: ran in real time, so it cannot be replay"):
        outcast.replay(edited(packed, change))
    with pytest.raises(InputError, match=r"run/config\.yaml: engine: allowed is virtual"):
        outcast.replay(edited(packed, lambda config, manifest: config.update(engine="auto")))


PROGRAM = {"name": "evil", "host": "h1", "command": ["/bin/sh", "-c", "evil\x7f\u202e"]}
BROUGHT: dict[str, tuple[dict[str, Any], str]] = {
    "a program": ({"programs": [{**PROGRAM, "command": ["sh", "-c", "x"]}]}, "'sh -c x'"),
    "host's files": ({"guest": {"root": "host"}}, "this machine's files (guest.root: host)"),
    "a module": ({"kernel": {"modules": ["tcp_evil.c"]}}, "the kernel module tcp_evil.c"),
}


@pytest.mark.parametrize("what", BROUGHT)
def test_what_a_run_brings_needs_consent(what, packed, capsys, monkeypatch):
    keys, named = BROUGHT[what]
    file = edited(packed, lambda config, manifest: config.update(keys))
    status, _, err = answer(capsys, "replay", file)
    assert status == 2
    assert named in err
    assert err.endswith("if you trust them, allow it: --allow-programs")

    def started(self: object, *arguments: object) -> Mapping[str, float]:
        raise RunError("started")

    monkeypatch.setattr(SeededEngine, "run", started)
    monkeypatch.setattr("outcast.engines.own_modules.copy_sources", lambda made, folder: made)
    with pytest.raises(RunError, match="started"):
        outcast.replay(file, allow_programs=True)


def test_the_question_shows_the_whole_command(packed):
    hidden = [["sh", "-c", f"echo {'x' * 500}; rm -rf ~/{i}"] for i in range(9)]
    programs = [{**PROGRAM, "name": f"p{i}", "command": hidden[i]} for i in range(9)]
    with pytest.raises(InputError, match="allow it: --allow-programs") as refused:
        outcast.replay(edited(packed, lambda config, manifest: config.update(programs=programs)))
    assert str(refused.value).count("rm -rf ~") == 9


def test_a_run_without_captures_is_not_called_equal(packed):
    with pytest.raises(InputError, match="names no captures"):
        outcast.replay(edited(packed, lambda config, manifest: manifest.update(captures=[])))


def test_the_kernel_that_made_a_run_is_taken(run, place, monkeypatch):
    """It is not the one that runs use by default, but it is in the cache."""
    kernel = place / "cache/outcast/kernels/of-the-kernel"
    kernel.mkdir(parents=True)
    (kernel / "linux").write_bytes(b"a kernel")
    sha256 = hashlib.sha256(b"a kernel").hexdigest()
    fields = {"source": "s", "version": "v", "recipe": "r", "release": "7.3", "built_s": 1.0}
    (kernel / "kernel.json").write_text(
        json.dumps({**fields, "sha256": sha256, "congestion_controls": [], "own": []})
    )
    RunDirectory(run).seal(kernel={"sha256": sha256})
    given: list[Kernel] = []

    def engine(kernel: Kernel, interventions: object) -> SeededEngine:
        given.append(kernel)
        return SeededEngine()

    monkeypatch.setattr("outcast.engines.virtual.VirtualEngine", engine)
    assert outcast.replay(run).equal
    assert [used.program for used in given] == [kernel / "linux"]
