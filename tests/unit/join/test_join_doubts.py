"""What the stored scenes do not have: hosts elsewhere, one flow, groups, clocks that cannot be."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scapy.all import IP, UDP, Ether, PcapWriter

from outcast.analysis.measure.latency import Busy
from outcast.analysis.measure.segments import repairs
from outcast.api.joins import Join, join_captures
from outcast.errors import InputError, UntrustedError
from tests.golden import scenes, shared
from tests.golden.packets import P, capture
from tests.golden.scenes import SECOND, File

SCENE = scenes.read_scene(scenes.STORED / "three")


def write(folder: Path, files: dict[str, File]) -> dict[str, Path]:
    paths = {}
    for name, file in files.items():
        paths[name] = folder / f"{name}.pcap"
        file.write(paths[name])
    return paths


def taken(folder: Path, **packets: list[P]) -> dict[str, Path]:
    """Captures of these packets, which are sorted by their times."""
    return {
        name: capture(folder / name, sorted(seen, key=lambda packet: packet.at_us))
        for name, seen in packets.items()
    }


def joined(folder: Path, came: list[P], left: list[P], **known: Any) -> Join:
    """The join of what came in by a and left by b."""
    paths = taken(folder, a=came, b=left)
    return join_captures({"a": paths["a"]}, {"b": paths["b"]}, **known)


def later(packets: Iterable[P], by_us: float) -> list[P]:
    return [replace(packet, at_us=packet.at_us + by_us) for packet in packets]


def data(at_us: float, number: int, **fields: object) -> P:
    return P(at_us, seq=1000 + 1448 * number, ip_id=100 + number, **fields)


def ack(at_us: float, number: int) -> P:
    return P(at_us, seq=1, ip_id=9000 + number, payload=0, src="10.0.0.1", dst="10.0.0.2",
             sport=5001, tsval=number)  # fmt: skip


def ports(folder: Path, names: Iterable[str]) -> list[str]:
    """Words of the command line: the scene's captures at these ports."""
    paths = write(folder, {name: SCENE.files[name] for name in names})
    return [f"{name}={path}" for name, path in paths.items()]


def test_a_rate_holds_where_small_packets_pass_large_ones(tmp_path):
    """A strict priority at 8 Mbps. Packets are stamped when their transmission begins."""
    large = [data(n, n, sport=1) for n in range(400)]
    small, left, now_us = [], [], 500.0
    for number, packet in enumerate(large):
        left.append(replace(packet, at_us=now_us))
        if number % 2:
            small.append(data(now_us + 700, number, sport=2, payload=100))
            left.append(replace(small[-1], at_us=now_us + 1514))
            now_us += 166
        now_us += 1514
    came = sorted([*large, *small], key=lambda packet: packet.at_us)
    (estimate,) = joined(tmp_path, came, left).estimates
    assert estimate.rate_bps == pytest.approx(8e6, rel=1e-3)


def test_a_pause_of_the_output_is_in_the_error_of_its_rate():
    bits, time_ns = np.full(20, 10**6), np.full(20, 20_000_000)
    time_ns[7] += 300_000_000
    rate = Busy(bits, time_ns, 20_000, 1, 20_000, 20_000).rate()
    assert rate.low_bps < 50e6 < rate.high_bps


def test_stamps_that_are_coarse_beside_the_runs_show_no_rate():
    bits, time_ns = np.full(20, 10**6), np.full(20, 20_000_000)
    assert Busy(bits, time_ns, 20_000, 10_000, 20_000, 20_000).rate(1_000) is not None
    assert Busy(bits, time_ns, 20_000, 20_000, 20_000, 20_000).rate(1_000) is None


def test_a_capture_that_lacks_packets_keeps_the_usual_rate_in_its_bounds():
    bits, time_ns = np.full(20, 10**6), np.full(20, 20_000_000)
    rate = Busy(bits, time_ns, 20_000, 1, 20_000, 20_000, usual_bps=50.4e6).rate()
    assert rate.high_bps == 50.4e6
    # Of bursts the usual packet says nothing.
    rate = Busy(bits, time_ns, 20_000, 1, 20_000, 20_000, usual_bps=90e6).rate()
    assert rate.high_bps < 50.1e6


def test_a_damaged_length_is_refused(tmp_path):
    path = capture(tmp_path / "a", [P(10 * n, seq=n) for n in range(9)])
    damaged = bytearray(path.read_bytes())
    damaged[24 + 12 : 24 + 16] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="says that a packet had 2,147,483,648 bytes"):
        join_captures({"a": path}, {"o": capture(tmp_path / "o", [P(5)])})


