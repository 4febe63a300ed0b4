"""A sender's port as fast as the studied one: its queue is never used; with a faster link it is."""

from outcast.plan.hints import HELD
from tests.guest_runs import run

STAR = (
    *("topology={kind: star, hosts: 2}", "links={rate: 20mbit, delay: 10ms}"),
    *("queue={kind: pfifo, limit: 0.1 bdp}", "transport={congestion_control: reno}"),
    *("flows=[{from: [h2]}]", "duration=12s", "analysis={from: 2s}", "noise={profile: exact}"),
)
FASTER = "links.overrides=[{between: [h2, s1], rate: 200mbit}]"


def test_an_unused_queue_is_told_and_a_faster_link_uses_it(tmp_path):
    summary = run("linear-12", tmp_path / "equal", *STAR)
    (line,) = [line for line in summary["warnings"] if "was hardly used" in line]
    assert "; packets waited at h2-eth0, which was busy for " in line
    assert any(line.startswith(HELD) for line in summary["warnings"])
    assert summary["capture"]["qdisc_drops"] == 0
    cured = run("linear-12", tmp_path / "faster", *STAR, FASTER)
    assert not [line for line in cured["warnings"] if "not used" in line or "own ports" in line]
    assert cured["capture"]["qdisc_drops"] > 0
    # Reno at a tenth of the bdp gives three quarters of the rate (5.9 segments are 0.1 bdp here).
    share = cured["total_goodput_bps"] / (20e6 * 1448 / 1514)
    assert 0.7 < share < 0.9
