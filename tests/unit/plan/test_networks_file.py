"""A network from a Mininet file of the user's: what is honoured, what is refused, what runs it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import outcast
from outcast import experiment, workflow
from outcast.errors import ConfigError, OutcastError
from outcast.experiment import Network, Source
from outcast.networks import resolve, topo_file
from outcast.plan.make import make_plan
from outcast.plan.model import Planned
from outcast.records.run_directory import RunDirectory
from outcast.sweep import store
from outcast.sweep.plan import plan_sweep
from outcast.uses.classroom import evidence
from tests.golden.run_directory import analysed_run

CONFIG = """
name: own
topology: {kind: file, path: net.py, topo: mine}
links: {rate: 100mbit}
queue: {kind: pfifo, limit: 20 packets}
flows: [{from: [h1], to: h2}]
duration: 100ms
engine: virtual
"""

HEAD = """
from mininet.topo import Topo
class Mine(Topo):
    def build(self, far=1, **more):
        self.addSwitch('s1')
"""
TAIL = "\ntopos = {'mine': Mine}\n"
PAIR = """
        self.addLink(self.addHost('h1'), 's1')
        self.addLink(self.addHost('h2'), 's1')
"""


def config_of(folder: Path, code: str, *, config: str = CONFIG) -> Path:
    (folder / "net.py").write_text(code)
    file = folder / "own.yaml"
    file.write_text(config)
    return file


def network_of(file: Path, **overrides: Any) -> Network:
    topology = resolve.experiment_of(experiment.read(file, overrides)).topology
    assert isinstance(topology, experiment.OwnTopology)
    assert topology.network is not None
    return topology.network


def test_the_options_of_nodes_and_links_are_honoured(tmp_path):
    code = (
        HEAD
        + """
        self.addSwitch('s2', dpid='00:00:00:00:00:00:00:ff', layer='core', failMode='secure')
        self.addSwitch('edge')
        self.addHost('h1', ip='10.1.2.3/24', mac='02:00:00:00:00:99')
        self.addHost('h2')
        self.addHost('h10', role='receiver')
        self.addLink('h1', 's1', bw=10, delay='5ms', use_htb=True)
        self.addLink('h2', 's2', port1=0, port2=7, params2={'bw': 0.5})
        self.addLink('h10', 'edge')
        self.addLink('s1', 's2', params1=dict(bw=1), params2=dict(delay='20us'))
        self.addLink('s2', 'edge')