def test_numbered_datagrams_that_are_recorded_twice_are_refused(tmp_path):
    scene = shared.make(3)
    scene.both_ways = False
    shared.joined(scene, tmp_path)
    paths = {path.stem: path for path in tmp_path.glob("*.pcap")}
    raw = paths["a"].read_bytes()
    twice, at = raw[:24], 24
    while at < len(raw):
        size = 16 + int.from_bytes(raw[at + 8 : at + 12], "little")
        twice, at = twice + 2 * raw[at : at + size], at + size
    paths["a"].write_bytes(twice)
    output = {"o": paths.pop("o")}
    with pytest.raises(UntrustedError, match="recorded twice"):
        join_captures(paths, output, destinations=["10.0.0.9"])


def test_the_refusal_is_one_line_with_status_4_and_nothing_is_written(tmp_path, verb):
    table = tmp_path / "packets.csv"
    told = verb("join", *ports(tmp_path, "AR"), "-o", table, status=4)
    *table_of_ports, line = told.err.splitlines()
    assert [row.split()[0] for row in table_of_ports] == ["port", "A", "R"]
    unseen = table_of_ports[2].split()[3]
    assert line.startswith(f"outcast: {unseen} of the ")
    assert "never seen to come in; they are from 192.168.7.2;" in line
    assert not table.exists()
    file = tmp_path / "A.pcap"
    file.write_bytes(file.read_bytes()[:-9])
    told = verb("join", f"A={file}", f"R={tmp_path / 'R.pcap'}", status=4)
    assert told.err.startswith(f"outcast: {file}: cut off after ")


def test_clocks_are_stated_with_their_bounds(tmp_path):
    files = {**SCENE.files, "A": scenes.shifted(SCENE.files["A"], 2 * SECOND, 50)}
    result = join_captures(ports=write(tmp_path, files))
    (clock,) = (one for one in result.clocks if one.port == "A")
    assert clock.low_ns <= clock.offset_ns <= clock.high_ns < clock.low_ns + 100_000
    assert clock.offset_ns == pytest.approx(-2 * SECOND, abs=100_000)
    assert clock.drift_low_ppm <= -50 <= clock.drift_high_ppm
    assert [one.offset_ns for one in result.clocks if one.port != "A"] == [0, 0]


def test_two_ports_and_one_direction_are_told_by_the_stamps(tmp_path):
    came = [data(100 * n, n) for n in range(200)]
    left = [data(100 * n + 30, n) for n in range(200) if n % 10]
    result = join_captures(ports=taken(tmp_path, a=came, b=left))
    assert result.joined.counts.entered == 200
    assert result.joined.counts.dropped == 20


def test_more_packets_cannot_leave_than_came(tmp_path):
    """The stamps say that packets go from a to b, but b has more, so neither is believed."""
    came = [data(100 * n, n) for n in range(200) if n % 10]
    left = [data(100 * n + 30, n) for n in range(200)]
    with pytest.raises((UntrustedError, InputError)):
        join_captures(ports=taken(tmp_path, a=came, b=left))
    with pytest.raises(UntrustedError, match="never seen to come in"):
        joined(tmp_path, came, left)


def test_in_and_out_say_what_packets_do_not(tmp_path):
    """With clocks that differ by an hour, nothing but the caller tells which port is the input."""
    came = [data(4e9 + 100 * n, n) for n in range(200)]
    left = later(came, -3.6e9)
    with pytest.raises((UntrustedError, InputError)):
        join_captures(ports=taken(tmp_path, a=came, b=left))
    assert joined(tmp_path, came, left).joined.counts.forwarded == 200


def test_a_packet_that_is_alike_makes_no_translated_connection(tmp_path):
    """Its sequence number is moved by some constant from that of any other."""
    one = [data(100 * n, n) for n in range(3)]
    other = [data(100 * n + 7, 40 + n, src="10.0.0.7", sport=777, tsval=n) for n in range(3)]
    other[1] = replace(other[1], ip_id=one[2].ip_id)
    with pytest.raises((UntrustedError, InputError), match="no packets leave the switch"):
        join_captures(ports=taken(tmp_path, a=one, b=other))


def test_a_conversation_that_one_capture_alone_has(tmp_path):
    """The rest can be joined, but which way these packets go decides which queue they met."""
    came = [data(100 * n, n) for n in range(200)]
    left = [data(100 * n + 30, n) for n in range(200)]
    other = [data(100 * n + 10, n, src="10.0.0.7", dst="10.0.0.8") for n in range(20)]
    few = taken(tmp_path, a=[*came, *other[:2]], b=left)
    assert join_captures(ports=few).joined.counts.forwarded == 200
    many = taken(tmp_path, a=[*came, *other], b=left)
    with pytest.raises(UntrustedError, match="the direction of its 20 packets is unknown"):
        join_captures(ports=many)


