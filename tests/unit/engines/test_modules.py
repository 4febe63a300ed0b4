"""The kernel's modules: what a machine has, what a run loads, and what doctor reports."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from outcast.emulation.network import openvswitch, transport
from outcast.engines import doctor, modules, realtime, virtual
from outcast.engines.guest import kernels
from outcast.engines.modules import Answer, Modules
from outcast.errors import FeatureMissingError
from outcast.experiment import load
from outcast.plan.model import Planned

LINEAR = Path(__file__).parents[3] / "configs/linear-12.yaml"
FOLDER = "/lib/modules/6.1.0-28-amd64/kernel/net"
NOT_FOUND = "modprobe: FATAL: Module {} not found in directory /lib/modules/6.1.0-28-amd64"
REFUSED = "modprobe: ERROR: could not insert 'tcp_bic': Key was rejected by service"


class Machine:
    """A kernel with modules on disk, and its modprobe."""

    def __init__(self, folder: Path) -> None:
        self.sys = folder / "sys"
        self.files = {
            "tcp_bic": [f"{FOLDER}/ipv4/tcp_bic.ko.xz"],
            "sch_sfq": [f"{FOLDER}/sched/sch_sfq.ko"],
            "openvswitch": [
                f"{FOLDER}/netfilter/nf-conntrack.ko",
                f"{FOLDER}/openvswitch/openvswitch.ko",
            ],
        }
        self.refused: dict[str, str] = {}
        self.replaced: set[str] = set()
        self.calls: list[tuple[str, ...]] = []
        self.insert("sch_htb")
        (self.sys / "tcp_cubic").mkdir()

    def insert(self, module: str) -> None:
        (self.sys / module).mkdir(parents=True)
        (self.sys / module / "initstate").write_text("live\n")
        (self.sys / module / "srcversion").write_text("0A1B\n")

    def modprobe(self, _: str, *arguments: str) -> Answer:
        option = arguments[0] if arguments[0].startswith("--") else "load"
        module, *parameters = arguments[option != "load" :]
        self.calls.append((option, module, *parameters))
        if module == "sch_tbf":
            return Answer(0, "builtin sch_tbf\n" if option == "--show-depends" else "")
        if module in self.replaced:
            return Answer(0, "install /bin/true \n")
        if module not in self.files:
            return Answer(1, "", NOT_FOUND.format(module))
        if option == "load":
            if module in self.refused:
                return Answer(1, f"insmod {self.files[module][0]} \n", self.refused[module])
            for file in self.files[module]:
                self.insert(Path(file).name.split(".")[0].replace("-", "_"))
        return Answer(0, "".join(f"insmod {file} \n" for file in self.files[module]))

    @property
    def modules(self) -> Modules:
        return Modules(self.modprobe, self.sys)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("feature", "state", "detail"),
    [
        (modules.qdisc("htb"), "ready", ""),
        (modules.qdisc("tbf"), "ready", ""),
        (modules.qdisc("sfq"), "loadable", "the module sch_sfq, loaded when a run needs it"),
        (modules.qdisc("pie"), "absent", NOT_FOUND.format("sch_pie")),
        # These have no module.
        (modules.qdisc("pfifo"), "absent", ""),
        (modules.congestion_control("reno"), "absent", ""),
        ("root", "absent", ""),
    ],
)
def test_what_is_there_is_told_apart_and_nothing_is_loaded(feature, state, detail, machine):
    found = machine.modules.look_up(feature)
    assert (found.state, found.detail) == (state, detail)
    assert not any(option == "load" for option, *_ in machine.calls)


def test_what_a_run_loaded_is_recorded_apart_from_what_was_there(machine):
    features = [modules.OPEN_VSWITCH, *map(modules.qdisc, ("tbf", "htb", "pie", "pfifo"))]
    loading = machine.modules.load(features)
    assert loading.loaded == {"openvswitch"}
    assert machine.modules.record(features, loading) == {
        "openvswitch": {"loaded": "by this run", "srcversion": "0A1B"},
        "sch_htb": {"loaded": "before it", "srcversion": "0A1B"},
    }
    machine.calls.clear()
    assert machine.modules.load([modules.OPEN_VSWITCH]).loaded == set()
    assert machine.calls == []


def test_ifb_makes_no_devices_in_the_machines_own_namespace(machine):
    machine.files["ifb"] = [f"{FOLDER}/ifb.ko numifbs=0"]
    assert machine.modules.load(modules.HELD_ARRIVALS).loaded == {"ifb"}
    assert ("load", "ifb", "numifbs=0") in machine.calls


@pytest.fixture
def realtime_engine(machine, monkeypatch, tmp_path) -> realtime.RealtimeEngine:
    """The engine as root on that machine, whose kernel shows what has been loaded."""
    available = tmp_path / "available"

    def probe(kinds: Collection[str]) -> dict[str, bool]:
        always = {"pfifo", "bfifo", "tbf"}
        return {kind: kind in always or (machine.sys / f"sch_{kind}").exists() for kind in kinds}

    def controls() -> list[str]:
        loaded = [path.name[4:] for path in machine.sys.glob("tcp_*")]
        return ["reno", *loaded]

    monkeypatch.setattr(realtime.os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        doctor, "works", lambda all_of: {name: name == "namespaces" for name in all_of}
    )
    monkeypatch.setattr(doctor, "probe_qdiscs", probe)
    monkeypatch.setattr(transport, "congestion_controls", controls)
    monkeypatch.setattr(transport, "AVAILABLE_CONGESTION_CONTROLS", available)
    has = (machine.sys / "openvswitch").exists
    monkeypatch.setattr(realtime, "has_kernel_module", has)
    monkeypatch.setattr(openvswitch, "has_kernel_module", has)
    return realtime.RealtimeEngine(machine.modules)


def test_the_realtime_engine_loads_what_the_experiment_needs(realtime_engine, machine):
    overrides = ["queue={kind: sfq, limit: 11 packets}", "transport.congestion_control=bic"]
    realtime_engine.require(*Planned(load(LINEAR, overrides)).by("realtime"))
    tried = {module for option, module, *_ in machine.calls if option == "load"}
    assert {"sch_sfq", "tcp_bic", "openvswitch"} <= tried
    # Open vSwitch's module forwards, so the bridge's is not touched.
    assert "bridge" not in tried
    assert "tcp_cubic" not in tried


def test_what_cannot_be_loaded_is_missing_in_one_line(realtime_engine, machine, monkeypatch):
    machine.refused["tcp_bic"] = REFUSED
    built = replace(guest("7.3.4"), congestion_controls=("bic", "cubic"))
    monkeypatch.setattr(kernels, "find", lambda: built)
    with pytest.raises(FeatureMissingError) as caught:
        realtime_engine.require(
            *Planned(load(LINEAR, ["transport.congestion_control=bic"])).by("realtime")
        )
    assert "no congestion control bic" in str(caught.value)
    assert f"tcp_bic was not loaded: {REFUSED}; the virtual" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(FeatureMissingError, match="no qdisc pie, and the module sch_pie was not"):
        realtime_engine.require(
            *Planned(load(LINEAR, ["queue={kind: pie, limit: 11 packets}"])).by("realtime")
        )
    del machine.files["openvswitch"]
    for path in sorted((machine.sys / "openvswitch").iterdir()):
        path.unlink()
    (machine.sys / "openvswitch").rmdir()
    with pytest.raises(FeatureMissingError, match="no Open vSwitch module, and the module openv"):
        realtime_engine.require(*Planned(load(LINEAR, ["routing.kind=hashed"])).by("realtime"))
    assert ("load", "bridge") in machine.calls


def guest(release: str) -> kernels.Kernel:
    return kernels.Kernel("linux-source", "1", "recipe", release, 0.0, "hash", Path("linux"))


def diagnosis(
    machine: Machine, *, built: bool = True, release: str = "7.3.4"
) -> dict[str, doctor.Finding]:
    found = doctor.diagnose(guest(release) if built else None, machine.modules)
    return {finding.feature: finding for finding in found.findings}


def test_the_virtual_engine_refuses_a_queue_that_is_newer_than_its_kernel(monkeypatch):
    monkeypatch.setattr(kernels, "find", lambda: guest("6.12.48"))
    queues = (
        "queue={kind: dualpi2, limit: 11 packets}",
        "queues=[{at: bottleneck, queue: {kind: dualpi2, limit: 11 packets}}]",
    )
    for queue in queues:
        with pytest.raises(FeatureMissingError, match=r"no qdisc dualpi2; build .* 6\.17"):
            virtual.VirtualEngine().require(*Planned(load(LINEAR, [queue])).by("virtual"))


def test_an_ordinary_users_programs_are_looked_for_where_the_system_has_them(machine, monkeypatch):
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "probe_qdiscs", lambda kinds: {})
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    found = diagnosis(machine)
    assert found["Open vSwitch"].present
    assert found["iproute2"].present
    assert not found["root"].present


def test_a_module_of_the_users_is_loaded_and_unloaded():
    ran: list[tuple[str, ...]] = []
    answers = [Answer(0), Answer(1, "", "rmmod: ERROR: Module tcp_mine is in use"), Answer(0)]

    def run(*argv: str) -> Answer:
        ran.append(argv)
        return answers.pop(0)

    modules.insert(Path("/cache/tcp_mine.ko"), "beta=717 fast=1", run)
    modules.unload("tcp_mine", run=run)
    assert ran == [
        ("insmod", "/cache/tcp_mine.ko", "beta=717", "fast=1"),
        ("rmmod", "tcp_mine"),
        ("rmmod", "tcp_mine"),
    ]
    assert answers == []
