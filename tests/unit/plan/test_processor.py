"""A machine whose processor cannot run the guest is told so before anything is fetched."""

import platform
from pathlib import Path

import pytest

from outcast.api import guest
from outcast.engines.virtual import VirtualEngine
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment, load
from outcast.plan.model import Planned

ROOT = Path(__file__).parents[3]
SAID = "needs an x86_64 processor, and this machine's is aarch64; run it in GitHub Codespaces"


@pytest.fixture(autouse=True)
def _another_processor(monkeypatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def experiment(engine: str) -> Experiment:
    return load(ROOT / "configs/fig3c.yaml", {"engine": engine})


def test_whatever_makes_or_boots_the_guest_says_so():
    for needs_guest in (
        lambda: guest.provide(Planned(experiment("virtual"))),
        lambda: VirtualEngine().require(*Planned(experiment("virtual")).by("virtual")),
    ):
        with pytest.raises(FeatureMissingError, match=SAID):
            needs_guest()