def test_packets_that_stay_for_too_long(tmp_path):
    came = [data(100 * n, n) for n in range(300)]
    left = later(came, 2e6)
    with pytest.raises(UntrustedError, match=r"up to 2\.000 s after .* --max-sojourn 1s; give"):
        joined(tmp_path, came, left)
    result = joined(tmp_path, came, left, max_sojourn="3s")
    assert result.joined.counts.forwarded == 300


def test_few_packets_that_stay_for_too_long(tmp_path):
    """A wrong clock, or a queue that holds up one input alone: nothing in the captures tells."""
    busy = [data(100 * n, n) for n in range(300)]
    few = [data(20_005 + 2000 * n, n, src="10.0.0.3") for n in range(1, 5)]
    paths = taken(tmp_path, a=busy, c=few, b=[*later(busy, 30), *later(few, 5e6)])
    with pytest.raises(UntrustedError, match=r"longer than --max-sojourn 1s; give a longer"):
        join_captures({"a": paths["a"], "c": paths["c"]}, {"b": paths["b"]})


def test_the_way_back_tells_clocks_where_in_and_out_are_given(tmp_path):
    """One sender, and an output without a pause, so the data alone do not tell.

    More packets leave by the input than by the output, whose clock is the common one all the same.
    """
    late_us = 3.33e6
    acks = [(100 * n + 35 + 10 * m, 2 * n + m) for n in range(300) for m in range(2)]
    a = [data(100 * n, n) for n in range(300)]
    a += [ack(at_us + 5, number) for at_us, number in acks]
    b = [data(100 * n + 30 + late_us, n) for n in range(300)]
    b += [ack(at_us + late_us, number) for at_us, number in acks]
    result = joined(tmp_path, a, b)
    assert {one.port: round(one.offset_ns / 1e6) for one in result.clocks} == {"a": 3330, "b": 0}
    assert result.joined.counts.forwarded == result.joined.counts.entered == 300
    one_way = ([packet for packet in seen if packet.payload] for seen in (a, b))
    with pytest.raises(UntrustedError, match=r"longer than --max-sojourn 1s; give a longer"):
        joined(tmp_path, *one_way)


def test_every_packet_of_a_port_dropped(tmp_path):
    """R's file lacks what came from B, as with a filter, but has the acknowledgements to B."""
    files = dict(SCENE.files)
    kept = [one for one in files["R"].packets if not scenes.is_from(one, SCENE.address("B"))]
    files["R"] = File(tuple(kept))
    with pytest.raises(UntrustedError, match=r"B: all .* would be dropped"):
        join_captures(ports=write(tmp_path, files))


def test_a_host_with_few_packets_that_come_from_nowhere(tmp_path):
    """They are less than 1 % of the output's packets, but all of that host's."""
    files = dict(SCENE.files)
    address = SCENE.address("A")
    few = [one for one in files["A"].packets if scenes.is_from(one, address)][:400]
    lost = {id(one) for one in few[-30:]}
    files["A"] = File(tuple(one for one in files["A"].packets if id(one) not in lost))
    with pytest.raises(UntrustedError, match=r"^\d+ of .* never seen .* from 192\.168\.7\.1;"):
        join_captures(ports=write(tmp_path, files))


def test_a_flow_that_never_gets_through_is_no_reason_to_doubt(tmp_path):
    rival = {"src": "10.0.0.3", "sport": 7}
    starved = [data(10_000 * n + 5, n) for n in range(100)]
    came = [data(10_000 * n, n, **rival) for n in range(100)]
    paths = taken(tmp_path, a=starved, b=came, c=later(came, 30))
    output = {"c": paths.pop("c")}
    # What became of the last one is hidden by the end of the capture.
    assert join_captures(paths, output).joined.counts.dropped == 99


def test_a_flow_that_only_repairs_its_first_loss_has_not_come_to_the_others(tmp_path):
    """A starved sender backs off: it sends one segment again and again, for longer each time."""
    rival = {"src": "10.0.0.3", "sport": 7}
    others = [data(10_000 * n, n, **rival) for n in range(300)]
    came = [data(10 * n, n) for n in range(10)]
    again = [P(at_us, seq=1000 + 1448 * 4, ip_id=500 + n)
             for n, at_us in enumerate((2e5, 6e5, 1.4e6, 2.8e6))]  # fmt: skip
    left = later(came[:4], 2) + later([*others, again[-1]], 30)
    paths = taken(tmp_path, a=[*came, *again], b=others, c=left)
    output = {"c": paths.pop("c")}
    result = join_captures(paths, output)
    assert result.joined.counts.dropped == 9
    repaired = repairs(result.joined)
    assert not repaired.is_due.any()
    assert repaired.is_proven.sum() == 4


