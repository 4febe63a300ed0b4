"""Faults between the controller and the flows are found and named before any flow starts."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outcast.emulation.network import openvswitch, transport
from outcast.experiment import dump, load
from outcast.plan.make import make_plan
from outcast.records.run_directory import RunDirectory
from tests import guest_runs
from tests.emulation.hops import ISOLATED

CONFIG = Path(__file__).parents[2] / "configs" / "fattree-12.yaml"
SETUP = """
import sys
from outcast.emulation import __main__
from outcast.emulation import inner_run
{fault}
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _allowed() -> Iterator[None]:
    """Allows the congestion control in namespaces, as the engine outside would do."""
    before = transport.ALLOWED_CONGESTION_CONTROLS.read_text()
    transport.allow_congestion_control(load(CONFIG).transport.congestion_control)
    yield
    transport.ALLOWED_CONGESTION_CONTROLS.write_text(before)


def run_with(fault: str, folder: Path) -> tuple[list[str], str]:
    """Runs the inner program with `fault` in it, isolated as the engine does; its phases, error."""
    resolved = load(CONFIG).resolved("realtime")
    (folder / "config.yaml").write_text(dump(resolved))
    RunDirectory(folder).write_plan(make_plan(resolved))
    scratch = folder / ".scratch"
    scratch.mkdir()
    words = [*ISOLATED, sys.executable, "-c", SETUP.format(fault=fault), str(folder), "realtime"]
    done = guest_runs.ran(words, env={**os.environ, "TMPDIR": str(scratch)})
    assert done.stdout, done.stderr
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1, events
    assert events[-1]["event"] == "error", events
    phases = [event["phase"] for event in events if event["event"] == "phase"]
    return phases, str(events[-1]["message"])


def test_a_flow_entry_changed_after_its_installation_is_found(tmp_path):
    phases, message = run_with(
        """
real_verify = inner_run.verify_tables
def tampered(plan, dump_flows, commands):
    commands.run(["ovs-ofctl", "-O", "OpenFlow13", "mod-flows", "a0_1",
                  "ip,nw_dst=10.0.0.2,actions=output:3"])
    return real_verify(plan, dump_flows, commands)
inner_run.verify_tables = tampered
""",
        tmp_path,
    )
    assert message.startswith("a0_1: flow table: ")
    assert "10.0.0.2" in message
    assert phases == ["setup", "verify"]


@pytest.mark.skipif(openvswitch.has_kernel_module(), reason="Open vSwitch forwards by itself")
@pytest.mark.parametrize(
    ("switch", "wrong_way", "said"),
    [
        # Back to where the probe came from, so it is lost.
        ("e0_0", "h0_0_3", "a probe from h0_0_3 to h0_0_2"),
        # Up by the other aggregation switch, so it arrives, but not over the planned ports.
        ("e3_0", "a3_0", "probes sent: requested"),
    ],
)
def test_a_frame_that_takes_another_way_than_planned_is_found(switch, wrong_way, said, tmp_path):
    phases, message = run_with(
        f"""
from outcast.plan.model import Plan
# So that other switches send the frame on.
Plan.carrying = property(lambda plan: plan.graph)
real_install = inner_run.forwarding.install
def tampered(plan, tables, commands):
    real_install(plan, tables, commands)
    wrong = plan.port("{switch}", "{wrong_way}")
    assert plan.path("h3_0_2", "h0_0_2")[2] != "{wrong_way}"
    commands.run(["bridge", "fdb", "replace", plan.mac("h0_0_2"), "dev", wrong, "master", "static"])
inner_run.forwarding.install = tampered
""",
        tmp_path,
    )
    assert said in message
    assert phases == ["setup", "verify"]


def test_a_switch_that_never_connects_is_named(tmp_path):
    phases, message = run_with(
        """
from outcast.emulation.network import controller
controller.READY_DEADLINE_S = 15.0
from outcast.emulation.network import openvswitch
real_rows = openvswitch._rows
def cut(plan, switch, number, datapath, target):
    target = "tcp:127.0.0.1:9" if switch == "c0_1" else target
    return real_rows(plan, switch, number, datapath, target)
openvswitch._rows = cut
""",
        tmp_path,
    )
    assert "barrier replies from all switches" in message
    assert message.endswith("never connected: c0_1")
    assert phases == ["setup"]
