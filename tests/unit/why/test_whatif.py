"""Fates that are asked for, and two runs compared."""

from contextlib import nullcontext
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from outcast.engines.guest import boot
from outcast.errors import ConfigError, FeatureMissingError, InputError, RunError
from outcast.experiment import load
from outcast.plan.make import make_plan
from outcast.records.interventions import Interventions, NoiseFrom, PacketFate
from outcast.uses.whatif import compare, fates
from outcast.uses.whatif.compared import Compared

FATE = PacketFate(
    packet=7,
    fate="drop",
    port="s1-eth1",
    t_in_ns=2_000,
    boot_ns=16_000_002_000,
    flow=0,
    src=IPv4Address("10.0.0.1"),
    sport=20001,
    dst=IPv4Address("10.0.0.2"),
    dport=5001,
    ip_id=77,
    seq=123,
)


def test_fates_are_read():
    assert fates.parse_fate(3, "drop").fate == "drop"
    assert fates.parse_fate(3, "delay=5us").delay_ns == 5_000


@pytest.mark.parametrize(
    "words", ["", "dorp", "delay", "delay=", "delay=0ns", "delay=2s", "drop=5us", "delay=5"]
)
def test_other_fates_are_refused(words):
    with pytest.raises(ConfigError, match=r"--packet 3 --fate"):
        fates.parse_fate(3, words)


def test_a_fate_of_several_packets():
    assert [each.packet for each in fates.parse_fates([3, 4], "drop")] == [3, 4]
    assert [each.fate for each in fates.parse_fates((3, 4), ["drop", "keep"])] == [
        "drop",
        "keep",
    ]
    assert fates.parse_fates(None, "drop") == []
    with pytest.raises(ConfigError, match="2 packets and 1 fates; allowed is one fate for each"):
        fates.parse_fates([3, 4], ["drop"])
    with pytest.raises(ConfigError, match="--packet 3: --fate is missing; allowed are keep, forw"):
        fates.parse_fates([3], ())


def test_a_datagram_that_others_overtake_cannot_be_told():
    held: dict[str, Any] = {"flow": 0, "ip_id": 0, "flags": 0, "verdict": "forwarded"}
    wanted = fates.parse_fate(3, "delay=5us")
    with pytest.raises(ConfigError, match="without an IP identification"):
        fates._require_possible(None, wanted, held)
    for other in ({"ip_id": 7}, {"flags": 16}):
        fates._require_possible(None, wanted, held | other)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"between": ["s1", "h1"], "up": "false"}, "is of the failure of the link from s1 to h1"),
        ({"between": ["h1", "s1"], "up": "false"}, "is of the failure of the link from s1 to h1"),
        ({"from": "s1", "to": "h1", "delay": "5ms"}, "changes the delay of the link from s1"),
        # It is of another link or direction, or leaves the packets alone.
        ({"between": ["s1", "h2"], "up": "false"}, None),
        ({"from": "h1", "to": "s1", "delay": "5ms"}, None),
        ({"from": "s1", "to": "h1", "rate": "5mbit", "limit": "8KB", "loss": 0.01}, None),
    ],
)
def test_no_packet_is_held_where_the_link_fails(event, said):
    config = Path(__file__).parents[3] / "configs/linear-12.yaml"
    words = ", ".join(f"{key}: {value}" for key, value in event.items()).replace("'", "")
    experiment = load(config, [f"events=[{{at: 50ms, {words}}}]"])
    plan = make_plan(experiment)
    run: Any = SimpleNamespace(
        directory=SimpleNamespace(read_plan=lambda: plan), experiment=experiment
    )
    with pytest.raises(ConfigError, match=said) if said else nullcontext():
        fates._require_steady(run, fates.parse_fate(120, "delay=20ms"), plan.port("s1", "h1"))