@pytest.mark.parametrize("at_us", [(305_000,), (305_000, 455_000)])
def test_a_drop_whose_data_had_come_through_needs_no_repair(at_us, tmp_path):
    """A sender whose timer is shorter than a full queue's wait repeats without need."""
    came = [data(10_000 * n, n) for n in range(100)]
    needless = [P(at, seq=came[5].seq, ip_id=at % 9999) for at in at_us]
    result = joined(tmp_path, [*came, *needless], later(came, 30))
    assert result.joined.counts.dropped == len(at_us)
    assert not repairs(result.joined).is_due.any()


def test_losses_that_a_sender_has_not_come_to_are_no_reason_to_doubt(tmp_path):
    """Without SACK one loss is repaired in a round trip, and new data goes on meanwhile."""
    sent = [data(10 * n, n) for n in range(40)]
    again = [P(1e5 * (n + 1), seq=sent[10 + n].seq, ip_id=500 + n) for n in range(8)]
    new = [data(1e5 * (n + 1) + 10, 40 + n) for n in range(8)]
    left = later([*sent[:10], *sent[30:], *again, *new], 2)
    result = joined(tmp_path, [*sent, *again, *new], left)
    assert result.joined.counts.dropped == 20
    # The flow went on for long after its last repair, so the sender knew of no loss.
    ended = [data(1.2e6 + 10 * n, 48 + n) for n in range(8)]
    with pytest.raises(UntrustedError, match="12 of 20 packets that b would have dropped"):
        joined(tmp_path, [*sent, *again, *new, *ended], [*left, *later(ended, 2)])


def test_drops_that_nothing_tells_from_what_left_are_told(tmp_path):
    """Datagrams of constant content without an IP id, of which every second one is dropped."""
    came = [P(1000 * n, ip_id=0) for n in range(300)]
    last = [data(300_000 + 1000 * n, n) for n in range(3)]
    result = joined(tmp_path, [*came, *last], later([*came[::2], *last], 5000))
    assert result.joined.counts.dropped == 150
    (line,) = (line for line in result.remarks if "it is not sure which" in line)
    assert line.startswith("b: 150 of the 150 dropped packets")
    (estimate,) = result.estimates
    assert (estimate.rate_bps, estimate.limit_at_least) == (None, None)
    # None could have waited for its copy.
    left = later([*came[::2], *last], 500)
    apart = joined(tmp_path, [*came, *last], left, max_sojourn="0.9ms")
    assert not any("not sure" in line for line in apart.remarks)
    with pytest.raises(UntrustedError, match="the fate of 150 of the 300 packets"):
        joined(tmp_path, came, later(came[::2], 5000))


def test_drops_of_udp_at_an_empty_queue_have_two_causes(tmp_path):
    paths = {}
    for name, later in (("a", 0), ("b", 5e-5)):
        with PcapWriter(str(tmp_path / name), linktype=1, nano=True) as writer:
            for n in range(300):
                packet = IP(src="10.0.0.2", dst="10.0.0.1", id=n) / UDP(sport=9, dport=5) / b"xy"
                frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet
                frame.time = 1000 + n / 1000 + later
                if name == "a" or n % 100 != 50:
                    writer.write(frame)
        paths[name] = tmp_path / name
    result = join_captures({"a": paths["a"]}, {"b": paths["b"]})
    (part,) = result.drop_ranges
    assert (part.least, part.counted, part.most) == (0, 3, 3)
    assert "3 found an empty queue and were not sent again" in part.sentence
    assert "captures lack packets" not in part.sentence


@pytest.mark.parametrize("through", [True, False])
def test_a_duplicate_that_a_link_made_is_neither_due_nor_a_repair(tmp_path, through):
    """Its sender sent it once: if both are dropped, one of them has to be repaired."""
    came = [data(10_000 * n, n) for n in range(100)]
    twice = P(52_000, seq=came[5].seq, ip_id=came[5].ip_id)
    left = later(came if through else [*came[:5], *came[6:]], 30)
    result = joined(tmp_path, [*came, twice], left)
    assert result.joined.counts.dropped == (1 if through else 2)
    repaired = repairs(result.joined)
    assert repaired.is_due.sum() == repaired.is_alone.sum() == (0 if through else 1)
    assert not repaired.is_proven.any()
