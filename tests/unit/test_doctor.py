"""What is not installed is named before a run starts, by doctor and by both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast import experiment
from outcast.engines import choice, doctor, realtime, virtual
from outcast.engines.kernel import cache
from outcast.engines.kernel.cache import Kernel
from outcast.errors import FeatureMissingError

CONFIG = Path(__file__).parents[2] / "configs" / "fig3c.yaml"
GUEST = Kernel("linux-source-7.3", "7.3.4-1", "", "7.3.4", 0.0, "", Path("linux"))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of programs and packages that the machine is to lack."""
    missing: set[str] = set()
    which, find_spec = doctor.shutil.which, doctor.find_spec
    monkeypatch.setattr(
        doctor.shutil, "which", lambda name, **how: None if name in missing else which(name, **how)
    )
    monkeypatch.setattr(
        doctor, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    return missing


def test_all_is_there_on_a_machine_that_is_set_up(without: set[str]) -> None:
    doctor.require_programs()


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({"ovs-vswitchd"}, "Open vSwitch; install Debian's package openvswitch-switch"),
        ({"iperf", "tc"}, "iperf 2 and iproute2; install Debian's package iperf (.*); install"),
        ({"mininet"}, "Mininet's Python package; install .* --system-site-packages"),
        ({"eventlet"}, "Ryu or os-ken; install Python's packages os-ken and eventlet"),
        ({"ryu", "os_ken"}, "Ryu or os-ken; install Python's packages os-ken and eventlet"),
    ],
)
def test_a_run_is_refused_before_it_starts(
    without: set[str], missing: set[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "find", lambda: GUEST)
    without |= missing
    with pytest.raises(FeatureMissingError, match=rf"^not installed here: {message}") as raised:
        virtual.VirtualEngine().require(experiment.load(CONFIG))
    assert raised.value.exit_status == 3


@pytest.mark.parametrize("program", ["unshare", "setpriv", "cc"])
def test_what_the_guest_does_without_is_no_hindrance(without: set[str], program: str) -> None:
    without.add(program)
    doctor.require_programs()


def test_doctor_knows_that_the_guest_needs_programs_too(without: set[str]) -> None:
    assert doctor.diagnose(GUEST).engines["virtual"]
    without.add("tcpdump")
    diagnosis = doctor.diagnose(GUEST)
    assert not diagnosis.engines["virtual"]
    (tcpdump,) = (finding for finding in diagnosis.findings if finding.feature == "tcpdump")
    assert tcpdump.remedy == "install Debian's package tcpdump (scripts/install.sh does)"


def test_why_auto_is_real_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(engine: object, asked: object) -> None:
        raise FeatureMissingError("no room for the guest's memory")

    monkeypatch.setattr(virtual.VirtualEngine, "require", refuse)
    monkeypatch.setattr(realtime.RealtimeEngine, "require", lambda engine, asked: None)
    told: list[str] = []
    auto = experiment.load(CONFIG)
    assert choice.choose(auto, told.append).name == "realtime"
    assert told == [
        "runs in real time, where results depend on this machine; virtual: no room for the "
        "guest's memory"
    ]
    told.clear()
    choice.choose(auto.model_copy(update={"engine": "realtime"}), told.append)
    assert told == []
