"""plan.json: a stored plan reads back as the same plan, and a broken one is refused in one line."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import configs
import outcast
from outcast import experiment
from outcast.errors import InputError
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.records.run_directory import RunDirectory


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


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("format", 9, "made by another version: format 9, this reads 1"),
        ("format", 0, "format: allowed is a whole number"),
        ("format", "1", "format: allowed is a whole number"),
        ("surplus", 1, "surplus"),
        ("routing", "scenic", "routing: allowed are shortest"),
        ("hash_seed", -1, "hash_seed"),
        ("graph", {"nodes": []}, "graph.nodes"),
        ("graph.nodes.14.layer", "attic", "graph.nodes.14.switch.layer"),
        ("graph.nodes.0.kind", "a\nb", "graph.nodes.0: Input tag 'a b'"),
        ("graph.nodes.1.id", "h1", "two have the same id"),
        ("graph.nodes.15.dpid", 1, "node s2: s1 has the same dpid 1"),
        ("graph.edges.0.target", "s9", "graph.edges.0: does not lead"),
        ("graph.edges.1", ("graph.edges.0",), "graph.edges.1: these nodes are linked already"),
        ("graph.edges.0.ports", {"s1": 1}, "`ports` must have a number for each end"),
        ("flows", [{"flow": 1}], "flows.0"),
        ("flows.0.flow", 7, "flows.0: is not numbered 0"),
        ("flows.0.src", "h99", "flows.0: its src or dst is no host"),
        ("flows.0.path.1", "h3", "flows.0.path: does not lead over links"),
        ("flows.0.return_path", [], "flows.0.return_path: does not lead over links"),
        ("flows.0.transport.min_rto", "soon", "flows.0.transport.min_rto"),
        ("bottleneck.egress", "s9-eth1", "bottleneck: its ports are not those"),
        ("others", ("bottleneck",), "others"),
        ("capture_ports.0.0", "eth0", "capture_ports.0: is no port"),
        ("links.0.settings.rate_bps", 0, "links.0.settings.rate_bps"),
        ("links.0.settings.delay_ns", -1, "links.0.settings.delay_ns"),
        ("links.0.directions.0.0", "h3", "links.0: ('h3', 's1') is no link"),
        ("links.0.directions.0", ("links.0.directions.1",), "is named twice"),
        ("links.0.directions", [["h1", "s1"]], "links: some directions have no settings"),
        ("blackout_at", "s9-eth9", "blackout_at: is no input of the bottleneck"),
        (
            "generated",
            [
                dict(flow=0, workload=0, kind="poisson", src="x", dst="y", sport=1)
                | dict(size_bytes=1, start_ns=0)
            ],
            "generated.0: its src or dst is no host",
        ),
    ],
)
def test_a_broken_plan_is_refused_by_its_place(place, value, said, tmp_path):
    document = json.loads(stored.dumps(plan("linear-12")))

    def at(keys: list[str]) -> Any:
        tree = document
        for key in keys:
            tree = tree[int(key) if isinstance(tree, list) else key]
        return tree

    *above, last = place.split(".")
    holder = at(above)
    # A place in a tuple stands for the value there.
    new = at(value[0].split(".")) if isinstance(value, tuple) else value
    holder[int(last) if isinstance(holder, list) else last] = new
    path = stored_text(document, tmp_path)
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        stored.read_plan(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 3000 + "]" * 3000, '{"format": 1e999}', '{"format": NaN}']
)
def test_what_is_no_plan_is_refused(text, tmp_path):
    with pytest.raises(InputError, match=r"plan\.json: ") as refused:
        stored.read_plan(stored_text(text, tmp_path))
    assert "\n" not in str(refused.value)


def test_a_plan_of_gigabytes_is_not_read(tmp_path):
    path = stored_text("{", tmp_path)
    os.truncate(path, 40 << 30)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        stored.read_plan(path)


def test_a_run_from_before_the_plan_was_stored_says_so(tmp_path):
    with pytest.raises(InputError, match=r"no plan\.json; runs made before outcast stored it"):
        RunDirectory(tmp_path).read_plan()
