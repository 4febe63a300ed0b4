"""Captures of a bridge, made and spoiled as in practice: tc's drops by port, or a loud refusal."""

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from outcast.api.joins import Join, join_captures, join_chain
from outcast.errors import InputError, UntrustedError
from tests.golden import scenes

SCENES = {folder.name: scenes.read_scene(folder) for folder in sorted(scenes.STORED.iterdir())}


@pytest.mark.parametrize(("name", "every"), [("three", 1), ("five", 1), ("eight", 4)])
def test_every_change_is_exact_or_refused(name, every, tmp_path):
    """Of the largest, whose cases take as long as those of all others, one in four."""
    faults = []
    for case in islice(scenes.cases(SCENES[name]), 0, None, every):
        outcome = scenes.judge(SCENES[name], case, tmp_path)
        if not case.fits(outcome):
            faults.append((case.name, outcome))
    assert not faults


@pytest.mark.parametrize("share", [0.02, 0.05, 0.08, 0.5])
def test_a_missing_receiver_is_said_whoever_sent_nearly_all(tmp_path, share):
    scene = SCENES["five"]
    senders = {name: file for name, file in scene.files.items() if name != "R"}
    few = {name: scenes.cut(file, 0, share) for name, file in senders.items() if name != "B"}
    case = scenes.Case("R missing", {**senders, **few}, f"{scenes.UNSEEN}|no other capture has")
    outcome = scenes.judge(scene, case, tmp_path)
    assert case.fits(outcome), outcome


def with_ip_ids_from(scene: scenes.Scene, span: int) -> dict[str, scenes.File]:
    """The captures as if each connection had begun to count IP ids at a number below `span`."""
    draw = random.Random(span)
    apart: dict[bytes, int] = {}

    def renumbered(packet: scenes.Packet) -> scenes.Packet:
        number = int.from_bytes(packet.data[18:20], "big")
        if packet.data[12:14] != b"\x08\x00" or not number:
            return packet
        flow = packet.data[26:38]
        by = apart.setdefault(flow, draw.randrange(span) - number)
        changed = ((number + by) % 2**16).to_bytes(2, "big")
        return replace(packet, data=packet.data[:18] + changed + packet.data[20:])

    return {
        name: replace(file, packets=tuple(renumbered(packet) for packet in file.packets))
        for name, file in scene.files.items()
    }


@pytest.mark.parametrize("span", [1, 50, 300, 2000])
@pytest.mark.parametrize("name", ["three", "five"])
def test_connections_whose_ip_ids_run_alike_are_not_taken_for_one(tmp_path, name, span):
    """IP ids are alike by chance, so the numbers of both directions have to fit too."""
    files = with_ip_ids_from(SCENES[name], span)
    senders = {port: file for port, file in files.items() if port != "R"}
    case = scenes.Case("R missing", senders, f"{scenes.UNSEEN}|no other capture has")
    outcome = scenes.judge(SCENES[name], case, tmp_path)
    assert case.fits(outcome), outcome


def joined(tmp_path: Path, files: dict[str, scenes.File], **known: str) -> Join:
    paths = {name: tmp_path / f"{name}.pcap" for name in files}
    for name, file in files.items():
        file.write(paths[name])
    return join_captures(ports=paths, **known)


def test_sojourn_times_that_the_queue_cannot_have_are_refused(tmp_path):
    files = SCENES["three"].files
    joined(tmp_path, files, rate="50mbit", limit="16KB")
    with pytest.raises(UntrustedError, match=r"median packet for 1\.\d+ ms.*empty after 0\.080 ms"):
        joined(tmp_path, files, rate="50mbit", limit="500B")


def test_bounds_of_drops_say_why(tmp_path):
    scene = SCENES["three"]
    lossy = scenes.without(scene.files["R"], 0.005, at_once=False)
    result = joined(tmp_path, {**scene.files, "R": lossy})
    of_b = next(one for one in result.drop_ranges if one.ingress == "B")
    assert of_b.least <= scene.drops["B"] < of_b.counted == of_b.most
    assert of_b.sentence.startswith(f"B: {of_b.counted:,} packets to R seem dropped, truly between")
    assert of_b.sentence in result.remarks
    assert joined(tmp_path, scene.files).drop_ranges == ()


def between(scene: scenes.Scene, name: str, ends: set[bytes]) -> scenes.File:
    """The packets of one conversation in a port's capture."""
    packets = scene.files[name].packets
    kept = (one for one in packets if {one.data[26:30], one.data[30:34]} == ends)
    return replace(scene.files[name], packets=tuple(kept))