"""
        + TAIL
    )
    network = network_of(config_of(tmp_path, code))
    assert [host.name for host in network.hosts] == ["h1", "h2", "h10"]
    assert [host.ip for host in network.hosts] == ["10.1.2.3", "10.0.0.2", "10.0.0.3"]
    assert network.hosts[0].mac == "02:00:00:00:00:99"
    assert network.hosts[2].role == "receiver"
    dpids = {switch.name: (switch.dpid, switch.layer) for switch in network.switches}
    assert dpids == {"edge": (2, "edge"), "s1": (1, "edge"), "s2": (255, "core")}
    own = {link.ends: link.own for link in network.links}
    limited = {"rate": "10mbit", "delay": "5ms"}
    assert own["h1-eth0", "s1-eth1"] == {"h1": limited, "s1": limited}
    assert own["h2-eth0", "s2-eth7"] == {"s2": {"rate": "500kbit"}}
    assert own["s1-eth2", "s2-eth2"] == {"s1": {"rate": "1mbit"}, "s2": {"delay": "20us"}}
    assert sorted(network.notes) == [
        "failMode of switches, which outcast sets up itself",
        "use_htb of links, which outcast sets up itself",
    ]


def test_a_links_loss_and_queue_are_in_the_words_of_a_configuration():
    info = {"node1": "h1", "node2": "s1", "port1": 0, "port2": 3, "loss": 2, "jitter": None}
    notes: dict[str, None] = {}
    described = topo_file.link(
        {**info, "max_queue_size": 30, "cls": None}, lambda name: name == "s1", notes
    )
    queue = {"kind": "pfifo", "limit": "30 packets"}
    assert described == {
        "ends": ["h1-eth0", "s1-eth3"],
        "own": {"h1": {"loss": 0.02}, "s1": {"loss": 0.02, "queue": queue}},
    }
    assert list(notes) == ["max_queue_size at a host's own end, where the queue holds 1000 packets"]


WHOLE = {
    "syntax": ("def (:\n", "net.py:1: invalid syntax"),
    "raises": (HEAD + "        {}['x']\n" + TAIL, "net.py:6: KeyError: 'x'"),
    "on import": ("import nothing_of_that_name\n", "net.py:1: ModuleNotFoundError"),
    "exits": ("raise SystemExit(3)\n", "net.py:1: ends the program"),
    "no topos": (HEAD + PAIR, "net.py: has no `topos`"),
    "no such topo": (HEAD + PAIR + "\ntopos = {'main': Mine}", "did you mean 'main'?"),
    "no Topo": ("topos = {'mine': dict}", "gives dict; allowed is a mininet.topo.Topo"),
    "alone": (HEAD + TAIL, "0 hosts and 1 switches"),
}
FURTHER = Path(__file__).with_name("refused_networks.txt").read_text().splitlines()[1:]
"""Lines of `build()` in a network of a switch and two hosts, and what refuses each."""
BROKEN = WHOLE | {
    line: (f"{HEAD}{PAIR}        {line}\n{TAIL}", refusal)
    for line, refusal in (row.split(" >> ") for row in FURTHER)
}


@pytest.mark.parametrize(("code", "refusal"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_line(tmp_path, code, refusal):
    with pytest.raises(ConfigError) as refused:
        outcast.load(config_of(tmp_path, code))
    text = str(refused.value)
    assert refusal in text
    assert text.startswith(str(tmp_path / "net.py"))
    assert "\n" not in text


def test_arguments_that_do_not_fit(tmp_path):
    file = config_of(tmp_path, HEAD.replace(", **more", "") + PAIR + TAIL)
    with pytest.raises(ConfigError, match=r"net.py: topology.args: TypeError: .*'faar'"):
        outcast.load(file, {"topology.args.faar": 3})
    outcast.load(file, {"topology.args.far": 3})


def test_chance_is_the_same_every_time(tmp_path):
    code = HEAD + PAIR + "        import random\n        for n in {'a', 'b', 'c'}:\n"
    code += "            self.addLink(self.addHost(f'{n}{random.randrange(1000)}'), 's1')\n" + TAIL
    file = config_of(tmp_path, code)
    assert network_of(file) == network_of(file)


def test_flows_name_a_receiver_where_the_topology_has_none(tmp_path):
    config = CONFIG.replace(", to: h2", "")
    file = config_of(tmp_path, HEAD + PAIR + TAIL, config=config)
    with pytest.raises(ConfigError, match=r"flows.0.to: is missing, and no host .* receiver"):
        outcast.load(file)
    workload = "[{kind: incast, bytes: 20KB, senders: 1, rounds: 1}]"
    config = CONFIG.replace("flows: [{from: [h1], to: h2}]", f"workloads: {workload}")
    with pytest.raises(ConfigError, match=r"workloads.0"):
        outcast.load(config_of(tmp_path, HEAD + PAIR + TAIL, config=config))


# What executes the file, and what never does.

TRACE = "import pathlib\npathlib.Path({!r}).open('a').write('x')\n"


def traced(folder: Path, trace: Path) -> Path:
    return config_of(folder, TRACE.format(str(trace)) + HEAD + PAIR + TAIL)


def runs_of(trace: Path) -> int:
    return len(trace.read_text()) if trace.exists() else 0


def test_reading_a_configuration_runs_nothing(tmp_path):
    trace = tmp_path / "trace"
    file = traced(tmp_path, trace)
    plain = experiment.load(file)
    assert experiment.load_resolved(file) == plain
    with pytest.raises(ConfigError, match=r"the network that net.py makes is not in this"):
        make_plan(plain)
    with pytest.raises(ConfigError, match="is not in this configuration"):
        workflow.execute(Planned(plain), _NoEngine(), tmp_path / "out", lambda _event: None)
    assert runs_of(trace) == 0
    outcast.load(file)
    assert runs_of(trace) == 1


class _NoEngine:
    name = "virtual"

    def run(self, *_arguments: object) -> dict[str, float]:
        raise AssertionError("the engine was started")


def test_a_resolved_configuration_needs_no_file(tmp_path):
    trace = tmp_path / "trace"
    file = traced(tmp_path, trace)
    loaded = outcast.load(file)
    (tmp_path / "net.py").unlink()
    result = tmp_path / "result"
    result.mkdir()
    directory = RunDirectory(result)
    directory.config.write_text(experiment.dump(loaded))
    directory.write_plan(make_plan(loaded))
    assert experiment.load_resolved(directory.config) == loaded
    again = outcast.load(directory.config, {"seed": 7})
    assert make_plan(again).hosts == ["h1", "h2"]
    assert runs_of(trace) == 1


@pytest.mark.parametrize(
    ("name", "mark"),
    [("config.yaml", "plan.json"), ("config.yaml", "manifest.json"), ("sweep.yaml", "runs")],
)
def test_nothing_is_run_from_a_results_folder(tmp_path, name, mark):
    trace = tmp_path / "trace"
    file = traced(tmp_path, trace).rename(tmp_path / name)
    (tmp_path / mark).write_text("{}")
    with pytest.raises(ConfigError, match="files that a result names are not read") as refused:
        outcast.load(file)
    assert f"{name}:3: topology.path: net.py" in str(refused.value)
    assert runs_of(trace) == 0


def test_another_network_than_the_results_is_not_run(tmp_path):
    trace = tmp_path / "trace"
    loaded = outcast.load(traced(tmp_path, trace))
    opened = experiment.validate(yaml.safe_load(experiment.dump(loaded)), "it")
    source = Source.of(opened).changed({"topology.args.far": 2})
    with pytest.raises(ConfigError, match="files that a result names are not read"):
        resolve.experiment_of(source)
    assert runs_of(trace) == 1
    # The experiment that was loaded from the user's own file still knows where that is.
    resolve.experiment_of(Source.of(loaded).changed({"topology.args.far": 2}))
    assert runs_of(trace) == 2


def test_a_hostile_network_in_a_configuration_is_refused(tmp_path):
    loaded = outcast.load(traced(tmp_path, tmp_path / "trace"))
    text = experiment.dump(loaded)
    for old, new, refusal in (
        ("ends: [h1-eth0", "ends: [h1-eth00000", "allowed is the name of an interface"),
        ("ends: [h1-eth0", "ends: [h9-eth0", "there is no node 'h9'"),
        ("{name: h1,", "{name: ../h1,", "is no name for a node"),
        ("{name: h1,", "{name: h1, code: 1,", "unknown key; allowed are name, ip"),
        ("10.0.0.1", "10.0.0.1; reboot", "allowed is an IPv4 address"),
        ("dpid: 1", "dpid: 0", "more than 0"),
    ):
        assert old in text
        file = tmp_path / "hostile.yaml"
        file.write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match=refusal) as refused:
            outcast.load(file)
        assert "\n" not in str(refused.value)


@pytest.fixture
def foreign(tmp_path) -> tuple[RunDirectory, Path]:
    """Somebody else's run, whose config.yaml names a file that leaves a trace when it is run."""
    directory = analysed_run(tmp_path / "run", 20_000_000, 1, 1_600)
    trace = directory.path / "trace"
    (directory.path / "net.py").write_text(TRACE.format(str(trace)) + HEAD + PAIR + TAIL)
    tree = yaml.safe_load(directory.config.read_text())
    tree["topology"] = {"kind": "file", "path": str(directory.path / "net.py"), "topo": "mine"}
    directory.config.write_text(yaml.safe_dump(tree))
    directory.seal()
    return directory, trace


