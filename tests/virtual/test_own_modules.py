"""C files of one's own in the guest's kernel: compiled, loaded, used, and refused."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

import outcast
from outcast.cli import invoke
from outcast.engines.guest import parts
from tests import guest_runs
from tests.guest_runs import OUTCAST, argv, manifest_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "configs" / "examples" / "own-congestion-control.yaml"
SCH_MINE = Path(__file__).parent / "modules" / "sch_mine.c"
SMALL = """
name: small
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit, delay: 50us}
queue: {kind: pfifo, limit: 20 packets}
transport: {congestion_control: cubic, min_rto: 10ms}
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 200ms
analysis: {}
engine: virtual
"""


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def run(config: Path, target: Path, *settings: str) -> str:
    """A hash of the captures of a run, which has to be trusted."""
    guest_runs.run(config, target, *settings)
    captures = sorted((target / "captures").iterdir())
    return hashlib.sha256(b"".join(path.read_bytes() for path in captures)).hexdigest()


def test_drop_tail_with_packets_between_two_drops(tmp_path):
    """The captures have the rule: each verdict follows from the port and the queue."""
    gap = 3
    config = ROOT / "configs" / "examples" / "never-in-a-row.yaml"
    # Without noise a packet is queued in the order and at the time in which it came in.
    settings = ["duration=100ms", "analysis.windows=[]", "noise.profile=exact"]
    settings += [f"queue.options=[16384, {gap}]"]
    guest_runs.run(config, tmp_path / "run", *settings)
    packets = outcast.open_run(tmp_path / "run").table("packets", whole=True)
    columns = packets.select("ingress", "queue_bytes", "frame", "verdict")
    owed: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    extra, drops, paid = 0, 0, 0
    for port, held, frame, verdict in columns.iter_rows():
        extra = min(extra, held)
        lost = held - extra + frame > 16384
        may_lose = passed.setdefault(port, gap) >= gap
        if lost and not may_lose:
            lost, owed[port], extra = False, owed[port] + 1, extra + frame
        elif not lost and may_lose and owed[port]:
            lost, owed[port], extra = True, owed[port] - 1, extra - min(extra, frame)
            paid += 1
        assert lost == (verdict == "dropped")
        passed[port] = 0 if lost else passed[port] + 1
        drops += lost
    assert drops > paid > 0
    assert owed.total() <= 2


def test_cubic_under_another_name_sends_the_same_packets(config, kernel, tmp_path):
    cubic = (kernel.headers / "source/net/ipv4/tcp_cubic.c").read_text()
    source = tmp_path / "tcp_mine.c"
    source.write_text(cubic.replace('"cubic"', '"mine"'))
    assert '.name\t\t= "mine"' in source.read_text()
    built_in = run(config, tmp_path / "cubic")
    # Relative to the configuration's file.
    module = "kernel.modules=[{path: tcp_mine.c, parameters: {beta: 717}}]"
    mine = "transport.congestion_control=mine"
    assert run(config, tmp_path / "mine", module, mine) == built_in
    recorded = manifest_of(tmp_path / "mine")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert recorded["kernel"]["modules"] == {
        "tcp_mine": {
            "loaded": "by this run",
            "compiler": f"pinned: {parts.PINNED.compiler}",
            "sources": {"modules/tcp_mine/tcp_mine.c": digest},
            "parameters": "beta=717",
        }
    }
    assert recorded["effective"]["module.tcp_mine.beta"] == "717"
    assert recorded["flows"][0]["congestion_control"] == "mine"
    # A parameter takes effect.
    beta = module.replace("717", "300")
    assert run(config, tmp_path / "other", beta, mine) != built_in


def test_a_qdisc_of_ones_own_is_studied_like_any(config, tmp_path):
    module = f'kernel.modules=["{SCH_MINE}"]'
    run(config, tmp_path / "mine", module, "queue={kind: custom, qdisc: mine, options: [20]}")
    effective = manifest_of(tmp_path / "mine")["effective"]
    assert effective["bottleneck.qdisc 3:"] == "mine"
    assert effective["bottleneck.option 0"] == 20
    drops = json.loads((tmp_path / "mine" / "summary.json").read_text())["capture"]
    assert drops["inferred_drops"] == drops["qdisc_drops"] > 0


def test_the_example_answers_its_question(tmp_path):
    summary = guest_runs.run(EXAMPLE, tmp_path / "run", "noise.profile=jitter")
    # A flow that keeps more of its window gets more; Reno itself would get as much.
    assert summary["compare"]["ratio"] > 1.5


FAILS = """
#include <linux/module.h>
static int __init mine(void) { BODY; }
module_init(mine);
MODULE_LICENSE("GPL");
"""


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ("return nothing_there", 2, "mine.c:3:39: error: 'nothing_there' undeclared"),
        (
            'pr_err("mine: not on a Sunday\\n"); return -EPERM',
            1,
            "refused the module mine.ko: Operation not permitted; the kernel says: mine: not on a "
            "Sunday",
        ),
        ("*(volatile int *)8 = 1; return 0", 1, "Kernel mode fault at addr 0x8"),
        ("return 0", 3, "no congestion control mine (it has bbr, bic, cubic"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(config, tmp_path, capfd, body, status, why):
    (tmp_path / "mine.c").write_text(FAILS.replace("BODY", body))
    words = argv(config, tmp_path / "run", "kernel.modules=[mine.c]")[len(OUTCAST) :]
    assert invoke([*words, "--set", "transport.congestion_control=mine"]) == status
    said = capfd.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("outcast: ")]
    assert why in line
    assert not (tmp_path / "run").exists()
