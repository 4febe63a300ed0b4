"""Fates that are asked for, and two runs compared."""

from __future__ import annotations

from contextlib import nullcontext
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from outcast.engines.guest import boot
from outcast.errors import ConfigError, FeatureMissingError, InputError, RunError
from outcast.records.interventions import Compared, Interventions, NoiseFrom, PacketFate, WhatIf
from outcast.view.terminal import whatif as shown
from outcast.whatif import compare, fates

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


def test_fates_are_read() -> None:
    assert fates.asked(3, "drop").fate == "drop"
    assert fates.asked(3, "delay=5us").delay_ns == 5_000


@pytest.mark.parametrize(
    "words", ["", "dorp", "delay", "delay=", "delay=0ns", "delay=2s", "drop=5us", "delay=5"]
)
def test_other_fates_are_refused(words: str) -> None:
    with pytest.raises(ConfigError, match=r"--packet 3 --fate"):
        fates.asked(3, words)


def test_a_file_of_fates(tmp_path: Path) -> None:
    file = tmp_path / "fates.csv"
    file.write_text("port,packet,fate\ns1-eth1,17,drop\n\ns1-eth1, 18 ,delay=1us\n")
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
    ],
)
def test_a_broken_file_of_fates(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "fates.csv").write_text(text)
    with pytest.raises(ConfigError, match=said):
        fates.read(tmp_path / "fates.csv")


def test_no_file_of_fates(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        fates.read(tmp_path / "none.csv")


def test_what_the_kernel_is_told() -> None:
    noise = NoiseFrom(t_ns=0, boot_ns=16_000_000_000, seed=5)
    changes = Interventions(of="run", fates=(FATE,), noise=noise)
    told = [*changes.arguments()]
    assert told == [
        "packet-fate=16000002000,s1-eth1,a000001,a000002,20001,5001,77,123,drop,0",
        f"noise-from=16000000000,{noise.kernel_seed}",
    ]
    argv = boot.command_line(Path("linux"), 1, 100, None, told)
    # Both stand before the guest's own arguments.
    assert argv.index(told[0]) < argv.index("norandmaps")


def test_what_the_kernel_did() -> None:
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
def test_another_fate_is_an_error(fate: str, said: tuple[int, ...], why: str) -> None:
    with pytest.raises(RunError, match=why):
        FATE.model_copy(update={"fate": fate}).done(said)


def test_a_datagram_is_told_by_its_instant() -> None:
    datagram = FATE.model_copy(update={"ip_id": 0, "seq": 0})
    assert datagram.done((datagram.boot_ns, datagram.boot_ns + 5, 1, 0)).queued_ns == 2_005
    with pytest.raises(RunError, match="did not come"):
        datagram.done((datagram.boot_ns + 1, datagram.boot_ns + 5, 1, 0))


def test_lines_of_the_kernel_are_no_messages() -> None:
    assert boot._FATE_LINE.match("outcast fate: 1 2 0 0")
    assert boot._FATE_LINE.match("outcast noise: 5")
    assert not boot._FATE_LINE.match("outcast guest: start")


def made(*rows: tuple[int, int, int, int, int, str]) -> Any:
    """A run of these packets: flow, source port, TCP's flags, IP id, sequence number, verdict."""
    names = ("flow", "sport", "flags", "ip_id", "seq", "verdict")
    packets = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        pl.lit("10.0.0.2").alias("src"), pl.lit("10.0.0.1").alias("dst"),
        pl.lit(5001).alias("dport"), pl.lit(1000).alias("payload"),
        pl.lit("s1-eth1").alias("egress"), pl.int_range(pl.len()).alias("t_in"),
    )  # fmt: skip
    return SimpleNamespace(
        reading=nullcontext,
        table={"packets": packets}.__getitem__,
        manifest=SimpleNamespace(traffic=SimpleNamespace(t_start_ns=0)),
    )


def test_a_flow_with_another_number_is_the_same_flow() -> None:
    factual = made((3, 20, 16, 1, 500, "dropped"), (4, 30, 16, 1, 500, "forwarded"))
    other = made((3, 30, 16, 1, 500, "forwarded"), (4, 20, 16, 1, 500, "dropped"))
    packets = compare.blast(factual, other)
    assert packets.height == 2
    assert not packets["other"].any()
    assert packets["flow"].to_list() == [3, 4]


def test_datagrams_of_a_workload_are_told_by_their_ip_identification() -> None:
    factual = made(*((3, 40, 0, ip_id, 0, "forwarded") for ip_id in (7, 8, 9)))
    other = made(*((3, 40, 0, ip_id, 0, "forwarded") for ip_id in (8, 9)))
    packets = compare.blast(factual, other)
    assert packets.filter("other").select("seq", "counterfactual").rows() == [(7, None)]
    assert packets.height == 3


def test_what_came_of_it_in_words() -> None:
    record = WhatIf(
        of="run", parts_ns=None, parts=[], flows=[], groups=[],
        ratio=Compared(factual=2.0, counterfactual=None), changed=1, only_factual=2,
        only_counterfactual=3, packets=1000, by_flow={}, first=[],
    )  # fmt: skip
    assert shown.ratio_words(record) == "the ratio was 2.000 and is -"
    assert shown.blast_words(record).startswith("1 packets have another fate, 2 were sent")
    assert record.ratio.difference is None