def test_a_file_of_fates(tmp_path):
    file = tmp_path / "fates.csv"
    # Spreadsheet programs put a byte order mark in front.
    file.write_text("\ufeffport,packet,fate\ns1-eth1,17,drop\n\ns1-eth1, 18 ,delay=1us\n")
    read = fates.read(file)
    assert [(one.port, one.packet, one.fate) for one in read] == [
        ("s1-eth1", 17, "drop"),
        ("s1-eth1", 18, "delay"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: the first line"),
        ("packet,port,fate\n", ":1: the first line"),
        ("port,packet,fate\n", "names no packets"),
        ("port,packet,fate\ns1-eth1,x,drop\n", ":2: allowed is a line"),
        ("port,packet,fate\ns1-eth1,1\n", ":2: allowed is a line"),
        ("port,packet,fate\ns1-eth1,1,dorp\n", ":2: allowed are keep"),
        ("port,packet,fate\ns1-eth1," + "9" * 5000 + ",drop\n", ":2: allowed is a line"),
        ("port,packet,fate\ns1-eth1,1," + "d" * 200_000, "field larger than"),
        (None, "there is no such file"),
    ],
)
def test_a_broken_file_of_fates(tmp_path, text, said):
    if text is not None:
        (tmp_path / "fates.csv").write_text(text)
    with pytest.raises((ConfigError, InputError), match=said):
        fates.read(tmp_path / "fates.csv")


def test_what_the_kernel_is_told():
    noise = NoiseFrom(t_ns=0, boot_ns=16_000_000_000, seed=5)
    changes = Interventions(of="run", fates=(FATE,), noise=noise)
    told = [*changes.arguments()]
    assert told == [
        "packet-fate=16000002000,s1-eth1,a000001,a000002,20001,5001,77,123,drop,0",
        f"noise-from=16000000000,{noise.kernel_seed}",
    ]
    argv = boot.command_line(
        boot.Boot(Path("linux"), Path(), (), seed=1, memory_mib=100, arguments=told)
    )
    # Both stand before the guest's own arguments.
    assert argv.index(told[0]) < argv.index("norandmaps")


def test_what_the_kernel_did():
    changes = Interventions(of="run", fates=(FATE,))
    done = changes.done([("fate", "16000002000", "16000007000", "1", "0")])
    assert done.fates[0].queued_ns == 7_000
    with pytest.raises(FeatureMissingError, match="cannot change the fate"):
        changes.done([])
    with pytest.raises(FeatureMissingError, match="cannot change the fate"):
        changes.done([("fate", "1", "1", "0", "0"), ("noise", "5")])


@pytest.mark.parametrize(
    ("fate", "said", "why"),
    [
        ("drop", (0, 0, 0, 0), "did not come"),
        ("drop", (5, 0, 0, 0), "did not reach its queue"),
        ("mark", (5, 6, 0, 0), "is not ECN-capable"),
        ("forward", (5, 6, 1, 0), "refused it"),
    ],
)
def test_another_fate_is_an_error(fate, said, why):
    with pytest.raises(RunError, match=why):
        FATE.model_copy(update={"fate": fate}).done(said)


def test_a_datagram_is_told_by_its_instant():
    datagram = FATE.model_copy(update={"ip_id": 0, "seq": 0})
    assert datagram.done((datagram.boot_ns, datagram.boot_ns + 5, 1, 0)).queued_ns == 2_005
    with pytest.raises(RunError, match="did not come"):
        datagram.done((datagram.boot_ns + 1, datagram.boot_ns + 5, 1, 0))


def made(*rows: tuple[int, int, int, int, int, str]) -> Any:
    """A run of these packets: flow, source port, TCP's flags, IP id, sequence number, verdict."""
    names = ("flow", "sport", "flags", "ip_id", "seq", "verdict")
    packets = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        pl.lit("10.0.0.2").alias("src"), pl.lit("10.0.0.1").alias("dst"),
        pl.lit(5001).alias("dport"), pl.lit(1000).alias("payload"),
        pl.lit("s1-eth1").alias("egress"), pl.int_range(pl.len()).alias("t_in"),
    )  # fmt: skip
    manifest = SimpleNamespace(interventions=None)
    return SimpleNamespace(
        reading=nullcontext,
        table=lambda name, whole=False: {"packets": packets}[name],
        manifest=SimpleNamespace(traffic=SimpleNamespace(t_start_ns=0), flows=[]),
        directory=SimpleNamespace(
            read_manifest=lambda: manifest, read_plan=lambda: SimpleNamespace(flows=[None] * 3)
        ),
    )


