"""Runs that are made again from an archive or a folder, on an engine that takes no time."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

import outcast
from outcast.cli import invoke
from outcast.engines import ledger
from outcast.engines.guest.packed import Guest
from outcast.engines.root import cache as roots
from outcast.engines.root import files_list
from outcast.engines.root import packed as tars
from outcast.engines.root.files_list import settle
from outcast.errors import InputError, RunError
from outcast.experiment import load_resolved
from outcast.records.run_directory import GuestRecord, RunDirectory
from tests import zips
from tests.golden.run_directory import CONFIG, make_run

pytestmark = pytest.mark.usefixtures("undrawn")

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
    monkeypatch.setattr("outcast.engines.choice.choose", lambda *asked: SeededEngine())
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
    """The archive with another configuration and manifest, and with all hashes made anew."""
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


def test_a_run_is_compared_with_an_archive(packed, place, capsys):
    def compared(*arguments: str) -> tuple[int, str, str]:
        return answer(capsys, "run", "golden.yaml", "--replay-of", packed, *arguments)

    status, out, _ = compared("-o", "again")
    assert status == 0
    assert "3 captures, equal byte by byte" in out
    status, _, err = compared("-o", "other", "--set", "seed=2")
    assert status == 2
    assert "run.zip: run/config.yaml: seed is 1" in err
    assert not (place / "other").exists()


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
    hidden = ["sh", "-c", "echo " + "x" * 500 + "; rm -rf ~"]
    programs = [{**PROGRAM, "name": f"p{i}", "command": hidden} for i in range(9)]
    with pytest.raises(InputError, match="allow it: --allow-programs") as refused:
        outcast.replay(edited(packed, lambda config, manifest: config.update(programs=programs)))
    assert str(refused.value).count("rm -rf ~") == 9


def test_a_run_without_captures_is_not_called_equal(packed):
    with pytest.raises(InputError, match="names no captures"):
        outcast.replay(edited(packed, lambda config, manifest: manifest.update(captures=[])))


# The guest.


@pytest.fixture
def guest(run, place, monkeypatch) -> list[Guest]:
    """The run has a guest, which is in the cache. Returns the guests that replays were given."""
    cached = place / "cache/outcast"
    kernel = cached / "kernels/of-the-kernel"
    (kernel / "headers").mkdir(parents=True)
    (kernel / "linux").write_bytes(b"a kernel")
    (kernel / "headers/Makefile").write_text("all:\n")
    sha256 = hashlib.sha256(b"a kernel").hexdigest()
    fields = {"source": "s", "version": "v", "recipe": "r", "release": "7.3", "built_s": 1.0}
    (kernel / "kernel.json").write_text(
        json.dumps({**fields, "sha256": sha256, "congestion_controls": [], "own": []})
    )
    unpacked = place / "new/root"
    (unpacked / "usr/bin").mkdir(parents=True)
    (unpacked / "usr/bin/iperf").write_text("#!/bin/sh\n")
    (unpacked / "usr/bin/iperf").chmod(0o755)
    (unpacked / "bin").symlink_to("usr/bin")
    for path in [*unpacked.rglob("*"), unpacked]:
        os.utime(path, (files_list.TIME_S,) * 2, follow_symlinks=False)
    listed = files_list.dumps(files_list.scan(unpacked))
    key = files_list.digest(listed)[:20]
    (place / "new/files.tsv").write_text(listed)
    record = {"format": 1, "lock": "l", "packages": {}}
    (place / "new/root.json").write_text(json.dumps(record))
    (cached / "roots").mkdir()
    (place / "new").rename(cached / "roots" / key)
    root = roots.find_key(key, cached / "roots")
    layer = cached / "code" / ("c" * 20) / "layer/opt/outcast"
    layer.mkdir(parents=True)
    (layer / "inside.py").write_text("pass\n")
    kept = cached / "code" / ("c" * 20)
    (kept / "files.tsv").write_text(settle(kept / "layer"))
    directory = RunDirectory(run)
    directory.seal(
        kernel={"sha256": sha256}, guest=GuestRecord(root=root.key, lock="l", code="c" * 20)
    )
    given: list[Guest] = []

    def engine(guest: Guest, interventions: object) -> SeededEngine:
        assert guest.world is None or (guest.world.root / "usr/bin/iperf").exists()
        given.append(guest)
        return SeededEngine()

    monkeypatch.setattr("outcast.engines.virtual.VirtualEngine", engine)
    return given


def test_a_run_is_packed_with_its_guest(guest, run, place, capsys):
    status, _, _ = answer(capsys, "pack", run, "-o", "run.zip", "--with-guest")
    assert status == 0
    names = {name for name in zips.contents(place / "run.zip") if name.startswith("guest/")}
    assert names == {f"guest/{part}.tar.zst" for part in ("kernel", "root", "code")}
    # The guest is here, so nothing of the archive starts.
    assert outcast.replay("run.zip").equal
    assert guest.pop().kernel.program == place / "cache/outcast/kernels/of-the-kernel/linux"
    # Its guest starts only where somebody allows it, and is never put into the cache.
    shutil.rmtree(place / "cache")
    status, _, err = answer(capsys, "replay", "run.zip")
    assert status == 2
    assert "the guest that made the run, which is not here; if you trust them" in err
    outcome = outcast.replay("run.zip", allow_programs=True)
    assert outcome.equal
    (used,) = guest
    assert used.world.record["code"] == "c" * 20
    assert used.kernel.sha256 == hashlib.sha256(b"a kernel").hexdigest()
    assert not (place / "cache/outcast/kernels").exists()
    assert not (place / "cache/outcast/roots").exists()
    assert list((place / "scratch").iterdir()) == []


def test_an_own_kernel_that_is_here_is_taken(guest, run, place, monkeypatch):
    """The run's kernel is not the one that runs use by default, but it is in the cache."""
    assert outcast.replay(run).equal
    (used,) = guest
    assert used.world is None
    assert used.kernel.program == place / "cache/outcast/kernels/of-the-kernel/linux"


