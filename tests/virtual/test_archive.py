"""A run that is packed, and made again from its archive."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

import configs
import outcast
from outcast.cli import invoke
from tests import zips

SHORT = {"engine": "virtual", "duration": "40ms", "analysis": {}}


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    run = outcast.run(outcast.load(configs.find("fig3c"), SHORT), folder / "run")
    return outcast.pack(run.path, folder / "run.zip").path


def with_seed(file: Path, seed: int) -> Path:
    """The archive with another seed, and with hashes that fit."""
    held = zips.contents(file)
    config = yaml.safe_load(held["run/config.yaml"])
    assert config["seed"] != seed
    held["run/config.yaml"] = yaml.safe_dump({**config, "seed": seed}).encode()
    manifest = json.loads(held["run/manifest.json"])
    manifest["files"]["config.yaml"] = hashlib.sha256(held["run/config.yaml"]).hexdigest()
    held["run/manifest.json"] = json.dumps(manifest).encode()
    return zips.rewritten(file.with_name("seed.zip"), held)


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
