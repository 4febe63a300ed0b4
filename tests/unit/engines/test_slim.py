"""Packages of which a program takes only a part."""

import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"
SCRIPT = """
import sys
from controllers import slim
slim.slim(*slim.GRAPHS)
slim.later("pyroute2")
import networkx, pyroute2
from pyroute2.iproute import IPRoute
from pyroute2.netlink.rtnl.tcmsg import tcmsg
graph = networkx.Graph()
graph.add_node(1, kind="host")
graph.add_edge(1, 2, ports={1: 0, 2: 1})
graph.add_edge(2, 3)
assert graph.degree(2) == 2 and list(graph.adj[1]) == [2] and graph.nodes[1]["kind"] == "host"
assert "networkx.algorithms" not in sys.modules
assert "pyroute2.ndb.main" not in sys.modules
assert IPRoute.__module__.startswith("pyroute2.iproute")
# What else is asked for is there, too.
assert networkx.shortest_path(graph, 1, 3) == [1, 2, 3]
assert pyroute2.NDB
try:
    networkx.no_such_thing
except AttributeError as error:
    print(error)
"""


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{folder}:{Path(__file__).parents[3]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_slim_package_has_its_parts_and_becomes_whole_when_asked(tmp_path):
    assert "no attribute 'no_such_thing'" in run(SCRIPT, tmp_path)


@pytest.mark.parametrize(
    "framework", [name for name in ("ryu", "os_ken") if util.find_spec(name) is not None]
)
def test_a_controller_imports_no_packet_and_no_protocol_that_it_does_not_speak(framework, tmp_path):
    script = f"""
import os, sys
os.environ["OUTCAST_OPENFLOW"] = {framework!r}
from controllers import slim
slim.later(*slim.OPENFLOW)
from controllers import openflow
assert openflow.framework == {framework!r}
unused = ("lib.packet.tcp", "lib.packet.bgp")
print([name for name in unused if f"{framework}.{{name}}" in sys.modules])
for minor in (0, 2, 4):
    parser = sys.modules[f"{framework}.ofproto.ofproto_v1_{{minor}}_parser"]
    print("OFPHello" in vars(parser))
"""
    assert run(script, tmp_path) == "[]\nFalse\nFalse\nFalse\n"


def test_a_run_plans_with_a_slim_networkx_and_imports_no_builder(tmp_path):
    """None of these is used before the guest boots, and each would be waited for."""
    code = (
        "import sys\n"
        "import outcast.cli, outcast.cli.run\n"
        "with outcast.cli.click.Context(outcast.cli.whole): outcast.cli.whole.callback()\n"
        "from outcast.api import experiments, guest, making\n"
        "from outcast.engines import choose, virtual\n"
        "from outcast.plan import stored\n"
        "from outcast.plan.make import make_plan\n"
        f"chosen = experiments.load({str(FIG3C)!r})\n"
        "stored.dumps(make_plan(chosen.resolved('virtual')))\n"
        "for name in ('networkx.algorithms', 'pyroute2', 'outcast.engines.realtime'):\n"
        "    assert name not in sys.modules, name\n"
    )
    run(code, tmp_path)
