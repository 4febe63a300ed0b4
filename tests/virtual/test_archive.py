"""A run that is packed, and made again from its archive."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
import yaml

import configs
import outcast
from outcast.cli import invoke

SHORT = {"engine": "virtual", "duration": "40ms", "analysis": {}}


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    run = outcast.run(outcast.load(configs.find("fig3c"), SHORT), folder / "run")
    return outcast.pack(run.path, folder / "run.zip").path


def with_seed(file: Path, seed: int) -> Path:
    """The archive with another seed, and with all hashes made anew."""
    with zipfile.ZipFile(file) as archive:
        held = {info.filename: archive.read(info) for info in archive.infolist()}
    config = yaml.safe_load(held["run/config.yaml"])
    assert config["seed"] != seed
    held["run/config.yaml"] = yaml.safe_dump({**config, "seed": seed}).encode()
    manifest, record = (json.loads(held[name]) for name in ("run/manifest.json", "outcast.json"))
    manifest["files"]["config.yaml"] = hashlib.sha256(held["run/config.yaml"]).hexdigest()
    held["run/manifest.json"] = json.dumps(manifest).encode()
    for name in ("run/config.yaml", "run/manifest.json"):
        record["files"][name] = hashlib.sha256(held[name]).hexdigest()
    held["outcast.json"] = json.dumps(record).encode()
    target = file.with_name("seed.zip")
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return target


@pytest.mark.usefixtures("drawn")
def test_a_packed_run_replays_to_the_byte(packed, tmp_path):
    outcome = outcast.replay(packed, tmp_path / "again")
    assert outcome.equal, outcome.explanation.lines()
    assert outcome.captures == len(list((packed.parent / "run/captures").iterdir())) > 0
    assert (tmp_path / "again/report.html").exists()


def test_another_seed_parts_and_is_explained(packed, capsys):
    file = with_seed(packed, 2)
    assert invoke(["replay", str(file), "--explain"]) == 1
    out, err = capsys.readouterr()
    assert err.strip().splitlines()[-1].startswith(f"outcast: {file}: not equal: they part")
    assert "they part 0." in out
    assert "seed: seed: 1 and 2" in out
