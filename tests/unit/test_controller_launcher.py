"""The controller's command line and its choice of framework, without a switch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANG_S


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.parametrize("framework", ["ryu", "os_ken"])
def test_the_framework_can_be_forced(framework: str) -> None:
    show = "from controllers import openflow; print(openflow.framework, openflow.App.__module__)"
    done = run("-c", show, OUTCAST_OPENFLOW=framework)
    assert done.stdout == f"{framework} {framework}.base.app_manager\n"
    assert done.stderr == ""


def test_os_ken_serves_where_ryu_cannot_be_imported() -> None:
    show = "import sys; sys.modules['ryu'] = None; import controllers.openflow as o; "
    done = run("-c", show + "print(o.framework)")
    assert done.stdout == "os_ken\n"


def test_ryu_is_the_first_choice() -> None:
    done = run("-c", "import controllers.openflow as o; print(o.framework)")
    assert done.stdout == "ryu\n"


def test_no_framework_at_all_names_both_reasons() -> None:
    block = "import sys; sys.modules['ryu'] = sys.modules['os_ken'] = None; "
    done = run("-c", block + "import controllers.openflow")
    assert "no OpenFlow framework can be imported (ryu: " in done.stderr
    assert "; os_ken: " in done.stderr


def test_an_unknown_framework_is_refused() -> None:
    done = run("-c", "import controllers.openflow", OUTCAST_OPENFLOW="pox")
    assert "OUTCAST_OPENFLOW=pox: allowed are ryu, os_ken" in done.stderr


@pytest.mark.parametrize("framework", ["ryu", "os_ken"])
def test_a_graph_that_cannot_be_read_is_one_clear_line(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "graph.json"
    done = run("-m", "controllers", "--graph", str(path), OUTCAST_OPENFLOW=framework)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"controllers: error: {path}: No such file or directory\n"


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_wrong_port_is_refused(port: str) -> None:
    done = run("-m", "controllers", "--graph", "any", "--port", port)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "argument --port" in done.stderr
