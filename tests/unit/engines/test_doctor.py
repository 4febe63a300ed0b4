"""What is not installed is named before a run starts, by doctor and by both engines."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from outcast import experiment, files
from outcast.engines import doctor, virtual
from outcast.engines.guest import check, kernels, parts
from outcast.engines.guest.files_list import settle
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.roots import Root
from outcast.errors import FeatureMissingError
from outcast.plan.model import Planned

CONFIG = Path(__file__).parents[3] / "configs" / "fig3c.yaml"
GUEST = Kernel("linux-source-7.3", "7.3.4-1", "", "7.3.4", 0.0, "", Path("linux"))


@pytest.fixture
def without(monkeypatch) -> set[str]:
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


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({"ovs-vswitchd"}, "Open vSwitch; install Debian's package openvswitch-switch"),
        ({"iperf", "tc"}, "iperf 2 and iproute2; install Debian's package iperf (.*); install"),
        ({"mininet"}, "Mininet's Python package; install .* --system-site-packages"),
        ({"eventlet"}, "Ryu or os-ken; install Python's packages os-ken, eventlet"),
        ({"ryu", "os_ken"}, "Ryu or os-ken; install Python's packages os-ken, eventlet"),
    ],
)
def test_a_run_is_refused_before_it_starts(without, missing, message, monkeypatch):
    monkeypatch.setattr(kernels, "find", lambda: GUEST)
    without |= missing
    with pytest.raises(FeatureMissingError, match=rf"^not installed here: {message}") as raised:
        virtual.VirtualEngine().require(
            *Planned(experiment.load(CONFIG, ["guest.root=host"])).by("virtual")
        )
    assert raised.value.exit_status == 3


@pytest.mark.parametrize("program", ["unshare", "setpriv", "cc"])
def test_what_the_guest_does_without_is_no_hindrance(without, program):
    without.add(program)
    doctor.require_programs()


@pytest.fixture
def kernel(tmp_path) -> Kernel:
    """A kernel that is as it was built."""
    program = tmp_path / "linux"
    program.write_bytes(b"ELF")
    return replace(GUEST, program=program, sha256=files.sha256(program))


@pytest.fixture
def root(tmp_path) -> Root:
    """A root of one file that is as it was kept."""
    folder = tmp_path / "roots" / "new" / "root"
    folder.mkdir(parents=True)
    (folder / "program").write_text("x", encoding="utf-8")
    listed = settle(folder)
    place = folder.parent.with_name(hashlib.sha256(listed.encode()).hexdigest()[:20])
    folder.parent.rename(place)
    (place / "files.tsv").write_text(listed, encoding="utf-8")
    return Root(place / "root", place.name, "lock", {"bash": "5.2"})


def features_of(diagnosis: doctor.Diagnosis) -> dict[str, doctor.Finding]:
    return {finding.feature: finding for finding in diagnosis.findings}


def test_the_guest_needs_no_program_of_this_machine(without, kernel, root):
    without |= {"tcpdump", "iperf", "ovs-vswitchd", "mnexec", "tc", "ethtool", "cc"}
    diagnosis = doctor.diagnose(kernel, root=root)
    assert diagnosis.engines == {"realtime": False, "virtual": True}
    features = features_of(diagnosis)
    remedy = "install Debian's package tcpdump (scripts/install.sh does)"
    assert features["tcpdump"].remedy == remedy
    assert features["tcpdump"].engine == "realtime"
    for name, key in (("kernel", kernel.key), ("root", root.key)):
        finding = features[f"virtual engine's {name}"]
        assert finding.engine == "virtual"
        assert key in finding.detail
        assert finding.detail.endswith("verified")


def test_what_the_guest_lacks_has_a_remedy(without, kernel, root):
    diagnosis = doctor.diagnose(None)
    assert not diagnosis.engines["virtual"]
    features = features_of(diagnosis)
    for name in ("kernel", "root"):
        assert features[f"virtual engine's {name}"].remedy == parts.REMEDY
    without.add("mininet")
    diagnosis = doctor.diagnose(kernel, root=root)
    assert not diagnosis.engines["virtual"]
    assert "outcast-guest" in features_of(diagnosis)["Mininet's Topo, which plans"].remedy


def test_the_guests_kernel_is_asked_for_all_that_it_is_built_with():
    fragment = (Path(__file__).parents[3] / "scripts/guest/fragment.config").read_text(
        encoding="utf-8"
    )
    built = re.findall(r"^CONFIG_(NET_SCH|TCP_CONG)_(\w+)=y$", fragment, re.MULTILINE)
    qdiscs = {name.lower() for kind, name in built if kind == "NET_SCH"}
    controls = {name.lower() for kind, name in built if kind == "TCP_CONG"} - {"advanced"}
    # Stock kernels have these; the ingress is no queue, and not every source takes the cable.
    assert qdiscs - {"ingress", "cable"} == {*check.QDISCS, *doctor.QDISCS} - {"pfifo", "bfifo"}
    assert {*check.CONGESTION_CONTROLS} == controls | {"reno"}
    assert {*doctor.CONGESTION_CONTROLS} <= {*check.CONGESTION_CONTROLS}
    # A qdisc that a queue kind uses is asked for by the kind.
    assert not check.QDISCS.keys() & doctor.QDISCS.keys()