def test_a_flow_with_another_number_is_the_same_flow():
    factual = made((3, 20, 16, 1, 500, "dropped"), (4, 30, 16, 1, 500, "forwarded"))
    other = made((3, 30, 16, 1, 500, "forwarded"), (4, 20, 16, 1, 500, "dropped"))
    packets = compare.blast(factual, other)
    assert packets.height == 2
    assert not packets["other"].any()
    assert packets["flow"].to_list() == [3, 4]


def test_flows_of_workloads_have_the_numbers_of_the_first_run():
    """So has a packet that only the second run sent; a flow of its own has a number behind."""
    factual = made((3, 20, 16, 1, 500, "forwarded"), (4, 30, 16, 1, 500, "forwarded"))
    other = made(
        (3, 40, 16, 1, 500, "forwarded"), (4, 30, 16, 2, 600, "forwarded"),
        (5, 20, 16, 3, 700, "forwarded"), (2, 50, 16, 4, 800, "forwarded"),
    )  # fmt: skip
    changed = compare.blast(factual, other).filter("other").sort("seq")
    assert changed.select("seq", "flow").rows() == [(500, 5), (800, 2)]


def test_a_sending_that_was_lost_before_the_port_is_counted():
    """The port sees the second segment after the third one, so only its second sending."""
    factual = made(*((0, 20, 16, n, n * 1000, "forwarded") for n in (1, 2, 3)))
    other = made(
        (0, 20, 16, 1, 1000, "forwarded"),
        (0, 20, 16, 3, 3000, "forwarded"),
        (0, 20, 16, 4, 2000, "forwarded"),
    )
    changed = compare.blast(factual, other).filter("other").sort("transmission")
    assert changed.select("seq", "transmission", "factual", "counterfactual").rows() == [
        (2000, 0, "forwarded", None),
        (2000, 1, None, "forwarded"),
    ]
    # A packet that another one overtook was sent first.
    late = made(*((0, 20, 16, n, n * 1000, "forwarded") for n in (1, 3, 2)))
    assert not compare.blast(factual, late)["other"].any()


def test_a_programs_connection_is_told_by_its_place():
    """In the second run the client draws another port and another first sequence number."""
    factual = made((5, 49464, 2, 1, 500, "forwarded"), (5, 49464, 16, 2, 501, "forwarded"))
    other = made((5, 49466, 2, 7, 900, "forwarded"), (5, 49466, 16, 8, 901, "dropped"))
    packets = compare.blast(factual, other)
    assert packets.select("flow", "seq", "other").rows() == [(5, 500, False), (5, 501, True)]


def test_datagrams_of_a_workload_are_told_by_their_ip_identification():
    factual = made(*((3, 40, 0, ip_id, 0, "forwarded") for ip_id in (7, 8, 9)))
    other = made(*((3, 40, 0, ip_id, 0, "forwarded") for ip_id in (8, 9)))
    packets = compare.blast(factual, other)
    assert packets.filter("other").select("seq", "counterfactual").rows() == [(7, None)]
    assert packets.height == 3


def test_streams_of_workloads_have_rows():
    def run(*rows: tuple[int, str, float, int]) -> Any:
        table = pl.DataFrame(
            rows, schema=["workload", "src", "received_bps", "dropped"], orient="row"
        ).with_columns(pl.lit(40001).alias("sport"), pl.lit("h1").alias("dst"))
        return SimpleNamespace(tables=["streams"], table={"streams": table}.__getitem__)

    one, other = run((0, "h3", 5e6, 1), (0, "h4", 6e6, 2)), run((0, "h3", 4e6, 3))
    found = [*compare.streams(one, other)]
    assert [row.name for row in found] == ["UDP of workload 0 (h3)", "UDP of workload 0 (h4)"]
    assert found[0].goodput_bps == Compared(factual=5e6, counterfactual=4e6)
    assert found[1].drops == Compared(factual=2, counterfactual=None)
    assert not [*compare.streams(one, SimpleNamespace(tables=[]))]
