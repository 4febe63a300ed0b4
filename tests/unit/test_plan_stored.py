"""plan.json: a stored plan reads back as the same plan, and a broken one is refused in one line."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import configs
import outcast
from outcast import experiment
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.plan.model import Plan


def plan(name: str) -> Plan:
    return make_plan(experiment.load(configs.find(name)))


def stored_text(document: object, folder: Path) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


SETTINGS = (
    *("addressing=ipv6", "addressing=both"),
    "probes=[{from: h3, to: h1}, {from: h2, to: h1, kind: udp}]",
    "programs=[{name: get, host: h2, command: [curl, h1], to: [h1]}]",
    "noise={profile: exact, interrupts: {least: 50us, most: 250us}}",
    "noise={profile: exact, interrupts: {per_second: 20000, below_gigabit: 4000}}",
    "links.overrides=[{between: [s1, s2], loss: 0.25, queue: {kind: fq_codel, limit: 9 packets}}, "
    "{from: s1, to: h1, rate: 10mbit, queue: {kind: pie, limit: 1 bdp}}]",
)
"""What no configuration that we ship asks for."""


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        *((path, ()) for path in configs.everything()),
        *((configs.find("linear-12"), (setting,)) for setting in SETTINGS),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value)[:16],
)
def test_a_stored_plan_is_the_same_plan(path, settings, tmp_path):
    asked = experiment.load(path, settings) if settings else outcast.load(path)
    first = make_plan(asked)
    # The plan's links have them.
    for _, _, data in first.graph.edges(data=True):
        data.pop("own", None)
    text = stored.dumps(first)
    again = stored.read_plan(stored_text(text, tmp_path))
    for field in fields(Plan):
        if field.name != "graph":
            assert getattr(again, field.name) == getattr(first, field.name), field.name
    assert again.routes == first.routes
    # Interfaces are made in the order of nodes and of each node's neighbours.
    assert list(again.graph.nodes(data=True)) == list(first.graph.nodes(data=True))
    for node in first.graph:
        assert list(again.graph.adj[node].items()) == list(first.graph.adj[node].items())
    assert stored.dumps(again) == text


def test_a_stored_plan_is_read_without_mininet():
    script = "import sys, outcast.plan.stored; sys.exit('mininet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