@pytest.mark.parametrize("what", ["kernels", "roots", "code"])
def test_a_guest_that_is_gone_cannot_be_packed(what, guest, run, place):
    shutil.rmtree(place / "cache/outcast" / what)
    with pytest.raises(outcast.FeatureMissingError):
        outcast.pack(run, place / "run.zip", with_guest=True)
    assert not (place / "run.zip").exists()


def test_a_run_without_a_guest_of_its_own(run, place):
    for record in (None, GuestRecord(root="host"), GuestRecord(root="../..", code="c" * 20)):
        RunDirectory(run).seal(guest=record)
        with pytest.raises(InputError, match="run: the run had no root of its own"):
            outcast.pack(run, place / "run.zip", with_guest=True)


@pytest.mark.parametrize(
    ("part", "content", "says"),
    [
        ("kernel", None, "is missing"),
        ("kernel", {"linux": b"another"}, "is not the kernel that the manifest names"),
        ("root", {"root/usr/bin/iperf": b"evil"}, "is not the root that the manifest names"),
        ("root", {"root/usr/bin/more": b"evil"}, "is not the root that the manifest names"),
        ("code", b"no archive", "not an archive of a root or kernel"),
    ],
)
def test_a_guest_that_is_another(part, content, says, guest, run, place):
    file = outcast.pack(run, place / "run.zip", with_guest=True).path
    held = zips.contents(file)
    name = f"guest/{part}.tar.zst"
    if content is None:
        del held[name]
    elif isinstance(content, bytes):
        held[name] = content
    else:
        folder = place / "changed"
        folder.mkdir()
        tars.unpack(io.BytesIO(held[name]), folder)
        for inner, new in content.items():
            (folder / inner).write_bytes(new)
        stream = io.BytesIO()
        tars.pack(folder, stream)
        held[name] = stream.getvalue()
    zips.rewritten(file, held)
    shutil.rmtree(place / "cache")
    with pytest.raises(InputError, match=rf"run\.zip: guest/{part}\.tar\.zst: .*{says}"):
        outcast.replay(file, allow_programs=True)
    assert guest == []


def test_what_is_refused_leaves_nothing(packed, place):
    packed.write_bytes(packed.read_bytes()[:-1000])
    with pytest.raises(InputError, match="not a whole zip file"):
        outcast.replay(packed)
    assert list((place / "scratch").iterdir()) == []