@pytest.mark.parametrize("flooded", [0, 3])
@pytest.mark.parametrize("offset_ms", [-800, 0, 800])
def test_captures_of_one_conversation_tell_who_is_behind_which(tmp_path, offset_ms, flooded):
    """Both hosts are seen at both ports, so only a comparison of the two ways tells.

    What a switch floods before it knows a host's port is seen at a third one.
    """
    scene = SCENES["three"]
    ends = {scene.address("A"), scene.address("R")}
    files = {name: between(scene, name, ends) for name in ("A", "R")}
    if flooded:
        files["B"] = replace(files["A"], packets=files["A"].packets[:flooded])
    files["R"] = scenes.shifted(files["R"], offset_ms * 1_000_000)
    result = joined(tmp_path, files)
    assert scenes.drops_at(result, "R")["A"] == scene.drops["A"]


@pytest.mark.parametrize("offset_ms", [-800, 800])
def test_cooked_captures_say_the_direction_that_nothing_else_tells(tmp_path, offset_ms):
    """With one way alone and a clock that is off, stamps could mean either direction."""
    scene = SCENES["three"]
    sender = scene.address("A")

    def data(name: str) -> scenes.File:
        packets = (one for one in scene.files[name].packets if scenes.is_from(one, sender))
        one_way = replace(scene.files[name], packets=tuple(packets))
        return scenes.cooked(one_way, scene.address(name))

    late = scenes.shifted(data("R"), offset_ms * 1_000_000)
    result = joined(tmp_path, {"A": data("A"), "R": late})
    assert scenes.drops_at(result, "R")["A"] == scene.drops["A"]


def doubled(file: scenes.File, by_ns: int, which: slice) -> scenes.File:
    """The file with copies of some packets, which come later."""
    copies = (replace(one, stamp_ns=one.stamp_ns + by_ns) for one in file.packets[which])
    both = sorted((*file.packets, *copies), key=lambda one: one.stamp_ns)
    return replace(file, packets=tuple(both))


@pytest.mark.parametrize(
    ("by_ns", "said"),
    [(1000, "are recorded twice"), (10**6, r"^R: 127 of its [\d,]+ .* left twice")],
)
def test_an_output_whose_packets_left_twice_is_refused(tmp_path, by_ns, said):
    scene = SCENES["three"]
    mirrored = doubled(scene.files["R"], by_ns, slice(None, None, 20))
    with pytest.raises(UntrustedError, match=said):
        joined(tmp_path, {**scene.files, "R": mirrored})


@pytest.mark.parametrize("name", ["A", "R"])
def test_a_few_records_that_are_there_twice_are_no_drops(tmp_path, name):
    scene = SCENES["three"]
    before = joined(tmp_path, scene.files)
    copied = doubled(scene.files[name], 2000, slice(5, None, 150))
    after = joined(tmp_path, {**scene.files, name: copied})
    assert after.joined.counts.dropped == before.joined.counts.dropped
    assert any("are there twice" in line for line in after.remarks)
    for now, then in zip(after.estimates, before.estimates, strict=True):
        # A record that is there twice counts as service.
        assert (now.rate_bps or 0) == pytest.approx(then.rate_bps or 0, rel=1e-6)
        # It waits unseen, too.
        assert now.limit_at_least == then.limit_at_least
        assert (now.limit_below or 0) >= (then.limit_below or 0)


def test_a_refused_chain_names_its_segment(tmp_path):
    scene = SCENES["three"]
    address = scene.address("R")
    kept = [
        p for n, p in enumerate(scene.files["R"].packets) if n % 20 or scenes.is_from(p, address)
    ]
    scene.files["A"].write(tmp_path / "A.pcap")
    scenes.File(tuple(kept)).write(tmp_path / "R.pcap")
    with pytest.raises(UntrustedError, match=r"^A to R: .* were never sent again"):
        join_chain({name: tmp_path / f"{name}.pcap" for name in "AR"})


def test_points_of_a_path_without_a_common_flow_are_no_switch(tmp_path):
    scene = SCENES["three"]
    for name in "AB":
        scene.files[name].write(tmp_path / f"{name}.pcap")
    with pytest.raises(InputError, match=r"^A to B: no packet of a host was seen at both points$"):
        join_chain({name: tmp_path / f"{name}.pcap" for name in "AB"})