def test_a_submissions_replay_runs_no_code_of_it(foreign, tmp_path):
    directory, trace = foreign
    named = experiment.load_resolved(directory.config)
    with pytest.raises(OutcastError):
        evidence.Guest().run(named, tmp_path / "replay")
    assert not trace.exists()


# Sweeps.


def test_a_sweep_over_an_argument_has_a_network_for_each_point(tmp_path):
    trace = tmp_path / "trace"
    code = TRACE.format(str(trace)) + HEAD + PAIR
    code += "        for n in range(far): self.addLink(self.addHost(f'f{n}'), 's1')\n" + TAIL
    file = config_of(tmp_path, code)
    source = experiment.read(file, ["sweep={topology.args.far: [1, 3]}", "repetitions=2"])
    planned = plan_sweep(source, lambda _experiment: "virtual")
    sizes = [len(topology.network.hosts) for topology in planned.own_topologies if topology.network]
    assert sizes == [3, 3, 5, 5]
    assert runs_of(trace) == 2
    for task in planned.tasks(()):
        carried = tmp_path / f"{task.name}.yaml"
        carried.write_text(task.config)
        make_plan(experiment.load(carried))
    folder = tmp_path / "sweep"
    with store.opened(folder, planned.experiment, resume=False) as directory:
        store.keep_networks(directory, planned.own_topologies)
    assert (folder / "sources" / "net.py").read_text() == code

    # It goes on from its own folder without the file.
    (tmp_path / "net.py").rename(tmp_path / "gone.py")
    resumed = plan_sweep(experiment.read(folder / "sweep.yaml"), lambda _experiment: "virtual")
    assert [run.point.name for run in resumed.runs] == [run.point.name for run in planned.runs]
    assert resumed.own_topologies == planned.own_topologies
    assert runs_of(trace) == 2
    with pytest.raises(ConfigError, match="files that a result names are not read"):
        plan_sweep(
            experiment.read(folder / "sweep.yaml", ["sweep={topology.args.far: [9]}"]),
            lambda _experiment: "virtual",
        )

    # A file that makes another network does not mix with the earlier runs.
    (tmp_path / "net.py").write_text(code.replace("'f{n}'", "'g{n}'").replace("f'f", "f'g"))
    changed = plan_sweep(source, lambda _experiment: "virtual")
    with (
        pytest.raises(ConfigError, match="makes another network than when the sweep began"),
        store.opened(folder, changed.experiment, resume=True) as directory,
    ):
        store.keep_networks(directory, changed.own_topologies)
