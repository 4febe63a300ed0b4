"""The plan of an experiment is made once for a run, with the engine's defaults."""

import pytest

import configs
import outcast
from outcast import experiment
from outcast.api import experiments, making
from outcast.engines import ledger
from outcast.errors import ConfigError, RunError
from outcast.plan import make
from outcast.plan.model import Planned
from outcast.plan.stored import dumps

LINEAR = configs.find("linear-12")


class Engine:
    """Keeps the plan that it is asked about, and that which it would run."""

    name = "virtual"

    def require(self, experiment, plan):
        self.asked = plan

    def run(self, directory, entry, on_event):
        self.given = directory.read_plan()
        raise RunError("there is no kernel")


def test_a_run_makes_one_plan(tmp_path, monkeypatch):
    engine, made, plan = Engine(), [], make._planned
    monkeypatch.setattr(ledger, "default_folder", lambda: tmp_path / "ledger")
    monkeypatch.setattr("outcast.api.guest.provide", lambda planned, progress: None)
    monkeypatch.setattr("outcast.engines._made", lambda name: engine)
    monkeypatch.setattr(make, "_planned", lambda asked: made.append(asked) or plan(asked))
    source = experiment.read(configs.find("fig3c"), {"engine": "virtual"})
    with pytest.raises(RunError, match="there is no kernel"):
        making.execute(experiments.checked(source), tmp_path / "run", progress=False, draw=False)
    assert len(made) == 1
    assert dumps(engine.given) == dumps(engine.asked)


def test_a_plan_has_the_defaults_of_its_engine():
    """A link of the virtual engine has 25 us of delay, by which the latency may vary."""
    planned = Planned(experiment.load(LINEAR, ["noise.switch_latency=5us"]), "here: {}".format)
    assert {link.delay_ns for link in planned.by("virtual")[1].links.values()} == {25_000}
    assert planned.by("virtual") is planned.by("virtual")
    with pytest.raises(ConfigError, match=r"^here: noise\.switch_latency: 5us: allowed is up to"):
        planned.by("realtime")
    outcast.load(LINEAR, {"engine": "virtual", "noise.switch_latency": "5us"})
